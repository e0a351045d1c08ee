"""Streams as servers send them, legal, odd and broken, each with what a reader must make of it.

`STREAMS` are 29 behaviours on the chat path (eight tokens, the first at 70 ms, 20 ms apart, unless the name says
otherwise), `DIALECTS` are small streams of the four engines. A `Stream` is a list of pieces (milliseconds since the
send, bytes of the body); `Right` holds the right answer in the same milliseconds.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec
from hostile_server import HEAD, LAST_CHUNK, End, Step, chunk

from dsv4bench.load.reading import Capture, Read, read_record
from dsv4bench.records.request import ErrorKind, RequestRecord

HEAD_MS = 40
WORDS = [f"w{i} " for i in range(8)]
DONE = b"data: [DONE]\n\n"


class Right(NamedTuple):
    """What the record must say. `gaps_ms` are those between chunks with text."""

    ttft_ms: float | None = 70
    gaps_ms: list[float] = [20] * 7
    tokens: int | None = 8
    source: str = "usage"
    error: str | None = None
    error_text: str = ""  # a part of it
    finish: str | None = "length"
    end_ms: float | None = None  # None: the last piece
    content_ms: float | None = -1  # -1: as ttft
    chunk_ms: float | None = 50  # first event with choices
    done: bool = True
    counted: list[int] | None = None  # tokens a chunk
    tpot_ms: float | None = 20
    merged: int = 0


class Stream(NamedTuple):
    pieces: list[tuple[float, bytes]]
    right: Right
    cut: bool = False  # the connection ends with an RST, not with the last chunk


def event(data: Any) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def chat(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event({"id": "c1", "object": "chat.completion.chunk", "choices": [choice], **more})


def text(value: str, finish: str | None = None, **more: Any) -> bytes:
    """A chunk of the completions path."""
    return event(
        {"object": "text_completion", "choices": [{"index": 0, "text": value, "finish_reason": finish}], **more}
    )


def usage(n: int, prompt: int = 10) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": n, "total_tokens": prompt + n}


def usage_event(n: int) -> bytes:
    return event({"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": usage(n)})


ROLE = (50.0, chat({"role": "assistant", "content": ""}))
TOKENS = [(70.0 + 20 * i, chat({"content": word})) for i, word in enumerate(WORDS)]
FINISH = (210.0, chat({}, "length"))
TAIL = [FINISH, (210.0, usage_event(8)), (210.0, DONE)]
NORMAL = [ROLE, *TOKENS, *TAIL]
BROKEN = event({"error": {"message": "the engine died", "type": "InternalServerError", "code": 500}})


def _mapped(old: bytes, new: bytes) -> list[tuple[float, bytes]]:
    return [(t, data.replace(old, new)) for t, data in NORMAL]


def _joined(pieces: list[tuple[float, bytes]], at_ms: float = 50) -> list[tuple[float, bytes]]:
    return [(at_ms, b"".join(data for _, data in pieces))]


def _split(at: Any, content: str | None = None) -> list[tuple[float, bytes]]:
    """Every token's event in two segments 10 ms apart; `at(data)` is where it is cut."""
    pieces = [ROLE]
    for t, data in TOKENS:
        whole = data if content is None else chat({"content": content})
        pieces += [(t, whole[: at(whole)]), (t + 10, whole[at(whole) :])]
    return [*pieces, *((t + 10, data) for t, data in TAIL)]


def _thinking(field: str) -> list[tuple[float, bytes]]:
    thoughts = [(t, chat({field: word})) for (t, _), word in zip(TOKENS[:6], WORDS, strict=False)]
    return [ROLE, *thoughts, *TOKENS[6:], *TAIL]


def _tool(word: str) -> bytes:
    return chat({"tool_calls": [{"index": 0, "function": {"arguments": word}}]})


