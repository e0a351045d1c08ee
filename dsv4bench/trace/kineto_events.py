"""One event of a Kineto file: the typed form, the time rule, and the lenient forms of numbers found in the wild.

Times are taken from the decimal text: ns = floor(text in us x 1000), never through a float, since at 1.7e15 us a
double's step is 250 ns. A number that is none, or that does not fit 64 bits, is None; the caller counts it.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Union

import msgspec
import numpy as np
import numpy.typing as npt

from dsv4bench.records.trace import Ints

INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
_PLAIN = re.compile(rb"(?:-?[0-9]{1,15}\.[0-9]{3}\n)*-?[0-9]{1,15}\.[0-9]{3}")
_NUMBER = re.compile(r"\s*[-+]?\d{1,40}(\.\d{0,400})?([eE][-+]?\d{1,6})?\s*")
_DIGITS = re.compile(r"\d+")

Long = Annotated[int, msgspec.Meta(ge=-INT64_MAX, le=INT64_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
Shape = tuple[Count, Count, Count]
UNKNOWN = -1  # no device
NO_STREAM = -INT64_MAX


class Args(
    msgspec.Struct,
    gc=False,
    rename={
        "registers": "registers per thread",
        "shared": "shared memory",
        "graph_id": "graph id",
        "graph_node_id": "graph node id",
    },
):
    """The arguments of a kernel, a copy, a memset or a call, as far as they matter here."""

    device: Count = UNKNOWN
    stream: Long = NO_STREAM
    correlation: Long = 0
    grid: Shape = (0, 0, 0)
    block: Shape = (0, 0, 0)
    registers: Count = 0
    shared: Count = 0
    graph_id: Long = 0
    graph_node_id: Long = 0


NO_ARGS = Args()
EMPTY = msgspec.Raw(b"")


class Event(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event of `traceEvents`, the only kind that says how long something took.

    The times stay text until they are wanted, and so exact.
    """

    cat: str | None = None
    name: str | None = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = EMPTY
    dur: msgspec.Raw = EMPTY
    args: Args | None = None


