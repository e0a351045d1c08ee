"""May this process read the GPU's hardware counters? The driver's setting, our rights, and the remedy in words."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import msgspec

PARAMS = "/proc/driver/nvidia/params"
STATUS = "/proc/self/status"
_CAP_SYS_ADMIN = 21

REMEDY = (
    "run it as root or with CAP_SYS_ADMIN (docker: --cap-add SYS_ADMIN); or let every user read them: put "
    "'options nvidia NVreg_RestrictProfilingToAdminUsers=0' into /etc/modprobe.d/nvidia-counters.conf and reload the "
    "driver (a reboot does; some systems need `update-initramfs -u` first)"
)


class CounterRights(msgspec.Struct, frozen=True, kw_only=True):
    """`restricted`: the driver keeps the counters for administrators; None where it does not say."""

    restricted: bool | None
    admin: bool

    @property
    def allowed(self) -> bool | None:
        """None: not known."""
        if self.admin:
            return True
        return None if self.restricted is None else not self.restricted


def counter_rights(params: str = PARAMS, status: str = STATUS) -> CounterRights:
    """What the driver's parameters and this process' rights say; nothing is tried."""
    return CounterRights(restricted=_restricted(params), admin=_is_admin(status))


def _restricted(params: str) -> bool | None:
    try:
        text = Path(params).read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", text, re.MULTILINE)
    return None if found is None else found.group(1) != "0"


def _is_admin(status: str) -> bool:
    """Root without the capability (a container's root) is none to the driver."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        found = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", Path(status).read_text(errors="replace"), re.MULTILINE)
    except OSError:
        found = None
    if found is None:
        return os.geteuid() == 0
    return bool(int(found.group(1), 16) >> _CAP_SYS_ADMIN & 1)
