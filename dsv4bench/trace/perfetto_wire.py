"""The few fields of Perfetto's protobuf that a PyTorch trace uses, read with a varint walker: no library needed.

    Trace.packet = 1
    TracePacket: timestamp = 8, track_event = 11, interned_data = 12, sequence_flags = 13, trace_packet sequence = 10,
                 timestamp_clock_id = 58, track_descriptor = 60
    TrackEvent:  debug_annotations = 4, type = 9, track_uuid = 11, categories = 22, name = 23
    DebugAnnotation: bool 2, uint 3, int 4, double 5, string 6, name 10, JSON 9

`packets` yields the whole packets of a file cut anywhere, and says whether it was cut. No interpretation here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

BEGIN, END = 1, 2
_MASK = (1 << 64) - 1
_TEXTS = (6, 9)


class Damaged(Exception):
    """The bytes are no protobuf message from here on."""


@dataclass(slots=True)
class Slice:
    """One TrackEvent with the time of its packet."""

    time_ns: int
    type: int
    track: int
    category: str
    name: str
    arguments: dict[str, object] = field(default_factory=dict)


def packets(data: bytes) -> Iterator[bytes]:
    """The packets of a trace. Raises Damaged after the last whole one when bytes are left over."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key != 0x0A:
            raise Damaged(f"field {key >> 3} at byte {at}")
        length, at = varint(data, at)
        if at + length > len(data):
            raise Damaged("the last packet is cut off")
        yield data[at : at + length]
        at += length


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of a message: varints as int, the rest as bytes. Raises Damaged."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            number, at = varint(data, at)
            yield key >> 3, number
            continue
        length, at = varint(data, at) if wire == 2 else ({1: 8, 5: 4}.get(wire, -1), at)
        if length < 0 or at + length > len(data):
            raise Damaged(f"wire type {wire} at byte {at}")
        yield key >> 3, data[at : at + length]
        at += length


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value & _MASK, at
        shift += 7
    raise Damaged(f"an unfinished number at byte {at}")


def track_event(packet: bytes) -> Slice | None:
    """The slice of a packet; None for packets of other kinds (clocks, processes, configuration)."""
    time_ns, event = 0, None
    for number, value in fields(packet):
        if number == 8 and isinstance(value, int):
            time_ns = value
        elif number == 11 and isinstance(value, bytes):
            event = value
    if event is None:
        return None
    found = Slice(time_ns, 0, 0, "", "")
    for number, value in fields(event):
        if number == 9 and isinstance(value, int):
            found.type = value
        elif number == 11 and isinstance(value, int):
            found.track = value
        elif number == 22 and isinstance(value, bytes):
            found.category = found.category or value.decode("utf-8", "replace")
        elif number == 23 and isinstance(value, bytes):
            found.name = value.decode("utf-8", "replace")
        elif number == 4 and isinstance(value, bytes):
            _add_annotation(value, found.arguments)
    return found


def texts(data: bytes, depth: int = 6) -> Iterator[str]:
    """Every printable string inside a message, for telling one writer from another."""
    try:
        parts = [value for _, value in fields(data) if isinstance(value, bytes)]
    except Damaged:
        return
    for part in parts:
        if part and part.isascii() and part.decode().isprintable():
            yield part.decode()
        elif depth:
            yield from texts(part, depth - 1)


def _add_annotation(data: bytes, arguments: dict[str, object]) -> None:
    name: str = ""
    value: object = None
    for number, found in fields(data):
        if number == 10 and isinstance(found, bytes):
            name = found.decode("utf-8", "replace")
        elif number in _TEXTS and isinstance(found, bytes):
            value = found.decode("utf-8", "replace")
        elif number in (2, 3, 4) and isinstance(found, int):
            value = found - (1 << 64) if number == 4 and found >> 63 else found
        elif number == 5 and isinstance(found, bytes) and len(found) == 8:
            value = struct.unpack("<d", found)[0]
    arguments[name] = value
