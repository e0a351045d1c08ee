"""One line of `dsv4bench doctor`."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing: whether it is there, what was found, and what brings it when it is missing."""

    what: str
    ok: bool
    found: str
    remedy: str = ""
