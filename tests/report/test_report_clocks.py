"""Throttled levels by name, flags that slowed nothing in one line, and no alarm for a flag alone."""

from __future__ import annotations

import msgspec
import report_inputs as inputs

from dsv4bench.records.campaign import ReportInput
from dsv4bench.records.experiment import GpuInfo
from dsv4bench.report.page import launches, results_table
from dsv4bench.report.page.blocks import Block, Fold, Lines

CAP = ["sw_power_cap"]
OLD = "the GPU was throttled at r0-c16-i256: sw_power_cap"


def clocked(mhz: dict[str, float | None], flags: list[str] = CAP) -> ReportInput:
    """Cells of C=1 at 1980 MHz without a flag, all others flagged and at this clock of their configuration."""
    r = inputs.whole()
    experiments = []
    for d in r.experiments:
        assert d.experiment.machine is not None
        machine = msgspec.structs.replace(d.experiment.machine, gpus=[GpuInfo(name="H200", sm_clock_max_mhz=1980)])
        cells = [
            msgspec.structs.replace(
                c,
                gpu_sm_clock_mean_mhz=1980.0 if c.concurrency == 1 else mhz[d.experiment.config],
                gpu_throttle=[] if c.concurrency == 1 else flags,
            )
            for c in d.cells
        ]
        experiment = msgspec.structs.replace(d.experiment, machine=machine)
        experiments.append(msgspec.structs.replace(d, experiment=experiment, cells=cells))
    return msgspec.structs.replace(r, experiments=experiments)


def notes(blocks: list[Block]) -> list[str]:
    return [str(item) for b in blocks if isinstance(b, Lines) for item in b.items]


def test_flags_alone_are_one_line_for_the_whole_report() -> None:
    r = clocked({"baseline": 1975.0, "fp8-cfg": 1977.0, "mtp": 1976.0})
    found = [n for n in notes(results_table.blocks(r)) if "sw_power_cap" in n]
    assert found == ["sw_power_cap was flagged at 15 of 18 levels, SM clock 1975 to 1977 MHz of 1980: not slowed"]


def test_levels_that_were_slowed_are_named() -> None:
    r = clocked({"baseline": 1975.0, "fp8-cfg": 1975.0, "mtp": 1700.0})
    first, second = [n for n in notes(results_table.blocks(r)) if "sw_power_cap" in n]
    where = ", ".join(f"mtp C={c}" for c in (2, 4, 8, 16, 32))
    assert first == f"GPU throttled at {where}: SM clock 1700 MHz of 1980 (sw_power_cap)"
    assert second.startswith("sw_power_cap was flagged at 10 of 18 levels") and second.endswith("not slowed")


def test_every_cell_shows_its_clock_and_its_flags() -> None:
    r = clocked({"baseline": 1975.0, "fp8-cfg": 1975.0, "mtp": None})
    (fold,) = [b for b in results_table.blocks(r) if isinstance(b, Fold) and b.table is not None]
    assert fold.table is not None and fold.table.head[-1] == "SM clock, MHz"
    assert {row[-1] for row in fold.table.rows} == {"1,980", "1,975 (sw_power_cap)", "– (sw_power_cap)"}


def test_notes_of_older_campaigns_for_a_flag_alone_are_left_out() -> None:
    r = inputs.whole()
    assert r.campaign is not None
    noted = [msgspec.structs.replace(n, notes=[OLD, "else"]) for n in r.campaign.launches]
    r = msgspec.structs.replace(r, campaign=msgspec.structs.replace(r.campaign, launches=noted))
    (said,) = notes(launches.blocks(r))
    assert said.endswith(": else")
