"""Is this file an nsys SQLite export, and where are its plain bytes? A gzip is unpacked into a temporary folder."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dsv4bench.errors import SchemaError, UsageError
from dsv4bench.trace.nsys_database import MAGIC

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20
_DISK_SPARED = 0.1  # of the free space: an archive that grows beyond the rest is refused
_OF_NSYS = ("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_", "NVTX_EVENTS", "META_DATA_CAPTURE", "META_DATA_EXPORT")


def is_nsys_sqlite(path: Path) -> bool:
    """Does the content look like an nsys export? A damaged SQLite file does: its reader says what is wrong."""
    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
        if head.startswith(_GZIP):
            with gzip.open(path) as packed:
                return packed.read(len(MAGIC)) == MAGIC
    except (OSError, EOFError, zlib.error):
        return False
    return head == MAGIC and _has_tables_of_nsys(path)


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The path itself, or of a gzip a temporary copy of its content."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "check the path and its permissions") from error
    if not packed:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="dsv4bench-") as folder:
        plain = Path(folder) / "export.sqlite"
        _unpack(path, plain)
        yield plain


def _unpack(path: Path, plain: Path) -> None:
    room = int(shutil.disk_usage(plain.parent).free * (1 - _DISK_SPARED))
    try:
        with gzip.open(path) as source, plain.open("wb") as target:
            while chunk := source.read(_CHUNK):
                room -= len(chunk)
                if room < 0:
                    raise UsageError(
                        f"{path} does not fit unpacked into {plain.parent.parent}", "set TMPDIR to a larger disk"
                    )
                target.write(chunk)
    except (OSError, EOFError, zlib.error) as error:
        raise SchemaError(
            f"{path} cannot be unpacked: {error}", "the archive is damaged or cut off: copy it again"
        ) from error


def _has_tables_of_nsys(path: Path) -> bool:
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            names = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    except (sqlite3.Error, ValueError):  # a name that is no UTF-8 is a ValueError
        return True
    return any(name.startswith(_OF_NSYS) for name in names)
