"""Runs a small sweep in this process, for the tests of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsv4bench.records.progress import Progress
from dsv4bench.runs.options import SweepOptions
from dsv4bench.runs.sweep import SweepResult, run_sweep
from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.store import Store

SMALL: dict[str, Any] = {
    "concurrency": [1, 2],
    "isl": [16],
    "osl": 4,
    "requests": 4,
    "vocab": 1000,
    "warmup": False,
    "timeout_s": 10.0,
}


class Sweep:
    """A result beside everything that was said on the way."""

    def __init__(self, result: SweepResult, said: list[str], progress: list[Progress], out: Path) -> None:
        self.result, self.said, self.progress, self.out = result, said, progress, out
        self.cells = result.cells

    @property
    def stored(self) -> ExperimentDir:
        assert self.result.id is not None
        return Store(self.out).open(self.result.id)


def sweep(url: str, out: Path, on_progress: Any = None, **options: Any) -> Sweep:
    said: list[str] = []
    progress: list[Progress] = []

    def show(p: Progress) -> None:
        progress.append(p)
        if on_progress is not None:
            on_progress(p)

    result = run_sweep(SweepOptions(**{**SMALL, "url": url, "out": str(out), **options}), show, said.append)
    return Sweep(result, said, progress, out)
