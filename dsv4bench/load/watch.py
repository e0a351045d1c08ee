"""How far every live stream is, told while requests are held in decode.

Only for `hold`: a measured level is not parsed on its clock. New reads are parsed once, so the cost is that of the
events that came since the last look.
"""

from __future__ import annotations

from collections.abc import Iterable

from dsv4bench.load.messages import StreamCount
from dsv4bench.load.reading import Capture
from dsv4bench.load.stream import StreamReader


class Watch:
    """Remembers how much of each stream it has read; a request that has ended is forgotten."""

    def __init__(self) -> None:
        self._readers: dict[int, StreamReader] = {}
        self._read: dict[int, int] = {}

    def look(self, live: Iterable[Capture]) -> list[StreamCount]:
        """The counts of these requests."""
        readers, read = self._readers, self._read
        self._readers, self._read = {}, {}
        return [self._count(c, readers.get(c.index) or StreamReader(), read.get(c.index, 0)) for c in live]

    def _count(self, capture: Capture, reader: StreamReader, at: int) -> StreamCount:
        for one in capture.reads[at:]:
            reader.read(one.user_ns, one.data)
        self._readers[capture.index], self._read[capture.index] = reader, len(capture.reads)
        return StreamCount(capture.index, reader.chunks, reader.tokens)
