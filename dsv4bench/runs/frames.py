"""What `api.load` reads: an experiment of the store or a campaign folder, each as the same three DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from dsv4bench.records.shares import KernelShare
from dsv4bench.runs.campaign_data import CampaignData, is_campaign, load_campaign
from dsv4bench.store.breakdowns import shares_in
from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.frames import cells_frame, requests_frame
from dsv4bench.store.store import Store

if TYPE_CHECKING:
    import pandas as pd

KERNELS = "kernels.json"


class Source(Protocol):
    """Where frames come from."""

    @property
    def id(self) -> str: ...
    def header(self) -> dict[str, Any]: ...
    def cells(self) -> pd.DataFrame: ...
    def requests(self) -> pd.DataFrame: ...
    def breakdown(self) -> pd.DataFrame: ...


def source(name: str | Path, root: str | Path) -> Source:
    """What a name or a folder selects. Raises StoreError or UsageError."""
    if is_campaign(name):
        return _Campaign(load_campaign(name))
    return _Experiment(Store(root).resolve(str(name) if "/" in str(name) else Path(name).name))


class _Experiment:
    def __init__(self, opened: ExperimentDir) -> None:
        self._opened = opened

    @property
    def id(self) -> str:
        return self._opened.id

    def header(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self._opened.experiment)
        return found

    def cells(self) -> pd.DataFrame:
        return cells_frame(self._opened)

    def requests(self) -> pd.DataFrame:
        return requests_frame(self._opened)

    def breakdown(self) -> pd.DataFrame:
        path = self._opened.path / KERNELS
        if not path.exists():
            return _shares_frame([], [f"{path}: nothing was profiled here"])
        return _shares_frame(shares_in(path).shares, [])


class _Campaign:
    def __init__(self, data: CampaignData) -> None:
        self._data = data

    @property
    def id(self) -> str:
        return self._data.name

    def header(self) -> dict[str, Any]:
        keep = {"name", "folder", "source", "goal", "setup", "notes"}
        return {k: v for k, v in msgspec.to_builtins(self._data).items() if k in keep}

    def cells(self) -> pd.DataFrame:
        import pandas as pd

        rows = [{"config": arm.name, **msgspec.structs.asdict(c)} for arm in self._data.arms for c in arm.cells]
        frame = pd.DataFrame(rows)
        frame.attrs["warnings"] = list(self._data.notes)
        return frame

    def requests(self) -> pd.DataFrame:
        import pandas as pd

        frame = pd.DataFrame()
        frame.attrs["warnings"] = [f"{self._data.name}: single requests are not published"]
        return frame

    def breakdown(self) -> pd.DataFrame:
        shares = self._data.shares
        return _shares_frame(shares.shares if shares is not None else [], shares.notes if shares is not None else [])


def _shares_frame(shares: list[KernelShare], warnings: list[str]) -> pd.DataFrame:
    import pandas as pd

    columns = [f.name for f in msgspec.structs.fields(KernelShare)]
    frame = pd.DataFrame([msgspec.structs.asdict(s) for s in shares], columns=columns)
    frame.attrs["warnings"] = list(warnings)
    return frame
