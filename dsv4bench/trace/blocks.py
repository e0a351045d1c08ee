"""The bytes of a text trace in blocks: unzipped when the content is gzip, whatever the suffix, and always UTF-8.

A damaged or cut-off gzip gives every byte up to the damage and leaves a line in `warnings`; nothing is raised for it,
since a trace cut off by a full disk still shows most of its kernels. Memory is one block, whatever the ratio.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

BLOCK = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
_READ = 1 << 20
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def blocks(path: Path, warnings: list[str], size: int = BLOCK) -> Iterator[bytes]:
    """UTF-8 blocks of at most about `size` bytes; what is wrong with the file goes into `warnings`."""
    with path.open("rb") as file:
        zipped = file.read(2) == GZIP_MAGIC
        file.seek(0)
        raw = _gunzip(file, size, warnings) if zipped else iter(lambda: file.read(size), b"")
        yield from _as_utf8(raw, warnings)


def span(path: Path, start: int, stop: int | None, size: int = BLOCK) -> Iterator[bytes]:
    """The bytes from `start` up to `stop` (None: the end) of a plain file, as they are."""
    with path.open("rb") as file:
        file.seek(start)
        while block := file.read(size if stop is None else min(size, stop - file.tell())):
            yield block


def head(path: Path, warnings: list[str], size: int = 1 << 16) -> bytes:
    """The first bytes, unzipped when the file is gzip."""
    found = b""
    for block in blocks(path, warnings, size):
        found += block
        if len(found) >= size:
            break
    return found[:size]


def _as_utf8(raw: Iterator[bytes], warnings: list[str]) -> Iterator[bytes]:
    first = next(raw, b"")
    encoding = _UTF16.get(first[:2])
    if encoding is None:
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from raw
        return
    warnings.append(f"the file is {encoding.upper()}; it was read as text")
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(first[2:]).encode("utf-8", "replace")
    for block in raw:
        yield decoder.decode(block).encode("utf-8", "replace")


def _gunzip(file: BinaryIO, size: int, warnings: list[str]) -> Iterator[bytes]:
    """Members one after another; the last bytes before a damage are fetched byte by byte."""
    engine, pending, inside = zlib.decompressobj(31), b"", False
    while pending := pending or file.read(_READ):
        inside = True
        before = engine.copy()
        try:
            out = engine.decompress(pending, size)
        except zlib.error as why:
            yield from _until_damage(before, pending)
            warnings.append(f"the gzip data is damaged ({why}); read up to the damage")
            return
        if out:
            yield out
        pending = engine.unconsumed_tail
        if engine.eof:
            pending = engine.unused_data
            engine, inside = zlib.decompressobj(31), False
            if pending and not pending.startswith(GZIP_MAGIC[: len(pending)]):
                warnings.append("bytes after the end of the gzip data were left out")
                return
    if inside:
        warnings.append("the gzip data ends early; read up to the cut")


def _until_damage(engine: zlib._Decompress, pending: bytes) -> Iterator[bytes]:
    found = bytearray()
    try:
        for i in range(len(pending)):
            found += engine.decompress(pending[i : i + 1])
            if len(found) >= _READ:
                yield bytes(found)
                found.clear()
    except zlib.error:
        pass
    yield bytes(found)
