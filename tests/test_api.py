"""`dsv4bench.load`: light to import, one name for a function and a room, frames of what is stored."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "store"))

from store_samples import make_cell, make_experiment, make_request

import dsv4bench
from dsv4bench.errors import StoreError

ROOT = Path(__file__).resolve().parent.parent


def test_importing_the_package_loads_nothing() -> None:
    script = "import sys, dsv4bench; print(sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "dsv4bench" in done.stdout
    assert not any(name in done.stdout for name in ("msgspec", "pandas", "typer", "yaml"))


@pytest.mark.parametrize("first", ["import dsv4bench", "import dsv4bench.load.sse", "from dsv4bench import load"])
def test_the_name_is_the_function_and_the_room(first: str) -> None:
    script = (
        f"{first}\nimport dsv4bench\nprint(len(dsv4bench.load('scenarios/campaign_2026').cells))\n"
        "import dsv4bench.load.pool\nfrom dsv4bench.load import sse\n"
        "print(len(dsv4bench.load('scenarios/campaign_2026').breakdown))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["9", "7"]


def test_an_unknown_attribute_is_one() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dsv4bench.nothing  # noqa: B018


def test_an_experiment(tmp_path: Path) -> None:
    experiment = make_experiment(tmp_path, config="fast")
    experiment.append_requests("r0-c8-i1024", [make_request(i) for i in range(3)])
    experiment.append_cell(make_cell())
    experiment.finish()
    for name in ("fast", experiment.id, experiment.path):
        loaded = dsv4bench.load(name, root=tmp_path)
        assert loaded.id == experiment.id and loaded.header["config"] == "fast"
        assert loaded.cells["config"].tolist() == ["fast"]
        assert loaded.requests["ttft_s"].tolist() == [0.1] * 3
        assert loaded.breakdown.empty and "nothing was profiled" in loaded.breakdown.attrs["warnings"][0]


def test_a_campaign() -> None:
    loaded = dsv4bench.load(ROOT / "scenarios" / "campaign_2026")
    table = loaded.cells.pivot(index="config", columns="concurrency", values="output_tok_s")
    assert table.loc["B", 1] == 15.7 and table.loc["baseline", 8] == 24.0
    assert loaded.requests.empty and loaded.requests.attrs["warnings"]
    assert loaded.breakdown.query("concurrency == 1")["share_frac"].sum() == pytest.approx(0.73)
    assert loaded.header["goal"]["output_tok_s"] == 1000


def test_a_name_that_selects_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nothing is called"):
        dsv4bench.load("nowhere", root=tmp_path)