SPLIT = Right(ttft_ms=80, content_ms=80)
BURST = Right(ttft_ms=50, content_ms=50, gaps_ms=[0] * 7, tpot_ms=None, merged=1)
THREE = Right(gaps_ms=[20, 20], tokens=3, finish=None)

STREAMS: dict[str, Stream] = {
    "normal": Stream(NORMAL, Right()),
    "role_early": Stream(
        [(0, ROLE[1]), *((t + 230, data) for t, data in TOKENS + TAIL)],
        Right(ttft_ms=300, content_ms=300, chunk_ms=0),
    ),
    "usage_in_final_choice": Stream([ROLE, *TOKENS, (230, chat({}, "length", usage=usage(8))), (230, DONE)], Right()),
    "no_usage": Stream([ROLE, *TOKENS, FINISH, (210, DONE)], Right(source="chunks")),
    "late_usage": Stream([ROLE, *TOKENS, FINISH, (510, usage_event(8)), (510, DONE)], Right(end_ms=510)),
    "crlf": Stream(_mapped(b"\n", b"\r\n"), Right()),
    "crlf_coalesced": Stream(_joined(_mapped(b"\n", b"\r\n")), BURST),
    "coalesced": Stream(_joined(NORMAL), BURST),
    "nospace": Stream(_mapped(b"data: ", b"data:"), Right()),
    "comment_alone": Stream(
        [ROLE, *(piece for t, data in TOKENS for piece in ((t - 15, b": ping\n\n"), (t, data))), *TAIL], Right()
    ),
    "event_id_lines": Stream(_mapped(b"data: ", b"event: message\nid: 7\ndata: "), Right()),
    "split_before_space": Stream(_split(lambda data: data.index(b" ", data.index(b'"w'))), SPLIT),
    "split_after_data": Stream(_split(lambda _: 5), SPLIT),
    "split_utf8": Stream(_split(lambda data: data.index("漢".encode()) + 1, "é漢 "), SPLIT),
    "u2028": Stream([ROLE, *((t, chat({"content": "a\u2028b\x85 "})) for t, _ in TOKENS), *TAIL], Right()),
    "error_mid": Stream(
        [ROLE, *TOKENS[:3], (130, BROKEN), (130, DONE)],
        THREE._replace(error=ErrorKind.IN_STREAM, error_text="the engine died", source="chunks"),
    ),
    "error_first": Stream(
        [(50, BROKEN), (50, DONE)],
        Right(None, [], None, "none", ErrorKind.IN_STREAM, "the engine died", None, chunk_ms=None, tpot_ms=None),
    ),
    "empty": Stream(
        [(50, DONE)], Right(None, [], None, "none", ErrorKind.EMPTY, "no token", None, chunk_ms=None, tpot_ms=None)
    ),
    "no_done": Stream(NORMAL[:-1], Right(done=False)),
    "truncated": Stream(
        [ROLE, *TOKENS[:3]],
        THREE._replace(error=ErrorKind.TRUNCATED, source="chunks", done=False),
        cut=True,
    ),
    "usage_every": Stream(
        [
            ROLE,
            *(
                (t, chat({"content": w}, usage=usage(i + 1)))
                for i, ((t, _), w) in enumerate(zip(TOKENS, WORDS, strict=True))
            ),
            *TAIL,
        ],
        Right(counted=[1] * 8),
    ),
    "many_tokens_a_chunk": Stream(
        [ROLE, *((t, chat({"content": "a b c d "})) for t, _ in TOKENS), FINISH, (210, usage_event(32)), (210, DONE)],
        Right(tokens=32, tpot_ms=5),
    ),
    "reasoning_content": Stream(_thinking("reasoning_content"), Right(content_ms=190)),
    "reasoning": Stream(_thinking("reasoning"), Right(content_ms=190)),
    "one_token": Stream(
        [ROLE, (70, chat({"content": "w0 "}, "length")), (70, usage_event(1)), (70, DONE)],
        Right(gaps_ms=[], tokens=1, tpot_ms=None),
    ),
    "null_choices": Stream(
        [ROLE, *TOKENS, FINISH, (210, event({"choices": None, "usage": usage(8)})), (210, DONE)], Right()
    ),
    "short_output": Stream(
        [ROLE, *TOKENS[:3], (110, chat({}, "stop")), (110, usage_event(3)), (110, DONE)],
        THREE._replace(finish="stop"),
    ),
    "finish_error": Stream(
        [ROLE, *TOKENS[:3], (110, chat({}, "error")), (110, usage_event(3)), (110, DONE)],
        THREE._replace(error=ErrorKind.FINISH_ERROR, error_text="error", finish="error"),
    ),
    "tool_only": Stream([ROLE, *((t, _tool(w)) for (t, _), w in zip(TOKENS, WORDS, strict=True)), *TAIL], Right()),
}

