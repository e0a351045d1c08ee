"""`kernels ab`: two sides in turn, and a verdict from times that a test gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kernel_lab import DEVICE, REGISTRY, Clock, PlainMoe, ToyKernel, ToyLab, bundled, record_green

from dsv4bench.errors import MeasuredBad, Unanswerable, UsageError
from dsv4bench.records.codec import decode
from dsv4bench.records.kernels import AbDocument
from dsv4bench.records.verdict import Grade, Verdict
from dsv4bench.runs.kernels_ab import AbOptions, in_turn, judged, run_ab
from dsv4bench.runs.kernels_rows import kernel_sample
from dsv4bench.store import kernels as store


class Base(PlainMoe):
    pass


class New(PlainMoe):
    pass


PAIR = (ToyKernel("base", "moe", "fallback", Base), ToyKernel("new", "moe", "optimized", New, replaces="base"))


def ab(root: Path, seconds: dict[type, float], registry: Any = PAIR, **options: Any) -> AbDocument:
    lab = ToyLab(Clock(lambda runner: seconds[type(runner)]))
    asked = AbOptions(**{"name": "new", "batch": [4], "out": str(root), **options})
    return run_ab(asked, lambda _: None, lab, registry)


def samples(pairs: list[tuple[float, float]], batch: int = 1) -> list[Any]:
    return [
        kernel_sample(name, batch, i, i, pair[side])
        for side, name in enumerate(("base", "new"))
        for i, pair in enumerate(pairs)
    ]


def verdict(pairs: list[tuple[float, float]]) -> Any:
    (row,) = judged(samples(pairs), "base", "new", {1: "shape"})
    return row


def test_a_faster_kernel_gains_and_the_change_is_of_the_base(tmp_path: Path) -> None:
    record_green(tmp_path, *PAIR)
    (row,) = ab(tmp_path, {Base: 1e-3, New: 0.5e-3}).rows
    assert row.verdict is Verdict.GAIN and row.grade is Grade.E2 and row.pairs == 6
    assert row.delta_frac == pytest.approx(-0.5, abs=0.01) and row.ci_frac is not None and row.ci_frac[1] < -0.4
    assert row.base_us == pytest.approx(1000, rel=0.01) and row.new_us == pytest.approx(500, rel=0.01)


def test_a_slower_kernel_loses(tmp_path: Path) -> None:
    record_green(tmp_path, *PAIR)
    assert ab(tmp_path, {Base: 1e-3, New: 1.2e-3}).rows[0].verdict is Verdict.LOSS


def test_equal_kernels_are_shown_to_be_equal() -> None:
    row = verdict([(100e-6, 100.1e-6), (100e-6, 99.9e-6), (101e-6, 101e-6), (99e-6, 99.1e-6), (100e-6, 100e-6)])
    assert row.verdict is Verdict.NO_EFFECT and row.limit_frac == 0.02


def test_noise_is_not_a_verdict_and_says_what_would_be_needed() -> None:
    row = verdict([(100e-6, 90e-6), (100e-6, 112e-6), (100e-6, 95e-6), (100e-6, 104e-6)])
    assert row.verdict is Verdict.UNRESOLVED
    assert "could have seen" in row.reason and "pairs of launches" not in row.reason


def test_drift_that_both_sides_share_is_cancelled() -> None:
    drifting = [100e-6 * (1 + 0.05 * i) for i in range(6)]
    row = verdict([(t, t * 0.9) for t in drifting])
    assert row.verdict is Verdict.GAIN and row.delta_frac == pytest.approx(-0.1, abs=1e-3)


def test_sides_alternate() -> None:
    order: list[str] = []

    class Watch:
        def replays(self, calls: Any) -> list[float]:
            order.append(calls[0])
            return [1.0]

    base, new = in_turn([["A"], ["B"]], 4, Watch())  # type: ignore[list-item]
    assert "".join(order) == "ABBAABBA" and len(base) == len(new) == 4


def test_batches_are_judged_together_and_stored(tmp_path: Path) -> None:
    record_green(tmp_path, *PAIR)
    document = ab(tmp_path, {Base: 1e-3, New: 0.9e-3}, batch=[1, 4], pairs=4)
    assert [r.batch for r in document.rows] == [1, 4] and len(document.samples) == 2 * 2 * 4
    (path,) = store.folder_of(tmp_path, DEVICE.name).glob("ab-*-new.json")
    stored = decode(path.read_bytes(), AbDocument, str(path))
    assert (stored.base, stored.new, stored.component) == ("base", "new", "moe")
    assert path.with_suffix(".md").read_text().startswith("# new vs base: Test GPU")


def test_a_side_that_may_not_be_timed_is_refused(tmp_path: Path) -> None:
    record_green(tmp_path, PAIR[0])
    with pytest.raises(Unanswerable) as failure:
        ab(tmp_path, {Base: 1.0, New: 1.0})
    assert failure.value.message == "new: its parity was never checked on this GPU"
    assert failure.value.hint == "run `dsv4bench kernels check` first"


def test_a_side_that_is_wrong_is_not_timed(tmp_path: Path) -> None:
    record_green(tmp_path, *bundled())
    with pytest.raises(MeasuredBad, match="wrong at 4: its result is wrong on this data"):
        ab(tmp_path, {PlainMoe: 1e-3}, REGISTRY, name="wrong")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": 3}, "--pairs 3"),
        ({"name": "nothing"}, "kernel 'nothing' is unknown"),
        ({"name": "slow_moe"}, "slow_moe is compared with itself"),
        ({"name": "slow_moe,fast_moe"}, "two kernels are compared, no more"),
        (
            {"name": "fast_moe", "against": "slow_attention"},
            "fast_moe is a kernel of moe, slow_attention of attention",
        ),
        ({"batch": [99]}, "--batch 99"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(UsageError) as failure:
        ab(tmp_path, {PlainMoe: 1e-3}, REGISTRY, **options)
    assert message in failure.value.message
