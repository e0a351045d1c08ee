"""The embedded server for `sweep --demo`: started on a free port, stopped afterwards, whatever happens."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsv4bench.capture.counters import open_counters
from dsv4bench.errors import UsageError
from dsv4bench.records.progress import MessageCallback
from dsv4bench.runs.options import SweepOptions
from dsv4bench.server.launch import Launched, free_port, launch
from dsv4bench.store.store import Store

READY_S = 120.0

# small enough for two CPU cores: some tens of milliseconds a step
DEMO_DEFAULTS: dict[str, Any] = {"isl": [64], "osl": 32, "name": "demo"}


def check_before_start(o: SweepOptions) -> None:
    """What can be told without a server: the values, the results folder, the GPUs' counters. Raises BenchError."""
    o.plan()
    if o.dry_run:
        return
    if o.tensor_pipe:
        open_counters(o.tensor_pipe_gpus).counters.close()
    Store(o.out).check_writable()


@contextmanager
def demo_server(kernels: str, say: MessageCallback) -> Iterator[str]:
    """The URL of a running embedded server. Raises UsageError when it cannot start here, with the end of its log."""
    if kernels not in ("fallback", "optimized"):
        raise UsageError(f"--demo-kernels {kernels}: not a kernel set", "fallback or optimized")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="dsv4bench-demo-") as folder:
        command = [sys.executable, "-m", "dsv4bench", "serve", "--port", str(port), "--kernels", kernels]
        say(f"starting the embedded server: random weights, {kernels} kernels, CPU")
        with launch(command, log_path=Path(folder) / "server.log") as server:
            url = f"http://127.0.0.1:{port}"
            try:
                server.wait_ready(url, READY_S)
            except UsageError as e:  # its log goes with the folder, so it is not named
                raise UsageError(e.message, _log_end(server)) from e
            try:
                yield url
            finally:
                if server.exit_code is not None:
                    say(f"the embedded server ended before it was stopped; {_log_end(server)}")


def _log_end(server: Launched) -> str:
    tail = server.log_tail()
    return f"the end of its log:\n{tail}" if tail else "it wrote nothing to its log"
