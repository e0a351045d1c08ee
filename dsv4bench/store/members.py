"""requests.jsonl.gz: one gzip member a level, appended when the level ends.

Any gzip reader takes the file as one stream of JSON lines. A member is self-contained, so a kill costs at most the
member being written. Each line carries its cell id first; where a level was measured again, its last member counts.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence

import msgspec

from dsv4bench.records.codec import encode
from dsv4bench.records.request import RequestRecord
from dsv4bench.store import lines

CHUNK_BYTES = 1 << 20
HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00"  # of every member that `pack` makes: deflate, no name, no time


class StoredRequest(RequestRecord, frozen=True, kw_only=True):
    """A `RequestRecord` beside the id of its cell."""

    cell: str


class Member(msgspec.Struct, frozen=True):
    """The bytes [start, end) of the file, and the cell they belong to."""

    start: int
    end: int
    cell: str


def pack(cell: str, records: Sequence[RequestRecord]) -> bytes:
    """One member. The same records give the same bytes."""
    head = b'{"cell":' + encode(cell) + b","
    body = b"".join(head + encode(r)[1:] + b"\n" for r in records)
    return gzip.compress(body, compresslevel=6, mtime=0)


def unpack(data: bytes, member: Member, where: str, warnings: list[str]) -> list[StoredRequest]:
    """The requests of one member; a line that does not parse is dropped and added to `warnings`."""
    text = gzip.decompress(data[member.start : member.end])
    return lines.parse(text, StoredRequest, f"{where}, {member.cell}", warnings)


def latest(data: bytes, where: str, warnings: list[str]) -> dict[str, Member]:
    """The member that counts of each cell; bytes that belong to none are added to `warnings`."""
    found = scan(data)
    unsound = len(data) - sum(m.end - m.start for m in found)
    if unsound:
        warnings.append(f"{where}: dropped {unsound} bytes of a torn or damaged level")
    return {m.cell: m for m in found}


def scan(data: bytes) -> list[Member]:
    """The sound members in order. Damage is skipped up to the next member's head."""
    found: list[Member] = []
    start = 0
    while start >= 0:
        member = _member_at(data, start)
        if member is not None:
            found.append(member)
        start = data.find(HEAD, start + 1 if member is None else member.end)
    return found


def sound_end(data: bytes) -> int:
    """Where the last complete member ends; what follows is torn."""
    found = scan(data)
    return found[-1].end if found else 0


def _member_at(data: bytes, start: int) -> Member | None:
    """The member that begins there; None if it is cut short, fails its checksum or holds no request."""
    engine = zlib.decompressobj(wbits=31)
    first = b""
    at = start
    try:
        while not engine.eof and at < len(data):
            piece = data[at : at + CHUNK_BYTES]
            text = engine.decompress(piece)
            if b"\n" not in first:
                first += text
            at += len(piece)
        if not engine.eof:
            return None
        line, _, _ = first.partition(b"\n")
        cell = msgspec.json.decode(line, type=_Tag).cell
    except (zlib.error, msgspec.MsgspecError):
        return None
    return Member(start, at - len(engine.unused_data), cell)


class _Tag(msgspec.Struct):
    cell: str