class _LooseEvent(msgspec.Struct, gc=False):
    """The same, or an event of another kind, where something is not as typed."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = EMPTY
    dur: msgspec.Raw = EMPTY
    args: Any = None


# Flows, metadata and instants are half of a file; a type without fields lets the decoder pass over them.
_OTHERS = [
    msgspec.defstruct(f"_Skipped{i}", [], gc=False, tag_field="ph", tag=ph)
    for i, ph in enumerate("sftiIMCBEbenNODPR")
]
_decode_typed = msgspec.json.Decoder(list[Union[(Event, *_OTHERS)]]).decode  # type: ignore[valid-type]
_decode_loose = msgspec.json.Decoder(list[_LooseEvent]).decode
NOT_AS_TYPED = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError)


def decode_events(text: bytes) -> list[Event] | None:
    """The complete events of a JSON array; None when it is no JSON, or an entry is no event."""
    try:
        return decode_strictly(text)
    except msgspec.ValidationError:
        pass
    except NOT_AS_TYPED:
        return None
    try:
        loose = [event for event in _decode_loose(text) if event.ph == "X"]
    except NOT_AS_TYPED:
        return None
    return [Event(_text(e.cat), _text(e.name), e.pid, e.tid, e.ts, e.dur, _args_of(e.args)) for e in loose]


def decode_strictly(text: bytes) -> list[Event]:
    """The same where every entry is as typed. Raises one of `NOT_AS_TYPED` otherwise."""
    return [event for event in _decode_typed(text) if type(event) is Event]


def event_of(value: dict[str, Any]) -> Event | None:
    """A complete event from an untyped JSON object, its floats kept as text; None for the other kinds."""
    if value.get("ph") != "X":
        return None
    return Event(
        cat=_text(value.get("cat")),
        name=_text(value.get("name")),
        pid=value.get("pid"),
        tid=value.get("tid"),
        ts=_raw(value.get("ts")),
        dur=_raw(value.get("dur")),
        args=_args_of(value.get("args")),
    )


def nanoseconds(text: str) -> int | None:
    """floor(us x 1000) of the decimal text (JSON number or string: torch_npu writes strings), or None."""
    text = text.strip('" ')
    whole, _, fraction = text.partition(".")
    if len(whole) < 16 and whole.isdecimal() and (fraction.isdecimal() or whole == text):
        return int(whole + fraction[:3].ljust(3, "0"))
    if not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    if number.adjusted() > 16:  # 1e17 us is no time, and 1e999999999 would never end
        return None
    if number.adjusted() < -30:
        return -1 if number < 0 else 0
    return _fits(math.floor(Fraction(number) * 1000))


def all_nanoseconds(values: list[msgspec.Raw]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """(`nanoseconds` of each, which of them are known): in one pass when all are plain texts with three decimals."""
    text = b"\n".join(values)
    if _PLAIN.fullmatch(text):
        digits = text.replace(b".", b"").decode("ascii")
        return np.fromstring(digits, np.int64, sep="\n"), np.ones(len(values), np.bool_)
    found = [nanoseconds(bytes(value).decode("utf-8", "replace")) for value in values]
    return np.array([ns or 0 for ns in found], np.int64), np.array([ns is not None for ns in found], np.bool_)


def integer(value: object) -> int | None:
    """7, "7", "0x7", 7.0 -> 7; anything else, and what does not fit 64 bits -> None."""
    if type(value) is int:
        return _fits(value)
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value == int(value) and abs(value) < 2**53 else None
    if isinstance(value, str) and len(value) < 24:
        try:
            return _fits(int(value, 0 if value[:2].lower() == "0x" else 10))
        except ValueError:
            return None
    return None


def row_number(value: object) -> int | None:
    """A pid or tid: a number, or the number in a text such as "stream 7"."""
    found = integer(value)
    if found is None and isinstance(value, str):
        digits = _DIGITS.search(value)
        found = _fits(int(digits.group())) if digits and len(digits.group()) < 20 else None
    return found


def _shape(value: object) -> tuple[int, int, int]:
    """A grid or block: [x, y, z], also as the text "[x, y, z]"; zeros when it is none."""
    numbers = _DIGITS.findall(value[:64]) if isinstance(value, str) else value
    if not isinstance(numbers, list) or len(numbers) != 3:
        return 0, 0, 0
    x, y, z = (_count(v) for v in numbers)
    return (x, y, z) if x and y and z else (0, 0, 0)


def _count(value: object) -> int:
    found = integer(value)
    return found if found is not None and 0 <= found <= INT32_MAX else 0


def _fits(value: int) -> int | None:
    return value if -INT64_MAX <= value <= INT64_MAX else None


def _text(value: object) -> str | None:
    """A name as it can be printed: bad bytes and lone surrogates become the replacement character."""
    if not isinstance(value, str):
        return str(value) if isinstance(value, int | float) else None
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace").decode("utf-8")


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(str(value).encode("utf-8", "replace") if isinstance(value, str | int | float) else b"")


def _args_of(found: object) -> Args:
    """The arguments of an untyped event; what is of another type or size counts as not told."""
    if not isinstance(found, dict):
        return NO_ARGS
    device, stream = integer(found.get("device")), integer(found.get("stream"))
    return Args(
        device=UNKNOWN if device is None or not 0 <= device <= INT32_MAX else device,
        stream=NO_STREAM if stream is None else stream,
        correlation=integer(found.get("correlation")) or 0,
        grid=_shape(found.get("grid")),
        block=_shape(found.get("block")),
        registers=_count(found.get("registers per thread")),
        shared=_count(found.get("shared memory")),
        graph_id=integer(found.get("graph id")) or 0,
        graph_node_id=integer(found.get("graph node id")) or 0,
    )
