"""Files to configurations: what belongs together, what is a repeat, what a launch, and what it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from import_samples import aiperf, inference_perf, sglang, vllm, write
from store_samples import make_cell, make_experiment

from dsv4bench.errors import SchemaError, Unanswerable
from dsv4bench.records.cell import Cell, CellsDocument
from dsv4bench.records.codec import encode
from dsv4bench.records.experiment import Status
from dsv4bench.store.importing import read_imported, read_results


def coordinates(arm: Any) -> list[tuple[Any, ...]]:
    return [(c.launch, c.repeat, c.concurrency, c.isl) for c in arm.cells]


def test_three_repeats_of_one_configuration_are_repeats_of_one_launch(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"b_rep{i}.jsonl", sglang(duration=10.0 + i)) for i in (3, 1, 2)]
    (arm,) = read_results(paths)
    assert arm.name == "b" and arm.ids == ["b_rep3.jsonl", "b_rep1.jsonl", "b_rep2.jsonl"]
    assert coordinates(arm) == [("L0", i, 8, 100) for i in range(3)]
    assert [c.duration_s for c in arm.cells] == [11.0, 12.0, 13.0]  # by the repeat's number
    assert [c.cell for c in arm.cells] == ["r0-c8-i100", "r1-c8-i100", "r2-c8-i100"]


def test_a_server_that_drew_another_seed_was_started_again(tmp_path: Path) -> None:
    def run(i: int, seed: int) -> Path:
        info = {"model_path": "m/one", "random_seed": seed}
        return write(tmp_path / f"b_rep{i}.jsonl", sglang(duration=10.0 + i, server_info=info))

    (arm,) = read_results([run(0, 5), run(1, 5), run(2, 6)])
    assert coordinates(arm) == [("L0", 0, 8, 100), ("L0", 1, 8, 100), ("L1", 0, 8, 100)]
    assert len({c.cell for c in arm.cells}) == 3


def test_a_launch_named_in_the_metadata_is_one(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"b_run{i}.json", vllm(launch=str(i), duration=10.0 + i)) for i in range(2)]
    (arm,) = read_results(paths)
    assert [c.launch for c in arm.cells] == ["L0", "L1"]


def test_another_day_is_no_proof_of_another_launch(tmp_path: Path) -> None:
    days = [write(tmp_path / f"b_run{i}.json", vllm(date=f"2026030{i + 1}-120000")) for i in range(2)]
    (arm,) = read_results(days)
    assert coordinates(arm) == [("L0", 0, 8, 100), ("L0", 1, 8, 100)]
    assert any("repeats are taken as one launch" in note for note in arm.notes)


def test_levels_in_several_files_are_one_configuration(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"base_c{c}.json", vllm(max_concurrency=c)) for c in (16, 1, 8)]
    (arm,) = read_results(paths)
    assert arm.name == "base" and [c.concurrency for c in arm.cells] == [1, 8, 16]


def test_a_number_that_is_not_the_levels_stays_in_the_name(tmp_path: Path) -> None:
    (arm,) = read_results([write(tmp_path / "model_c4.json", vllm(max_concurrency=8))])
    assert arm.name == "model_c4"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("tuned/c8/profile_export_aiperf.json", "tuned"),
        ("tuned/profile_export_aiperf.json", "tuned"),
        ("vllm-infqps-concurrency8-model-20260301-120000.json", "vllm-model"),
        ("tuned.json", "tuned"),
    ],
)
def test_a_name_comes_from_the_part_of_the_path_that_says_something(tmp_path: Path, path: str, name: str) -> None:
    (arm,) = read_results([write(tmp_path / path, vllm())])
    assert arm.name == name


def test_a_label_or_tag_is_the_name(tmp_path: Path) -> None:
    assert read_results([write(tmp_path / "a.json", vllm(label="tuned"))])[0].name == "tuned"
    assert read_results([write(tmp_path / "b.jsonl", sglang(tag="tuned"))])[0].name == "tuned"


def test_one_file_name_in_two_folders_is_two_configurations(tmp_path: Path) -> None:
    paths = [write(tmp_path / d / f, sglang()) for d in ("a", "b") for f in ("out.jsonl", "tuned.jsonl")]
    assert [a.name for a in read_results(paths)] == ["a", "tuned (a/tuned.jsonl)", "b", "tuned (b/tuned.jsonl)"]
    labelled = read_results([write(tmp_path / d / "x.json", vllm(label="same")) for d in ("c", "d")])
    assert [a.name for a in labelled] == ["same (c/x.json)", "same (d/x.json)"]


def test_files_of_two_models_or_tools_do_not_join(tmp_path: Path) -> None:
    arms = read_results(
        [
            write(tmp_path / "x_c8.json", vllm()),
            write(tmp_path / "x_c8_run2.json", vllm(model_id="m/two")),
            write(tmp_path / "x_c8_run3.json", aiperf()),
        ]
    )
    assert [(a.source, a.workload["model"], len(a.cells)) for a in arms] == [
        ("vllm", "m/one", 1),
        ("vllm", "m/two", 1),
        ("aiperf", "m/one", 1),
    ]
    assert len({a.name for a in arms}) == 3


def test_one_file_with_two_data_sets_is_two_configurations(tmp_path: Path) -> None:
    path = write(tmp_path / "out2.jsonl", sglang(request_rate=1.0), sglang(dataset_name="custom", request_rate=1.0))
    assert [a.name for a in read_results([path])] == ["out2 sharegpt", "out2 custom"]


def test_a_sweep_folder_counts_each_run_once(tmp_path: Path) -> None:
    for seqs in (4, 8):
        folder = tmp_path / "exp" / f"SERVE--max_num_seqs={seqs}-BENCH--max_concurrency=8"
        runs = [vllm(run_number=i, max_num_seqs=seqs, duration=10.0 + i) for i in range(2)]
        for i, run in enumerate(runs):
            write(folder / f"run={i}.json", run)
        write(folder / "summary.json", runs)
    arms = read_results([tmp_path / "exp"])
    assert [a.name for a in arms] == ["max_num_seqs=4", "max_num_seqs=8"]
    assert [coordinates(a) for a in arms] == [[("L0", 0, 8, 100), ("L0", 1, 8, 100)]] * 2
    assert all("counted once" in " ".join(a.notes) for a in arms)


def test_stages_win_over_their_summary(tmp_path: Path) -> None:
    folder = tmp_path / "run_a"
    write(folder / "stage_0_lifecycle_metrics.json", inference_perf(requested_rate=4.0, achieved_rate=4.0))
    write(folder / "stage_1_lifecycle_metrics.json", inference_perf())
    write(folder / "summary_lifecycle_metrics.json", inference_perf(requested_rate=None))
    write(folder / "stage_0_prometheus_metrics.json", {"vllm:x": 1})
    (arm,) = read_results([folder])
    assert arm.name == "run_a" and [c.rate_req_s for c in arm.cells] == [4.0, 8.0]
    assert any("summary of the stages is left out" in note for note in arm.notes)


def test_lengths_within_two_percent_share_a_coordinate_and_keep_their_mean(tmp_path: Path) -> None:
    near = write(tmp_path / "near_c1.json", vllm(max_concurrency=1, total_input_tokens=8120))
    far = write(tmp_path / "far_c1.json", vllm(max_concurrency=1, total_input_tokens=8800))
    arms = read_results([write(tmp_path / "base_c1.json", vllm(max_concurrency=1)), near, far])
    assert [a.cells[0].isl for a in arms] == [101, 101, 110]
    assert [a.cells[0].isl_mean for a in arms] == [100.0, 101.5, 110.0]


def test_server_facts_are_those_on_which_all_files_agree(tmp_path: Path) -> None:
    def run(i: int, info: Any) -> Path:
        return write(tmp_path / f"b_rep{i}.jsonl", sglang(server_info=info, duration=10.0 + i))

    (arm,) = read_results([run(0, {"tp_size": 4, "x": 1}), run(1, {"tp_size": 4, "x": 2})])
    assert arm.server == {"engine": "sglang", "tp_size": 4}
    (partly,) = read_results([run(0, {"tp_size": 4}), run(1, None)])
    assert partly.server is None


def test_a_folder_without_results_says_so(tmp_path: Path) -> None:
    write(tmp_path / "x.json", {"a": 1})
    with pytest.raises(SchemaError, match="no result file in this folder"):
        read_results([tmp_path])


def test_the_files_of_an_arm_come_with_their_hashes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", vllm())
    (imported,) = read_imported([path])
    assert list(imported.files) == ["a.json"] and len(imported.files["a.json"]) == 64


def test_our_own_cells_and_documents_are_read(tmp_path: Path) -> None:
    cell = msgspec.json.decode(encode(make_cell()), type=Cell)
    lines = tmp_path / "mine.jsonl"
    lines.write_bytes(encode(cell) + b"\n")
    document = tmp_path / "doc.json"
    document.write_bytes(encode(CellsDocument(id="20260101T000000Z-a-b-0000", cells=[cell]), indent=True))
    bare, whole = read_results([lines, document])
    assert (bare.name, bare.source, bare.cells) == ("mine", "dsv4bench", [cell])
    assert (whole.name, whole.cells) == ("20260101T000000Z-a-b-0000", [cell])


def test_an_experiments_cells_bring_its_name_and_facts(tmp_path: Path) -> None:
    with make_experiment(tmp_path, "tuned") as e:
        e.append_cell(make_cell())
        e.finish(Status.COMPLETE)
    for path in (e.path, e.path / "cells.jsonl", e.path / "run.json"):
        (arm,) = read_results([path])
        assert (arm.name, arm.ids, arm.complete) == ("tuned", [e.id], True)
        assert arm.workload["dataset"] == "random" and arm.hardware is not None


def test_our_own_file_without_success_is_refused_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(encode(msgspec.structs.replace(make_cell(), n_ok=0)) + b"\n")
    with pytest.raises(Unanswerable, match="no successful requests"):
        read_results([path])


def test_a_newer_document_of_ours_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "x.json", {"schema": "dsv4bench.cells/9", "cells": []})
    with pytest.raises(SchemaError, match=r"dsv4bench\.cells/9"):
        read_results([path])
