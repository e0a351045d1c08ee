"""The bodies of /v1/completions and /v1/chat/completions, checked and turned into one kind of request.

What this server cannot do is refused by name (n > 1, prompt lists, stop, echo, log-probabilities on a GPU), because
ignoring it would return something else than was asked for. Fields it does not know are ignored, as vLLM does.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from dsv4bench.engine.sequence import Sampling
from dsv4bench.engine.tokenizer import ToyTokenizer

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default for completions
DEFAULT_CHAT_TOKENS = 256
MOST_LOGPROBS = 20  # as vLLM by default

Kind = Literal["completion", "chat"]


class ApiError(Exception):
    """An answer in OpenAI's error format."""

    def __init__(self, status: int, message: str, param: str | None = None, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    n: int | None = None
    best_of: int | None = None
    stop: str | list[str] | None = None
    logprobs: int | bool | None = None
    top_logprobs: int | None = None
    echo: bool | None = None
    top_p: float | None = None
    top_k: int | None = None


class CompletionBody(_Body, frozen=True, kw_only=True):
    prompt: str | list[Any]


class Message(msgspec.Struct, frozen=True):
    role: str
    content: str | list[dict[str, Any]] | None = None

    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


class ChatBody(_Body, frozen=True, kw_only=True):
    messages: list[Message]


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request."""

    kind: Kind
    prompt: list[int]
    sampling: Sampling
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    name_by_id: bool = False  # in log-probabilities a token is written "token_id:7" instead of its text


class RequestReader:
    """Turns bodies into `Ask`s for one served model. Raises ApiError."""

    def __init__(self, tokenizer: ToyTokenizer, model: str, max_model_len: int, *, logprobs: bool) -> None:
        self._tokenizer = tokenizer
        self._model = model
        self._max_model_len = max_model_len
        self._tells_logprobs = logprobs

    def completion(self, raw: bytes) -> Ask:
        body = _decode(raw, CompletionBody)
        return self._ask("completion", body, self._prompt_ids(body.prompt), DEFAULT_COMPLETION_TOKENS)

    def chat(self, raw: bytes) -> Ask:
        body = _decode(raw, ChatBody)
        if not body.messages:
            raise ApiError(400, "messages is empty", "messages")
        prompt = self._tokenizer.encode_chat([(m.role, m.text()) for m in body.messages])
        return self._ask("chat", body, prompt, DEFAULT_CHAT_TOKENS)

    def _prompt_ids(self, prompt: str | list[Any]) -> list[int]:
        if isinstance(prompt, str):
            ids = self._tokenizer.encode(prompt)
        elif all(type(token) is int for token in prompt):
            ids = prompt
        else:
            raise ApiError(400, "prompt must be one string or one list of token ids, not a list of prompts", "prompt")
        if not ids:
            raise ApiError(400, "prompt is empty", "prompt")
        for token in ids:
            if not 0 <= token < self._tokenizer.vocab_size:
                size = self._tokenizer.vocab_size
                raise ApiError(400, f"token id {token} is out of vocabulary (0 to {size - 1})", "prompt")
        return ids

    def _ask(self, kind: Kind, body: _Body, prompt: list[int], default: int) -> Ask:
        if body.model is not None and body.model != self._model:
            message = f"model {body.model!r} does not exist; this server has {self._model!r}"
            raise ApiError(404, message, "model", "NotFoundError")
        _refuse_unsupported(body)
        options = body.stream_options or StreamOptions()
        if body.stream_options and not body.stream:
            raise ApiError(400, "stream_options needs stream: true", "stream_options")
        return Ask(
            kind=kind,
            prompt=prompt,
            sampling=self._sampling(kind, body, len(prompt), default),
            stream=bool(body.stream),
            include_usage=bool(options.include_usage),
            continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
            return_token_ids=bool(body.return_token_ids),
            name_by_id=bool(body.return_tokens_as_token_ids),
        )

    def _sampling(self, kind: Kind, body: _Body, prompt_tokens: int, default: int) -> Sampling:
        room = self._max_model_len - prompt_tokens
        asked = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
        max_tokens = min(default, room) if asked is None else asked
        if room < 1 or max_tokens > room:
            raise ApiError(
                400,
                f"the prompt has {prompt_tokens} tokens and {max_tokens} more are asked for; "
                f"this server takes {self._max_model_len} in all",
                "prompt" if room < 1 else "max_tokens",
            )
        if max_tokens < 1:
            raise ApiError(400, f"max_tokens is {max_tokens}, it must be 1 or more", "max_tokens")
        min_tokens = body.min_tokens or 0
        if not 0 <= min_tokens <= max_tokens:
            raise ApiError(400, f"min_tokens is {min_tokens}, it must be from 0 to max_tokens", "min_tokens")
        temperature = 1.0 if body.temperature is None else body.temperature
        if not 0 <= temperature <= 100:
            raise ApiError(400, f"temperature is {temperature}, it must be from 0 to 100", "temperature")
        return Sampling(
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            temperature=temperature,
            ignore_eos=bool(body.ignore_eos),
            seed=body.seed,
            logprobs=self._logprobs(kind, body),
        )

    def _logprobs(self, kind: Kind, body: _Body) -> int | None:
        """How many best tokens to tell of each position. Chat asks by `logprobs: true` and `top_logprobs`."""
        name, asked = ("top_logprobs", body.top_logprobs) if kind == "chat" else ("logprobs", body.logprobs)
        if kind == "chat" and not body.logprobs:
            if asked:
                raise ApiError(400, "top_logprobs needs logprobs: true", name)
            return None
        if kind == "completion" and (asked is None or asked is False):
            return None
        if not self._tells_logprobs:
            raise ApiError(400, "logprobs is not supported by this server on a GPU", "logprobs")
        if not 0 <= (best := int(asked or 0)) <= MOST_LOGPROBS:
            raise ApiError(400, f"{name} is {asked}, it must be from 0 to {MOST_LOGPROBS}", name)
        return best


def _refuse_unsupported(body: _Body) -> None:
    for name, unsupported in (
        ("n", body.n not in (None, 1)),
        ("best_of", body.best_of not in (None, 1)),
        ("stop", bool(body.stop)),
        ("echo", bool(body.echo)),
        ("top_p", body.top_p not in (None, 1.0)),
        ("top_k", body.top_k not in (None, 0, -1)),
    ):
        if unsupported:
            raise ApiError(400, f"{name}={getattr(body, name)!r} is not supported by this server", name)


def _decode(raw: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        text = str(error)
        path = text.rsplit("`$.", 1)[1].rstrip("`") if "`$." in text else None
        raise ApiError(400, text, path) from None
    except msgspec.DecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
