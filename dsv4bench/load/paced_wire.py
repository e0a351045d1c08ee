"""What the paced server reads and writes: OpenAI request bodies in, pre-rendered HTTP chunks out.

A `Script` is a whole reply rendered when its request arrives; the loop only fills in the numbers of the moment.
Those are padded to a fixed width with blanks, which JSON allows before a number, so that the length in front of each
HTTP chunk holds whatever the numbers are. Each event carries `ts`, the monotonic nanosecond of its own send, and
`due`, the one at which it was to be sent. Standard library only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

PATHS = {"/v1/completions": False, "/v1/chat/completions": True}  # path -> is it the chat endpoint
TOKEN = " tick"  # the text of every token
_STAMP = b'"ts":%(ts)20d,"due":%(due)20d'
_DEFAULT_TOKENS = 16  # what OpenAI's completions endpoint gives when max_tokens is not said


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request asks for."""

    chat: bool
    stream: bool
    n_tokens: int
    prompt_tokens: int
    include_usage: bool
    continuous_usage: bool
    model: str


@dataclass(frozen=True, slots=True)
class Script:
    """Templates of a reply, each to be filled as `template % numbers(...)` at the moment of its send.

    `head` leaves at once. It is empty for a reply that is no stream: there `last` is all of it.
    """

    head: bytes
    chunk: bytes
    last: bytes


def numbers(n_prompt: int, n_sent: int, ts_ns: int, due_ns: int) -> dict[bytes, int]:
    """What the templates of a script take."""
    return {b"all": n_prompt + n_sent, b"n": n_sent, b"ts": ts_ns, b"due": due_ns}


def parse_ask(path: str, body: bytes) -> Ask:
    """Read a request body. Raises ValueError with a text for the client."""
    n_ids, body = _cut_ids(body)
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise ValueError("the body is no JSON object")
    chat = PATHS[path]
    wanted = fields.get("max_completion_tokens") or fields.get("max_tokens", _DEFAULT_TOKENS)
    if type(wanted) is not int or not 1 <= wanted < 10**7:
        raise ValueError(f"max_tokens is {wanted!r}, not a number of tokens")
    options = fields.get("stream_options") or {}
    return Ask(
        chat=chat,
        stream=bool(fields.get("stream")),
        n_tokens=wanted,
        prompt_tokens=_message_words(fields.get("messages"))
        if chat
        else n_ids or _prompt_length(fields.get("prompt")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        model=str(fields.get("model") or "paced"),
    )


def _cut_ids(body: bytes) -> tuple[int, bytes]:
    """Count a list of token ids by its commas and take it out: parsing thousands of ids would hold up all streams.

    Inside a JSON string the quotes would be escaped, so `"prompt"` followed by a colon can only be a key.
    """
    key = body.find(b'"prompt"')
    start = body.find(b"[", key)
    if key < 0 or start < 0 or body[key + 8 : start].strip() != b":":
        return 0, body
    end = body.find(b"]", start)
    ids = body[start + 1 : end]
    if end < 0 or not ids.strip() or b'"' in ids or b"[" in ids or b"." in ids:
        return 0, body
    return ids.count(b",") + 1, body[:start] + b"null" + body[end + 1 :]


def _prompt_length(prompt: Any) -> int:
    """Token ids, or the words of a text: this server has no tokenizer."""
    if isinstance(prompt, list) and prompt and all(type(i) is int for i in prompt):
        return len(prompt)
    if not isinstance(prompt, str) or not prompt:
        raise ValueError("prompt must be a text or a list of token ids, one prompt a request")
    return len(prompt.split())


def _message_words(messages: Any) -> int:
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise ValueError("messages must be a list of objects with role and content")
    return sum(len(m["content"].split()) for m in messages if isinstance(m.get("content"), str))


def render(ask: Ask, number: int, created: int, tokens_per_chunk: int) -> Script:
    """The reply to `ask`, of `ask.n_tokens` tokens in chunks of `tokens_per_chunk`; the last one may be shorter."""
    n_last = (ask.n_tokens - 1) % tokens_per_chunk + 1
    if not ask.stream:
        return _whole(ask, number, created)
    running = (
        b',"usage":{"prompt_tokens":%d,"total_tokens":%%(all)8d,"completion_tokens":%%(n)8d}' % ask.prompt_tokens
    )
    running = running if ask.continuous_usage else b""
    top = _top(ask, number, created)
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    if ask.chat:  # as real servers do: a chunk with a role and no text, which is not the first token
        head += _event(top, b'{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}', b"")
    last = _event(top, _choice(ask, n_last, "length"), running)
    if ask.include_usage:
        last += _event(top, b"", b',"usage":' + _usage(ask))
    last += b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
    return Script(head, _event(top, _choice(ask, tokens_per_chunk, None), running), last)


def _top(ask: Ask, number: int, created: int) -> bytes:
    """What every event of a reply begins with: an object that is still open, its percent signs doubled."""
    kind = ("chat.completion.chunk" if ask.stream else "chat.completion") if ask.chat else "text_completion"
    top = {"id": f"paced-{number:08x}", "object": kind, "created": created, "model": ask.model}
    return json.dumps(top, separators=(",", ":")).encode()[:-1].replace(b"%", b"%%")


def _choice(ask: Ask, n_tokens: int, finish_reason: str | None) -> bytes:
    text = TOKEN * n_tokens
    said: dict[str, Any] = {"text": text}
    if ask.chat:
        said = {"delta": {"content": text}} if ask.stream else {"message": {"role": "assistant", "content": text}}
    choice = {"index": 0, **said, "finish_reason": finish_reason}
    return json.dumps(choice, separators=(",", ":")).encode()


def _usage(ask: Ask) -> bytes:
    n_in, n_out = ask.prompt_tokens, ask.n_tokens
    usage = {"prompt_tokens": n_in, "total_tokens": n_in + n_out, "completion_tokens": n_out}
    return json.dumps(usage, separators=(",", ":")).encode()


def _event(top: bytes, choices: bytes, usage: bytes) -> bytes:
    """A template of one server-sent event in one HTTP chunk."""
    payload = b'data: %s,"choices":[%s]%s,%s}\n\n' % (top, choices, usage, _STAMP)
    return b"%x\r\n" % _filled_length(payload) + payload + b"\r\n"


def _whole(ask: Ask, number: int, created: int) -> Script:
    """A reply in one piece."""
    body = b'%s,"choices":[%s],"usage":%s,%s}' % (
        _top(ask, number, created),
        _choice(ask, ask.n_tokens, "length"),
        _usage(ask),
        _STAMP,
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % _filled_length(body)
    return Script(b"", b"", head + body)


def _filled_length(template: bytes) -> int:
    return len(template % numbers(0, 0, 0, 0))
