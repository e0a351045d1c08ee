"""`kernels bench` on a device that a test makes up: what is timed, what is refused, and what the rows say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kernel_lab import DEVICE, REGISTRY, Clock, PlainAttention, PlainMoe, ToyKernel, ToyLab, bundled, record_green

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.kernels.timing import Stopwatch
from dsv4bench.records.kernels import BenchDocument, KernelTime
from dsv4bench.runs import kernels_bench
from dsv4bench.runs.kernels_bench import BenchOptions, run_bench
from dsv4bench.runs.kernels_candidates import candidates
from dsv4bench.runs.kernels_counters import Counted, Counts
from dsv4bench.store import kernels as store

SLOW_S, FAST_S = 1e-3, 1e-4


def seconds(runner: Any) -> float:
    """The first MoE runner that is asked is the fallback."""
    if isinstance(runner, PlainAttention):
        return 2 * SLOW_S
    return SLOW_S if runner.off == 0.0 else FAST_S


def bench(root: Path, lab: ToyLab | None = None, registry: Any = REGISTRY, **options: Any) -> BenchDocument:
    lab = lab or ToyLab(Clock(seconds))
    return run_bench(BenchOptions(out=str(root), batch=[4, 1], **options), lambda _: None, lab, registry)


def row(document: BenchDocument, kernel: str, batch: int = 1) -> KernelTime:
    (found,) = [r for r in document.rows if (r.kernel, r.batch) == (kernel, batch)]
    return found


def why(found: KernelTime) -> str:
    return found.why_null or ""


def test_every_kernel_has_a_row_at_every_batch_and_says_what_it_is(tmp_path: Path) -> None:
    record_green(tmp_path, *bundled())
    document = bench(tmp_path)
    assert [(r.component, r.batch) for r in document.rows] == [("moe", 1)] * 5 + [("moe", 4)] * 5 + [
        ("attention", 1),
        ("attention", 4),
    ]
    slow, loose = row(document, "slow_moe"), row(document, "loose")
    assert slow.us == pytest.approx(1e6 * SLOW_S, rel=0.01) and slow.parity == "green" and slow.speedup == 1.0
    assert slow.us_p10 is not None and slow.us_p90 is not None and slow.us_p10 < slow.us < slow.us_p90
    assert loose.parity == "own tolerance" and loose.speedup == pytest.approx(SLOW_S / FAST_S, rel=0.01)
    assert slow.floor_bytes and slow.gb_s == pytest.approx(slow.floor_bytes / slow.us / 1e3)
    assert slow.read_frac == pytest.approx(slow.gb_s / 1000.0)
    assert slow.replays == 5 and slow.calls_per_replay == 12


def test_a_peer_that_is_missing_or_wrong_is_a_row_that_says_so(tmp_path: Path) -> None:
    record_green(tmp_path, *bundled())
    document = bench(tmp_path)
    absent, wrong = row(document, "absent"), row(document, "wrong")
    assert (
        absent.us is None
        and "No module named 'vllm'" in (absent.why_null or "")
        and "needs vllm" in (absent.why_null or "")
    )
    assert (
        wrong.us is None
        and wrong.parity is None
        and "wrong on this data: relative Frobenius error" in (wrong.why_null or "")
    )


def test_a_bundled_kernel_without_recorded_parity_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    record_green(tmp_path, REGISTRY[1])
    document = bench(tmp_path, component="moe")
    assert "never checked on this GPU: run `dsv4bench kernels check` first" in (
        row(document, "slow_moe").why_null or ""
    )
    fast = row(document, "fast_moe")
    assert fast.us is not None and fast.speedup is None  # there is no fallback in this run to divide by


def test_parity_of_another_gpu_does_not_count(tmp_path: Path) -> None:
    import msgspec

    record_green(tmp_path, *bundled(), device=msgspec.structs.replace(DEVICE, name="Other GPU"))
    with pytest.raises(Unanswerable) as failure:
        bench(tmp_path, names="slow_moe,fast_moe")
    assert failure.value.exit_code == 4 and failure.value.hint == "run `dsv4bench kernels check` first"
    assert "slow_moe (and 1 more): its parity was never checked on this GPU" in failure.value.message


def test_a_kernel_whose_text_changed_is_refused(tmp_path: Path) -> None:
    record_green(tmp_path, *bundled())
    path = store.folder_of(tmp_path, DEVICE.name) / store.PARITY
    path.write_text(path.read_text().replace(REGISTRY[0].code_hash(), "000000000000"))
    assert "its text changed" in why(row(bench(tmp_path), "slow_moe"))


def test_what_does_not_run_on_this_architecture_says_so(tmp_path: Path) -> None:
    record_green(tmp_path, *bundled())
    registry = (*REGISTRY, ToyKernel("later", "moe", "optimized", PlainMoe, min_sm=120))
    assert row(bench(tmp_path, registry=registry), "later").why_null == "it does not run on sm_90"


def test_a_kernel_that_raises_keeps_its_row_and_the_next_one_is_timed(tmp_path: Path) -> None:
    class Raises(PlainMoe):
        def __call__(self, *_: Any) -> Any:
            raise RuntimeError("out of shared memory\nand a long trace")

    class CannotPrepare(PlainMoe):
        def prepare(self, experts: Any) -> Any:
            raise ValueError("odd width")

    registry = (
        ToyKernel("raises", "moe", "peer", Raises),
        ToyKernel("unprepared", "moe", "peer", CannotPrepare),
        ToyKernel("fine", "moe", "peer", PlainMoe),
    )
    document = bench(tmp_path, registry=registry)
    assert row(document, "raises").why_null == "RuntimeError: out of shared memory"
    assert row(document, "unprepared", 4).why_null == "it cannot prepare these weights: ValueError: odd width"
    assert row(document, "fine").us is not None


def test_a_broken_gpu_ends_the_run_and_keeps_what_was_measured(tmp_path: Path) -> None:
    record_green(tmp_path, *bundled())
    document = bench(tmp_path, ToyLab(Clock(seconds), broken_after=1))
    assert (
        row(document, "slow_moe", 1).us is not None and row(document, "slow_attention", 4).why_null == "not reached"
    )
    assert any(note.startswith("stopped: the GPU no longer answers") for note in document.notes)
    assert len(document.rows) == 12


def test_an_interrupt_stores_what_was_measured(tmp_path: Path) -> None:
    class Interrupted(Clock):
        def replays(self, calls: Any) -> list[float]:
            if len(self.captures) == 3:
                raise KeyboardInterrupt
            return super().replays(calls)

    record_green(tmp_path, *bundled())
    with pytest.raises(KeyboardInterrupt):
        bench(tmp_path, ToyLab(Interrupted(seconds)))
    (path,) = store.times(tmp_path, DEVICE.name)
    document = store.read_times(path)
    assert [r.kernel for r in document.rows] == ["slow_moe"]
    assert document.notes[-1] == "interrupted: not everything was measured"


def test_samples_and_table_are_stored_beside_each_other(tmp_path: Path) -> None:
    record_green(tmp_path, *bundled())
    document = bench(tmp_path)
    (path,) = store.times(tmp_path, DEVICE.name)
    assert [r.us is None for r in store.read_times(path).rows] == [r.us is None for r in document.rows]
    assert path.with_suffix(".md").read_text().startswith("# Kernel times: Test GPU (sm_90, not sm_120)")
    mine = [s for s in document.samples if (s.config, s.concurrency) == ("slow_moe", 4)]
    assert [s.metric for s in mine] == ["kernel_time_s"] * 2 and mine[0].launch != mine[1].launch
    assert mine[0].value == pytest.approx(SLOW_S, rel=0.01)


def test_the_ceiling_is_measured_around_the_floors_of_this_run(tmp_path: Path) -> None:
    record_green(tmp_path, *bundled())
    lab = ToyLab(Clock(seconds))
    bench(tmp_path, lab)
    assert lab.ceilings == [[0.25]]  # every floor of these small shapes lies below the smallest size


def test_a_peer_is_given_weights_that_the_router_has_scaled(tmp_path: Path) -> None:
    seen: list[float] = []

    class Asks(PlainMoe):
        def __call__(self, x: Any, ids: Any, weights: Any, prepared: Any) -> Any:
            seen.append(prepared.route_scale)
            return super().__call__(x, ids, weights, prepared)

    registry = (ToyKernel("own", "moe", "optimized", Asks), ToyKernel("theirs", "moe", "peer", Asks))
    record_green(tmp_path, registry[0])
    document = bench(tmp_path, registry=registry)
    assert set(seen) == {1.5, 1.0}
    assert row(document, "own").parity == row(document, "theirs").parity == "green"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": "slow_moe,nothing"}, "kernel 'nothing' is unknown"),
        ({"names": " , "}, "no kernel is named"),
        ({"component": "router"}, "component 'router' is unknown"),
        ({"names": "slow_moe", "component": "attention"}, "none of slow_moe is a kernel of attention"),
        ({"peers": "nowhere.py"}, "--peers nowhere.py: no such file"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_measured(tmp_path: Path, options: Any, message: str) -> None:
    lab = ToyLab(Clock(seconds))
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        bench(tmp_path, lab, **options)
    assert lab.ceilings == []


@pytest.mark.parametrize("batch", [[], [0], [65]])
def test_batches_have_bounds(tmp_path: Path, batch: list[int]) -> None:
    with pytest.raises(UsageError, match="batch"):
        run_bench(BenchOptions(out=str(tmp_path), batch=batch), lambda _: None, ToyLab(Clock(seconds)), REGISTRY)


def test_kernels_on_demand_are_timed_only_when_named() -> None:
    class Rare(ToyKernel):
        default = False

    registry = (*REGISTRY, Rare("rare", "moe", "optimized", PlainMoe))
    assert "rare" not in [k.name for k in candidates(None, None, None, registry)]
    assert [k.name for k in candidates("rare", None, None, registry)] == ["rare"]


def test_without_a_gpu_there_is_one_clear_line(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(Unanswerable, match="no CUDA GPU here"):
        run_bench(BenchOptions(out=str(tmp_path)), lambda _: None)


def test_the_clock_of_these_tests_is_a_stopwatch() -> None:
    clock: Stopwatch = Clock(seconds)
    assert clock.replays([_Named()]) != clock.replays([_Named()])


class _Named:
    func = PlainMoe()

    def __call__(self) -> None:
        return None


def test_counters_stand_beside_the_times_and_what_lacks_them_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counts(_: str, asked: Any, compute: tuple[int, int]) -> Counts:
        assert compute == (9, 0) and {t.kernel for t in asked.targets} == {"slow_moe", "fast_moe", "loose"}
        return Counts({("slow_moe", 1): Counted(0.0, 3.9)}, ["no counters of fast_moe at 1: the time was up"])

    monkeypatch.setattr(kernels_bench, "find_ncu", lambda: "ncu")
    monkeypatch.setattr(kernels_bench, "ncu_counts", counts)
    record_green(tmp_path, *bundled())
    document = bench(tmp_path, component="moe", counters=True)
    assert (row(document, "slow_moe").tensor_pipe_pct, row(document, "slow_moe").dram_pct) == (0.0, 3.9)
    assert row(document, "fast_moe").tensor_pipe_pct is None and row(document, "fast_moe").us is not None
    assert "no counters of fast_moe at 1: the time was up" in document.notes
