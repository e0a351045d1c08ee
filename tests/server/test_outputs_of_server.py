"""Greedy outputs in every dialect: ids, tokens or words, with log-probabilities and without, refused and failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from fake_server import FakeServer, serve

from dsv4bench.server.calls import Caller
from dsv4bench.server.outputs import Asked, ask_outputs
from dsv4bench.server.target import parse_url

IDS = [{"prompt": [1, 2]}, {"prompt": [3, 4]}]
TEXT = [{"messages": [{"role": "user", "content": "hi"}]}]


class Replies:
    """Answers bodies and keeps them; a body that holds a field of `refused` gets 400."""

    def __init__(self, choice: Callable[[dict[str, Any]], Any], refused: tuple[str, ...] = ()) -> None:
        self.choice, self.refused = choice, refused
        self.bodies: list[dict[str, Any]] = []

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.bodies.append(body)
        if any(name in body for name in self.refused):
            status, found = 400, {"error": {"message": "extra inputs are not permitted"}}
        else:
            status, found = 200, {"choices": [self.choice(body)]}
        raw = json.dumps(found).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)


def asked(fake: FakeServer, prompts: list[dict[str, Any]], endpoint: Any = "completions") -> Asked:
    with Caller(parse_url(fake.url), 10.0) as caller:
        return ask_outputs(caller, "m", prompts, 4, endpoint)


def ask(replies: Replies, prompts: list[dict[str, Any]], endpoint: Any = "completions") -> Asked:
    path = "/v1/chat/completions" if endpoint == "chat" else "/v1/completions"
    with serve({f"POST {path}": replies}) as fake:
        return asked(fake, prompts, endpoint)


def vllm(body: dict[str, Any]) -> dict[str, Any]:
    best = [{"token_id:7": -0.1, "token_id:9": -2.5}, {"token_id:8": -0.2, "token_id:7": float("-inf")}]
    return {
        "text": " a b",
        "token_ids": [7, 8],
        "logprobs": {"tokens": ["token_id:7", "token_id:8"], "token_logprobs": [-0.1, -0.2], "top_logprobs": best},
    }


def test_ids_and_log_probabilities() -> None:
    replies = Replies(vllm)
    found = ask(replies, IDS)
    assert found.notes == []
    for answer in found.answers:
        assert (answer.tokens, answer.unit, answer.failure) == (["7", "8"], "ids", None)
        assert answer.best == [{"7": -0.1, "9": -2.5}, {"8": -0.2}], "an infinity is no number"
    body = replies.bodies[0]
    assert [b["prompt"] for b in replies.bodies] == [[1, 2], [3, 4]]
    assert (body["temperature"], body["stream"], body["max_tokens"], body["logprobs"]) == (0.0, False, 4, 5)
    assert body["ignore_eos"] and body["return_token_ids"] and body["return_tokens_as_token_ids"]


def test_what_is_refused_is_left_out_and_said() -> None:
    replies = Replies(vllm, refused=("ignore_eos",))
    found = ask(replies, IDS)
    assert [a.tokens for a in found.answers] == [["7", "8"]] * 2
    assert found.notes == ["the server does not take ignore_eos", "a text may end early"]
    kept = replies.bodies[-1]
    assert "ignore_eos" not in kept and kept["logprobs"] == 5 and kept["return_token_ids"]
    assert len([b for b in replies.bodies if b["prompt"] == [3, 4]]) == 1, "found out once"


def test_ids_alone_where_there_are_no_log_probabilities() -> None:
    replies = Replies(lambda _: {"text": "x", "token_ids": [5, 6], "logprobs": None}, refused=("logprobs",))
    found = ask(replies, IDS)
    assert [(a.tokens, a.unit, a.best) for a in found.answers] == [(["5", "6"], "ids", None)] * 2
    assert found.notes == ["the server does not take logprobs", "the server tells no log-probabilities"]


def test_a_server_that_names_tokens_by_their_text() -> None:
    logprobs = {"tokens": ["a", "b"], "token_logprobs": [-0.5, -0.6], "top_logprobs": [{"c": -0.7}, None]}
    found = ask(Replies(lambda _: {"text": "ab", "logprobs": logprobs}), IDS[:1])
    (answer,) = found.answers
    assert (answer.tokens, answer.unit) == (["a", "b"], "tokens")
    assert answer.best == [{"c": -0.7, "a": -0.5}, {"b": -0.6}], "the chosen one is always there"


def entry(token: str, p: float, **more: Any) -> dict[str, Any]:
    return {"token": token, "logprob": p, "bytes": list(token.encode()), **more}


def test_the_form_of_chat() -> None:
    content = [entry("a", -0.1, top_logprobs=[entry("a", -0.1), entry("b", -3.0)]), entry("c", -0.2)]
    replies = Replies(lambda _: {"message": {"content": "ac"}, "logprobs": {"content": content}})
    (answer,) = ask(replies, TEXT, "chat").answers
    assert (answer.tokens, answer.unit) == (["a", "c"], "tokens")
    assert answer.best == [{"a": -0.1, "b": -3.0}, {"c": -0.2}]
    assert (replies.bodies[0]["logprobs"], replies.bodies[0]["top_logprobs"]) == (True, 5)
    assert replies.bodies[0]["messages"] == TEXT[0]["messages"]


def test_ids_within_the_form_of_chat() -> None:
    content = [entry("a", -0.1, id=7, top_logprobs=[entry("a", -0.1, id=7), entry("b", -3.0, id=9)])]
    (answer,) = ask(Replies(lambda _: {"text": "a", "logprobs": {"content": content}}), IDS[:1]).answers
    assert (answer.tokens, answer.unit, answer.best) == (["7"], "ids", [{"7": -0.1, "9": -3.0}])


def test_words_where_nothing_but_text_comes_back() -> None:
    names = ("logprobs", "ignore_eos", "return_token_ids")
    found = ask(Replies(lambda _: {"message": {"content": "two  words\n"}}, refused=names), TEXT, "chat")
    (answer,) = found.answers
    assert (answer.tokens, answer.unit, answer.best) == (["two", "  words", "\n"], "words", None)
    assert "return_tokens_as_token_ids" in found.notes[0]
    assert "the server tells no log-probabilities" in found.notes


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((500, {"error": {"message": "worker died"}}), "answered 500: "),
        ((404, {"detail": "Not Found"}), "answered 404"),
        ((200, {"error": {"message": "out of vocabulary"}}), "out of vocabulary"),
        ((200, "<html>"), "text/html"),
        ((200, {"choices": []}), "not what was expected"),
    ],
)
def test_failures_are_told_and_raise_nothing(answer: Any, says: str) -> None:
    with serve({"POST /v1/completions": answer}) as fake:
        found = asked(fake, IDS)
    assert len(found.answers) == 2
    assert all(a.failure is not None and says in a.failure for a in found.answers)


def test_a_refusal_of_the_bare_request_is_a_failure() -> None:
    replies = Replies(vllm, refused=("prompt",))
    found = ask(replies, IDS)
    assert all(a.failure is not None and "not permitted" in a.failure for a in found.answers)
    assert len(replies.bodies) == 8, "every set of fields, once"


def test_nobody_answers() -> None:
    with serve({}) as fake:
        url = fake.url
    with Caller(parse_url(url), 2.0) as caller:
        found = ask_outputs(caller, "m", IDS, 4, "completions")
        assert ask_outputs(caller, "m", [], 4, "completions").answers == []
    assert all(a.failure for a in found.answers)
