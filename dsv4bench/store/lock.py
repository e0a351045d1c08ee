"""One writer an experiment: the file `lock`, made with O_EXCL, which names its process.

A lock is dead when its process is gone (or its id now belongs to another process), or when this host has rebooted
since; a dead lock is taken over. A process that cannot be looked at from here (another host, another container)
counts as alive: the user is told which file to delete. Reading never changes a lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import time
from pathlib import Path
from typing import Literal

import msgspec

from dsv4bench.errors import StoreError
from dsv4bench.store import files

NAME = "lock"
Liveness = Literal["alive", "dead", "unknown"]


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes. `started` is the process start in clock ticks since boot; what a system does not tell is empty."""

    pid: int
    started: str
    boot: str
    pid_namespace: str
    host_sha256: str


def me() -> Holder:
    """This process."""
    return Holder(
        pid=os.getpid(),
        started=_started(os.getpid()),
        boot=_text(Path("/proc/sys/kernel/random/boot_id")),
        pid_namespace=_namespace(),
        host_sha256=hashlib.sha256(socket.gethostname().encode()).hexdigest()[:16],
    )


def liveness(holder: Holder) -> Liveness:
    """Whether the holder still runs, as far as this process can see."""
    here = me()
    if holder.boot != here.boot:
        return "dead" if holder.host_sha256 == here.host_sha256 else "unknown"
    if not here.boot and holder.host_sha256 != here.host_sha256:
        return "unknown"
    if holder.pid_namespace != here.pid_namespace:
        return "unknown"
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return "dead"
    except PermissionError:
        pass  # it runs, under another user
    return "alive" if holder.started == _started(holder.pid) else "dead"


def held(folder: Path) -> bool:
    """Whether someone may still be writing in this folder."""
    holder = read(folder / NAME)
    return holder is not None and liveness(holder) != "dead"


def read(path: Path) -> Holder | None:
    """The holder named in a lock file; None when there is no file or it names nobody."""
    try:
        return _parse(path.read_bytes())
    except OSError:
        return None


class Lock:
    """A held lock. Release it, or die: both free the folder."""

    def __init__(self, folder: Path) -> None:
        """Raises StoreError when another process holds it."""
        self.path = folder / NAME
        self._mine = msgspec.json.encode(me()) + b"\n"
        with files.failing_as("write", self.path):
            if not self._create() and not self._take_over():
                self._refuse()

    def _create(self) -> bool:
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            return False
        try:
            files.write_all(fd, self._mine)
            os.fsync(fd)
        except OSError:
            self.path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        return True

    def _take_over(self) -> bool:
        """Rewrite a dead lock in place; of two that try, the second finds the first one alive."""
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            raw = os.pread(fd, 4096, 0)
            if not raw:  # its maker is between open and write, or was killed there
                time.sleep(0.2)
                raw = os.pread(fd, 4096, 0)
            holder = _parse(raw)
            if holder is not None and liveness(holder) != "dead":
                return False
            os.ftruncate(fd, 0)
            os.pwrite(fd, self._mine, 0)
            os.fsync(fd)
            return True
        finally:
            os.close(fd)

    def _refuse(self) -> None:
        holder = read(self.path)
        pid = holder.pid if holder else "unknown"
        if holder is not None and liveness(holder) == "unknown":
            raise StoreError(
                f"{self.path.parent}: process {pid} of another host or container is writing here",
                f"if it has ended, delete {self.path}",
            )
        raise StoreError(f"{self.path.parent}: process {pid} is writing here", "wait until it ends, or stop it")

    def release(self) -> None:
        """Free the folder; a folder that has vanished is free already."""
        try:
            if self.path.read_bytes() == self._mine:
                self.path.unlink(missing_ok=True)
        except OSError:
            pass


def _parse(raw: bytes) -> Holder | None:
    try:
        return msgspec.json.decode(raw, type=Holder)
    except msgspec.MsgspecError:
        return None


def _started(pid: int) -> str:
    """Field 22 of /proc/<pid>/stat, counted after the command name, which may hold spaces; empty for a zombie."""
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
