"""CUPTI PM sampling of whole GPUs from processes of our own: the tensor pipe's share of elapsed cycles, from outside.

One process a GPU (`pm_process`), since one of Python decodes about 50,000 samples a second. Nothing of the server is
touched; every process on the GPU is in the figures.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, BinaryIO, TypeVar, cast

import numpy as np

from dsv4bench.capture.pm_frames import (
    START,
    STOP,
    Batch,
    Frame,
    Hello,
    Refused,
    Started,
    Stopped,
    Why,
    read_frame,
)
from dsv4bench.capture.pm_library import find_cupti
from dsv4bench.capture.pm_track import Track
from dsv4bench.capture.refusal import CountersRefused
from dsv4bench.host.process import die_with_parent
from dsv4bench.records.trace import DeviceSamples

METHOD = "CUPTI PM sampling"
INTERVAL_US = 200.0
ANSWER_S = 30.0
LAST_S = 5.0
COMMAND = (sys.executable, "-m", "dsv4bench.capture.pm_process")
# what another profiler may have put there would load into our process, too
_NOT_FOR_US = ("CUDA_VISIBLE_DEVICES", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "LD_PRELOAD")

_Answer = TypeVar("_Answer", Hello, Started, Stopped)


class PmCounters:
    """Counters of these GPUs (NVML's order). `start`, `stop`, again; `close` in every case."""

    method = METHOD

    def __init__(
        self, gpus: Sequence[int], interval_us: float = INTERVAL_US, command: Sequence[str] = COMMAND
    ) -> None:
        """Starts the processes and waits until each can record. Raises CountersRefused."""
        cupti = find_cupti()
        if isinstance(cupti, Refused):
            raise CountersRefused(METHOD, cupti.why, cupti.message, cupti.hint)
        self.gpus = list(gpus)
        self.metrics: list[str] = []
        self.chip = ""
        self.ended: str | None = None  # why a recording is not whole
        self.said: list[str] = []
        self.ends: list[Stopped] = []  # of the last recording, a GPU each: what sampling cost, what it lost
        self._samplers: list[_Sampler] = []
        try:
            for gpu in self.gpus:
                self._samplers.append(_Sampler(gpu, interval_us, cupti.path, command))
            for sampler in self._samplers:
                hello = sampler.hear(Hello)
                self.metrics, self.chip = hello.metrics, hello.chip
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Returns when every GPU is being sampled. Raises CountersRefused."""
        self.ended, self.said, self.ends = None, [], []
        for sampler in self._samplers:
            sampler.begin()
        for sampler in self._samplers:
            sampler.hear(Started)

    def stop(self) -> list[DeviceSamples]:
        """The samples since `start`, a GPU each. Never raises: a lost process' samples stay, and `ended` says so."""
        for sampler in self._samplers:
            sampler.tell(STOP)
        for sampler in self._samplers:
            try:
                self.ends.append(sampler.hear(Stopped))
                self.said += _notes(self.ends[-1], sampler.gpu)
            except CountersRefused as e:
                self.ended = f"sampling of GPU {sampler.gpu} ended early: {e.message}"
        return [sampler.samples() for sampler in self._samplers]

    def close(self) -> None:
        """End the processes."""
        for sampler in self._samplers:
            sampler.end()
        self._samplers = []


class _Sampler:
    """One process, and the thread that hears it."""

    def __init__(self, gpu: int, interval_us: float, libcupti: str, command: Sequence[str]) -> None:
        self.gpu = gpu
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        self._frames: queue.Queue[Frame | None] = queue.Queue()
        self._metrics: list[str] = []
        self._track = Track([])
        self._lock = threading.Lock()  # a process that does not answer may still be sending
        options = ["--device", str(gpu), "--interval-ns", str(round(interval_us * 1e3)), "--libcupti", libcupti]
        self._process = subprocess.Popen(
            [*command, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env=_environment(os.environ, libcupti),
            process_group=0,  # a terminal's Ctrl-C is for the parent
            preexec_fn=die_with_parent(),
        )
        self._thread = threading.Thread(target=self._listen, name=f"pm-gpu{gpu}", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        with self._lock:
            self._track = Track(self._metrics)
        self.tell(START)

    def tell(self, command: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: `hear` finds its last words
            self._process.stdin.write(command)

    def hear(self, kind: type[_Answer]) -> _Answer:
        """Its next answer. Raises CountersRefused: it refused, ended, or is silent."""
        while True:
            try:
                frame = self._frames.get(timeout=ANSWER_S)
            except queue.Empty:
                raise self._refused("failed", f"no answer from the sampling process for {ANSWER_S:.0f} s") from None
            if isinstance(frame, kind):
                return frame
            if isinstance(frame, Refused):
                raise CountersRefused(METHOD, frame.why, f"GPU {self.gpu}: {frame.message}", frame.hint)
            if frame is None:
                self._frames.put(None)  # whoever asks next hears the same
                raise self._refused("failed", f"the sampling process ended{self._last_words()}")

    def samples(self) -> DeviceSamples:
        with self._lock:
            return self._track.samples(self.gpu)

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(LAST_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(LAST_S)
        self._process.stdout.close()
        self._errors.close()

    def _listen(self) -> None:
        out = cast(BinaryIO, self._process.stdout)
        while (frame := read_frame(out)) is not None:
            if isinstance(frame, Batch):
                ends, spans = np.frombuffer(frame.ends, np.int64), np.frombuffer(frame.spans, np.int64)
                values = np.frombuffer(frame.values, np.float32).reshape(len(ends), len(self._metrics))
                with self._lock:
                    self._track.append(ends, spans, values)
                continue
            if isinstance(frame, Hello):
                self._metrics = frame.metrics
            self._frames.put(frame)
        self._frames.put(None)

    def _refused(self, why: Why, message: str) -> CountersRefused:
        return CountersRefused(METHOD, why, f"GPU {self.gpu}: {message}", "")

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.poll()
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0)
            lines = self._errors.read()[-4096:].decode(errors="replace").strip().splitlines()
            if lines:
                return f" (code {code}): {lines[-1]}"
        return f" (code {code})"


def _notes(stopped: Stopped, index: int) -> list[str]:
    """What a reader of the figures must know of one recording."""
    said, gpu = [], f"GPU {index}"
    if late := stopped.n_image_full + stopped.n_overflows:
        said.append(f"{gpu}: samples came faster than they were decoded, {late} times")
    if off := abs(stopped.clock_shift_ns):
        said.append(f"{gpu}: its stamps were {off / 1e9:.1f} s off this host's clock and were moved")
    return said


def _environment(inherited: Mapping[str, str], libcupti: str) -> dict[str, str]:
    """NVML's order of GPUs, and nvperf libraries from where libcupti lies."""
    kept = {k: v for k, v in inherited.items() if k not in _NOT_FOR_US}
    folders = [str(Path(libcupti).parent), *filter(None, [inherited.get("LD_LIBRARY_PATH")])]
    return {**kept, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "LD_LIBRARY_PATH": os.pathsep.join(folders)}
