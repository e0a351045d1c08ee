"""What `dsv4bench selftest` found: the tool's own error at each concurrency."""

from __future__ import annotations

import msgspec

from dsv4bench.records.codec import Document


class SelftestLevel(msgspec.Struct, frozen=True, kw_only=True):
    """Errors in seconds against the paced server's own send stamps, on this host's monotonic clock.

    `icl_error`: |measured gap − gap between the two sends|. `ttft_error`: measured first token − its send.
    `*_user_*`: the same from user-space stamps of a second run. None where there was nothing to measure.
    """

    concurrency: int
    tokens: int
    timestamps: str
    icl_error_p50_s: float | None
    icl_error_p99_s: float | None
    ttft_error_p50_s: float | None
    ttft_error_p99_s: float | None
    icl_error_user_p50_s: float | None
    icl_error_user_p99_s: float | None
    client_lag_p50_s: float | None
    client_lag_p99_s: float | None
    achieved_frac: float | None  # requests in flight over requested, in the steady window
    cpu_us_per_token: float | None
    merged_reads_frac: float | None
    server_late_p99_s: float | None
    server_was_limit: bool


class SelftestDocument(Document, frozen=True, kw_only=True):
    schema: str = "dsv4bench.selftest/1"
    ttft_s: float
    itl_s: float
    tokens: int
    levels: list[SelftestLevel]
    notes: list[str] = msgspec.field(default_factory=list)
