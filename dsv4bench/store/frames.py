"""Stored experiments as pandas DataFrames, for a notebook.

    from dsv4bench.store.frames import cells_frame
    cells_frame(["baseline", "configB"]).pivot_table("tpot_p50_s", "concurrency", "config")

Names select as everywhere (`Store.resolve`). What reading had to drop stands in `frame.attrs["warnings"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.store import Store

if TYPE_CHECKING:
    import pandas as pd

Selection = str | Path | ExperimentDir


def cells_frame(experiments: Selection | Iterable[Selection], root: str | Path = "results") -> pd.DataFrame:
    """One row a cell: `experiment`, `config`, `scenario`, `status`, then every field of `Cell`."""
    return _frame(_opened(experiments, root), lambda e: (msgspec.structs.asdict(c) for c in e.cells()))


def requests_frame(
    experiments: Selection | Iterable[Selection], cell_id: str | None = None, root: str | Path = "results"
) -> pd.DataFrame:
    """One row a request: as `cells_frame`, every field of `RequestRecord`, then ttft_s, tpot_s and e2e_s."""
    return _frame(_opened(experiments, root), lambda e: _request_rows(e, cell_id))


def _request_rows(experiment: ExperimentDir, cell_id: str | None) -> Iterator[dict[str, Any]]:
    for r in experiment.requests(cell_id):
        derived = {"ttft_s": r.ttft_s, "tpot_s": r.tpot_s, "e2e_s": r.e2e_s}
        yield {"cell": r.cell, **msgspec.structs.asdict(r), **derived}


def _opened(experiments: Selection | Iterable[Selection], root: str | Path) -> list[ExperimentDir]:
    store = Store(root)
    chosen = [experiments] if isinstance(experiments, str | Path | ExperimentDir) else experiments
    return [_open(store, e) for e in chosen]


def _open(store: Store, chosen: Selection) -> ExperimentDir:
    if isinstance(chosen, ExperimentDir):
        return chosen
    if isinstance(chosen, Path):
        return ExperimentDir.open(chosen)
    return store.resolve(chosen)


def _frame(
    experiments: list[ExperimentDir], rows: Callable[[ExperimentDir], Iterable[dict[str, Any]]]
) -> pd.DataFrame:
    import pandas as pd

    found = [{**_head(e), **row} for e in experiments for row in rows(e)]
    frame = pd.DataFrame(found)
    frame.attrs["warnings"] = [w for e in experiments for w in e.warnings]
    return frame


def _head(experiment: ExperimentDir) -> dict[str, str]:
    e = experiment.experiment
    return {"experiment": e.id, "config": e.config, "scenario": e.scenario, "status": e.status.value}
