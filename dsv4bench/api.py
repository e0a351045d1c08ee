"""The Python API: stored results as pandas DataFrames, for a notebook.

    import dsv4bench
    r = dsv4bench.load("baseline")
    r.cells.pivot_table("output_tok_s", "concurrency", "config")

A name selects as everywhere: an id, its beginning, a pinned baseline, a configuration's newest complete experiment;
also an experiment's folder or a campaign folder. What reading had to drop stands in `frame.attrs["warnings"]`.
Nothing here writes.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4bench.runs import frames

if TYPE_CHECKING:
    import pandas as pd


class Loaded:
    """One experiment or campaign; each frame is read when it is first asked for."""

    def __init__(self, source: frames.Source) -> None:
        self._source = source

    @property
    def id(self) -> str:
        return self._source.id

    @property
    def header(self) -> dict[str, Any]:
        """run.json, or the campaign's scenario, as plain values."""
        return self._source.header()

    @cached_property
    def cells(self) -> pd.DataFrame:
        """One row a level: its configuration, then every field of `Cell`."""
        return self._source.cells()

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row a request, with ttft_s, tpot_s and e2e_s; empty where git kept only the numbers."""
        return self._source.requests()

    @cached_property
    def breakdown(self) -> pd.DataFrame:
        """One row a kernel and coordinate; empty where nothing was profiled."""
        return self._source.breakdown()

    def __repr__(self) -> str:
        return f"<dsv4bench {self.id}>"


def load(name_or_path: str | Path, root: str | Path = "results") -> Loaded:
    """Raises StoreError or UsageError (of `dsv4bench.errors`) when nothing is called that."""
    return Loaded(frames.source(name_or_path, root))
