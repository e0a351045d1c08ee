"""What a name passes over, and what identifies a launch: an older result must never be judged without a word."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from store_samples import EPOCH_S, make_cell, make_experiment, make_server

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.records.experiment import Status
from dsv4bench.runs.arms import arm_of, load_arms
from dsv4bench.runs.compare import CompareOptions, run_compare
from dsv4bench.runs.gate import run_gate
from dsv4bench.runs.same_server import changed_settings
from dsv4bench.store.naming import utc_now
from dsv4bench.store.store import Store


def kept(root: Path, config: str, minutes: int, status: Status = Status.COMPLETE, **cell: object) -> str:
    with make_experiment(root, config, now=utc_now() + timedelta(minutes=minutes)) as e:
        e.append_cell(make_cell(**{"output_tok_s": 20.0, "output_tokens": 2000, "duration_s": 100.0, **cell}))
        e.finish(status, None if status is Status.COMPLETE else "stopped")
    return e.id


def test_a_newer_unfinished_experiment_is_named(tmp_path: Path) -> None:
    old = kept(tmp_path, "configB", 0)
    new = kept(tmp_path, "configB", 1, Status.ABORTED)
    found = Store(tmp_path).resolve("configB")
    assert found.id == old and found.passed_over == [f"{new} is newer and aborted: not used"]
    assert load_arms(["configB"], str(tmp_path))[0].notes == found.passed_over
    assert Store(tmp_path).resolve(old).passed_over == []  # an id says which


def test_a_gate_does_not_judge_an_older_experiment(tmp_path: Path) -> None:
    base = kept(tmp_path, "baseline", 0)
    kept(tmp_path, "configB", 1)
    new = kept(tmp_path, "configB", 2, Status.FAILED)
    with pytest.raises(Unanswerable, match=f"configB: {new} is newer and failed: not used"):
        run_gate(base, "configB", str(tmp_path))


def test_two_servers_started_at_once_are_two_launches(tmp_path: Path) -> None:
    with (
        make_experiment(tmp_path, "a", launches={"L0": EPOCH_S}) as a,
        make_experiment(
            tmp_path, "b", launches={"L0": EPOCH_S}, server=make_server(url="http://127.0.0.1:8001")
        ) as b,
    ):
        for e in (a, b):
            e.append_cell(make_cell())
        launches = {arm_of([e]).cells[0].launch for e in (a, b)}
    assert len(launches) == 2


def test_a_throughput_that_is_not_tokens_over_time_is_refused(tmp_path: Path) -> None:
    kept(tmp_path, "baseline", 0)
    kept(tmp_path, "configB", 1, output_tok_s=200.0)
    with pytest.raises(Unanswerable, match="arithmetic: configB r0-c8-i1024: output_tok_s 200"):
        run_compare(CompareOptions(names=["baseline", "configB"], root=str(tmp_path), keep=False))


def test_a_name_too_long_for_any_file_system(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no name is that long"):
        load_arms(["x" * 5000], str(tmp_path))


def test_settings_of_the_server_that_matter() -> None:
    before = make_server(args={"kernels": "optimized", "port": 1, "nested": {"a": 1}})
    assert changed_settings(before, make_server(args={"kernels": "optimized", "port": 2, "nested": {"a": 1}})) == ""
    after = make_server(args={"kernels": "fallback", "port": 1, "nested": {"a": 2}}, version="2")
    said = changed_settings(before, after)
    assert said == "kernels 'optimized' -> 'fallback'; nested.a 1 -> 2; version None -> '2'"
