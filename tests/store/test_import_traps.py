"""Where two tools use one word for two things, or one thing has two spellings: a test each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from import_samples import (
    aiperf,
    guidellm,
    guidellm_benchmark,
    harness_row,
    inference_perf,
    inferencex,
    measured,
    seconds,
    sglang,
    spread,
    usage,
    vllm,
    write,
)

from dsv4bench.errors import SchemaError, Unanswerable
from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell, Invalid
from dsv4bench.records.request import TokenSource
from dsv4bench.store.importing import read_results


def arm_of(tmp_path: Path, *documents: Any) -> Arm:
    (arm,) = read_results([write(tmp_path / "result.json", *documents)])
    return arm


def cell_of(tmp_path: Path, *documents: Any) -> Cell:
    (cell,) = arm_of(tmp_path, *documents).cells
    return cell


@pytest.mark.parametrize("unlimited", ["inf", float("inf"), None])
@pytest.mark.parametrize("make", [vllm, sglang])
def test_an_unlimited_rate_in_any_spelling_is_a_closed_loop(tmp_path: Path, make: Any, unlimited: Any) -> None:
    cell = cell_of(tmp_path, make(request_rate=unlimited))
    assert (cell.concurrency, cell.rate_req_s) == (8, None)


def test_a_rate_is_an_open_loop_and_its_cap_a_note(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, vllm(request_rate=2.5))
    assert (cell.concurrency, cell.rate_req_s) == (None, 2.5)
    assert "at most 8 requests in flight" in cell.notes


def test_without_cap_and_rate_every_request_was_in_flight(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, vllm(max_concurrency=None))
    assert cell.concurrency == 80
    assert any("sent at once" in note for note in cell.notes)


def test_milliseconds_and_seconds_come_to_the_same(tmp_path: Path) -> None:
    ms, s = cell_of(tmp_path, vllm()), cell_of(tmp_path, inferencex())
    assert ms.tpot_p99_s == pytest.approx(0.036) and s.tpot_p99_s == pytest.approx(0.036)
    profile = aiperf(
        time_to_first_token=measured("us", 100_000.0, p50=99_000.0), benchmark_duration=measured("ms", 1e4)
    )
    cell = cell_of(tmp_path, profile)
    assert (cell.ttft_mean_s, cell.ttft_p50_s, cell.duration_s) == pytest.approx((0.1, 0.099, 10.0))


def test_a_unit_that_is_no_time_gives_no_latency(tmp_path: Path) -> None:
    assert cell_of(tmp_path, aiperf(time_to_first_token=measured("furlong", 3.0, p50=3.0))).ttft_p50_s is None


def test_zero_that_means_no_data_becomes_null_with_a_reason(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, vllm(mean_tpot_ms=0.0, median_tpot_ms=0.0, p99_tpot_ms=0.0))
    assert cell.tpot_mean_s is cell.tpot_p50_s is cell.tpot_p99_s is cell.tok_s_per_user is None
    assert "no data" in cell.why_null["tpot_mean_s"]


def test_goodput_is_read_under_the_key_with_a_colon_too(tmp_path: Path) -> None:
    record = vllm(**{"request_goodput:": 6.0})
    del record["request_goodput"]
    assert cell_of(tmp_path, record).goodput_req_s == 6.0
    assert cell_of(tmp_path, vllm(request_goodput=5.0)).goodput_req_s == 5.0
    assert cell_of(tmp_path, vllm()).goodput_req_s is None


def test_e2el_ends_with_the_last_token_and_e2e_latency_with_the_stream(tmp_path: Path) -> None:
    last = cell_of(tmp_path, vllm())
    assert last.e2e_mean_s == pytest.approx(0.982) and last.e2e_stream_p50_s is None
    stream = cell_of(tmp_path, sglang())
    assert stream.e2e_stream_p50_s == pytest.approx(0.9801)
    assert stream.e2e_mean_s is stream.e2e_p50_s is stream.e2e_p99_s is None
    assert "usage and [DONE]" in stream.why_null["e2e_p50_s"]


def test_total_throughput_in_both_spellings(tmp_path: Path) -> None:
    assert cell_of(tmp_path, vllm()).total_tok_s == cell_of(tmp_path, sglang()).total_tok_s == 1200.0


def test_failures_that_are_not_counted_are_what_was_asked_for_and_not_completed(tmp_path: Path) -> None:
    record = vllm(completed=78)
    del record["failed"]
    cell = cell_of(tmp_path, record)
    assert (cell.n_sent, cell.n_ok, cell.n_err) == (80, 78, 2)
    silent = cell_of(tmp_path, sglang())
    assert silent.n_err == 0 and "counts no failures" in silent.why_null["n_err"]


def test_lines_in_a_json_file_and_one_document_in_a_jsonl_file(tmp_path: Path) -> None:
    lines = write(tmp_path / "a.json", vllm(max_concurrency=1), vllm(max_concurrency=8))
    one = tmp_path / "b.jsonl"
    one.write_text(json.dumps(vllm(), indent=2), encoding="utf-8")
    (several,), (single,) = read_results([lines]), read_results([one])
    assert [c.concurrency for c in several.cells] == [1, 8]
    assert [c.concurrency for c in single.cells] == [8]


def test_a_torn_last_line_is_dropped_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", sglang(), sglang(max_concurrency=16))
    path.write_text(path.read_text()[:-200], encoding="utf-8")
    (arm,) = read_results([path])
    assert [c.concurrency for c in arm.cells] == [8]
    assert "dropped a torn or damaged part after 1 records" in arm.notes


def test_acceptance_is_a_percentage_in_one_key_and_follows_from_the_counts_in_others(tmp_path: Path) -> None:
    counts = {
        "spec_decode_num_drafts": 1000,
        "spec_decode_num_draft_tokens": 2000,
        "spec_decode_num_accepted_tokens": 1350,
    }
    told = cell_of(tmp_path, vllm(spec_decode_acceptance_rate=67.5, spec_decode_acceptance_length=2.35))
    assert told.accept_length == 2.35 and "67.5 % of the drafted tokens accepted" in told.notes
    fraction = cell_of(tmp_path, vllm(spec_decode_acceptance_rate=0.675, **counts))
    assert fraction.accept_length == pytest.approx(2.35)
    assert "67.5 % of the drafted tokens accepted" in fraction.notes


def test_tokens_of_the_server_win_over_the_clients_count(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, aiperf(total_osl=measured("tokens", 4800), **usage(4000)))
    assert (cell.token_source, cell.output_tokens, cell.osl_mean) == (TokenSource.USAGE, 4000, 50.0)
    assert cell.output_tok_s == pytest.approx(400.0) and cell.total_tok_s == pytest.approx(1200.0)
    assert {"tpot_mean_s", "tpot_p50_s", "tpot_p99_s", "tok_s_per_user"} <= set(cell.approximate)
    assert any("the client counted 4800 output tokens, the server 4000" in note for note in cell.notes)


def test_tokens_that_only_the_client_counted_say_so(tmp_path: Path) -> None:
    assert cell_of(tmp_path, aiperf()).token_source is TokenSource.CLIENT
    assert cell_of(tmp_path, inference_perf()).token_source is TokenSource.CLIENT


def test_aiperfs_itl_is_tpot_and_vllms_itl_is_icl(tmp_path: Path) -> None:
    a, v = cell_of(tmp_path, aiperf()), cell_of(tmp_path, vllm(mean_itl_ms=36.0))
    assert a.tpot_mean_s == pytest.approx(0.018) and a.icl_mean_s == pytest.approx(0.036)
    assert v.tpot_mean_s == pytest.approx(0.018) and v.icl_mean_s == pytest.approx(0.036)


def test_guidellms_tpot_holds_the_ttft_and_its_itl_is_tpot(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, guidellm())
    assert cell.tpot_mean_s == pytest.approx(0.018) and cell.ntpot_p50_s == pytest.approx(0.0196)
    assert cell.icl_mean_s is None


def test_guidellms_rate_is_the_mean_of_a_time_weighted_distribution(tmp_path: Path) -> None:
    assert cell_of(tmp_path, guidellm()).request_s == 8.0


def test_inference_perfs_itl_is_no_gap_between_chunks(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, inference_perf())
    assert cell.icl_mean_s is None and "zero inside a chunk" in cell.why_null["icl_mean_s"]
    assert (cell.tpot_p50_s, cell.ntpot_p50_s) == (0.018, 0.0198)


def test_vllms_ttft_on_the_chat_endpoint_is_our_ttfc(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, vllm(endpoint_type="openai-chat"))
    assert cell.ttfc_p50_s == pytest.approx(0.099) and cell.ttft_p50_s is cell.ttft_mean_s is None
    assert "role chunk" in cell.why_null["ttft_p50_s"]


def test_start_times_have_no_epoch_and_give_the_batch_from_the_order_of_events(tmp_path: Path) -> None:
    lists = {
        "start_times": [958.0, 958.0, 959.0, 959.0],
        "latencies": [1.0, 1.0, 1.0, 0.5],
        "ttfts": [0.1, 0.1, 0.1, 0.1],
        "output_lens": [10, 10, 10, 10],
        "itls": [[0.1] * 4] * 4,
        "errors": [""] * 4,
    }
    cell = cell_of(tmp_path, vllm(**lists))
    assert cell.started_utc == "2026-03-01T12:00:00"
    assert cell.peak_in_flight == 2  # their own figure says 19
    assert cell.achieved_batch == pytest.approx(3.5 / 2) and cell.decode_batch == pytest.approx(3.1 / 2)
    assert cell.tokens_per_chunk == 2.0


def test_a_peak_counted_in_one_second_buckets_is_not_taken(tmp_path: Path) -> None:
    for record in (vllm(), sglang()):
        cell = cell_of(tmp_path, record)
        assert cell.peak_in_flight is None and "exceeds the cap" in cell.why_null["peak_in_flight"]


SECRET = "sk-abcdefghijklmnop1234"


def test_no_secret_comes_through(tmp_path: Path) -> None:
    info = {"model_path": "m/one", "version": "1", "api_key": SECRET, "admin_api_key": SECRET, "tp_size": 4}
    arms = [
        arm_of(tmp_path, sglang(server_info={**info, "nested": {"hf_token": SECRET}})),
        arm_of(tmp_path, aiperf(run_info={"cli_command": f"aiperf profile --api-key {SECRET} --model m/one"})),
        arm_of(tmp_path, guidellm()),
        arm_of(tmp_path, [harness_row(command=["vllm", "--header", f"Authorization: Bearer {SECRET}"])]),
        arm_of(tmp_path, vllm(auth_token=SECRET, errors=[f"401 for Bearer {SECRET}"])),
    ]
    assert not [arm.source for arm in arms if SECRET in repr(arm) or "verysecret" in repr(arm)]
    assert arms[0].server is not None and "api_key" not in arms[0].server and arms[0].server["tp_size"] == 4


def test_metadata_text_under_a_numbers_key_is_not_the_number(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, vllm(num_prompts="500", mean_ttft_ms="7", total_output_tokens=4000))
    assert cell.n_sent == 80 and cell.ttft_mean_s is None and cell.ttft_p50_s == pytest.approx(0.099)
    pairs = arm_of(tmp_path, vllm(tensor_parallel_size="4", precision="fp8"))
    assert any("tensor_parallel_size=4" in note and "precision=fp8" in note for note in pairs.notes)


def test_p99_is_not_p999(tmp_path: Path) -> None:
    record = vllm(**{"p99.9_tpot_ms": 999.0})
    assert cell_of(tmp_path, record).tpot_p99_s == pytest.approx(0.036)
    del record["p99_tpot_ms"]
    assert cell_of(tmp_path, record).tpot_p99_s is None
    assert cell_of(tmp_path, guidellm()).ttft_p99_s == pytest.approx(0.180)
    assert cell_of(tmp_path, inference_perf()).tpot_p99_s == pytest.approx(0.036)


def test_a_percentile_that_is_not_in_the_file_stays_unknown(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, vllm())
    assert cell.ttft_p90_s is None and cell.why_null["ttft_p90_s"] == "the file does not tell"
    assert cell_of(tmp_path, vllm(p90_ttft_ms=150.0)).ttft_p90_s == pytest.approx(0.15)


def test_dates_without_a_zone_stay_without_one(tmp_path: Path) -> None:
    for record in (vllm(), aiperf()):
        arm = arm_of(tmp_path, record)
        assert not arm.cells[0].started_utc.endswith("Z")
        assert any("unknown zone" in note for note in arm.notes)
    assert cell_of(tmp_path, guidellm()).started_utc == "2026-03-01T12:00:00.000Z"


def test_lengths_are_the_realised_ones(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, sglang(dataset_name="random", random_input_len=1024, random_output_len=1024))
    assert (cell.isl, cell.isl_mean, cell.osl_mean, cell.osl) == (100, 100.0, 50.0, None)
    assert cell_of(tmp_path, aiperf()).isl == 100  # 128 was asked for


def test_sglangs_native_backend_and_speculation_give_no_icl(tmp_path: Path) -> None:
    assert cell_of(tmp_path, sglang()).icl_mean_s == pytest.approx(0.018)
    for record in (sglang(backend="sglang"), sglang(accept_length=2.4)):
        cell = cell_of(tmp_path, record)
        assert cell.icl_mean_s is None and "spreads a gap" in cell.why_null["icl_mean_s"]


def test_the_identity_of_icl_and_tpot_is_checked_or_used(tmp_path: Path) -> None:
    derived = cell_of(tmp_path, vllm(mean_itl_ms=36.0))
    assert derived.tokens_per_chunk == pytest.approx(2.0) and "tokens_per_chunk" in derived.approximate
    sound = cell_of(tmp_path, [harness_row()])  # 42.3 / 18 = 2.35
    assert not any("do not compare ICL" in note for note in sound.notes)
    broken = cell_of(tmp_path, vllm(mean_itl_ms=18.0, spec_decode_acceptance_length=2.35))
    assert any("mean ICL / mean TPOT is 1.00 where acceptance length is 2.35" in note for note in broken.notes)


@pytest.mark.parametrize("record", [vllm(completed=0, failed=80), sglang(completed=0), inferencex(completed=0)])
def test_no_successful_request_ends_the_import(tmp_path: Path, record: Any) -> None:
    with pytest.raises(Unanswerable, match="no successful requests") as e:
        arm_of(tmp_path, record)
    assert e.value.exit_code == 4


def test_one_failed_level_among_others_is_kept_and_marked(tmp_path: Path) -> None:
    failed = vllm(max_concurrency=16, completed=0, failed=80, output_throughput=0.0, mean_ttft_ms=0.0)
    good, bad = arm_of(tmp_path, vllm(), failed).cells
    assert good.invalid is None and bad.invalid is Invalid.ALL_FAILED and bad.output_tok_s is None
    assert bad.isl == good.isl


@pytest.mark.parametrize("empty", [{"mean_ttft_ms": 0.0, "mean_itl_ms": 0.0}, {"total_output_tokens_retokenized": 0}])
def test_sglang_successes_that_streamed_nothing_are_refused(tmp_path: Path, empty: dict[str, Any]) -> None:
    with pytest.raises(Unanswerable, match="counted as successes"):
        arm_of(tmp_path, sglang(**empty))


def test_sglang_successes_without_a_first_token_count_as_failures(tmp_path: Path) -> None:
    lists = {"output_lens": [50] * 80, "ttfts": [0.1] * 77 + [0.0] * 3, "errors": [""] * 80}
    cell = cell_of(tmp_path, sglang(**lists))
    assert (cell.n_ok, cell.n_err) == (77, 3) and "output_tok_s" in cell.approximate


def test_a_client_that_read_whole_answers_at_once_is_marked(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, vllm(median_tpot_ms=0.0031))
    assert cell.invalid is Invalid.CLIENT_SATURATED and "0.0031 ms" in (cell.invalid_why or "")
    at_once = cell_of(tmp_path, aiperf(inter_token_latency=measured("ms", 1.1, p50=0.0, p99=3.0)))
    assert at_once.invalid is Invalid.CLIENT_SATURATED and at_once.tpot_p50_s is None


def test_a_rate_that_the_client_did_not_hold_is_marked(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, inference_perf(requested_rate=20.0, achieved_rate=8.0, schedule_delay=seconds(5.0)))
    assert cell.invalid is Invalid.CLIENT_SATURATED and cell.queue_client_p99_s == 10.0


def test_guidellm_1_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="GuideLLM report version 1"):
        arm_of(tmp_path, guidellm(version=1))
    old = guidellm()
    del old["metadata"]
    with pytest.raises(SchemaError, match="GuideLLM report version 1"):
        arm_of(tmp_path, {**old, "args": {}})


def test_a_window_that_guidellm_trimmed_is_steady_and_not_the_whole_run(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, guidellm(guidellm_benchmark(warmup_duration=2.0)))
    assert cell.output_tok_s is None and cell.output_tok_s_steady == 400.0 and cell.steady_s == 10.0


def test_guidellms_tpot_of_uneven_answers_enters_no_verdict(tmp_path: Path) -> None:
    b = guidellm_benchmark()
    b["metrics"]["output_token_count"] = spread(50.0, std_dev=20.0)
    assert "tpot_p50_s" in cell_of(tmp_path, guidellm(b)).approximate


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# HELP vllm:x\n", "neither JSON nor JSON lines"),
        ("", "the file is empty"),
        ("[]", "an empty list"),
        ("[1, 2]", "no result file that is known"),
        ('{"a": 1, "b": 2}', "its keys: 'a', 'b'"),
        ('{"metadata": {}, "metrics": {}}', "single requests of AIPerf"),
    ],
)
def test_an_unknown_file_gets_one_line_that_says_what_was_expected(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SchemaError) as e:
        read_results([path])
    assert says in e.value.message and str(path) in e.value.message and "\n" not in e.value.message
    assert "vLLM bench serve" in e.value.hint and "GuideLLM v2" in e.value.hint
