"""ncu CSV text in the shapes that its versions write, and where the real files are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
HFMA2 = DATA / "ncu_h200_hfma2.csv"
REPORT = DATA / "ncu_h200_units.ncu-rep"
TENSOR = "sm__inst_executed_pipe_tensor.sum"
HFMA2_PART = "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum"

LEADING = [
    *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream"),
    *("Block Size", "Grid Size", "Device", "CC"),
]
DETAILS = ["Section Name", "Metric Name", "Metric Unit", "Metric Value"]
RULES = ["Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup"]

Metric = tuple[str, str, str, str]  # section, name, unit, value


def line(cells: Sequence[str]) -> str:
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)


def launch(
    identity: int = 0, name: str = "k", grid: str = "(16, 4, 1)", block: str = "(128, 1, 1)", cc: str = "9.0"
) -> list[str]:
    return [str(identity), "7", "python3", "127.0.0.1", name, "1", "7", block, grid, "0", cc]


def details(launches: Sequence[tuple[list[str], Sequence[Metric]]], rules: bool = False) -> str:
    header = [*LEADING, *DETAILS, *(RULES if rules else [])]
    rows = [line([*leading, *metric]) + ("," if rules else "") for leading, metrics in launches for metric in metrics]
    return "\n".join([line(header), *rows]) + "\n"


def raw(names: Sequence[str], units: Sequence[str], rows: Sequence[tuple[list[str], Sequence[str]]]) -> str:
    lines = [line([*LEADING, *names]), line([""] * len(LEADING) + list(units))]
    return "\n".join([*lines, *(line([*leading, *values]) for leading, values in rows)]) + "\n"


def real(*parts: str) -> Path:
    """A file of the trace collection; skips the test where it is not."""
    told = os.environ.get("DSV4BENCH_TRACES")
    path = Path(told) if told else ROOT.parent / "shared" / "data" / "traces"
    if not path.joinpath(*parts).exists():
        pytest.skip("no collection of traces here (DSV4BENCH_TRACES)")
    return path.joinpath(*parts)
