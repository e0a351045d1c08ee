"""`python -m dsv4bench.capture.pm_process`: samples one GPU's counters until told to stop; runs no kernel of its own.

A process of its own, so that it loads the libcupti it needs, samples while the parent's threads are busy, and cannot
take the load client down. Samples are decoded while they are taken, and leave at once.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import select
import sys
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from dsv4bench.capture.pm_frames import START, Batch, Hello, Started, Stopped, write_frame
from dsv4bench.capture.pm_library import BESIDE_TORCH
from dsv4bench.capture.pm_refusals import CannotSample
from dsv4bench.capture.pm_session import BufferOverflow, Pass, Session

MOST_BETWEEN_S = 0.25  # decodes; fewer samples than a quarter of the image's room pass between two
WALL_CLOCK_S = 1.0  # stamps further off than this are no wall-clock time
MOST_OVERFLOWS = 5
LAST_DECODES = 8


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="pm_process")
    options.add_argument("--device", type=int, required=True)
    options.add_argument("--interval-ns", type=int, required=True)
    options.add_argument("--libcupti", required=True)
    asked = options.parse_args(arguments)
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints must not end up among the frames
    try:
        session = Session(load_binding(asked.libcupti), asked.device, asked.interval_ns)
    except CannotSample as e:
        write_frame(out, e.refused)
        return 3
    try:
        write_frame(
            out,
            Hello(
                chip=session.chip,
                metrics=list(session.metrics),
                interval_ns=asked.interval_ns,
                left_out=session.left_out,
            ),
        )
        while _command(None) == START:
            if not Recording(session, out, asked.interval_ns).run():
                break
    except CannotSample as e:
        write_frame(out, e.refused)
        return 3
    except BrokenPipeError:
        return 4
    finally:
        session.close()
    return 0


def load_binding(libcupti: str) -> Any:
    """The binding's plain functions, with that library behind them. Raises CannotSample.

    CUPTI knows no device before the driver is initialised, and this process makes no context that would do it.
    """
    try:
        ctypes.CDLL(libcupti, mode=ctypes.RTLD_GLOBAL)
    except OSError as e:
        raise CannotSample("library", f"{libcupti} does not load: {e}", "pip install -U nvidia-cuda-cupti") from None
    try:
        binding = importlib.import_module("cupti.cupti")
    except ModuleNotFoundError as e:
        raise CannotSample("library", f"cupti-python lacks {e.name}", "pip install 'dsv4bench[gpu]'") from None
    except Exception as e:  # the binding's own loader has several of its own
        raise CannotSample("library", f"the CUPTI binding does not load: {e}", "it needs the NVIDIA driver") from None
    if not hasattr(binding, "pm_sampling_enable"):
        raise CannotSample("library", "this cupti-python is too old for PM sampling", BESIDE_TORCH)
    initialise_driver()
    return binding


def initialise_driver(driver: str = "libcuda.so.1") -> None:
    """cuInit. Raises CannotSample where there is no driver, or no GPU for it."""
    try:
        code = ctypes.CDLL(driver).cuInit(0)
    except (OSError, AttributeError) as e:
        raise CannotSample("library", f"the CUDA driver does not load: {e}", "it needs the NVIDIA driver") from None
    if code != 0:
        raise CannotSample("failed", f"the CUDA driver finds no GPU (cuInit: {code})", "see `nvidia-smi`")


class Recording:
    """From START to STOP: decodes in good time, sends what came, and says at the end what was lost."""

    def __init__(self, session: Session, out: BinaryIO, interval_ns: int) -> None:
        self._session, self._out = session, out
        self._between_s = min(MOST_BETWEEN_S, session.slots / 4 * interval_ns / 1e9)
        self._end = Stopped(n_samples=0)
        self._shift_ns: int | None = None
        self._newest_ns = 0
        self._least_lag_ns: int | None = None

    def run(self) -> bool:
        """False when the parent is gone. Raises CannotSample, BrokenPipeError."""
        cpu_s = time.process_time()
        self._session.start()
        write_frame(self._out, Started(time.time_ns()))
        command: bytes | None = None
        due = time.monotonic() + self._between_s
        while command is None:
            command = _command(max(due - time.monotonic(), 0.0))
            if command is None:
                began = time.monotonic()
                self._decode()
                took = time.monotonic() - began
                self._end.longest_pass_s = max(self._end.longest_pass_s, took)
                due = max(due + self._between_s, time.monotonic())
        self._session.stop()
        for _ in range(LAST_DECODES):
            if not self._decode():
                break
        self._end.clock_shift_ns = self._shift_ns or 0
        self._end.lag_ns = self._least_lag_ns or 0
        self._end.cpu_s = time.process_time() - cpu_s
        write_frame(self._out, self._end)
        return command != b""

    def _decode(self) -> bool:
        """Whether there may be more at once."""
        now_ns = time.time_ns()
        try:
            found = self._session.decode()
        except BufferOverflow:
            self._end.n_overflows += 1
            if self._end.n_overflows > MOST_OVERFLOWS:
                raise CannotSample(
                    "failed", "the GPU's sample buffer keeps overflowing", "sample less often, or free a CPU core"
                ) from None
            self._session.restart()
            return False
        self._end.n_image_full += found.full
        self._send(found, now_ns)
        return found.full

    def _send(self, found: Pass, now_ns: int) -> None:
        ends = found.ends
        if len(ends):
            lag = now_ns - int(ends[-1])
            if self._shift_ns is None:
                self._shift_ns = 0 if abs(lag) <= WALL_CLOCK_S * 1e9 else lag
            lag -= self._shift_ns
            self._least_lag_ns = lag if self._least_lag_ns is None else min(lag, self._least_lag_ns)
            ends = ends + self._shift_ns
        new = ends > self._newest_ns
        if not new.any():
            return
        ends, spans, values = ends[new], found.spans[new], found.values[new]
        self._newest_ns = int(ends[-1])
        self._end.n_samples += len(ends)
        write_frame(
            self._out,
            Batch(ends=ends.tobytes(), spans=spans.tobytes(), values=values.astype(np.float32).tobytes()),
        )


def _command(timeout_s: float | None) -> bytes | None:
    """The next command, b"" when the parent is gone, None when none came in time."""
    ready, _, _ = select.select([0], [], [], timeout_s)
    return os.read(0, 1) if ready else None


if __name__ == "__main__":
    sys.exit(main())