TIMINGS = {"predicted_ms": 2.4, "prompt_n": 5}

DIALECTS: dict[str, Stream] = {
    "vllm_chat": Stream(
        [
            (70, chat({"role": "assistant", "content": ""}, prompt_token_ids=None, model="m")),
            *((70 + 20 * i, chat({"content": w}, token_ids=None)) for i, w in enumerate(WORDS[:7])),
            (210, chat({"content": " pi"}, "length", stop_reason=None)),
            (210, usage_event(8)),
            (210, DONE),
        ],
        Right(chunk_ms=70),
    ),
    "vllm_half_a_character": Stream(  # its token has no text; without running counts it is no chunk
        [
            *((70 + 20 * i, text(w, usage=None)) for i, w in enumerate(["a", "", "b", "c"])),
            (130, text("d", "length")),
            (130, event({"choices": [], "usage": usage(5)})),
            (130, DONE),
        ],
        Right(gaps_ms=[40, 20, 0], tokens=5, chunk_ms=70, tpot_ms=16),
    ),
    "vllm_running_counts": Stream(  # the second token has no text yet, the last chunk brings two
        [
            (70, text("a", usage=usage(1))),
            (90, text("", usage=usage(2))),
            (110, text("é", usage=usage(3))),
            (130, text("bc", "length", usage=usage(5))),
            (130, event({"choices": [], "usage": usage(5)})),
            (130, DONE),
        ],
        Right(gaps_ms=[20] * 3, tokens=5, chunk_ms=70, counted=[1, 1, 1, 2], tpot_ms=15),
    ),
    "vllm_error_after_200": Stream(
        [(50, event({"error": {"message": "Token id 9 is out of vocabulary", "code": 400}})), (50, DONE)],
        Right(None, [], None, "none", ErrorKind.IN_STREAM, "out of vocabulary", None, chunk_ms=None, tpot_ms=None),
    ),
    "vllm_engine_death": Stream(
        [ROLE, *TOKENS[:3], (110, event({"error": {"message": "EngineCore encountered an issue", "code": 500}}))],
        THREE._replace(error=ErrorKind.IN_STREAM, error_text="EngineCore", source="chunks", done=False),
        cut=True,
    ),
    "llamacpp_completion": Stream(  # usage in the last chunk, whose text is empty: no token came then
        [
            *((70 + 20 * i, text(w)) for i, w in enumerate(["a", "\ufffd", "b", "c"])),
            (170, text("", "length", usage=usage(5), timings={**TIMINGS, "predicted_n": 5})),
            (170, DONE),
        ],
        Right(gaps_ms=[20] * 3, tokens=5, chunk_ms=70, tpot_ms=16),
    ),
    "llamacpp_timings": Stream(  # running counts; the first chunk merges two tokens of one character
        [
            (50, chat({"role": "assistant", "content": None})),
            (70, chat({"content": "漢"}, timings={**TIMINGS, "predicted_n": 2})),
            (90, chat({"content": "b"}, timings={**TIMINGS, "predicted_n": 3})),
            (110, chat({"content": "cd"}, timings={**TIMINGS, "predicted_n": 5})),
            (130, chat({}, "length", timings={**TIMINGS, "predicted_n": 5})),
            (130, DONE),
        ],
        Right(gaps_ms=[20, 20], tokens=5, counted=[2, 1, 2], tpot_ms=40 / 3),
    ),
    "llamacpp_timings_at_the_end": Stream(  # usage was not asked for
        [ROLE, *TOKENS, (230, chat({}, "length", timings={**TIMINGS, "predicted_n": 8})), (230, DONE)], Right()
    ),
    "transformers": Stream(  # no [DONE], usage rides with finish_reason
        [
            (50, chat({"role": "assistant"})),
            *TOKENS,
            (230, chat({}, "length", system_fingerprint="", usage=usage(8))),
        ],
        Right(done=False),
    ),
    "sglang": Stream(  # null where there is nothing
        [
            (
                50,
                chat({"role": "assistant", "content": "", "reasoning_content": None, "tool_calls": None}, usage=None),
            ),
            *(
                (t, chat({"content": w, "reasoning_content": None}, usage=None))
                for (t, _), w in zip(TOKENS, WORDS, strict=True)
            ),
            (210, chat({"content": None}, "length", matched_stop=None, usage=None)),
            (210, event({"choices": [], "usage": {**usage(8), "prompt_tokens_details": {"cached_tokens": 4}}})),
            (210, DONE),
        ],
        Right(),
    ),
    "sglang_old_error": Stream(
        [ROLE, *TOKENS[:3], (130, event({"object": "error", "message": "aborted by the scheduler", "code": 500}))],
        THREE._replace(error=ErrorKind.IN_STREAM, error_text="aborted", source="chunks", done=False),
    ),
}

