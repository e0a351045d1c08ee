"""Breakdowns by coordinate: where they lie, what replaces what, and how they read as shares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from store_samples import make_experiment

from dsv4bench.errors import StoreError, UsageError
from dsv4bench.records.breakdown import BreakdownDocument, DeviceBreakdown, KernelRow, StepComponent, Steps
from dsv4bench.records.codec import encode
from dsv4bench.store.breakdowns import kernel_shares, read, shares_in, shares_of, write


def document(concurrency: int = 16, moe: int = 400, **fields: Any) -> BreakdownDocument:
    parts = {"moe": moe, "attention": 300, "other": 100}
    components = [StepComponent(component=c, median_ns=ns, exclusive_median_ns=ns) for c, ns in parts.items()]
    steps = Steps(count=12, method="annotation", median_ns=1000, idle_median_ns=150, components=components)
    known: dict[str, Any] = {"config": "baseline", "concurrency": concurrency, "isl": 1024, "steps": steps}
    return BreakdownDocument(**{**known, **fields})


def by_component(found: BreakdownDocument) -> dict[str, float]:
    return {s.component: s.share_frac for s in kernel_shares(found)}


def test_in_the_newest_complete_experiment_or_a_file_of_its_own(tmp_path: Path) -> None:
    assert write(tmp_path, document()) == tmp_path / "breakdowns" / "baseline-c16.json"
    running = make_experiment(tmp_path)
    assert write(tmp_path, document(8)).parent.name == "breakdowns"  # it is not complete
    running.finish()
    path = write(tmp_path, document(1))
    assert path == running.path / "kernels.json" and not (running.path / "lock").exists()
    assert {s.concurrency for s in shares_of(tmp_path, "baseline").shares} == {1, 8, 16}
    assert {s.concurrency for s in shares_of(tmp_path, "baseline", [running.id]).shares} == {1, 8, 16}
    assert shares_of(tmp_path, "nosuch").shares == []


def test_a_coordinate_is_replaced_and_others_stay(tmp_path: Path) -> None:
    experiment = make_experiment(tmp_path)
    experiment.finish()
    for made in (document(), document(1), document(moe=500), document(isl=8192)):
        path = write(tmp_path, made)
    assert [(b.concurrency, b.isl) for b in read(path)] == [(1, 1024), (16, 1024), (16, 8192)]
    (again,) = [b for b in read(path) if (b.concurrency, b.isl) == (16, 1024)]
    assert by_component(again)["moe"] == pytest.approx(500 / 1050)  # medians of parts exceed the span: scaled


def test_the_experiment_wins_over_the_file_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, document(moe=100))
    make_experiment(tmp_path).finish()
    write(tmp_path, document(moe=400))
    (moe,) = [s for s in shares_of(tmp_path, "baseline").shares if s.component == "moe"]
    assert moe.share_frac == 0.4


def test_shares_are_of_the_span_and_leave_the_unnamed_unattributed(tmp_path: Path) -> None:
    found = by_component(document())
    assert found == {"moe": 0.4, "attention": 0.3, "idle": 0.15}
    assert 1 - sum(found.values()) == pytest.approx(0.15)  # 10 % other, 5 % that no median holds
    assert {s.of for s in kernel_shares(document())} == {"span"}
    assert kernel_shares(document(config=None)) == []


def test_without_steps_the_shares_are_of_busy_time() -> None:
    from dsv4bench.records.breakdown import ComponentTime

    device = DeviceBreakdown(
        device=0,
        label=None,
        rank=None,
        file="f",
        window_ns=1000,
        kernel_sum_ns=900,
        kernel_busy_ns=800,
        any_busy_ns=800,
        copy_only_ns=0,
        idle_ns=200,
        overlap_ns=80,
        opaque_graph_ns=0,
        kernels=3,
        components=[ComponentTime(component="moe", time_ns=500, exclusive_ns=400)],
        rows=[KernelRow(name="k", component="moe", count=1, time_ns=500, runs_on="cuda", evidence="sass")],
    )
    shares = kernel_shares(document(steps=None, devices=[device]))
    assert {s.component: s.share_frac for s in shares} == {"moe": 0.5, "overlap": 0.1}
    assert {s.of for s in shares} == {"busy"}
    assert (shares[0].runs_on, shares[0].evidence) == ("CUDA cores", "sass")


def test_any_kernels_json_reads_as_shares(tmp_path: Path) -> None:
    published = Path(__file__).resolve().parents[2] / "scenarios" / "campaign_2026" / "kernels.json"
    assert shares_in(published).published and len(shares_in(published).shares) == 7
    one = tmp_path / "one.json"
    one.write_bytes(encode(document()))
    assert not shares_in(one).published and len(shares_in(one).shares) == 3


def test_a_damaged_file_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    write(tmp_path, document())
    (tmp_path / "breakdowns" / "baseline-c1.json").write_text('{"schema": "dsv4bench.breakdowns/1", "breakd')
    shares, warnings = shares_of(tmp_path, "baseline")
    assert len(shares) == 3 and len(warnings) == 1 and "baseline-c1.json" in warnings[0]


def test_a_breakdown_without_a_coordinate_is_not_stored(tmp_path: Path) -> None:
    for made in (document(config=None), document(concurrency=None)):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="without a coordinate"):
            write(tmp_path, made)
    assert not (tmp_path / "breakdowns").exists()


def test_an_experiment_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    experiment = make_experiment(tmp_path)
    experiment.finish()
    from dsv4bench.store.lock import Lock

    lock = Lock(experiment.path)
    with pytest.raises(StoreError, match="is writing here"):
        write(tmp_path, document())
    lock.release()
    assert write(tmp_path, document()).is_file()
