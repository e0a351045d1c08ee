"""The entries of `traceEvents` in batches, from blocks of any size, in bounded memory, from a file in any state.

The fast way decodes up to 1 MiB of events at once, cut where one event ends and the next begins. When such a piece
does not decode (NaN, a bad escape, a cut at a nested object), it is tried in smaller pieces, and the smallest is
read by the tolerant way: one event after another with the standard decoder, repaired escapes, skipped remains. Text
inside a string never looks like a boundary, since its quotes are escaped. Whatever was left out is said in
`warnings`. Accepted: a top-level object or bare list, several documents one after another, a list that never ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from dsv4bench.trace.kineto_events import NOT_AS_TYPED, Event, decode_events, decode_strictly, event_of

CHUNK = 1 << 20
SMALL = 1 << 16
LONGEST_VALUE = 64 << 20
_KEYS = "ph|name|cat|pid|tid|ts|dur|args|id|bp|s"
BOUNDARY = re.compile(rb'\}\s*(,)\s*\{\s*"(?:' + _KEYS.encode() + rb')"\s*:')
_TEXT_BOUNDARY = re.compile(r'\}\s*(,)\s*\{\s*"(?:' + _KEYS + r')"\s*:')
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_SPACE = re.compile(r"[\s,]*")
_BYTE_SPACE = re.compile(rb"[\s,\0]*")
_NOT_YET = ("Unterminated string", "Invalid \\uXXXX escape")


def _number(text: str) -> int | str:
    return int(text) if len(text) < 40 else text


_decoder = json.JSONDecoder(strict=False, parse_float=str, parse_int=_number, parse_constant=lambda _: None)


class Incomplete(Exception):
    """The value goes on beyond what has been read."""


class Malformed(Exception):
    """No JSON value can begin here or end where this one does."""


class NotAsTyped(Exception):
    """A strict scanner met events that only the tolerant ways can read."""


def parse(text: str, at: int, whole: bool) -> tuple[object, int]:
    """One JSON value from `at` and the index after it; `whole`: the text is all there is."""
    try:
        value, end = _decoder.raw_decode(text, at)
    except json.JSONDecodeError as why:
        if not whole and (why.msg.startswith(_NOT_YET) or why.pos >= len(text) - 16):
            raise Incomplete from None
        raise Malformed(f"{why.msg} at {why.pos}") from None
    except (RecursionError, ValueError) as why:
        raise Malformed(type(why).__name__) from None
    if end == len(text) and not whole:  # 12 may go on as 123
        raise Incomplete
    return value, end


def _decoded_or_raise(text: bytes) -> list[Event] | None:
    try:
        return decode_strictly(text)
    except NOT_AS_TYPED as why:
        raise NotAsTyped from why


class Scanner:
    """Reads a file once, front to back. `meta` holds the top-level keys met so far, but for the events.

    A strict one raises NotAsTyped in place of trying smaller pieces and looser types, but for the last piece.
    """

    def __init__(self, blocks: Iterator[bytes], warnings: list[str], *, strict: bool = False) -> None:
        self.meta: dict[str, object] = {}
        self.lists = 0  # event lists met
        self.left_out = 0  # entries that could not be read
        self.cut_off = False
        self._strict = strict
        self._blocks = blocks
        self._warnings = warnings
        self._buffer = b""
        self._at = 0
        self._ended = False

    def batches(self) -> Iterator[list[Event]]:
        """Every readable event. After the last batch the warnings are complete."""
        while (first := self._peek()) is not None:
            self._at += 1
            if first == b"[":
                yield from self._events()
            elif first == b"{":
                yield from self._members()
            else:
                self._warnings.append("text that is no JSON follows; it was left out")
                break
        if self.cut_off:
            self._warnings.append("the file ends inside its JSON (cut off while writing?); read as far as it goes")
        if self.left_out:
            self._warnings.append(f"{self.left_out} damaged entries could not be read and are left out")
        if self.lists > 1:
            self._warnings.append(f"{self.lists} JSON documents stand in the file; their events are taken together")

    def _members(self) -> Iterator[list[Event]]:
        """`"key": value, …}` of a top-level object."""
        while (first := self._peek()) is not None:
            if first == b"}":
                self._at += 1
                return
            try:
                key = self._value()
                if self._peek() != b":":
                    raise Malformed("a key without a value")
                self._at += 1
                if key == "traceEvents" and self._peek() == b"[":
                    self._at += 1
                    yield from self._events()
                else:
                    self.meta[str(key)] = self._value()
            except Malformed as why:
                self.left_out += 1
                if not self._seek_events():
                    self._warnings.append(f"the head or tail of the file is damaged ({why}); left out from there")
                    return
        self.cut_off = True

    def _events(self) -> Iterator[list[Event]]:
        """`event, …]` of an event list."""
        self.lists += 1
        window, closed = CHUNK, False
        while not closed:
            self._fill(window)
            cut = self._boundary(window)
            decode = decode_events if self._ended or not self._strict else _decoded_or_raise
            found = decode(b"".join((b"[", memoryview(self._buffer)[self._at : cut[0]], b"]"))) if cut else None
            if cut and found is not None:
                self._at = cut[1]
                window = min(CHUNK, 2 * window)
            elif cut and window > SMALL:
                window //= 8
                continue
            elif self._strict and not self._ended:
                raise NotAsTyped
            else:
                found, closed = self._tolerant(SMALL)
                window = SMALL
            if found:
                yield found

    def _boundary(self, window: int) -> tuple[int, int] | None:
        """(end of the last whole event in the window, start of the next)."""
        low = high = min(len(self._buffer), self._at + window)
        while low > self._at:
            low = max(self._at, low - SMALL)
            matches = list(BOUNDARY.finditer(self._buffer, low, high))
            if matches:
                return matches[-1].start() + 1, matches[-1].end(1)
        return None

    def _tolerant(self, size: int) -> tuple[list[Event], bool]:
        """Events of about `size` bytes, one after another; True when the list ends there."""
        found: list[Event] = []
        while True:
            self._fill(size)
            whole = self._ended and len(self._buffer) - self._at <= size
            text = self._buffer[self._at : self._at + size].decode("utf-8", "surrogateescape")
            done, closed = self._one_by_one(text, found, whole)
            self._at += len(text[:done].encode("utf-8", "surrogateescape"))
            if closed or whole:
                self.cut_off |= not closed
                return found, True
            if found or done:
                return found, False
            if size >= LONGEST_VALUE:
                self.cut_off, self._ended, self._at = True, True, len(self._buffer)
                return found, True
            size *= 4

    def _one_by_one(self, text: str, found: list[Event], whole: bool) -> tuple[int, bool]:
        """Appends the events of `text`; (the index reached, whether the list is closed)."""
        at = 0
        while True:
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
            if at == len(text):
                return at, False
            if text[at] == "]":
                return at + 1, True
            try:
                value, at = parse(text, at, whole)
                self._keep(value, found)
            except Incomplete:
                return at, False
            except Malformed:
                border = _TEXT_BOUNDARY.search(text, at)
                if border is None and not whole:
                    return at, False
                rest = border.start() + 1 if border else len(text)
                at += self._repair(text[at:rest], found)

    def _repair(self, piece: str, found: list[Event]) -> int:
        """Reads the event in `piece` with its backslashes doubled where they escape nothing (paths of Windows).

        The length of the piece that is done with: all of it when there is nothing to repair it by.
        """
        try:
            value, end = parse(_BAD_ESCAPE.sub(r"\\\\", piece), 0, True)
        except Malformed:
            self.left_out += 1
            return len(piece)
        self._keep(value, found)
        added = sum(bad.start() + i < end for i, bad in enumerate(_BAD_ESCAPE.finditer(piece)))
        return end - added

    def _keep(self, value: object, found: list[Event]) -> None:
        event = event_of(value) if isinstance(value, dict) else None
        self.left_out += not isinstance(value, dict)
        if event is not None:
            found.append(event)

    def _value(self) -> object:
        """One value of the head or tail. Raises Malformed, also at the end of the file."""
        size = SMALL
        while True:
            self._fill(size)
            piece = self._buffer[self._at : self._at + size]
            whole = self._ended and len(self._buffer) - self._at <= size
            text = piece.decode("utf-8", "surrogateescape")
            skipped = len(text) - len(text.lstrip())
            try:
                value, end = parse(text, skipped, whole)
            except Incomplete:
                if size >= LONGEST_VALUE:
                    raise Malformed("a value of more than 64 MiB") from None
                size *= 4
                continue
            self._at += len(text[:end].encode("utf-8", "surrogateescape"))
            return value

    def _seek_events(self) -> bool:
        """Goes on at the next `"traceEvents"` after a damaged member; False when there is none."""
        while True:
            place = self._buffer.find(b'"traceEvents"', self._at)
            if place >= 0:
                self._at = place
                return True
            self._at = max(self._at, len(self._buffer) - 16)
            if self._ended:
                self._at = len(self._buffer)
                return False
            self._fill(len(self._buffer) - self._at + 1)

    def _peek(self) -> bytes | None:
        """The next byte that is no space or comma, which stays; None at the end."""
        while True:
            self._at = _BYTE_SPACE.match(self._buffer, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._buffer):
                return self._buffer[self._at : self._at + 1]
            if self._ended:
                return None
            self._fill(1)

    def _fill(self, size: int) -> None:
        """Has `size` bytes after the current place, or the end of the file."""
        if self._ended or len(self._buffer) - self._at >= size:
            return
        parts, have = [self._buffer[self._at :]], len(self._buffer) - self._at
        self._at = 0
        while have < size:
            block = next(self._blocks, None)
            if block is None:
                self._ended = True
                break
            parts.append(block)
            have += len(block)
        self._buffer = b"".join(parts)
