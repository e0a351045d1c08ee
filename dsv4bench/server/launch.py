"""Start a server process and end it for certain: own process group, own log, dies with us.

`launch` starts it, `wait_ready` waits for `/health` (or `/v1/models` where there is none) while watching for a
crash, `stop` sends SIGTERM to the whole group and SIGKILL to what is left. `started_s` is the launch's start time
(epoch seconds): the identity of a launch when the server's own metrics do not tell it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from dsv4bench.errors import UsageError
from dsv4bench.host.process import die_with_parent, kill_group
from dsv4bench.host.redact import hide_values, redact, redact_text, secret_values
from dsv4bench.server.calls import Caller
from dsv4bench.server.target import parse_url

_POLL_S = 0.1
_LOG_TAIL_LINES = 15


class Launched:
    """A running server process; leaving the context stops it."""

    def __init__(
        self,
        command: list[str],
        process: subprocess.Popen[bytes],
        log_path: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.command = command
        self.log_path = log_path
        self.started_s = time.time()
        self._process = process
        self._secrets = secret_values(command, env or {})

    def __enter__(self) -> Launched:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def wait_ready(self, url: str, timeout_s: float, headers: Sequence[str] = (), insecure: bool = False) -> float:
        """Wait until the server answers; the seconds it took since the start.

        Raises UsageError with the log's last lines when it exits first, or does not answer in time (it is left
        running then).
        """
        deadline = time.monotonic() + timeout_s
        with Caller(parse_url(url, headers, insecure), timeout_s=2.0) as caller:
            while True:
                if self.exit_code is not None:
                    raise UsageError(
                        f"the server {_ended(self.exit_code)} before it was ready: {self._shown()}", self._log_hint()
                    )
                if _answers(caller):
                    return time.time() - self.started_s
                if time.monotonic() > deadline:
                    raise UsageError(
                        f"the server did not answer at {url} within {timeout_s:g} s: {self._shown()}",
                        self._log_hint(),
                    )
                time.sleep(_POLL_S)

    def stop(self, grace_s: float = 20.0) -> int:
        """End the whole group; the process's exit code. Safe to call twice."""
        try:
            if self._process.poll() is None:
                kill_group(self.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=grace_s)
        finally:  # also on a second Ctrl-C: workers that outlive their parent hold GPU memory
            kill_group(self.pid, signal.SIGKILL)
        return self._process.wait()

    def log_tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        """The log's last lines, without secrets."""
        try:
            with self.log_path.open("rb") as file:
                file.seek(max(0, self.log_path.stat().st_size - 65536))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return redact_text(hide_values("\n".join(text.splitlines()[-lines:]), self._secrets))

    def _shown(self) -> str:
        return " ".join(redact(self.command))

    def _log_hint(self) -> str:
        tail = self.log_tail()
        return f"the end of {self.log_path}:\n{tail}" if tail else "it wrote nothing to its log"


def launch(command: list[str], *, log_path: Path | str, env: Mapping[str, str] | None = None) -> Launched:
    """Start `command` with stdout and stderr appended to `log_path`; `env` is added to ours.

    Raises UsageError when the program cannot be started.
    """
    if not command:
        raise UsageError("the launch command is empty", "give the server's command line")
    log = Path(log_path)
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("ab") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                process_group=0,
                preexec_fn=die_with_parent(),
            )
    except OSError as e:
        raise UsageError(f"cannot start {command[0]!r}: {e.strerror or e}", "is it installed and on PATH?") from e
    return Launched(list(command), process, log, env)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(caller: Caller) -> bool:
    health = caller.ask("/health")
    if health.status in (404, 405):
        return caller.ask("/v1/models").status not in (0, 503)
    return health.status in (200, 401, 403)


def _ended(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
