"""The selftest's errors as a table, in microseconds."""

from __future__ import annotations

from rich.table import Table

from dsv4bench.records.selftest import SelftestDocument, SelftestLevel

_HEADS = (
    "C",
    "stamps",
    "ICL error µs p50",
    "p99",
    "TTFT error µs p50",
    "p99",
    "ICL error, user stamps p50",
    "p99",
    "lag µs p99",
    "in flight/C",
    "CPU µs/token",
    "server late µs p99",
)


def selftest_table(d: SelftestDocument) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in _HEADS:
        table.add_column(head, justify="right")
    for level in d.levels:
        table.add_row(*_row(level))
    return table


def _row(x: SelftestLevel) -> list[str]:
    return [
        str(x.concurrency),
        x.timestamps,
        _us(x.icl_error_p50_s),
        _us(x.icl_error_p99_s),
        _us(x.ttft_error_p50_s),
        _us(x.ttft_error_p99_s),
        _us(x.icl_error_user_p50_s),
        _us(x.icl_error_user_p99_s),
        _us(x.client_lag_p99_s),
        "–" if x.achieved_frac is None else f"{x.achieved_frac:.3f}",
        "–" if x.cpu_us_per_token is None else f"{x.cpu_us_per_token:.1f}",
        _us(x.server_late_p99_s) + (" LIMIT" if x.server_was_limit else ""),
    ]


def _us(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1e6 * seconds:.1f}"
