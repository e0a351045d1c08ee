"""Memory: what this process holds, and how much more it may take before the system ends it; told on Linux only."""

from __future__ import annotations

import os
import re
from pathlib import Path

STATM = "/proc/self/statm"
MEMINFO = "/proc/meminfo"
CGROUP = "/sys/fs/cgroup"


def resident_bytes(statm: str = STATM) -> int | None:
    """What this process holds in memory now."""
    try:
        return int(Path(statm).read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def free_bytes(meminfo: str = MEMINFO, cgroup: str = CGROUP) -> int | None:
    """What the system can still give, or the limit of this container if that is less."""
    told = [found for found in (_available(Path(meminfo)), _below_limit(Path(cgroup))) if found is not None]
    return min(told, default=None)


def _available(meminfo: Path) -> int | None:
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", meminfo.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found is not None else None


def _below_limit(cgroup: Path) -> int | None:
    """Version 2 of control groups, else 1; cached files count as free, since they give way."""
    for limit, current, folder in (
        ("memory.max", "memory.current", cgroup),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", cgroup / "memory"),
    ):
        try:
            most, now = int((folder / limit).read_text()), int((folder / current).read_text())
            cached = re.search(r"^(?:total_)?inactive_file (\d+)", (folder / "memory.stat").read_text(), re.MULTILINE)
        except (OSError, ValueError):  # "max": no limit
            continue
        return max(most - now + (int(cached.group(1)) if cached is not None else 0), 0)
    return None
