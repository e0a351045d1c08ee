"""The embedded server for `sweep --demo`: started on a free port, stopped afterwards, whatever happens."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsv4bench.errors import UsageError
from dsv4bench.records.progress import MessageCallback
from dsv4bench.server.launch import free_port, launch

READY_S = 120.0

# small enough for two CPU cores: some tens of milliseconds a step
DEMO_DEFAULTS: dict[str, Any] = {"isl": [64], "osl": 32, "name": "demo"}


@contextmanager
def demo_server(kernels: str, say: MessageCallback) -> Iterator[str]:
    """The URL of a running embedded server. Raises UsageError when it cannot start here."""
    if kernels not in ("fallback", "optimized"):
        raise UsageError(f"--demo-kernels {kernels}: not a kernel set", "fallback or optimized")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="dsv4bench-demo-") as folder:
        command = [sys.executable, "-m", "dsv4bench", "serve", "--port", str(port), "--kernels", kernels]
        say(f"starting the embedded server: random weights, {kernels} kernels, CPU")
        with launch(command, log_path=Path(folder) / "server.log") as server:
            url = f"http://127.0.0.1:{port}"
            server.wait_ready(url, READY_S)
            yield url
