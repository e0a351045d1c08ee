"""Log-probabilities: both of OpenAI's forms, whole and streamed, against the plain decoder; refused on a GPU."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from dsv4bench.engine import reference
from dsv4bench.engine.app import create_app
from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.loop import EngineLoop
from dsv4bench.engine.protocol import ApiError, RequestReader
from dsv4bench.engine.tokenizer import ToyTokenizer
from dsv4bench.engine.weights import RandomWeights

PROMPT = [5, 900, 17, 3]
GREEDY: dict[str, Any] = {
    "prompt": PROMPT, "temperature": 0, "ignore_eos": True, "max_tokens": 6, "return_token_ids": True
}  # fmt: skip


def _client(**options: Any) -> TestClient:
    return TestClient(create_app(EngineLoop(EngineConfig(max_running=2, max_model_len=128, **options))))


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with _client() as client:
        yield client


def _choice(client: TestClient, body: dict[str, Any], path: str = "/v1/completions") -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["choices"][0])


def _log_softmax(client: TestClient, tokens: list[int]) -> torch.Tensor:
    config = client.app.state.service.config  # type: ignore[attr-defined]
    weights = RandomWeights(config.dims, config.seed, "cpu").draw()
    return torch.log_softmax(reference.logits(tokens, weights, config.dims).float(), dim=-1)


def test_they_are_those_of_the_plain_decoder(client: TestClient) -> None:
    choice = _choice(client, GREEDY | {"logprobs": 3, "return_tokens_as_token_ids": True})
    ids, told = choice["token_ids"], choice["logprobs"]
    expected = _log_softmax(client, [*PROMPT, *ids])[len(PROMPT) - 1 : -1]
    assert told["tokens"] == [f"token_id:{i}" for i in ids]
    own = [float(row[i]) for row, i in zip(expected, ids, strict=True)]
    assert told["token_logprobs"] == pytest.approx(own, abs=1e-3)
    for row, best, token in zip(expected, told["top_logprobs"], ids, strict=True):
        assert len(best) == 3 and f"token_id:{token}" in best  # greedy: the chosen one is the best
        assert max(best.values()) == best[f"token_id:{token}"]
        assert list(best.values()) == pytest.approx(row.topk(3).values.tolist(), abs=1e-3)


def test_tokens_are_text_unless_ids_are_asked_for(client: TestClient) -> None:
    choice = _choice(client, GREEDY | {"logprobs": 0})
    told = choice["logprobs"]
    assert "".join(told["tokens"]) == choice["text"]
    assert [choice["text"][at] for at in told["text_offset"]] == [token[0] for token in told["tokens"]]
    assert [list(best) for best in told["top_logprobs"]] == [[token] for token in told["tokens"]]
    assert all(p < 0 for p in told["token_logprobs"])


def test_nothing_is_told_unasked(client: TestClient) -> None:
    assert _choice(client, GREEDY)["logprobs"] is None
    assert _choice(client, GREEDY | {"logprobs": False})["logprobs"] is None


def test_streamed_they_are_the_same(client: TestClient) -> None:
    whole = _choice(client, GREEDY | {"logprobs": 2})["logprobs"]
    text = client.post("/v1/completions", json=GREEDY | {"logprobs": 2, "stream": True}).text
    events = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
    parts = [event["choices"][0]["logprobs"] for event in events]
    for field in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [value for part in parts for value in part[field]] == whole[field]


def test_chat_has_its_own_form(client: TestClient) -> None:
    body = {k: v for k, v in GREEDY.items() if k != "prompt"} | {"messages": [{"role": "user", "content": "hi"}]}
    choice = _choice(client, body | {"logprobs": True, "top_logprobs": 2}, "/v1/chat/completions")
    content = choice["logprobs"]["content"]
    assert len(content) == 6
    assert "".join(entry["token"] for entry in content) == choice["message"]["content"]
    for entry in content:
        assert bytes(entry["bytes"]).decode() == entry["token"]
        first, second = entry["top_logprobs"]
        assert (first["token"], first["logprob"]) == (entry["token"], entry["logprob"])
        assert second["logprob"] <= first["logprob"]
    assert _choice(client, body, "/v1/chat/completions")["logprobs"] is None
    refused = client.post("/v1/chat/completions", json=body | {"top_logprobs": 2})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "top_logprobs")


def test_a_drawn_token_that_is_not_among_the_best_is_told_too(client: TestClient) -> None:
    body = GREEDY | {"logprobs": 1, "temperature": 5.0, "seed": 1, "return_tokens_as_token_ids": True}
    choice = _choice(client, body)
    sizes = [len(best) for best in choice["logprobs"]["top_logprobs"]]
    assert set(sizes) <= {1, 2} and 2 in sizes
    told = zip(choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"], strict=True)
    for token, (p, best) in zip(choice["token_ids"], told, strict=True):
        assert best[f"token_id:{token}"] == p <= max(best.values())


def test_speculation_tells_one_for_every_emitted_token() -> None:
    with _client(spec_tokens=3, spec_accept=0.8) as client:
        choice = _choice(client, GREEDY | {"logprobs": 1, "seed": 3, "return_tokens_as_token_ids": True})
        ids, told = choice["token_ids"], choice["logprobs"]
        assert len(ids) == len(told["tokens"]) == 6
        expected = _log_softmax(client, [*PROMPT, *ids])[len(PROMPT) - 1 : -1]
    own = [float(row[i]) for row, i in zip(expected, ids, strict=True)]
    assert told["token_logprobs"] == pytest.approx(own, abs=1e-3)
    assert math.fsum(told["token_logprobs"]) < -6, "an accepted draft is random, and unlikely to the model"


def test_on_a_gpu_they_are_refused_by_name() -> None:
    assert not EngineConfig(device="cuda", preset="flash-layers", layers=1).tells_logprobs
    reader = RequestReader(ToyTokenizer(1024), "m", 64, logprobs=False)
    with pytest.raises(ApiError, match="not supported by this server on a GPU"):
        reader.completion(b'{"prompt": [1], "logprobs": 1, "max_tokens": 2}')
    assert reader.completion(b'{"prompt": [1], "max_tokens": 2}').sampling.logprobs is None
