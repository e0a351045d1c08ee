"""Metrics text in each engine's form, mapped to the common names."""

from __future__ import annotations

import pytest

from dsv4bench.errors import Unanswerable
from dsv4bench.records.server import Engine, Gauges
from dsv4bench.server.gauges import delta, parse_gauges

VLLM = """\
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e+09
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 5.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 1.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 87.0
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.79e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 7.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 80.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 7.0
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{engine="0",model_name="m"} 1.79e+09
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 160.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 10.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 14.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 14.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 18.5
# TYPE vllm:time_to_first_token_seconds_created gauge
vllm:time_to_first_token_seconds_created{engine="0",model_name="m"} 1.79e+09
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 146.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 0.336
# TYPE vllm:request_time_per_output_token_seconds histogram
vllm:request_time_per_output_token_seconds_count{engine="0",model_name="m"} 14.0
vllm:request_time_per_output_token_seconds_sum{engine="0",model_name="m"} 0.0377
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 300.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 180.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 90.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
"""


def test_vllm() -> None:
    assert parse_gauges(VLLM, Engine.VLLM, t_s=12.0) == Gauges(
        t_s=12.0,
        running=8,
        waiting=1,
        kv_usage_frac=0.5,
        prompt_tokens_total=87,
        output_tokens_total=160,
        prefix_queries_total=87,
        prefix_hits_total=7,
        spec_drafts_total=100,
        spec_draft_tokens_total=300,
        spec_accepted_total=180,
        preemptions_total=2,
        ttft_sum_s=18.5,
        ttft_count=14,
        tpot_sum_s=0.0377,
        tpot_count=14,
        itl_sum_s=0.336,
        itl_count=146,
        process_start_time_s=1.7e9,
    )


def test_older_vllm_names() -> None:
    old = (
        'vllm:gpu_cache_usage_perc{model_name="m"} 0.4\n'
        'vllm:gpu_prefix_cache_queries_total{model_name="m"} 10\n'
        'vllm:time_per_output_token_seconds_sum{model_name="m"} 2.0\n'
        'vllm:time_per_output_token_seconds_count{model_name="m"} 100\n'
    )
    found = parse_gauges(old, Engine.VLLM)
    assert (found.kv_usage_frac, found.prefix_queries_total) == (0.4, 10)
    assert (found.itl_sum_s, found.itl_count) == (2.0, 100)
    assert found.tpot_sum_s is None
    assert found.running is None
    assert found.process_start_time_s is None


