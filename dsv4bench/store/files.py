"""Bytes that survive: whole files by rename, lines by one append each, and readers that drop a torn last line.

A whole file is a temporary file in the same folder, fsync, rename, fsync of the folder: a reader sees the old one
or the new one. A line is one `write` on an O_APPEND descriptor; a write that fails half way (full disk) is taken
back, so that the next line starts clean. Every failure is a `StoreError` that says what, where and why.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dsv4bench.errors import StoreError
from dsv4bench.records.experiment import FileNote

HINTS = {
    errno.ENOSPC: "free some space, or choose another place with --out",
    errno.EDQUOT: "your disk quota is used up: free some space, or choose another place with --out",
    errno.EFBIG: "a file size limit is set (ulimit -f): raise it, or choose another place with --out",
    errno.EACCES: "check who owns the folder, or choose another place with --out",
    errno.EPERM: "check who owns the folder, or choose another place with --out",
    errno.EROFS: "the file system is read-only: choose another place with --out",
    errno.ENOENT: "the folder was moved or deleted meanwhile",
}
TEMPORARY = ".tmp"
Safe = Callable[[], str]  # asked only when something failed: what is on disk all the same


def nothing() -> str:
    return ""


@contextmanager
def failing_as(action: str, path: Path, safe: Safe = nothing) -> Iterator[None]:
    """Turn an OSError into one clear StoreError line."""
    try:
        yield
    except OSError as e:
        why = os.strerror(e.errno) if e.errno else str(e)
        tail = f"; {safe()}" if safe() else ""
        hint = HINTS.get(e.errno or 0, "check the folder and the disk")
        raise StoreError(f"cannot {action} {path}: {why}{tail}", hint) from e


def read_bytes(path: Path) -> bytes:
    """The whole file. Raises StoreError."""
    with failing_as("read", path):
        return path.read_bytes()


def write_whole(path: Path, data: bytes, safe: Safe = nothing) -> None:
    """Replace `path` by `data`, at once or not at all. Raises StoreError and leaves the old file as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(3)}{TEMPORARY}")
    with failing_as("write", path, safe):
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                write_all(fd, data)
                os.fsync(fd)
            finally:
                os.close(fd)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def note(path: Path) -> FileNote:
    """Hash and size of a file as it is now. Raises StoreError."""
    with failing_as("read", path), path.open("rb") as f:
        return FileNote(sha256=hashlib.file_digest(f, "sha256").hexdigest(), bytes=f.tell())


def write_all(fd: int, data: bytes) -> None:
    """Every byte, or the OSError that stopped it."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_folder(folder: Path) -> None:
    """Make a rename or a new name durable; file systems that cannot sync a folder are left alone."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as e:
        if e.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(fd)


class Appender:
    """A file that only grows, by records that are there whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with failing_as("open", path):
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def cut_tail(self, sound_end: Callable[[bytes], int]) -> None:
        """Take a torn record away, which would swallow the next one; only the file's one writer may do this.

        `sound_end` tells where the last complete record ends.
        """
        with failing_as("repair", self.path):
            data = self.path.read_bytes()
            end = sound_end(data)
            if end < len(data):
                os.ftruncate(self._fd, end)
                os.fsync(self._fd)

    def ends_a_line(self) -> bool:
        with failing_as("read", self.path):
            size = os.fstat(self._fd).st_size
            return size == 0 or os.pread(self._fd, 1, size - 1) == b"\n"

    def append(self, data: bytes, *, durable: bool = True, safe: Safe = nothing) -> None:
        """One record. Raises StoreError with the file as it was before."""
        with failing_as("append to", self.path, safe):
            before = os.fstat(self._fd)
            try:
                written = os.write(self._fd, data)
                if written < len(data):  # a full disk, or more than one write can carry
                    write_all(self._fd, data[written:])
                if durable:
                    os.fsync(self._fd)
            except BaseException as e:
                whole = os.fstat(self._fd).st_size == before.st_size + len(data)
                if isinstance(e, OSError) or not whole:  # a Ctrl-C behind a whole record loses nothing
                    os.ftruncate(self._fd, before.st_size)
                raise
            self._still_there(before)

    def _still_there(self, opened: os.stat_result) -> None:
        """A descriptor outlives its name: without this, lines go on into a deleted file."""
        if not os.path.samestat(os.stat(self.path), opened):  # noqa: PTH116
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
