"""The recorder of one window, by `--with`; and before any load is sent, whether there can be one.

torch: SGLang and our own server write where they are told, so they are told a folder under /tmp that anybody may
write: a server of another user or in a container would otherwise die of a path that it cannot make. A vLLM writes
where it was told when it was started, which its arguments or its process tell, else --trace-dir.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
import tempfile
from pathlib import Path

from dsv4bench.capture import CaptureWindow
from dsv4bench.capture.counters import Opened, open_counters
from dsv4bench.capture.nsys import ProfilerRange
from dsv4bench.capture.pm_window import PmWindow
from dsv4bench.capture.torch_http import TorchHttpWindow
from dsv4bench.errors import UsageError
from dsv4bench.records.capture import Captured
from dsv4bench.records.progress import MessageCallback
from dsv4bench.records.server import Engine
from dsv4bench.runs.live_options import LiveOptions
from dsv4bench.runs.profile_server import Profiled, Served
from dsv4bench.server.profiler_setup import (
    folder_told,
    only_by_stage,
    ranks_expected,
    require_profiler,
    require_range,
)
from dsv4bench.server.profiling import HttpProfiler, ProfilerAsk
from dsv4bench.store.files import failing_as

SHARED_TMP = Path("/tmp")
SPARE_STEPS = 4  # recorded beyond those that are counted: the client counts from its first token on
BOUND_TIMES, BOUND_S = 2, 2.0  # a server whose client is gone records twice the steps and two seconds more
USUAL_TPOT_S = 0.02
STOP_S = 30.0  # for a server that records nothing itself to be told to stop


class Recorders:
    """Makes the windows of one profile. `clean` removes what it made and nobody used."""

    def __init__(self, o: LiveOptions, server: Served, say: MessageCallback) -> None:
        self._o, self._server, self._say = o, server, say
        self._made: dict[Path, TorchHttpWindow | None] = {}
        self._counters: Opened | None = None

    def ready(self) -> None:
        """Raises UsageError when what was asked for cannot be recorded of this server."""
        o, by_role = self._o, self._server.by_role
        if o.method == "torch":
            for profiled in by_role.values():
                require_profiler(profiled.target.for_control(), profiled.info)
                if profiled.info.engine is Engine.VLLM and profiled.target.on_this_host:
                    self._vllm_folder(profiled)
        if o.method == "nsys" and o.capture_range == "server":
            for profiled in by_role.values():
                process = profiled.process
                seen = (process.command, process.environment) if process is not None else ([], {})
                require_range(profiled.target.for_control(), profiled.info, *seen)
        if o.method == "pm":
            self._counters = self._open_counters()

    def window(self, role: str, label: str, tpot_s: float | None = None) -> CaptureWindow:
        """A new window; `tpot_s` without a recorder. Raises UsageError where its recorder cannot be had."""
        if self._o.method == "nsys":
            assert self._server.session is not None, "a server under nsys has its session"
            bounds = self._range(self._server.by_role[role]) if self._o.capture_range == "server" else None
            return self._server.session.window(label, ended=self._server.ended, by_server=bounds)
        if self._o.method == "pm":
            assert self._counters is not None, "counters are opened by `ready`"
            return PmWindow(self._counters)
        return self._torch(self._server.by_role[role], role, label, tpot_s or USUAL_TPOT_S)

    def kept(self, captured: Captured, folder: Path) -> list[str]:
        """The files where they stay: out of the folder under /tmp that was made for them, else where they are."""
        own = Path(captured.server_path) if captured.server_path is not None else None
        if own not in self._made or not captured.files:
            return list(captured.files)
        with failing_as("move a trace into", folder):
            folder.mkdir(parents=True, exist_ok=True)
            moved = [str(shutil.move(file, folder / Path(file).name)) for file in captured.files]
        window = self._made[own]
        if window is None or not window.short:  # else a rank may still write there
            shutil.rmtree(Path(captured.files[0]).parent, ignore_errors=True)
        return moved

    def clean(self) -> None:
        """Sampling processes, folders that stayed empty, and those of windows that were cut short.

        Where a server was not seen to stop its folder stays: a flush into a folder that is gone ends some servers.
        """
        if self._counters is not None:
            self._counters.counters.close()
        for folder, window in self._made.items():
            if window is not None and window.may_write:
                self._say(f"{folder} is left: the server may still write its trace there")
            elif window is not None and window.unwanted:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def _open_counters(self) -> Opened:
        """Once for all windows. Raises UsageError with the remedy where they cannot be read."""
        for profiled in self._server.by_role.values():
            if not profiled.target.on_this_host:
                raise UsageError(
                    f"--with pm: {profiled.target.host} is another host, and counters are read on the GPUs' own",
                    "run the profile there",
                )
        try:
            opened = open_counters()
        except UsageError as e:
            raise UsageError(f"--with pm: {e.message}", e.hint) from e
        gpus = ", ".join(map(str, opened.counters.gpus))
        self._say(f"{opened.counters.method} of GPU {gpus}" + "".join(f"; {note}" for note in opened.notes))
        return opened

    def _range(self, profiled: Profiled) -> ProfilerRange:
        """How the server is made to call cudaProfilerStart and Stop. No steps bound it: it ends with us."""
        ask = ProfilerAsk(steps=self._o.steps, bound=None, capture_range=True)
        profiler = HttpProfiler(profiled.target.for_control(), profiled.info, ask)

        def end() -> None:
            stopped = profiler.stop(STOP_S)
            if stopped.state != "stopped":
                self._say(stopped.line)

        return ProfilerRange(profiler.start, end, STOP_S)

    def _torch(self, profiled: Profiled, role: str, label: str, tpot_s: float) -> TorchHttpWindow:
        o = self._o
        folder, server_folder = self._folders(profiled)
        ask = ProfilerAsk(
            steps=o.steps + SPARE_STEPS,
            bound=BOUND_TIMES * (o.steps + SPARE_STEPS) + math.ceil(BOUND_S / tpot_s),
            folder=None if profiled.info.engine is Engine.VLLM else server_folder,
            prefix=f"dsv4bench-{label}",
            by_stage=_only_by_stage(profiled),
            gpu_only=o.gpu_only,
        )
        window = TorchHttpWindow(
            HttpProfiler(profiled.target.for_control(), profiled.info, ask),
            folder=folder,
            server_folder=server_folder,
            expected=ranks_expected(profiled.info),
            stage=role,
            flush_timeout_s=o.flush_timeout_s,
            say=self._say,
        )
        made = Path(server_folder) if server_folder is not None else None
        if made in self._made:
            self._made[made] = window
        return window

    def _folders(self, profiled: Profiled) -> tuple[Path | None, str | None]:
        """Where its files are seen from here, and what the server calls that place."""
        here, named = profiled.target.on_this_host, self._o.trace_dir
        if profiled.info.engine is Engine.VLLM:
            if here:
                return self._vllm_folder(profiled)
            mounted = named is not None and Path(named).is_dir()
            return (Path(named) if mounted and named else None), folder_told(profiled.info)
        if named is not None:
            seen = Path(named).absolute()
            return (seen if here or seen.is_dir() else None), str(seen) if here else named
        if not here:
            return None, f"/tmp/dsv4bench-{secrets.token_hex(4)}"
        folder = self._shared_folder()
        return (profiled.process.path(str(folder)) if profiled.process is not None else folder), str(folder)

    def _vllm_folder(self, profiled: Profiled) -> tuple[Path, str]:
        """Raises UsageError when nothing tells it."""
        process = profiled.process
        command, variables = (process.command, process.environment) if process is not None else ([], {})
        named = self._o.trace_dir
        told = named or folder_told(profiled.info, command, variables)
        if told is None:
            raise UsageError(
                f"{profiled.info.url} does not tell where it writes its traces",
                "give the folder that it was started with (torch_profiler_dir): --trace-dir DIR",
            )
        if "://" in told:
            raise UsageError(
                f"{profiled.info.url} writes its traces to {told}", "fetch them, and name them with --trace"
            )
        return (process.path(told) if process is not None and named is None else Path(told).absolute()), told

    def _shared_folder(self) -> Path:
        place = SHARED_TMP if os.access(SHARED_TMP, os.W_OK) else None
        folder = Path(tempfile.mkdtemp(prefix="dsv4bench-", dir=place))
        folder.chmod(0o1777)  # the server may be another user's; what it writes is nobody else's to replace
        self._made[folder] = None
        return folder


def _only_by_stage(profiled: Profiled) -> bool:
    process = profiled.process
    return profiled.info.engine is Engine.SGLANG and process is not None and only_by_stage(process.environment)
