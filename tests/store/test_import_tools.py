"""Each tool's file: recognised by what it holds, and its figures under our names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from import_samples import (
    ALL,
    aiperf,
    guidellm,
    guidellm_benchmark,
    harness_row,
    inference_perf,
    inferencex_processed,
    measured,
    one_batch,
    sglang,
    spread,
    vllm,
    write,
)

from dsv4bench.errors import SchemaError, Unanswerable
from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Invalid
from dsv4bench.records.request import TokenSource
from dsv4bench.store.importing import read_file, read_results


def arm_of(tmp_path: Path, *documents: Any) -> Arm:
    (arm,) = read_results([write(tmp_path / "result.json", *documents)])
    return arm


@pytest.mark.parametrize("tool", ALL)
def test_the_tool_is_recognised_by_content_under_any_name(tmp_path: Path, tool: str) -> None:
    file = read_file(write(tmp_path / "vllm_sglang_aiperf.txt", ALL[tool]))
    assert file.tool == tool and len(file.sha256) == 64


@pytest.mark.parametrize("tool", [t for t in ALL if t != "sglang-one-batch"])
def test_one_run_told_by_every_tool_gives_the_same_throughput(tmp_path: Path, tool: str) -> None:
    cell = arm_of(tmp_path, ALL[tool]).cells[0]
    assert cell.output_tok_s == pytest.approx(400.0)
    assert cell.request_s == pytest.approx(8.0) and cell.duration_s == pytest.approx(10.0)
    assert (cell.n_ok, cell.isl, cell.isl_mean, cell.osl_mean) == (80, 100, 100.0, 50.0)
    assert cell.tpot_p50_s == pytest.approx(0.018, rel=0.05) and cell.ttft_p50_s == pytest.approx(0.1, rel=0.15)


@pytest.mark.parametrize("tool", ALL)
def test_what_a_file_cannot_tell_is_null_with_a_reason(tmp_path: Path, tool: str) -> None:
    cell = arm_of(tmp_path, ALL[tool]).cells[0]
    assert cell.client_lag_p99_s is None and cell.why_null["client_lag_p99_s"]
    assert (cell.timestamps, cell.n_workers) == ("unknown", 0)
    for field in ("ttft_p50_s", "tpot_p50_s", "e2e_p50_s", "icl_p50_s", "tokens_per_chunk", "peak_in_flight"):
        assert getattr(cell, field) is not None or cell.why_null[field]


def test_vllm_facts_and_what_the_user_wrote_into_the_file(tmp_path: Path) -> None:
    arm = arm_of(tmp_path, vllm(tp="4"))
    assert arm.workload == {"model": "m/one", "tokenizer": "m/one", "endpoint": "completions"}
    assert arm.server is None and arm.hardware is None
    assert "said by the file: tp=4" in arm.notes


def test_means_over_several_runs_in_one_object_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unanswerable, match="means over several runs"):
        arm_of(tmp_path, vllm(output_throughput={"mean": 400.0, "cv": 0.01}))


def test_sglang_facts(tmp_path: Path) -> None:
    info = {
        "model_path": "/cache/hub/models--Qwen--Qwen3-8B/snapshots/0c35",
        "version": "0.5.9",
        "cuda_graph_bs": [1, 2],
        "internal_states": [{"last_gen_throughput": 12.3}],
        "random_seed": 3,
    }
    arm = arm_of(tmp_path, sglang(server_info=info, dataset_name="random", random_range_ratio=0.0))
    assert arm.workload["model"] == "Qwen/Qwen3-8B"
    assert arm.workload["dataset"] == "random, range ratio 0"
    assert arm.server is not None
    assert (arm.server["engine"], arm.server["version"], arm.server["cuda_graph_bs"]) == ("sglang", "0.5.9", "[1, 2]")
    assert not {"internal_states", "random_seed"} & set(arm.server)  # they change without anyone changing them


def test_one_batch_throughput_is_over_the_whole_batch(tmp_path: Path) -> None:
    cell = arm_of(tmp_path, one_batch()).cells[0]
    assert (cell.concurrency, cell.n_ok, cell.isl) == (16, 16, 1024)
    assert cell.output_tok_s == 512.0  # 4096 tokens in 8 s; their 600 leaves the prefill out
    assert (cell.output_tok_s_steady, cell.steady_s) == (640.0, 5.0)
    assert cell.accept_length is None and cell.ttft_p50_s is None
    uncounted = arm_of(tmp_path, one_batch(total_output_tokens=None)).cells[0]
    assert uncounted.token_source is TokenSource.NONE and "output_tok_s" in uncounted.approximate


def test_aiperf_errors_cancelling_and_gpus(tmp_path: Path) -> None:
    record = aiperf(
        was_cancelled=True,
        error_request_count=measured("requests", 4),
        error_summary=[{"error_details": {"type": "TimeoutError", "code": 0}, "count": 4}],
        telemetry_data={
            "endpoints": {"host:9400": {"gpus": {"gpu_0": {"gpu_name": "H200"}, "gpu_1": {"gpu_name": "H200"}}}}
        },
    )
    arm = arm_of(tmp_path, record)
    (cell,) = arm.cells
    assert (cell.n_sent, cell.n_err, cell.errors) == (84, 4, {"TimeoutError": 4})
    assert cell.invalid is Invalid.INTERRUPTED and not arm.complete
    assert arm.hardware == {"gpus": "H200, H200", "n_gpus": 2}
    assert arm.workload == {"model": "m/one", "endpoint": "chat", "dataset": "synthetic", "ignore_eos": True}


def test_aiperf_before_it_had_phases(tmp_path: Path) -> None:
    (cell,) = arm_of(tmp_path, aiperf(schema_version="1.0", input_config={"loadgen": {"concurrency": 4}})).cells
    assert cell.concurrency == 4


def test_guidellm_has_a_level_a_benchmark(tmp_path: Path) -> None:
    rate = guidellm_benchmark()
    rate["config"]["strategy"] = {"type_": "constant", "rate": 2.0, "max_concurrency": 10240}
    cut = guidellm_benchmark()
    cut["metrics"]["request_totals"] = {"successful": 70, "incomplete": 8, "errored": 2}
    cut["metrics"]["output_tokens_per_iteration"] = spread(1.5)
    closed, opened = arm_of(tmp_path, guidellm(cut, rate)).cells[::-1]
    assert (closed.concurrency, closed.n_ok, closed.n_err, closed.n_cancelled) == (8, 70, 2, 8)
    assert closed.tokens_per_chunk == 1.5
    assert (opened.concurrency, opened.rate_req_s) == (None, 2.0)


def test_an_inference_perf_summary_is_shown_and_enters_no_verdict(tmp_path: Path) -> None:
    summary = inference_perf(requested_rate=None)
    (cell,) = arm_of(tmp_path, summary).cells
    assert cell.rate_req_s == 8.0
    assert {"output_tok_s", "ttft_p50_s", "tpot_mean_s", "e2e_stream_p50_s"} <= set(cell.approximate)


def test_a_processed_inferencex_file_is_multiplied_back(tmp_path: Path) -> None:
    arm = arm_of(tmp_path, inferencex_processed())
    (cell,) = arm.cells
    assert (cell.output_tok_s, cell.total_tok_s) == (400.0, 1200.0)
    assert cell.tpot_mean_s == 0.018 and cell.isl == 1024 and cell.isl_mean is None
    assert "drops the counts" in cell.why_null["n_ok"]
    assert arm.hardware == {"gpus": "h200", "n_gpus": 8}
    split = arm_of(tmp_path, inferencex_processed(disagg=True)).cells[0]
    assert split.output_tok_s is None and "number of GPUs" in split.why_null["output_tok_s"]


def test_the_harness_command_tells_what_was_sent(tmp_path: Path) -> None:
    command = ["vllm", "bench", "serve", "--model", "m/one", "--backend", "openai-chat", "--dataset-path", "mt-bench"]
    command += ["--temperature", "1.0", "--ignore-eos", "--random-input-len", "9999"]
    arm = arm_of(tmp_path, [harness_row(command=command)])
    assert arm.workload == {
        "model": "m/one",
        "endpoint": "chat",
        "dataset": "mt-bench",
        "temperature": 1.0,
        "ignore_eos": True,
    }
    (cell,) = arm.cells
    assert cell.isl == 100 and cell.accept_length == 2.35
    assert cell.ttft_p50_s is None and cell.ttfc_p50_s == pytest.approx(0.099)


def test_a_failed_row_of_the_harness_is_kept(tmp_path: Path) -> None:
    failed = harness_row(16, ok=False, detail="server died", metrics={})
    good, bad = arm_of(tmp_path, [harness_row(8), failed]).cells
    assert good.invalid is None and bad.invalid is Invalid.ALL_FAILED
    assert (bad.n_sent, bad.n_err) == (80, 80)
    assert "the harness says not ok: server died" in bad.notes


def test_records_of_two_tools_in_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="records of sglang and vllm"):
        arm_of(tmp_path, vllm(), sglang())
