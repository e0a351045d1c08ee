"""Reads prompts that a user brings: JSON lines, or a ShareGPT-style JSON array.

One record is an object with one of
    prompt          text, or a list of token ids
    messages        a chat; when it ends with an assistant's turn it is a recorded conversation (below)
    conversations   ShareGPT turns {"from": "human"|"gpt"|…, "value": …}, a recorded conversation
and optionally `output_tokens`, `max_tokens` or `osl`; other fields are ignored. Of a recorded conversation the first
human turn is the prompt; a conversation without one is left out and counted. All records of a file travel in one
way (ids, text or messages). Anything else is an error that names file, record and what was expected; text is never
tokenised here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.records.workload import Endpoint

PromptKind = Literal["token_ids", "text", "messages"]
EXPECTED = 'expected {"prompt": "text" or [ids]}, {"messages": [...]} or {"conversations": [...]}'
_HUMAN = ("human", "user")


class FilePrompt(msgspec.Struct, frozen=True, kw_only=True):
    """One usable record: the request-body fields of its prompt, and the lengths that the file states."""

    where: str  # "line 3" or "record 3"
    fields: dict[str, Any]
    isl: int | None
    osl: int | None


class PromptFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file's prompts in file order. `n_skipped` conversations had no human turn."""

    path: str
    sha256: str
    kind: PromptKind
    prompts: list[FilePrompt]
    n_skipped: int


def read_prompt_file(path: str, endpoint: Endpoint) -> PromptFile:
    """Read `path` for `endpoint`; a chat sends a file's text as one user message. Raises UsageError."""
    raw = _read_bytes(path)
    prompts: list[FilePrompt] = []
    first_kind: PromptKind | None = None
    n_skipped = 0
    for where, record in _records(path, raw.removeprefix(b"\xef\xbb\xbf")):
        found = _prompt_of(record, f"{path}, {where}")
        if found is None:
            n_skipped += 1
            continue
        kind, value = _for_endpoint(*found, endpoint, f"{path}, {where}")
        if first_kind is not None and kind != first_kind:
            raise UsageError(
                f"{path}, {where}: the prompt is {_words(kind)}, and {prompts[0].where} is {_words(first_kind)}",
                "keep one way to send prompts in a file: split it in two",
            )
        first_kind = kind
        prompts.append(
            FilePrompt(
                where=where,
                fields={"messages" if kind == "messages" else "prompt": value},
                isl=len(value) if kind == "token_ids" else None,
                osl=_osl_of(record, f"{path}, {where}"),
            )
        )
    if first_kind is None:
        what = f"none of its {n_skipped} conversations has a human turn" if n_skipped else "the file is empty"
        raise UsageError(f"{path}: no prompt found, {what}", EXPECTED + ", one a line")
    sha256 = hashlib.sha256(raw).hexdigest()
    return PromptFile(path=path, sha256=sha256, kind=first_kind, prompts=prompts, n_skipped=n_skipped)


def _read_bytes(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as e:
        raise UsageError(
            f"cannot read the dataset {path!r}: {e.strerror or e}",
            "--dataset takes random, chat, or the path of a JSONL or ShareGPT JSON file",
        ) from e


def _records(path: str, raw: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """("line 3", object) of JSON lines, or ("record 3", object) of one JSON array."""
    if raw.lstrip()[:1] == b"[":
        for i, record in enumerate(_decode(raw, path), 1):
            yield f"record {i}", _object(record, f"{path}, record {i}")
        return
    for i, line in enumerate(raw.split(b"\n"), 1):  # only \n ends a line: a U+2028 inside a text does not
        if line.strip():
            yield f"line {i}", _object(_decode(line, f"{path}, line {i}"), f"{path}, line {i}")


def _decode(raw: bytes, where: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise UsageError(f"{where}: not JSON: {e}", EXPECTED + ", one object a line") from e


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where}: a JSON {type(value).__name__} is no prompt record", EXPECTED)
    return value


def _prompt_of(record: dict[str, Any], where: str) -> tuple[PromptKind, Any] | None:
    """The prompt of a record, or None for a conversation in which no human speaks."""
    if "prompt" in record:
        return _plain_prompt(record["prompt"], where)
    if "conversations" in record:
        return _first_human(record["conversations"], "from", "value", where)
    if "messages" in record:
        turns = record["messages"]
        _check_turns(turns, "role", "content", where)
        if turns and turns[-1]["role"] == "assistant":
            return _first_human(turns, "role", "content", where)
        if turns:
            return "messages", turns
    keys = ", ".join(sorted(record)) or "none"
    raise UsageError(f"{where}: the record holds no prompt (its keys: {keys})", EXPECTED)


def _plain_prompt(value: Any, where: str) -> tuple[PromptKind, Any]:
    if isinstance(value, str) and value:
        return "text", value
    if isinstance(value, list) and value and all(type(i) is int and i >= 0 for i in value):
        return "token_ids", value
    raise UsageError(
        f"{where}: prompt is {_short(value)}", "expected a text that is not empty, or a list of token ids (integers)"
    )


def _check_turns(turns: Any, speaker: str, text: str, where: str) -> None:
    """Every turn is an object that names its speaker; its text may be missing only in a chat with tool calls."""
    if isinstance(turns, list) and all(isinstance(t, dict) and isinstance(t.get(speaker), str) for t in turns):
        return
    raise UsageError(
        f"{where}: the turns are {_short(turns)}", f'expected a list of {{"{speaker}": …, "{text}": …}} objects'
    )


def _first_human(turns: Any, speaker: str, text: str, where: str) -> tuple[PromptKind, Any] | None:
    _check_turns(turns, speaker, text, where)
    for turn in turns:
        if turn[speaker] in _HUMAN and isinstance(turn.get(text), str) and turn[text]:
            return "text", turn[text]
    return None


def _for_endpoint(kind: PromptKind, value: Any, endpoint: Endpoint, where: str) -> tuple[PromptKind, Any]:
    if endpoint == "completions":
        if kind == "messages":
            raise UsageError(f"{where}: messages cannot go to the completions endpoint", "use --endpoint chat")
        return kind, value
    if kind == "token_ids":
        raise UsageError(f"{where}: token ids cannot go to the chat endpoint", "use --endpoint completions")
    return "messages", [{"role": "user", "content": value}] if kind == "text" else value


def _osl_of(record: dict[str, Any], where: str) -> int | None:
    for key in ("output_tokens", "max_tokens", "osl"):
        value = record.get(key)
        if value is None:
            continue
        if type(value) is not int or value < 1:
            raise UsageError(f"{where}: {key} is {_short(value)}", "expected a whole number of tokens, 1 or more")
        return value
    return None


def _words(kind: PromptKind) -> str:
    return {"token_ids": "a list of token ids", "text": "a text", "messages": "a list of messages"}[kind]


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
