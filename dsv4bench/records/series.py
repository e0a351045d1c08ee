"""series.json: what a report draws when the bulky files are not there: histograms and thinned telemetry by cell.

Histogram bins are the same in every file, so that counts add up and overlay: `PER_DECADE` bins a decade from
`LOW_S` to `HIGH_S`. Bin i covers [edge i, edge i+1). Nothing here enters a verdict; percentiles stand in the `Cell`.
"""

from __future__ import annotations

import msgspec

from dsv4bench.records.codec import Document

LOW_S = 1e-4
HIGH_S = 1e3
PER_DECADE = 20
N_BINS = 7 * PER_DECADE


def edges_s() -> list[float]:
    """The N_BINS + 1 bin edges, in seconds."""
    return [LOW_S * 10 ** (i / PER_DECADE) for i in range(N_BINS + 1)]


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """Counts from bin `first_bin` on, without the empty bins at both ends; `below` and `above` are off the scale."""

    n: int
    first_bin: int = 0
    counts: list[int] = msgspec.field(default_factory=list)
    below: int = 0
    above: int = 0


class GpuSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU's columns, beside the `t_s` of its `TelemetrySeries`; `throttle` holds every reason that was seen."""

    index: int
    sm_clock_mhz: list[float | None]
    power_w: list[float | None]
    temperature_c: list[float | None]
    util_frac: list[float | None]
    throttle: list[str] = msgspec.field(default_factory=list)
    tensor_pipe_frac: list[float | None] = msgspec.field(default_factory=list)  # empty without --tensor-pipe
    sm_active_frac: list[float | None] = msgspec.field(default_factory=list)
    dram_frac: list[float | None] = msgspec.field(default_factory=list)


class TelemetrySeries(msgspec.Struct, frozen=True, kw_only=True):
    """Means over equal stretches of time; `kv_usage_frac` is the maximum. `t_s` counts from `start_s` (epoch)."""

    start_s: float
    n_samples: int
    t_s: list[float]
    running: list[float | None]
    waiting: list[float | None]
    kv_usage_frac: list[float | None]
    output_tok_s: list[float | None]  # from the server's counter, since the point before
    gpus: list[GpuSeries] = msgspec.field(default_factory=list)


class CellSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One cell. A histogram without data has n = 0; requests that did not complete are in none."""

    cell: str
    n_requests: int
    ttft: Histogram
    tpot: Histogram
    icl: Histogram
    e2e: Histogram
    telemetry: TelemetrySeries | None = None


class Series(Document, frozen=True, kw_only=True):
    """The whole file, in the order of cells.jsonl."""

    schema: str = "dsv4bench.series/1"
    low_s: float = LOW_S
    high_s: float = HIGH_S
    per_decade: int = PER_DECADE
    cells: list[CellSeries] = msgspec.field(default_factory=list)
