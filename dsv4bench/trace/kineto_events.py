"""One event of a Kineto file: the typed form, the time rule, and the lenient forms of numbers found in the wild.

Times are taken from the decimal text: ns = floor(text in us x 1000), never through a float, since at 1.7e15 us a
double's step is 250 ns. `float_hook=str` makes the decoder hand over that text. A number that is none, or that does
not fit 64 bits, is None; the caller counts it.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from dsv4bench.records.trace import Ints

INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
_PLAIN = re.compile(r"(?:[0-9]{1,15}\.[0-9]{3}\n)*[0-9]{1,15}\.[0-9]{3}")
_NUMBER = re.compile(r"\s*[-+]?\d{1,40}(\.\d{0,400})?([eE][-+]?\d{1,6})?\s*")
_DIGITS = re.compile(r"\d+")


class Event(msgspec.Struct, gc=False):
    """An entry of `traceEvents`. `args` stays undecoded: most events are of no interest here."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: msgspec.Raw = msgspec.Raw(b"")


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


ARG_KEYS = frozenset(msgspec.json.decode(msgspec.json.encode(Args())))
_decode_any = msgspec.json.Decoder().decode
_decode_args = msgspec.json.Decoder(list[Args]).decode
_decode_events = msgspec.json.Decoder(list[Event], float_hook=str).decode
_NOT_AS_TYPED = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError)


def decode_events(text: bytes) -> list[Event] | None:
    """The events of a JSON array; None when anything in it is not as expected."""
    try:
        return _decode_events(text)
    except _NOT_AS_TYPED:
        return None


def decode_args(events: list[Event]) -> list[Args]:
    """The arguments of each event, in the typed form; what is of another type or size counts as not told."""
    try:
        found = _decode_args(b"[" + b",".join([event.args for event in events]) + b"]")
        if len(found) == len(events):  # one event without arguments gives an empty list
            return found
    except _NOT_AS_TYPED:
        pass
    return [_lenient_args(event.args) for event in events]


def _lenient_args(raw: msgspec.Raw) -> Args:
    try:
        found = _decode_any(raw) if len(raw) else None
    except _NOT_AS_TYPED:
        found = None
    if not isinstance(found, dict):
        return Args()
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


def event_of(value: object) -> Event | None:
    """An event from an untyped JSON value; None when the value is no event."""
    if not isinstance(value, dict):
        return None
    args = value.get("args")
    kept = {k: v for k, v in args.items() if k in ARG_KEYS and _plain(v)} if isinstance(args, dict) else {}
    return Event(
        ph=_text(value.get("ph")),
        cat=_text(value.get("cat")),
        name=_text(value.get("name")),
        pid=value.get("pid"),
        tid=value.get("tid"),
        ts=value.get("ts"),
        dur=value.get("dur"),
        args=msgspec.Raw(msgspec.json.encode(kept)),
    )


def nanoseconds(us: object) -> int | None:
    """floor(us x 1000) of the decimal text (JSON number or string: torch_npu writes strings), or None."""
    if type(us) is str:
        whole, _, fraction = us.partition(".")
        if len(fraction) == 3 and fraction.isdecimal() and whole.isdecimal():
            return _fits(int(whole + fraction)) if len(whole) < 20 else None
        return _exact(us)
    if type(us) is int:
        return _fits(us * 1000)
    return _exact(repr(us)) if isinstance(us, float) else None


def all_nanoseconds(values: list[Any]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """(`nanoseconds` of each, which of them are known): in one pass when all are plain texts with three decimals."""
    try:
        text = "\n".join(values)
        plain = _PLAIN.fullmatch(text) is not None
    except TypeError:
        text, plain = "", False
    if plain:
        return np.fromstring(text.replace(".", ""), np.int64, sep="\n"), np.ones(len(values), np.bool_)
    found = [nanoseconds(value) for value in values]
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


def _exact(text: str) -> int | None:
    if not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text.strip())
    if not number.is_finite() or number.adjusted() > 16:  # 1e17 us is no time, and 1e999999999 would never end
        return None
    if number.adjusted() < -30:
        return -1 if number < 0 else 0
    return _fits(math.floor(Fraction(number) * 1000))


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


def _plain(value: object) -> bool:
    """Can this argument be encoded again?"""
    if isinstance(value, list):
        return len(value) <= 3 and all(_plain(v) and not isinstance(v, list) for v in value)
    if isinstance(value, str):
        return value.isascii()
    return value is None or isinstance(value, float) or (isinstance(value, int) and -INT64_MAX <= value <= INT64_MAX)
