"""A profile of engine steps, asked for in SGLang's JSON dialect: torch's profiler, or the window of an nsys capture.

Writes `[prefix-]<id>-TP-0.trace.json.gz` (Chrome format) with the step, layer and component annotations of `spans`.
It is driven by the engine's thread, which the profiler observes: `before_step` and `after_step` around each step.
Writing the trace stops the engine for that long; a recording whose writing would outgrow the memory ends by itself.
Per-stage and merged traces are refused, not faked. A trace holds CPU operators, without which no annotation is
written, and on a GPU its kernels, whatever `activities` says; but the activity CUDA_PROFILER only calls
cudaProfilerStart and cudaProfilerStop around the steps, for a capture by nsys.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import msgspec
import torch

from dsv4bench.engine.profile_limits import LOOK_STEPS, EventMemory, write_trace
from dsv4bench.engine.spans import Spans
from dsv4bench.errors import StoreError, UsageError


class ProfileRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of /start_profile; every field is optional, unknown ones are ignored."""

    output_dir: str | None = None
    start_step: int | None = None
    num_steps: int | None = None
    activities: list[str] | None = None
    with_stack: bool | None = None
    record_shapes: bool | None = None
    profile_prefix: str | None = None
    profile_by_stage: bool | None = None
    merge_profiles: bool | None = None

    @property
    def bounds_a_capture(self) -> bool:
        """Whether the steps are for another program to record."""
        return "CUDA_PROFILER" in (self.activities or [])

    def __post_init__(self) -> None:
        if self.profile_by_stage or self.merge_profiles:
            raise ValueError("profile_by_stage and merge_profiles are not supported; steps are annotated instead")
        if self.num_steps is not None and self.num_steps < 1:
            raise ValueError(f"num_steps is {self.num_steps}, it must be 1 or more")
        if self.profile_prefix and "/" in self.profile_prefix:
            raise ValueError(f"profile_prefix {self.profile_prefix!r} must not contain '/'")


class StepProfiler:
    """At most one profile at a time."""

    def __init__(self, spans: Spans, device: str = "cpu") -> None:
        self._spans = spans
        self._activities = [torch.profiler.ProfilerActivity.CPU]
        if device == "cuda":
            self._activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._request: ProfileRequest | None = None
        self._profile: Any = None
        self._left: int | None = None
        self._step = self._recorded = 0
        self.last_trace: Path | None = None
        self.ended_early = ""  # why the last profile did
        self._failure = ""  # why the last trace was not written; told once
        self._memory = EventMemory()
        warnings.filterwarnings("ignore", "(Warning: )?Profiler clears events", UserWarning)  # there is one cycle
        # Kineto wants its first use in the main thread, and says so on stderr otherwise.
        with torch.profiler.profile(activities=self._activities):
            pass

    def start(self, request: ProfileRequest) -> None:
        """Arms the profiler; it records from the next step on, or from `start_step`. Raises UsageError."""
        if self._request is not None:
            raise UsageError("a profile is already running", "POST /stop_profile first")
        self._failure = self.ended_early = ""
        self.last_trace, self._recorded = None, 0
        if request.bounds_a_capture:
            if len(self._activities) == 1:
                raise UsageError("CUDA_PROFILER needs a GPU", "serve with --device cuda, or ask for CPU and GPU")
            self._request, self._left = request, request.num_steps
            return
        folder = _folder(request)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot write traces to {folder}: {error.strerror}", "give another output_dir"
            ) from None
        self._request, self._left = request, request.num_steps

    def stop(self) -> Path | None:
        """Ends the profile; the trace's path (that of one that ended by itself, too), None when no step was recorded.

        Raises StoreError when the trace could not be written, also when it had ended by itself: once.
        """
        self._end()
        if self._failure:
            failure, self._failure = self._failure, ""
            raise StoreError(failure, "free some space, or give another output_dir")
        return self.last_trace

    @property
    def active(self) -> bool:
        return self._request is not None

    def before_step(self) -> None:
        request = self._request
        if request is None or self._profile is not None or self._step < (request.start_step or 0):
            return
        self._memory = EventMemory()
        if request.bounds_a_capture:
            self._profile = _CaptureRange()
            return
        self._profile = torch.profiler.profile(
            activities=self._activities,
            with_stack=bool(request.with_stack),
            record_shapes=bool(request.record_shapes),
        )  # without acc_events, which makes a Python object of every event: minutes, and gigabytes
        self._trace = _folder(request) / _file_name(request)
        self._profile.start()
        self._memory.start()
        self._spans.recording = True

    def after_step(self) -> None:
        self._step += 1
        if self._profile is None:
            return
        self._recorded += 1
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._end()
                return
        if self._recorded % LOOK_STEPS == 0 and (why := self._memory.short()):
            self.ended_early = f"it ended by itself after {self._recorded} steps: {why}"
            print(f"dsv4bench serve: profile: {self.ended_early}", file=sys.stderr)
            self._end()

    def _end(self) -> None:
        """Writes the trace of what was recorded, if anything was; a failure is kept for `stop`."""
        self._request = None
        if self._profile is None:
            return
        if isinstance(self._profile, _CaptureRange):
            self._profile.stop()
            self._profile = None
            return
        self._spans.recording = False
        try:
            self._profile.stop()
            write_trace(self._profile, self._trace)
        except (OSError, RuntimeError) as error:  # no room, or its folder is gone: no reason to stop serving
            self._failure = f"the trace was not written: {error}"
            print(f"dsv4bench serve: {self._failure}", file=sys.stderr)
            with contextlib.suppress(OSError):
                self._trace.unlink(missing_ok=True)
            return
        finally:
            self._profile = None
        self.last_trace = self._trace


class _CaptureRange:
    """The range that `nsys --capture-range=cudaProfilerApi` records."""

    def __init__(self) -> None:
        cuda: Any = torch.cuda  # its cudart() has no types
        self._runtime = cuda.cudart()
        torch.cuda.synchronize()  # what was launched before is not in it
        self._runtime.cudaProfilerStart()

    def stop(self) -> None:
        torch.cuda.synchronize()
        self._runtime.cudaProfilerStop()


def _folder(request: ProfileRequest) -> Path:
    return Path(request.output_dir or os.environ.get("DSV4BENCH_PROFILE_DIR") or tempfile.gettempdir())


def _file_name(request: ProfileRequest) -> str:
    prefix = f"{request.profile_prefix}-" if request.profile_prefix else ""
    return f"{prefix}{time.time():.6f}-TP-0.trace.json.gz"
