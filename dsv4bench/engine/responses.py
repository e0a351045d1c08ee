"""What goes back: the JSON of both endpoints, whole or as chunks of a stream, in vLLM's dialect.

A chunk holds what one step delivered: one token, or with speculation the accepted tokens and one more. The usage
chunk has `choices: []` and comes before `[DONE]`. Every object names the weights (`system_fingerprint`) and, with
speculation, says that it is synthetic.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

import msgspec

from dsv4bench import __version__
from dsv4bench.engine.protocol import Ask
from dsv4bench.engine.sequence import Delivery, Ranked
from dsv4bench.engine.tokenizer import ToyTokenizer

FINGERPRINT = f"dsv4bench-{__version__}-random-weights"
DONE = b"data: [DONE]\n\n"

_Json = dict[str, Any]


class Responder:
    """Writes the answer to one request; remembers how many tokens it has sent."""

    def __init__(self, ask: Ask, model: str, tokenizer: ToyTokenizer, *, speculation: bool) -> None:
        self._ask = ask
        self._model = model
        self._tokenizer = tokenizer
        self._speculation = speculation
        self._created = int(time.time())
        self._tokens: list[int] = []
        self._text_length = 0
        self.request_id = ("chatcmpl-" if ask.kind == "chat" else "cmpl-") + uuid.uuid4().hex[:16]

    def opening(self) -> bytes:
        """The role chunk of a chat; nothing for a completion."""
        if self._ask.kind == "completion":
            return b""
        return self._event([_choice({"delta": {"role": "assistant", "content": ""}}, None)])

    def chunk(self, delivery: Delivery) -> bytes:
        """One delivery as one server-sent event."""
        self._tokens += delivery.tokens
        text = self._tokenizer.decode(delivery.tokens)
        part: _Json = {"delta": {"content": text}} if self._ask.kind == "chat" else {"text": text}
        if self._ask.return_token_ids:
            part["token_ids"] = delivery.tokens
        return self._event([_choice(part, delivery.finish, self._logprobs(delivery.ranked))])

    def closing(self) -> bytes:
        """The usage chunk if it was asked for, and the end mark."""
        if not self._ask.include_usage:
            return DONE
        return _sse(self._object("chunk", []) | {"usage": self._usage()}) + DONE

    def whole(self, deliveries: list[Delivery]) -> bytes:
        """The answer of a request that does not stream."""
        self._tokens = [token for delivery in deliveries for token in delivery.tokens]
        text = self._tokenizer.decode(self._tokens)
        chat = self._ask.kind == "chat"
        part: _Json = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        if self._ask.return_token_ids:
            part["token_ids"] = self._tokens
        ranked = [position for delivery in deliveries for position in delivery.ranked]
        choice = _choice(part, deliveries[-1].finish, self._logprobs(ranked))
        return msgspec.json.encode(self._object("whole", [choice]) | {"usage": self._usage()})

    @staticmethod
    def failure(body: _Json) -> bytes:
        """An error after the stream has begun: the status is already sent, so it rides in an event."""
        return _sse(body) + DONE

    def _event(self, choices: list[_Json]) -> bytes:
        chunk = self._object("chunk", choices)
        if self._ask.continuous_usage:
            chunk["usage"] = self._usage()
        return _sse(chunk)

    def _object(self, form: str, choices: list[_Json]) -> _Json:
        if self._ask.kind == "chat":
            name = "chat.completion.chunk" if form == "chunk" else "chat.completion"
        else:
            name = "text_completion"
        body: _Json = {
            "id": self.request_id,
            "object": name,
            "created": self._created,
            "model": self._model,
            "choices": choices,
            "system_fingerprint": FINGERPRINT,
        }
        if self._speculation:
            body["speculation"] = "synthetic"
        return body

    def _logprobs(self, ranked: list[Ranked]) -> _Json | None:
        """OpenAI's two forms. The chosen token is always among the told ones, even when it is not one of the best."""
        if not ranked:
            return None
        if self._ask.kind == "chat":
            return {"content": [self._position(r) for r in ranked]}
        tokens = [self._name(r.token) for r in ranked]
        offsets = []
        for r in ranked:
            offsets.append(self._text_length)
            self._text_length += len(self._tokenizer.decode_one(r.token))
        return {
            "text_offset": offsets,
            "token_logprobs": [r.logprob for r in ranked],
            "tokens": tokens,
            "top_logprobs": [{self._name(t): p for t, p in [*r.best, (r.token, r.logprob)]} for r in ranked],
        }

    def _position(self, r: Ranked) -> _Json:
        return self._entry(r.token, r.logprob) | {"top_logprobs": [self._entry(t, p) for t, p in r.best]}

    def _entry(self, token: int, logprob: float) -> _Json:
        text = self._tokenizer.decode_one(token)
        return {"token": self._name(token), "logprob": logprob, "bytes": list(text.encode())}

    def _name(self, token: int) -> str:
        return f"token_id:{token}" if self._ask.name_by_id else self._tokenizer.decode_one(token)

    def _usage(self) -> _Json:
        prompt, completion = len(self._ask.prompt), len(self._tokens)
        return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def _sse(body: _Json) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def _choice(part: _Json, finish: str | None, logprobs: _Json | None = None) -> _Json:
    return {"index": 0, **part, "logprobs": logprobs, "finish_reason": finish}
