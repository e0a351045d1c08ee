"""A server under nsys: the command that starts it, windows of recording while it serves, and its end.

`NsysSession` looks before anything is started (is there an nsys, can it make reports, is there room), then gives the
command: a leash, `nsys launch`, the server. `window()` is one `CaptureWindow`: `nsys start`, then `nsys stop` and an
export to SQLite; or, with a `ProfilerRange`, from the server's own cudaProfilerStart to its cudaProfilerStop.

A report holds the whole environment and the command lines of the server, keys and tokens included. So it lies in a
folder that only this user may enter, for as long as the session lasts: read `Captured.files` before that. With `keep`
reports are copied there (`Captured.kept`), readable by their owner only, and it is said what they hold.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from dsv4bench.capture import nsys_faults as faults
from dsv4bench.capture.leash import leashed
from dsv4bench.capture.nsys_command import (
    Options,
    launch_command,
    options_of,
    sessions_command,
    shutdown_command,
    state_in,
)
from dsv4bench.capture.nsys_window import NsysWindow, ProfilerRange
from dsv4bench.capture.parallel import ranks_of
from dsv4bench.capture.running import Finished, run_tool
from dsv4bench.host.nsight import Nsight, find_nsys, importer_lacks

__all__ = ["Limits", "NsysSession", "NsysWindow", "ProfilerRange"]

_SPAWN = "VLLM_WORKER_MULTIPROC_METHOD"
KEPT = (
    "{path} holds the environment and the command lines of every traced process, keys and tokens included: "
    "show it to nobody, commit it nowhere"
)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """After which time something is given up, and how much room a capture may take."""

    control_s: float = 30.0  # start, cancel, shutdown, sessions list
    begin_s: float = 10.0  # until nsys records after `start`
    range_s: float = 60.0  # until the server calls cudaProfilerStart
    stop_s: float = 600.0  # flush of the buffers and the import
    export_s: float = 600.0
    need_bytes: int = 512 << 20  # free before a window opens
    spare_bytes: int = 128 << 20  # free while nsys writes
    report_bytes: int = 4 << 30


class NsysSession:
    """One server under nsys. A context manager: leaving it ends the session and deletes what was recorded.

    `server` is the server's command line, `variables` what its environment has beyond ours. Start it with `command`
    and `env`. Raises UsageError where nsys is missing, too old, or could make no report,
    and where the disk has no room; nothing was started then.
    """

    def __init__(
        self,
        server: Sequence[str],
        *,
        variables: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda _: None,
        keep: Path | None = None,
        metrics: bool = False,
        nsys: Nsight | None = None,
        limits: Limits | None = None,
    ) -> None:
        found = nsys or find_nsys()
        if found is None:
            raise faults.no_nsys()
        library = importer_lacks(found.path)
        if library is not None:
            raise faults.no_importer(library, found)
        self.nsys: Nsight = found
        self.options: Options = options_of(found)
        self.limits = limits or Limits()
        self.say = say
        self.keep = keep
        self.ranks = ranks_of(server)
        self.metrics = metrics  # GPU_METRICS beside the kernels
        self.name = f"dsv4bench-{os.getpid()}-{secrets.token_hex(3)}"
        self.notes: list[str] = self.options.notes()
        self.folder = Path(tempfile.mkdtemp(prefix="dsv4bench-"))  # 0700
        self._ended = False
        own = variables or {}
        try:
            faults.need_room(self.folder, self.limits.need_bytes)
            launched = launch_command(found, self.options, self.name, server, own.get("TMPDIR"))
            self.command = leashed(launched, remove=self.folder)
        except BaseException:
            self._remove()
            raise
        self.env: dict[str, str] = {**own, "TMPDIR": str(self.folder), **self._spawning(server, own)}

    def __enter__(self) -> NsysSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def window(
        self,
        label: str,
        ended: Callable[[], str | None] = lambda: None,
        by_server: ProfilerRange | None = None,
    ) -> NsysWindow:
        """A window of this server. `ended` says how the server ended, None while it runs."""
        return NsysWindow(self, label, ended, by_server)

    def state(self) -> str | None:
        """As `nsys sessions list` tells it; None where the session is not listed, or was ended here."""
        if not self.folder.is_dir():
            return None
        return state_in(self.run(sessions_command(self.nsys), "list").said, self.name)

    def run(
        self,
        command: Sequence[str],
        what: str,
        timeout_s: float | None = None,
        watch: Callable[[float], None] | None = None,
    ) -> Finished:
        """Run one of nsys' commands for this session, its words kept in the private folder."""
        limit = self.limits.control_s if timeout_s is None else timeout_s
        return run_tool(command, self.folder / f"{what}.said", limit, self._environment(), watch)

    def end(self) -> str:
        """End the session, if the server's end did not, and delete the folder. Never raises; safe to call twice."""
        if self._ended:
            return "the nsys session had ended"
        self._ended = True
        said = "the nsys session ended with the server"
        try:
            if self.state() is not None:
                done = self.run(shutdown_command(self.nsys, self.name), "shutdown")
                said = (
                    "nsys was told to shut down" if done.code == 0 else f"nsys did not shut down: {done.said.strip()}"
                )
        except Exception as error:  # the folder goes, whatever nsys does
            said = f"nsys could not be asked: {error}"
        finally:
            self._remove()
        return said

    def kept(self, report: Path) -> Path | None:
        """A copy of a report for its owner, and that is said with what it holds; None where none was asked for."""
        if self.keep is None:
            return None
        copy = self.keep / f"{report.stem}-{time.strftime('%Y%m%d-%H%M%S')}{report.suffix}"
        try:
            self.keep.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as target, report.open("rb") as source:
                shutil.copyfileobj(source, target)
        except OSError as error:
            self.say(f"{copy} is not whole: {error.strerror or error}")
            return None
        self.say(KEPT.format(path=copy))
        return copy

    def _environment(self) -> Mapping[str, str]:
        """The agent is found through TMPDIR; its words are wanted in English."""
        return {**os.environ, "TMPDIR": str(self.folder), "LC_ALL": "C"}

    def _spawning(self, server: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
        """vLLM forks its workers by default; a forked worker may be recorded without a kernel."""
        is_vllm = any(Path(word).name == "vllm" or word.startswith("vllm.") for word in server)
        if not is_vllm or _SPAWN in os.environ or _SPAWN in own:
            return {}
        self.notes.append(f"{_SPAWN}=spawn was set, so that nsys sees the workers")
        return {_SPAWN: "spawn"}

    def _remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
