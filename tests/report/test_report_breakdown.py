"""The breakdown on the terminal: shares under their denominators, the residual shown, words instead of colours."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

from rich.console import Console

from dsv4bench.records.breakdown import (
    BreakdownDocument,
    ComponentTime,
    DeviceBreakdown,
    KernelRow,
    Plan,
    PlanStep,
    RankSummary,
    Shift,
    StepComponent,
    Steps,
    UnitTime,
)
from dsv4bench.records.shares import KernelShare, SharesDocument
from dsv4bench.report.breakdown import print_breakdown
from dsv4bench.report.breakdown_values import frac, ms, ratio, shortened

MS = 1_000_000


def shown(document: BreakdownDocument, **options: Any) -> str:
    console = Console(file=StringIO(), width=200)
    print_breakdown(document, console, **options)
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def device(rank: int | None = None, **fields: Any) -> DeviceBreakdown:
    known: dict[str, Any] = {
        "device": 0,
        "label": "c16",
        "file": "traces/rank.json.gz",
        "gpu": "NVIDIA H200",
        "window_ns": 10 * MS,
        "kernel_sum_ns": 9 * MS,
        "kernel_busy_ns": 8 * MS,
        "any_busy_ns": 8 * MS + MS // 2,
        "copy_only_ns": MS // 2,
        "idle_ns": MS + MS // 2,
        "overlap_ns": MS,
        "opaque_graph_ns": 0,
        "kernels": 90,
        "copies": 3,
        "streams": 2,
        "sm_coverage_frac": 0.34,
        "grid_known_frac": 1.0,
        "components": [
            ComponentTime(
                component="moe",
                time_ns=6 * MS,
                exclusive_ns=5 * MS,
                count=60,
                share_of_sum_frac=6 / 9,
                share_of_busy_frac=5 / 8,
                share_of_span_frac=0.5,
            ),
            ComponentTime(
                component="other",
                time_ns=3 * MS,
                exclusive_ns=2 * MS,
                count=30,
                share_of_sum_frac=3 / 9,
                share_of_busy_frac=2 / 8,
                share_of_span_frac=0.2,
            ),
        ],
        "units": [UnitTime(runs_on="cuda", time_ns=6 * MS, share_of_busy_frac=0.625)],
        "rows": [
            KernelRow(
                name="_mxfp4_slot_gemv_kernel",
                component="moe",
                count=60,
                time_ns=6 * MS,
                share_of_sum_frac=6 / 9,
                runs_on="cuda",
                evidence="sass",
                grid=(96, 16, 1),
                waves=0.5,
                tensor_pipe_frac=0.0004,
                tensor_pipe_metric="sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
            ),
            KernelRow(name="x" * 300, component="other", count=30, time_ns=3 * MS, share_of_sum_frac=3 / 9),
        ],
    }
    return DeviceBreakdown(rank=rank, **{**known, **fields})


STEPS = Steps(
    label="c16",
    count=12,
    method="annotation",
    median_ns=MS,
    iqr_ns=(MS, 2 * MS),
    idle_median_ns=MS // 5,
    overlap_median_ns=0,
    copy_only_median_ns=0,
    launches=9.0,
    graph_launches=1.0,
    layers=43,
    batch=16,
    prefill_steps=2,
    components=[
        StepComponent(
            component="moe", median_ns=MS // 2, exclusive_median_ns=MS // 2, launches=6.0, share_of_step_frac=0.5
        )
    ],
)


def test_one_device_line_for_line() -> None:
    """A table is read by eye: its layout is part of what it says."""
    text = shown(BreakdownDocument(devices=[device()], steps_by_label=[STEPS]))
    assert text.splitlines()[5:17] == EXPECTED.splitlines()


EXPECTED = """\
Components of c16, device 0
component              time ms  of sum  alone ms  of busy  of window  kernels
moe                      6.000  66.7 %     5.000   62.5 %     50.0 %       60
other                    3.000  33.3 %     2.000   25.0 %     20.0 %       30
overlap of components                      1.000   12.5 %     10.0 %
copies alone                               0.500               5.0 %
idle                                       1.500              15.0 %
window                                    10.000             100.0 %

