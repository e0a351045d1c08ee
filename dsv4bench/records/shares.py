"""Kernel shares of the decode time at stated coordinates, as `compare` needs them for a bound.

A full breakdown of a trace carries more; a share that was only published carries no more than this. `share_frac` is
of `of`; "unknown" where the publication does not say. `at_most` marks a share given as "<1 %".
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dsv4bench.records.codec import Document

Of = Literal["sum", "busy", "span", "unknown"]


class KernelShare(msgspec.Struct, frozen=True, kw_only=True):
    config: str
    kernel: str
    component: str
    concurrency: int
    isl: int | None = None
    share_frac: float
    at_most: bool = False
    of: Of = "unknown"
    runs_on: str | None = None
    evidence: str | None = None


class SharesDocument(Document, frozen=True, kw_only=True):
    schema: str = "dsv4bench.shares/1"
    source: str
    published: bool  # copied from a text, not computed from a trace
    shares: list[KernelShare]
    notes: list[str] = msgspec.field(default_factory=list)
