""".ncu-rep through NVIDIA's package: read apart, its absence and every damage an error of ours."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import ncu_made as made
import pytest

from dsv4bench.errors import BenchError, SchemaError, Unanswerable
from dsv4bench.trace import ncu_report

needs_package = pytest.mark.skipif(importlib.util.find_spec("ncu_report") is None, reason="ncu-report not installed")


def blocks(*payloads: tuple[int, bytes]) -> bytes:
    """A report's outer structure: (results, payload) a block."""
    data = ncu_report.MAGIC
    for results, payload in payloads:
        header = bytes([2 << 3, results, 4 << 3 | 2, 1, 0, 5 << 3, len(payload)])
        data += len(header).to_bytes(4, "little") + header + payload
    return data


def test_the_blocks_tell_how_many_results_there_should_be(tmp_path: Path) -> None:
    path = tmp_path / "x.ncu-rep"
    whole = blocks((0, b"session"), (2, b"two results"), (1, b""))
    path.write_bytes(whole)
    assert ncu_report.results_promised(path) == (3, True)
    ends = {len(blocks((0, b"session"))), len(blocks((0, b"session"), (2, b"two results")))}  # of whole blocks
    for cut in range(5, len(whole)):
        path.write_bytes(whole[:cut])
        assert ncu_report.results_promised(path)[1] is (cut in ends)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(b"SQLite format 3\x00")
    with pytest.raises(SchemaError, match="no Nsight Compute report"):
        ncu_report.read_ncu_report(path)


def test_without_the_package_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(blocks((1, b"x")))
    monkeypatch.setattr(ncu_report.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unanswerable, match="ncu-report package") as caught:
        ncu_report.read_ncu_report(path)
    assert "pip install ncu-report" in caught.value.hint


@needs_package
def test_damaged_reports_are_errors_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "x.ncu-rep"
    for data in (ncu_report.MAGIC, blocks((1, b"\xff\xff\xff"))):
        path.write_bytes(data)
        with pytest.raises(Unanswerable):
            ncu_report.read_ncu_report(path)


@needs_package
def test_our_own_recording_with_its_mix_of_opcodes() -> None:
    """Two Triton kernels on an H200: a `tl.dot` at two grids, a `tl.sum`."""
    counters = ncu_report.read_ncu_report(made.REPORT)
    assert counters.warnings == []
    found = [
        (row.name, row.grid, row.block, row.metrics.get(ncu_report.OPCODES + ".HMMA"), row.metrics[made.TENSOR])
        for row in counters.rows
    ]
    assert found == [
        ("dot_k", (2, 1, 1), (128, 1, 1), 32.0, 32.0),
        ("dot_k", (4, 1, 1), (128, 1, 1), 64.0, 64.0),
        ("sum_k", (2, 1, 1), (128, 1, 1), None, 0.0),
    ]
    assert counters.rows[2].metrics[ncu_report.OPCODES + ".FFMA"] > 0
    assert {row.compute for row in counters.rows} == {(9, 0)}


@needs_package
def test_our_own_recording_cut_or_flipped(tmp_path: Path) -> None:
    whole = made.REPORT.read_bytes()
    random_, path = random.Random(1), tmp_path / "x.ncu-rep"
    for k in range(4):
        data = bytearray(whole[: random_.randrange(5, len(whole))] if k % 2 else whole)
        data[random_.randrange(4, len(data))] ^= 1 << random_.randrange(8)
        path.write_bytes(data)
        try:
            counters = ncu_report.read_ncu_report(path)
        except BenchError:
            continue
        assert counters.rows and (k % 2 == 0 or counters.warnings)


class Instances:
    def __init__(self, names: list[str]) -> None:
        self._names = names

    def as_string(self, k: int) -> str:
        return self._names[k]


class Metric:
    def __init__(self, value: Any, unit: str = "", mix: dict[str, int] | None = None) -> None:
        self._value, self._unit, self._mix = value, unit, mix or {}

    def value(self) -> Any:
        return self._value

    def unit(self) -> str:
        return self._unit

    def num_instances(self) -> int:
        return len(self._mix)

    def correlation_ids(self) -> Instances:
        return Instances(list(self._mix))

    def as_double(self, k: int) -> float:
        return float(list(self._mix.values())[k])


class Action:
    """The part of the package's kernel that we use."""

    NameBase_DEMANGLED, NameBase_FUNCTION = 1, 0

    def __init__(self, metrics: dict[str, Metric]) -> None:
        self._metrics = metrics

    def name(self, base: int) -> str:
        return "void k<1>(int)" if base == self.NameBase_DEMANGLED else "k"

    def metric_names(self) -> list[str]:
        return list(self._metrics)

    def metric_by_name(self, name: str) -> Metric:
        return self._metrics[name]


def test_a_kernel_of_a_report() -> None:
    row = ncu_report._action(
        Action(
            {
                **{f"launch__grid_dim_{axis}": Metric(n) for axis, n in zip("xyz", (4, 2, 1), strict=True)},
                **{
                    f"device__attribute_compute_capability_{part}": Metric(n)
                    for part, n in (("major", 12), ("minor", 0))
                },
                "dram__bytes.sum": Metric(1.5, "Mbyte"),
                "sm__x.sum": Metric(None),
                "device__attribute_display_name": Metric("GPU"),
                ncu_report.OPCODES: Metric(7, "inst", {"HMMA.16816.F32": 4, "HMMA.1688.F32": 1, "HFMA2.MMA": 2}),
            }
        )
    )
    assert (
        row.name == "void k<1>(int)" and row.grid == (4, 2, 1) and row.block == (0, 0, 0) and row.compute == (12, 0)
    )
    assert row.metrics["dram__bytes.sum"] == 1.5e6 and row.unavailable == ["sm__x.sum"]
    mix = {k: v for k, v in row.metrics.items() if k.startswith(ncu_report.OPCODES + ".")}
    assert mix == {ncu_report.OPCODES + ".HMMA": 5.0, ncu_report.OPCODES + ".HFMA2": 2.0}


@needs_package
def test_a_real_report_of_a_gh200() -> None:
    counters = ncu_report.read_ncu_report(made.real("ncu", "cs599k_rmsnorm_pytorch.ncu-rep"))
    (row,) = counters.rows
    assert "distribution_elementwise" in row.name and row.grid == (1056, 1, 1) and row.compute == (9, 0)
    assert row.metrics["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"] == pytest.approx(
        1.2127, abs=1e-4
    )
    assert counters.warnings == []
