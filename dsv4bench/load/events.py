"""One event of an OpenAI stream: what in it is generated text, what is a count, what is a failure.

Four dialects differ in where usage rides, who sends a role chunk first, and how errors look after a 200; all are read
here without knowing the server. Text is content, reasoning (`reasoning_content`, `reasoning`) or tool arguments.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec


class Delta(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None
    function_call: Any = None
    refusal: Any = None


class Choice(msgspec.Struct):
    text: Any = None
    delta: Delta | None = None
    message: Any = None  # a whole, non-streamed reply
    finish_reason: Any = None
    token_ids: list[int] | None = None


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None


class Timings(msgspec.Struct):
    predicted_n: int | None = None  # llama.cpp's running count of generated tokens


class Event(msgspec.Struct):
    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    object: Any = None
    message: Any = None
    timings: Timings | None = None
    ts: int | None = None  # the paced server's send stamp, monotonic ns


_decoder = msgspec.json.Decoder(Event)


def decode_event(data: bytes) -> Event | None:
    """The event in `data`, or None when it is no JSON object."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError:
        pass
    try:  # odd but legal: a field of another type, a lone surrogate, a bare NaN
        plain = json.loads(data)
        return msgspec.convert(plain, Event, strict=False) if isinstance(plain, dict) else None
    except msgspec.ValidationError:
        return _salvage(plain)
    except (ValueError, RecursionError):
        return None


def _salvage(plain: dict[str, Any]) -> Event:
    """What can be trusted of an event whose fields have other types than the API says."""
    event = Event(error=plain.get("error"), object=plain.get("object"), message=plain.get("message"))
    for name, kind in (("choices", list[Choice] | None), ("usage", Usage | None)):
        try:
            setattr(event, name, msgspec.convert(plain.get(name), kind, strict=False))
        except msgspec.ValidationError:
            continue
    return event


def error_text(event: Event) -> str | None:
    """The message of an error event, in any of the shapes servers use; None when the event is no error."""
    if event.error is not None and event.error is not False:
        if isinstance(event.error, dict):
            return str(event.error.get("message") or event.error)
        return str(event.error)
    if event.object == "error":
        return str(event.message or "error")
    return None


def text_kinds(choice: Choice) -> tuple[bool, bool]:
    """(visible text, reasoning): which kinds of non-empty generated text the choice carries."""
    delta = choice.delta
    if delta is None:
        return bool(choice.text), False
    tool = bool(delta.function_call) or any(_tool_text(call) for call in delta.tool_calls or ())
    visible = bool(delta.content) or bool(choice.text) or bool(delta.refusal) or tool
    return visible, bool(delta.reasoning_content) or bool(delta.reasoning)


def _tool_text(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and bool(function.get("arguments") or function.get("name"))
