"""The HTTP side in process: formats of both endpoints, refusals, metrics, control calls."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from dsv4bench.engine.app import create_app
from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.loop import EngineLoop

MODEL = "dsv4-tiny"
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}


def _client(**options: Any) -> TestClient:
    config = EngineConfig(kernels="optimized", max_running=4, max_model_len=256, **options)
    return TestClient(create_app(EngineLoop(config)))


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with _client() as client:
        yield client


@pytest.fixture(scope="module")
def speculative() -> Iterator[TestClient]:
    with _client(spec_tokens=4, spec_accept=0.8) as client:
        yield client


def _events(client: TestClient, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = client.post(path, json=body | {"stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def _metrics(client: TestClient) -> dict[str, float]:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {s.name: s.value for f in families for s in f.samples if "le" not in s.labels}


def test_completion_whole_and_streamed_are_the_same_text(client: TestClient) -> None:
    body = GREEDY | {"model": MODEL, "prompt": [1, 2, 3], "max_tokens": 6}
    whole = client.post("/v1/completions", json=body).json()
    assert whole["object"] == "text_completion"
    assert whole["usage"] == {"prompt_tokens": 3, "total_tokens": 9, "completion_tokens": 6}
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["system_fingerprint"].endswith("random-weights")
    events = _events(client, "/v1/completions", body)
    assert len(events) == 6  # one token, one chunk
    assert all(event["choices"][0]["text"] for event in events)
    assert "".join(event["choices"][0]["text"] for event in events) == whole["choices"][0]["text"]
    assert [e["choices"][0]["finish_reason"] for e in events] == [None] * 5 + ["length"]
    assert "usage" not in events[-1]


def test_usage_chunk_and_continuous_usage(client: TestClient) -> None:
    body = GREEDY | {"prompt": "hi", "max_tokens": 3, "stream_options": {"include_usage": True}}
    events = _events(client, "/v1/completions", body)
    assert [event.get("usage") is not None for event in events] == [False, False, False, True]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == {"prompt_tokens": 2, "total_tokens": 5, "completion_tokens": 3}
    body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    events = _events(client, "/v1/completions", body)
    assert [event["usage"]["completion_tokens"] for event in events] == [1, 2, 3, 3]


def test_chat_whole_and_streamed(client: TestClient) -> None:
    body = GREEDY | {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "max_completion_tokens": 4,
        "return_token_ids": True,
    }
    whole = client.post("/v1/chat/completions", json=body).json()
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"]["role"] == "assistant"
    first, *events = _events(client, "/v1/chat/completions", body)
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(event["choices"][0]["delta"]["content"] for event in events)
    assert text == whole["choices"][0]["message"]["content"]
    ids = [token for event in events for token in event["choices"][0]["token_ids"]]
    assert ids == whole["choices"][0]["token_ids"]
    assert len(ids) == whole["usage"]["completion_tokens"] == 4


def test_a_seed_repeats_and_temperature_draws(client: TestClient) -> None:
    body = {"prompt": [1, 2], "max_tokens": 12, "ignore_eos": True, "temperature": 1.0, "return_token_ids": True}

    def ids(seed: int) -> list[int]:
        answer = client.post("/v1/completions", json=body | {"seed": seed}).json()
        return list(answer["choices"][0]["token_ids"])

    assert ids(1) == ids(1) != ids(2)


@pytest.mark.parametrize(
    ("body", "status", "param", "says"),
    [
        ({"prompt": [1, 1024]}, 400, "prompt", "token id 1024 is out of vocabulary"),
        ({"prompt": [1, -1]}, 400, "prompt", "out of vocabulary"),
        ({"prompt": []}, 400, "prompt", "empty"),
        ({"prompt": ["a", "b"]}, 400, "prompt", "not a list of prompts"),
        ({"prompt": [True]}, 400, "prompt", "token ids"),
        ({"prompt": "a", "max_tokens": "x"}, 400, "max_tokens", "Expected `int"),
        ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens", "1 or more"),
        ({"prompt": "a", "max_tokens": 300}, 400, "max_tokens", "takes 256 in all"),
        ({"prompt": [1] * 256}, 400, "prompt", "takes 256 in all"),
        ({"prompt": "a", "min_tokens": 99}, 400, "min_tokens", "min_tokens is 99"),
        ({"prompt": "a", "temperature": -1}, 400, "temperature", "temperature is -1"),
        ({"prompt": "a", "n": 2}, 400, "n", "n=2 is not supported"),
        ({"prompt": "a", "stop": ["x"]}, 400, "stop", "not supported"),
        ({"prompt": "a", "logprobs": 21}, 400, "logprobs", "from 0 to 20"),
        ({"prompt": "a", "stream_options": {}}, 400, "stream_options", "needs stream"),
        ({"prompt": "a", "model": "other"}, 404, "model", "'other' does not exist"),
        ({}, 400, None, "prompt"),
    ],
)
def test_refusals(client: TestClient, body: dict[str, Any], status: int, param: str | None, says: str) -> None:
    response = client.post("/v1/completions", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (status, status, param)
    assert says in error["message"]


def test_bad_json_and_empty_chat(client: TestClient) -> None:
    response = client.post("/v1/completions", content=b"{nope")
    assert response.status_code == 400
    assert "not JSON" in response.json()["error"]["message"]
    assert client.post("/v1/chat/completions", json={"messages": []}).status_code == 400


def test_models_health_and_server_info(client: TestClient) -> None:
    model = client.get("/v1/models").json()["data"][0]
    assert (model["id"], model["owned_by"], model["max_model_len"]) == (MODEL, "dsv4bench", 256)
    assert client.get("/health").status_code == 200
    info = client.get("/server_info").json()
    assert (info["engine"], info["weights"], info["preset"]) == ("dsv4bench", "random", "tiny")
    assert (info["kernels"], info["vocab_size"], info["speculation"]) == ("optimized", 1024, None)
    assert info["args"]["max_running"] == 4
    assert (info["live"]["moe"], info["live"]["attention"], info["live"]["device"]) == (
        "optimized",
        "optimized",
        "cpu",
    )
    told = client.get("/metrics").text
    assert 'dsv4bench:kernels_info{attention_kernel="optimized",cuda_graphs="false",device="cpu"' in told
    assert "no prefix cache" in client.post("/flush_cache").text


def test_metrics_count_what_was_served(client: TestClient) -> None:
    before = _metrics(client)
    client.post("/v1/completions", json=GREEDY | {"prompt": [1, 2, 3, 4], "max_tokens": 5})
    after = _metrics(client)
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    prefix = "dsv4bench:"
    assert grown[prefix + "prompt_tokens_total"] == 4
    assert grown[prefix + "generation_tokens_total"] == 5
    assert grown[prefix + "request_success_total"] == 1
    assert grown[prefix + "time_to_first_token_seconds_count"] == 1
    assert grown[prefix + "inter_token_latency_seconds_count"] == 4
    assert grown[prefix + "request_time_per_output_token_seconds_count"] == 1
    assert grown[prefix + "e2e_request_latency_seconds_count"] == 1
    assert after[prefix + "num_requests_running"] == after[prefix + "kv_cache_usage_perc"] == 0
    assert after["process_start_time_seconds"] > 1.6e9
    assert not [name for name in after if "spec_decode" in name or "prefix_cache" in name]


def test_speculation_is_declared_everywhere(speculative: TestClient) -> None:
    info = speculative.get("/server_info").json()["speculation"]
    assert (info["kind"], info["tokens_verified"], info["draft_cost"]) == ("synthetic", 4, "none")
    body = GREEDY | {"prompt": [1, 2], "max_tokens": 30, "seed": 3, "stream_options": {"include_usage": True}}
    *events, usage = _events(speculative, "/v1/completions", body | {"return_token_ids": True})
    assert all(event["speculation"] == "synthetic" for event in [*events, usage])
    sizes = [len(event["choices"][0]["token_ids"]) for event in events]
    assert sum(sizes) == usage["usage"]["completion_tokens"] == 30
    assert 1 < max(sizes) <= 4
    metrics = _metrics(speculative)
    drafts = metrics["dsv4bench:spec_decode_num_drafts_total"]
    assert drafts == len(events) - 1
    assert metrics["dsv4bench:spec_decode_num_draft_tokens_total"] == 3 * drafts
    assert metrics["dsv4bench:spec_decode_num_accepted_tokens_total"] > 0
    assert "synthetic" in speculative.get("/metrics").text


def test_profile_writes_an_annotated_trace(client: TestClient, tmp_path: Path) -> None:
    wanted = {"num_steps": 3, "activities": ["GPU"], "output_dir": str(tmp_path), "profile_prefix": "c1"}
    assert client.post("/start_profile", json=wanted).status_code == 200
    assert client.post("/start_profile", json=wanted).status_code == 400  # one at a time
    client.post("/v1/completions", json=GREEDY | {"prompt": [1, 2], "max_tokens": 5})
    assert "c1-" in client.post("/stop_profile").text  # it had ended by itself after three steps
    (path,) = tmp_path.glob("c1-*-TP-0.trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    assert [name for name in names if name.startswith("step[")] == [
        "step[EXTEND bs=1 toks=2]",
        "step[DECODE bs=1]",
        "step[DECODE bs=1]",
    ]
    parts = {"moe", "router", "attention", "indexer", "compressor", "kv_write", "dense", "mhc", "glue", "sampling"}
    assert parts <= set(names)


def test_one_kernel_of_each_set() -> None:
    config = EngineConfig(kernels="optimized", attention_kernel="fallback", max_running=1, max_model_len=64)
    with TestClient(create_app(EngineLoop(config))) as mixed:
        info = mixed.get("/server_info").json()
        assert info["kernels"] == "moe optimized, attention fallback"
        assert (info["live"]["moe"], info["live"]["attention"]) == ("optimized", "fallback")
        assert (info["args"]["attention_kernel"], info["args"].get("moe_kernel")) == ("fallback", None)
        body = GREEDY | {"prompt": [1, 2, 3], "max_tokens": 3}
        assert mixed.post("/v1/completions", json=body).json()["usage"]["completion_tokens"] == 3


def test_a_capture_range_needs_a_gpu(client: TestClient) -> None:
    response = client.post("/start_profile", json={"activities": ["CUDA_PROFILER"]})
    assert response.status_code == 400
    assert "CUDA_PROFILER needs a GPU" in response.json()["error"]["message"]
    assert client.post("/start_profile", json={"num_steps": 1}).status_code == 200, "it has armed nothing"
    client.post("/stop_profile")


@pytest.mark.parametrize("body", [{"num_steps": 0}, {"profile_by_stage": True}, {"profile_prefix": "a/b"}])
def test_profile_refuses_what_it_cannot_do(client: TestClient, body: dict[str, Any]) -> None:
    response = client.post("/start_profile", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_a_failed_step_ends_every_stream_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EngineLoop(EngineConfig(kernels="optimized", max_model_len=256))

    def broken() -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(engine._stepper, "step", broken)
    with TestClient(create_app(engine)) as client:
        (event,) = _events(client, "/v1/completions", {"prompt": [1]})
        assert (event["error"]["code"], "boom" in event["error"]["message"]) == (500, True)
        assert client.get("/health").status_code == 503
        refused = client.post("/v1/completions", json={"prompt": [1]})
        assert (refused.status_code, "engine is dead" in refused.text) == (500, True)
