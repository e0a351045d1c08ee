"""Counters of calls from what ncu writes: told apart by a marker, weighed by the time of each launch, and limited."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kernel_lab import REGISTRY, Clock, PlainMoe, ToyKernel, ToyLab, missing

from dsv4bench.errors import UsageError
from dsv4bench.host import nsight
from dsv4bench.records.trace import CounterRow
from dsv4bench.runs.kernels_counters import (
    DURATION,
    Answered,
    Asked,
    Counted,
    Target,
    find_ncu,
    matched,
    metrics_for,
    ncu_counts,
    weighed,
)
from dsv4bench.runs.kernels_under_ncu import TIME_IS_UP, count

RECORDED = Path(__file__).parents[1] / "data" / "ncu_h200_hfma2.csv"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
A1, A4, B1 = Target("a", 1), Target("a", 4), Target("b", 1)


def row(name: str, time_ns: float, tensor: float | None = None, dram: float | None = None) -> CounterRow:
    told = {DURATION: time_ns, TENSOR: tensor, DRAM: dram}
    metrics = {key: value for key, value in told.items() if value is not None}
    return CounterRow(name=name, grid=(1, 1, 1), block=(32, 1, 1), compute=(12, 0), device=0, metrics=metrics)


def marker() -> CounterRow:
    return row("_add_up", 1000.0, 0.0, 50.0)


def test_launches_are_weighed_by_their_time_and_calls_told_apart() -> None:
    first = [row("gemm", 3000, 40, 80), row("sum", 1000, 0, 40)]
    rows = [row("before", 1.0), marker(), *first, marker(), row("gemm", 5, 10, 20)]
    counts = weighed(matched(rows, [A1, A4], Answered([A1, A4]), "ended"))
    assert counts.found == {("a", 1): Counted(30.0, 70.0), ("a", 4): Counted(10.0, 20.0)} and counts.why == []


def test_a_launch_without_a_figure_leaves_the_call_without_one() -> None:
    rows = [marker(), row("gemm", 3000, 40, 80), row("sum", 1000, None, 40)]
    assert weighed(matched(rows, [A1], Answered([A1]), "")).found == {("a", 1): Counted(None, 70.0)}
    seen = matched([marker(), row("g", 0.0, 4, 8)], [A1], Answered([A1]), "")
    assert weighed(seen).found == {("a", 1): Counted()}


def test_what_was_missed_says_why_and_takes_no_others_launches() -> None:
    rows = [marker(), row("gemm", 1, 10, 20), marker(), row("half", 1, 99, 99), marker(), row("gemm", 1, 30, 40)]
    did = Answered([A1, A4, B1], [(A4, "RuntimeError: broke in the middle")])
    counts = weighed(matched(rows, [A1, A4, B1], did, "ended"))
    assert counts.found == {("a", 1): Counted(10.0, 20.0), ("b", 1): Counted(30.0, 40.0)}
    assert counts.why == ["no counters of a at 4: RuntimeError: broke in the middle"]


def test_one_reason_is_one_line() -> None:
    counts = matched([], [A1, A4, B1], Answered([], [(B1, TIME_IS_UP)]), "ncu was ended after 300 s")
    assert counts.why == [
        "no counters of a at 1, a at 4: ncu was ended after 300 s",
        "no counters of b at 1: the time for counters was up",
    ]


@pytest.mark.parametrize(("compute", "n"), [((9, 0), 6), ((8, 0), 5), ((12, 0), 3)])
def test_few_metrics_are_asked_for(compute: tuple[int, int], n: int) -> None:
    assert len(metrics_for(compute)) == n


def test_ncu_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsight, "find_ncu", lambda: None)
    with pytest.raises(UsageError, match="--counters needs ncu"):
        find_ncu()


def recorded(*kernels: int) -> str:
    """Launches of a run on an H200, by their ids there, each behind a marker."""
    lines = RECORDED.read_text().splitlines()
    head = next(line for line in lines if line.startswith('"ID"'))
    spare = [line for line in lines if line.startswith('"3"')]
    found = [head]
    for i, kernel in enumerate(kernels):
        found += [f'"{900 + i}"{line[3:].replace("gemv_sum_kernel", "_add_up")}' for line in spare]
        found += [line for line in lines if line.startswith(f'"{kernel}"')]
    return "\n".join(found) + "\n"


def ncu(tmp_path: Path, body: str) -> str:
    """An `ncu` that runs `body` with the paths that ours was given."""
    file = tmp_path / "ncu"
    head = "import sys, time\nlog = sys.argv[sys.argv.index('--log-file') + 1]\nasked, answer = sys.argv[-2:]\n"
    file.write_text(f"#!{sys.executable}\n{head}{body}")
    file.chmod(0o755)
    return str(file)


def test_what_ncu_recorded_on_an_h200_is_read(tmp_path: Path) -> None:
    """A GEMV on CUDA cores, a GEMM on tensor cores, and silu, whose packed halves run on the tensor pipe, too."""
    names = ["gemv", "gemm", "silu"]
    targets = [Target(name, 1) for name in names]
    did = msgspec.json.encode(Answered(targets)).decode()
    body = f"open(log, 'w').write({recorded(3, 6, 5)!r})\nopen(answer, 'w').write({did!r})"
    counts = ncu_counts(ncu(tmp_path, body), Asked(targets, None, 0), (9, 0))
    assert counts.why == []
    assert [counts.found[name, 1].tensor_pipe_pct for name in names] == pytest.approx([0.0, 17.65, 0.0])
    assert all(found.dram_pct is None for found in counts.found.values())  # was not among the metrics then


def test_what_ncu_says_is_told_and_nothing_is_raised(tmp_path: Path) -> None:
    asked = Asked([A1], None, 0)
    refused = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n"
    for body, why in (
        (f"open(log, 'w').write({refused!r})", "ERR_NVGPUCTRPERM"),
        ("print('no such GPU'); sys.exit(3)", "ncu ended with 3: no such GPU"),
        ("time.sleep(60)", "ncu was ended after 1 s"),
    ):
        counts = ncu_counts(ncu(tmp_path, body), asked, (9, 0), timeout_s=1)
        assert counts.found == {} and len(counts.why) == 1
        assert counts.why[0].startswith("no counters of a at 1: ") and why in counts.why[0]


def counted(kernel: ToyKernel, left_s: list[float], batches: tuple[int, ...] = (1, 4)) -> tuple[Answered, list[Any]]:
    did, seen = Answered(), []
    targets = [Target(kernel.name, batch) for batch in batches]
    lab = ToyLab(Clock(lambda _: 1.0))
    count(kernel, targets, lab, did, lambda: left_s.pop(0), lambda: None, lambda call: seen.append(call()))
    return did, seen


def test_every_batch_is_run_once_where_ncu_looks() -> None:
    did, seen = counted(REGISTRY[0], [9.0, 9.0])
    assert [t.batch for t in did.begun] == [1, 4] and did.missed == []
    assert [tuple(out.shape) for out in seen] == [(1, 64), (4, 64)]


def test_when_the_time_is_up_what_was_counted_stays() -> None:
    did, seen = counted(REGISTRY[0], [9.0, 0.0], (1, 4, 16))
    assert [t.batch for t in did.begun] == [1] and len(seen) == 1
    assert [(t.batch, why) for t, why in did.missed] == [(4, TIME_IS_UP), (16, TIME_IS_UP)]


def test_a_kernel_that_fails_under_ncu_says_so() -> None:
    class Raises(PlainMoe):
        def __call__(self, *_: Any) -> Any:
            raise RuntimeError("not under a profiler")

    did, _ = counted(ToyKernel("raises", "moe", "optimized", Raises), [9.0, 9.0])
    assert did.begun == [] and {why for _, why in did.missed} == {"RuntimeError: not under a profiler"}
    did, _ = counted(ToyKernel("absent", "moe", "peer", missing), [9.0, 9.0])
    assert did.begun == [] and "No module named 'vllm'" in did.missed[0][1]