ALL = {**STREAMS, **DIALECTS}


def framed(stream: Stream) -> list[tuple[float, bytes]]:
    """The pieces as they travel: a head, a chunk for each piece, the last chunk."""
    pieces = [(min(HEAD_MS, stream.pieces[0][0]), HEAD), *((t, chunk(data)) for t, data in stream.pieces)]
    return pieces if stream.cut else [*pieces, (stream.pieces[-1][0], LAST_CHUNK)]


def wire(stream: Stream) -> bytes:
    return b"".join(data for _, data in framed(stream))


def script(stream: Stream, pace: float = 1.0) -> list[Step]:
    """Steps for a `HostileServer`; `pace` 0 sends piece after piece without a pause."""
    steps: list[Step] = []
    now = 0.0
    for t, data in framed(stream):
        if t > now and pace:
            steps.append((t - now) * pace / 1e3)
            now = t
        steps.append(data)
    return [*steps, End.RESET] if stream.cut else steps


def capture_of(pieces: list[tuple[float, bytes]], *, cut: bool = False, requested: int | None = None) -> Capture:
    """What the loop would have kept of a request sent at 0 whose reads came at these milliseconds."""
    capture = Capture(0, requested)
    capture.reads = [Read(0, round(t * 1e6), data) for t, data in pieces]
    capture.t_end = round(pieces[-1][0] * 1e6) if pieces else 0
    if cut:
        capture.error, capture.error_text = ErrorKind.TRUNCATED, "Connection reset by peer"
    return capture


def record_of(pieces: list[tuple[float, bytes]], *, cut: bool = False, requested: int | None = None) -> RequestRecord:
    return read_record(capture_of(pieces, cut=cut, requested=requested), lambda read: read.user_ns, 0)


def without_times(r: RequestRecord) -> dict[str, Any]:
    """What must not depend on how the bytes were cut."""
    fields = msgspec.structs.asdict(r)
    for name in [name for name in fields if name.endswith("_ns")]:
        fields[name] = len(fields[name]) if name == "chunk_ns" else fields[name] is None
    for name in ("reads", "merged_reads"):
        del fields[name]
    return fields
