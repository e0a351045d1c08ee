"""One event of an OpenAI stream: what in it is generated text, what is a count, what is a failure.

Four dialects differ in where usage rides, who sends a role chunk first, and how errors look after a 200; all are read
here without knowing the server. Text is content, reasoning (`reasoning_content`, `reasoning`) or tool arguments.
"""

from __future__ import annotations

import contextlib
import json
from typing import Annotated, Any

import msgspec

# a count outside this range is none, and could not be stored
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


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


class PromptDetails(msgspec.Struct):
    cached_tokens: Count | None = None


class Usage(msgspec.Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: PromptDetails | None = None


class Timings(msgspec.Struct):
    predicted_n: Count | None = None  # llama.cpp's running count of generated tokens


class Event(msgspec.Struct):
    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    object: Any = None
    message: Any = None
    timings: Timings | None = None
    ts: Count | None = None  # the paced server's send stamp, monotonic ns


_decoder = msgspec.json.Decoder(Event)


def decode_event(data: bytes) -> Event | None:
    """The event in `data`, or None when it is no JSON object."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:  # odd but legal: a field of another type, a lone surrogate, a bare NaN
        plain = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return _salvage(plain) if isinstance(plain, dict) else None


def _salvage(plain: dict[str, Any]) -> Event:
    """What can be trusted of an event whose fields have other types than the API says."""
    event = Event(error=plain.get("error"), object=plain.get("object"), message=plain.get("message"))
    kinds = {"choices": list[Choice], "usage": Usage, "timings": Timings, "ts": Count}
    for name, kind in kinds.items():
        with contextlib.suppress(msgspec.ValidationError, ValueError, RecursionError):
            setattr(event, name, msgspec.convert(plain.get(name), kind | None, strict=False))
    return event


def error_text(event: Event) -> str | None:
    """The message of an error event, in any of the shapes servers use; None when the event is no error."""
    if event.error is not None and event.error is not False:
        if isinstance(event.error, dict):
            return storable(event.error.get("message") or event.error)
        return storable(event.error)
    if event.object == "error":
        return storable(event.message or "error")
    return None


def storable(said: Any) -> str:
    """What a server said, as text that can be encoded: JSON may escape half a surrogate pair."""
    return str(said).encode(errors="replace").decode()


def text_kinds(choice: Choice) -> tuple[bool, bool]:
    """(visible text, reasoning): which kinds of non-empty generated text the choice carries."""
    delta = choice.delta
    if delta is None:
        return bool(choice.text), False
    tool = bool(delta.function_call) or any(_tool_text(call) for call in _calls(delta))
    visible = bool(delta.content) or bool(choice.text) or bool(delta.refusal) or tool
    return visible, bool(delta.reasoning_content) or bool(delta.reasoning)


def _calls(delta: Delta) -> list[Any]:
    return delta.tool_calls if isinstance(delta.tool_calls, list) else []


def _tool_text(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and bool(function.get("arguments") or function.get("name"))
