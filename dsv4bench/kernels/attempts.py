"""Compiles every build for every architecture, in processes of their own, and loses no build to another.

LLVM ends the process where it cannot go on, and the pool of processes with it. So builds that were begun and not
finished are tried once more, each alone: one that ends its process again is a row with the reason.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from dsv4bench.errors import BenchError
from dsv4bench.kernels.build import Build
from dsv4bench.kernels.compiled import Compiled, cache_folder, compile_build, jit_function, triton_version

_MAX_PROCESSES = 8


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of one build of a kernel on one architecture: `compiled`, or `why` not."""

    kernel: str
    function: str
    label: str
    arch: str
    compiled: Compiled | None = None
    why: str | None = None


class Buildable(Protocol):
    """A kernel of the registry, as far as it matters here; it travels to another process."""

    @property
    def name(self) -> str: ...

    def builds(self) -> tuple[Any, ...]: ...

    def supports(self, sm: int) -> bool: ...


class _Work(NamedTuple):
    """One build to compile: where its attempt stands in the list, and which of the kernel's builds it is."""

    place: int
    kernel: Buildable
    number: int
    attempt: Attempt


def compile_all(kernels: Sequence[Buildable], archs: Sequence[str]) -> list[Attempt]:
    """Every build of every kernel for every architecture that it is for, in that order.

    An architecture that no build of a kernel is for keeps its rows, with the reason. Raises UsageError like
    `Kernel.builds`.
    """
    triton_version()
    attempts: list[Attempt] = []
    work: list[_Work] = []
    for kernel in kernels:
        builds = kernel.builds()
        for number, build in enumerate(builds):
            function = str(jit_function(build.function).__name__)
            for arch in archs:
                why = _excluded(kernel, build, arch)
                if why is not None and any(_excluded(kernel, b, arch) is None for b in builds):
                    continue  # another build stands in its place there
                attempts.append(Attempt(kernel.name, function, build.label, arch, why=why))
                if why is None:
                    work.append(_Work(len(attempts) - 1, kernel, number, attempts[-1]))
    with cache_folder():
        for place, found in _in_processes(work).items():
            attempts[place] = found
    return attempts


def _excluded(kernel: Buildable, build: Build, arch: str) -> str | None:
    if not kernel.supports(int(arch.removeprefix("sm_"))):
        return f"{kernel.name} does not support {arch}"
    if build.archs and arch not in build.archs:
        return f"this build is for {', '.join(build.archs)}"
    return None


def _in_processes(work: Sequence[_Work]) -> dict[int, Attempt]:
    done: dict[int, Attempt] = {}
    with tempfile.TemporaryDirectory(prefix="dsv4bench-compile-") as folder:
        logs = Path(folder)
        while work:
            done |= _pool(work, logs, min(os.cpu_count() or 1, _MAX_PROCESSES))
            left = [w for w in work if w.place not in done]
            suspects = [w for w in left if (logs / str(w.place)).exists()] or left  # begun, and not finished
            for w in suspects:
                done |= _pool([w], logs, 1) or {w.place: replace(w.attempt, why=_death(logs / str(w.place)))}
            work = [w for w in left if w.place not in done]
    return done


def _pool(work: Sequence[_Work], logs: Path, processes: int) -> dict[int, Attempt]:
    """What the processes lived to finish."""
    if not work:
        return {}
    done: dict[int, Attempt] = {}
    spawn = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads, half
    pool = ProcessPoolExecutor(min(processes, len(work)), mp_context=spawn)
    try:
        futures = {w.place: pool.submit(_attempt, w, str(logs / str(w.place))) for w in work}
        for place, future in futures.items():
            with contextlib.suppress(BrokenProcessPool):
                done[place] = future.result()
    except BrokenProcessPool:  # one died while the list was still being handed in
        pass
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C, what has not begun is not begun
    return done


def _attempt(w: _Work, log: str) -> Attempt:
    """In a process of the pool: what the compiler's C++ prints goes into `log`, which outlives the process."""
    with Path(log).open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    try:
        return replace(w.attempt, compiled=compile_build(w.kernel.builds()[w.number], w.attempt.arch))
    except BenchError as e:
        said = _first_error(Path(log))
        return replace(w.attempt, why=e.message + (f" ({said})" if said else ""))


def _first_error(log: Path) -> str:
    """What a pass of MLIR said before it gave up: its exception is only "PassManager::run failed"."""
    found = [line.partition("error: ")[2] for line in _lines(log) if " error: " in line]
    return found[0][:200] if found else ""


def _death(log: Path) -> str:
    """What a process that ended said last, shortened: "LLVM ERROR: Cannot select …"."""
    lines = _lines(log)
    told = [line for line in lines if "ERROR" in line or "Assertion" in line] or lines
    return "the compiler ended its process" + (f": {told[-1][:200]}" if told else "")


def _lines(log: Path) -> list[str]:
    text = log.read_text(errors="replace") if log.is_file() else ""
    return [line.strip() for line in text.splitlines() if line.strip()]
