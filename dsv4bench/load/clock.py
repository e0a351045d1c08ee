"""Two clocks and the bridge between them.

The kernel stamps each received segment with CLOCK_REALTIME (SO_TIMESTAMPNS, returned by recvmsg); everything else
here runs on CLOCK_MONOTONIC. `realtime_offset_ns()` read at the start and at the end of a level converts one into
the other and reveals a clock step in between, in which case the kernel stamps of that level are not used.
A kernel stamp does not depend on when Python gets to the socket; user stamp − kernel stamp is the client's own lag.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import time

SO_TIMESTAMPNS = 35  # linux/socket.h; Python exports no name for it before 3.14
STEP_NS = 200_000  # a larger change of the offset within one level is a clock step, not jitter of reading it
ANCILLARY_BYTES = 64
_TIMESPEC = struct.Struct("qq")


def kernel_stamps_available() -> bool:
    """Whether a TCP socket here accepts SO_TIMESTAMPNS (Linux does)."""
    if not sys.platform.startswith("linux") or struct.calcsize("P") != 8:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        return enable_kernel_stamps(s)


def enable_kernel_stamps(s: socket.socket) -> bool:
    """Ask the kernel to stamp what `s` receives; False when it refuses."""
    with contextlib.suppress(OSError):
        s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        return True
    return False


def stamp_from(ancillary: list[tuple[int, int, bytes]]) -> int:
    """CLOCK_REALTIME ns of the last segment of a read, or 0 when the kernel sent none."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
            seconds, ns = _TIMESPEC.unpack_from(data)
            return int(seconds) * 1_000_000_000 + int(ns)
    return 0


def realtime_offset_ns() -> int:
    """CLOCK_REALTIME − CLOCK_MONOTONIC, the best (most tightly bracketed) of nine readings."""
    best_width, best = 1 << 62, 0
    for _ in range(9):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best_width:
            best_width, best = after - before, real - (before + after) // 2
    return best