SGLANG = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 4.0
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 4.0
sglang:num_running_reqs{dp_rank="1",engine_type="unified",model_name="m",pp_rank="0",tp_rank="2"} 3.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{dp_rank="0",tp_rank="0"} 2.0
# TYPE sglang:token_usage gauge
sglang:token_usage{dp_rank="0",tp_rank="0"} 0.28
sglang:token_usage{dp_rank="1",tp_rank="2"} 0.31
# TYPE sglang:spec_accept_length gauge
sglang:spec_accept_length{dp_rank="0",tp_rank="0"} 2.4
sglang:spec_accept_length{dp_rank="1",tp_rank="2"} 2.8
sglang:spec_accept_length{dp_rank="2",tp_rank="4"} 0.0
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{is_streaming="false",model_name="m"} 100.0
sglang:prompt_tokens_total{is_streaming="true",model_name="m"} 900.0
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{cache_source="device",model_name="m"} 40.0
sglang:cached_tokens_total{cache_source="host",model_name="m"} 10.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="m"} 500.0
# TYPE sglang:num_retracted_reqs gauge
sglang:num_retracted_reqs{pid="7"} 1.0
# TYPE sglang:num_retracted_requests_total counter
sglang:num_retracted_requests_total{tp_rank="0"} 48.0
# TYPE sglang:time_to_first_token_seconds histogram
sglang:time_to_first_token_seconds_sum{model_name="m"} 2.5
sglang:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 3.0
sglang:time_to_first_token_seconds_count{model_name="m"} 5.0
# TYPE sglang:inter_token_latency_seconds histogram
sglang:inter_token_latency_seconds_sum{model_name="m"} 7.0
sglang:inter_token_latency_seconds_count{model_name="m"} 350.0
"""


@pytest.mark.parametrize("text", [SGLANG, SGLANG.replace("sglang:", "sglang_")], ids=["colon", "underscore"])
def test_sglang_counts_a_scheduler_once_and_sums_the_ranks(text: str) -> None:
    found = parse_gauges(text, Engine.SGLANG)
    assert found.running == 7
    assert found.waiting == 2
    assert found.kv_usage_frac == 0.31
    assert found.spec_accept_length == pytest.approx(2.6)
    assert (found.prompt_tokens_total, found.prefix_queries_total, found.prefix_hits_total) == (1000, 1000, 50)
    assert found.output_tokens_total == 500
    assert found.preemptions_total == 48
    assert (found.ttft_sum_s, found.ttft_count, found.itl_sum_s, found.itl_count) == (2.5, 5, 7.0, 350)
    assert found.tpot_count is None
    assert found.spec_drafts_total is None


def test_sglang_without_speculation_has_no_acceptance_length() -> None:
    assert parse_gauges('sglang:spec_accept_length{tp_rank="0"} 0.0\n', Engine.SGLANG).spec_accept_length is None


def test_sglang_priorities_are_not_counted_twice() -> None:
    text = (
        'sglang:num_running_reqs{priority="",tp_rank="0"} 5.0\n'
        'sglang:num_running_reqs{priority="0",tp_rank="0"} 2.0\n'
        'sglang:num_running_reqs{priority="1",tp_rank="0"} 3.0\n'
    )
    assert parse_gauges(text, Engine.SGLANG).running == 5


def test_older_sglang_name() -> None:
    text = "sglang:time_per_output_token_seconds_sum 1.5\nsglang:time_per_output_token_seconds_count 30\n"
    found = parse_gauges(text, Engine.SGLANG)
    assert (found.itl_sum_s, found.itl_count) == (1.5, 30)


def test_llamacpp_counts_cached_prompt_tokens_apart() -> None:
    text = (
        "# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 41\n"
        "# TYPE llamacpp:prompt_tokens_cached_total counter\nllamacpp:prompt_tokens_cached_total 26\n"
        "# TYPE llamacpp:tokens_predicted_total counter\nllamacpp:tokens_predicted_total 59\n"
        "# TYPE llamacpp:tokens_predicted_seconds_total counter\nllamacpp:tokens_predicted_seconds_total 0.007\n"
        "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 2\n"
        "# TYPE llamacpp:requests_deferred gauge\nllamacpp:requests_deferred 1\n"
    )
    found = parse_gauges(text, Engine.LLAMACPP)
    assert (found.running, found.waiting) == (2, 1)
    assert (found.prompt_tokens_total, found.prefix_queries_total, found.prefix_hits_total) == (67, 67, 26)
    assert found.output_tokens_total == 59
    assert found.kv_usage_frac is None
    older = parse_gauges("llamacpp:prompt_tokens_total 41\n", Engine.LLAMACPP)
    assert older.prompt_tokens_total == 41
    assert older.prefix_queries_total is None


def test_our_own_server_speaks_vllm_with_its_prefix() -> None:
    found = parse_gauges(VLLM.replace("vllm:", "dsv4bench:"), Engine.DSV4BENCH)
    assert found.running == 8
    assert found.tpot_count == 14
    assert parse_gauges(VLLM, Engine.DSV4BENCH).running is None


def test_a_generic_server_is_read_by_the_prefix_it_carries() -> None:
    assert parse_gauges(VLLM, Engine.GENERIC).running == 8
    assert parse_gauges(SGLANG, Engine.GENERIC).running == 7


def test_other_metrics_alone_give_none_and_no_error() -> None:
    found = parse_gauges("# TYPE http_requests_total counter\nhttp_requests_total 5\n", Engine.VLLM)
    assert found.running is None
    assert found.output_tokens_total is None


def test_nan_is_no_value() -> None:
    assert parse_gauges("vllm:num_requests_running NaN\n", Engine.VLLM).running is None


@pytest.mark.parametrize(
    "text",
    ["", "<html>login</html>", '{"error": "x"}', "just words", "vllm:num_requests_running{engine= 3\n", "a\nb\n"],
)
def test_other_text_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(Unanswerable) as refused:
        parse_gauges(text, Engine.VLLM)
    assert refused.value.message


def test_delta() -> None:
    before = Gauges(t_s=1, output_tokens_total=10, process_start_time_s=5)
    after = Gauges(t_s=2, output_tokens_total=25, process_start_time_s=5)
    assert delta(before, after, "output_tokens_total") == 15
    assert delta(before, before, "output_tokens_total") == 0
    assert delta(after, before, "output_tokens_total") is None  # reset: the counter fell
    assert delta(before, after, "prompt_tokens_total") is None  # missing
    restarted = Gauges(t_s=2, output_tokens_total=25, process_start_time_s=9)
    assert delta(before, restarted, "output_tokens_total") is None  # reset that growth hides
    assert delta(None, after, "output_tokens_total") is None