Runs on, c16, device 0
unit        time ms  of busy
CUDA cores    6.000   62.5 %
"""


def test_every_share_has_its_denominator_and_the_window_adds_up() -> None:
    lines = shown(BreakdownDocument(devices=[device()])).splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("component"))
    assert [h for h in ("of sum", "of busy", "of window") if h in lines[head]] == ["of sum", "of busy", "of window"]
    rows = {line.split("  ")[0]: line for line in lines[head + 1 : head + 7]}
    assert list(rows) == ["moe", "other", "overlap of components", "copies alone", "idle", "window"]
    alone = {name: float(re.findall(r"\d+\.\d{3}", row)[-1]) for name, row in rows.items()}
    assert alone.pop("window") == sum(alone.values()) == 10.0


def test_kernels_beyond_the_top_are_one_row_and_long_names_keep_both_ends() -> None:
    text = shown(BreakdownDocument(devices=[device()]), top=1)
    assert "the first 1 of 2" in text and "1 more" in text and "x" * 65 not in text
    assert "CUDA cores (sass)" in text and "96x16x1" in text
    assert "<0.1 % of elapsed" in text  # not zero
    assert "tensor pipe: sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed" in text
    assert "unknown (none)" in shown(BreakdownDocument(devices=[device()]), top=2)


def test_steps_name_their_method_and_what_was_set_apart() -> None:
    text = shown(BreakdownDocument(devices=[device()], steps_by_label=[STEPS]))
    assert "Decode step of c16, median of 12 (found by annotation)" in text
    assert "set apart: 2 prefill steps" in text and "43 layers" in text and "1 graph launches" in text
    none = Steps(label="c16", count=0, method="none")
    assert "no decode step was found" in shown(BreakdownDocument(devices=[device()], steps_by_label=[none]))


def test_ranks_show_median_and_worst() -> None:
    ranks = RankSummary(
        label="c16",
        ranks=[0, 2],
        missing=[1],
        median_busy_frac=0.8,
        worst_rank=2,
        worst_busy_frac=0.9,
        components_median=device().components,
    )
    text = shown(BreakdownDocument(devices=[device(0), device(2)], ranks=[ranks]))
    assert (
        "ranks 0, 2; busy 80 % of the window (median), 90 % on rank 2, which the others wait for; missing: 1" in text
    )
    assert "Components of c16, median of 2 ranks" in text


def test_a_table_of_sums_and_counters_leave_out_what_they_cannot_know() -> None:
    nothing = dict.fromkeys(
        ("window_ns", "kernel_busy_ns", "any_busy_ns", "copy_only_ns", "idle_ns", "overlap_ns", "sm_coverage_frac")
    )
    table = shown(BreakdownDocument(devices=[device(**nothing, grid_known_frac=None)]))
    assert "idle" not in table.split("Components")[1].split("Runs on")[0]
    counters = device(**nothing, kernel_sum_ns=0, components=[], units=[])
    text = shown(BreakdownDocument(devices=[counters]))
    assert "Components" not in text and "time ms" not in text.split("Kernels of")[1]


def test_the_plan_with_its_ceiling_and_a_refusal() -> None:
    step = PlanStep(
        component="moe",
        share_of_step_frac=0.39,
        bound_ratio=1 / 0.61,
        speedup=5.0,
        speedup_source="measured kernel x5",
        target_ratio=1.4535,
        joint_ratio=1 / 0.61,
        joint_tok_s=38.03,
        binds="DRAM bytes",
        reason="at 83 % of its roof already",
    )
    plan = Plan(
        concurrency=16,
        measured_tok_s=23.2,
        unattributed_frac=0.07,
        ceiling_ratio=1 / 0.61,
        ceiling_tok_s=38.03,
        steps=[step],
    )
    refused = Plan(concurrency=1, unattributed_frac=0.27, refusals=["27 % of the step is unattributed"])
    text = shown(BreakdownDocument(plans=[plan, refused]))
    assert "Plan at C=16: at most, never a forecast" in text
    for needed in ("x1.64", "x1.45", "38.0", "DRAM bytes", "moe: at 83 % of its roof already; k: measured kernel x5"):
        assert needed in text
    assert "ceiling of the whole plan at C=16: x1.64, 38 tok/s from 23.2 tok/s measured" in text
    assert "no plan at C=1: 27 % of the step is unattributed" in text
    assert "unattributed at C=1: 27 % of the step" in text


def test_labels_side_by_side() -> None:
    row = Shift(
        component="moe", base_label="bs1", new_label="c16", base_ns=MS, new_ns=4 * MS, delta_ns=3 * MS, ratio=4.0
    )
    text = shown(BreakdownDocument(shifts=[row]))
    assert "One decode step, c16 against bs1" in text and "+3.000" in text and "x4.00" in text


def test_published_shares_and_their_residual() -> None:
    share = KernelShare(config="b", kernel="fp8", component="dense", concurrency=16, share_frac=0.01, at_most=True)
    found = SharesDocument(source="s", published=True, shares=[share])
    text = shown(BreakdownDocument(warnings=["w"]), shares=[found])
    assert "b at C=16, published shares of a time that is not told" in text
    assert "<1.0 %" in text and "unattributed" in text and "99.0 %" in text and text.endswith("warning: w\n")


def test_figures() -> None:
    assert (frac(None), frac(0.0), frac(0.0001), frac(0.39)) == ("–", "0.0 %", "<0.1 %", "39.0 %")
    assert (ratio(None), ratio(1.6393), ratio(11.111), ratio(258.4)) == ("no bound", "x1.64", "x11.1", "x258")
    assert (ms(None), ms(1_234_567), ms(12_345_678_901)) == ("–", "1.235", "12345.7")
    assert (
        shortened("abc", 3) == "abc"
        and shortened("abcdefghij", 7) == "abcd…ij"
        and len(shortened("a" * 99, 64)) == 64
    )
