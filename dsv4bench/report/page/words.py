"""How figures are written in a report: plain text with unit and base, a dash for what is not known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dsv4bench.records.cell import Cell
from dsv4bench.records.verdict import CellVerdict
from dsv4bench.report.markdown import DASH, percent

MS = 1e3
TITLES = {
    "output_tok_s": "Throughput, output tok/s",
    "tpot_p50_s": "TPOT p50, ms",
    "ttft_p50_s": "TTFT p50, ms",
}


def figure(value: float | None, digits: int = 4) -> str:
    """Four significant digits, so that a change of a per mille still shows; never an exponent."""
    if value is None:
        return DASH
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:#.{digits}g}".rstrip(".") if abs(value) >= 1e-3 else f"{value:.2g}"


def ms(value_s: float | None, digits: int = 3) -> str:
    return DASH if value_s is None else figure(MS * value_s, digits)


def part(frac: float | None) -> str:
    """A share in percent; of what must stand beside it."""
    if frac is None:
        return DASH
    return f"{100 * frac:.2g} %" if abs(frac) < 0.1 else f"{100 * frac:.0f} %"


def seconds(value_s: float | None) -> str:
    """A duration for people: `5.3 s`, `12 min 40 s`."""
    if value_s is None:
        return DASH
    if value_s < 60:
        return f"{value_s:.1f} s"
    minutes, rest = divmod(round(value_s), 60)
    return f"{minutes} min {rest:02d} s"


def moment(utc: str | None) -> str:
    """`2026-12-01 01:00:00`, UTC; as it is where it is no such time."""
    if utc is None:
        return DASH
    return utc[:19].replace("T", " ") if utc[10:11] == "T" else utc


def metric_title(metric: str) -> str:
    return TITLES.get(metric, metric)


def metric_value(metric: str, value: float | None) -> str:
    """In display units: milliseconds for a latency, percent for a share, else as it is."""
    if value is None:
        return DASH
    if metric.endswith("_s") and not metric.endswith(("tok_s", "request_s", "req_s")):
        return ms(value, 4)
    return part(value) if metric.endswith("_frac") else figure(value)


def change(v: CellVerdict) -> str:
    """`+46.7 % vs A`; points for a metric that is itself a share."""
    if v.delta_frac is None:
        return DASH
    shown = percent(v.delta_frac)
    return f"{shown.replace(' %', ' points') if v.in_points else shown} vs {v.versus_name}"


def interval(bounds: tuple[float, float] | None, in_points: bool = False) -> str:
    if bounds is None:
        return DASH
    low, high = (percent(b) for b in bounds)
    return f"[{low}, {high}]".replace(" %", " points") if in_points else f"[{low}, {high}]"


def level(concurrency: int | None, rate_req_s: float | None = None, isl: int | None = None) -> str:
    """`C=8`, `4 req/s`, with the prompt length where it is given."""
    load = (
        f"C={concurrency}" if concurrency is not None else f"{rate_req_s:g} req/s" if rate_req_s else "load not told"
    )
    return load if not isl else f"{load}, ISL {isl}"


def reason(cells: Iterable[Cell], field: str) -> str:
    """Why these cells have no such value, in their own words."""
    cells = list(cells)
    told = list(dict.fromkeys(c.why_null[field] for c in cells if field in c.why_null))
    if told:
        return "; ".join(told)
    return "it was not recorded" if cells else "no level was measured"


def listed(names: Sequence[str], most: int = 8) -> str:
    """`a, b and 3 more`."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def joined(lines: Iterable[str]) -> list[str]:
    """Lines of a terminal as sentences: what is indented belongs to the line before it, twice: to all of its step."""
    found: list[str] = []
    for line in lines:
        if line.startswith("    "):
            found.append(f"For all levels of the step above: {line.strip()}")
        elif line.startswith("  ") and found:
            found[-1] = f"{found[-1]}; {line.strip()}"
        else:
            found.append(line.strip())
    return found
