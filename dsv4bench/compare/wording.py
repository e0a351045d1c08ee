"""The sentences of a verdict: percentages, intervals, ranges that rounding allows. Every number here is given."""

from __future__ import annotations

from dsv4bench.compare.grading import Effect
from dsv4bench.compare.samples import Column
from dsv4bench.records.verdict import Verdict

POINTS = " points"
PERCENT = " %"


def percent(frac: float, unit: str = PERCENT) -> str:
    """+4.9 %; never -0.0 %."""
    return f"{_signed(frac)}{unit}"


def size(frac: float, unit: str = PERCENT) -> str:
    """3 %, 4.2 %: a limit, without a sign."""
    return f"{100 * frac:.3g}{unit}"


def _signed(frac: float) -> str:
    text = f"{100 * frac:+.1f}"
    return "0.0" if text in ("-0.0", "+0.0") else text


def interval(ci: tuple[float, float]) -> str:
    return f"[{_signed(ci[0])}, {_signed(ci[1])}]"


def between(low: float, high: float) -> str:
    """-3.8…-7.8 %: the smaller change first."""
    near, far = sorted((low, high), key=abs) if low * high > 0 else (low, high)
    return f"{_signed(near)}…{_signed(far)} %"


def claim(verdict: Verdict, e: Effect, ci: tuple[float, float], limit: float) -> str:
    """What GAIN, LOSS, NO EFFECT and TRIVIAL say."""
    unit = POINTS if e.points else PERCENT
    assert e.delta is not None
    figure = f"{percent(e.delta, unit)} {interval(ci)}"
    if verdict is Verdict.NO_EFFECT:
        return f"|Δ| < {size(limit, unit)} proven: {figure}"
    if verdict is Verdict.TRIVIAL:
        return f"{figure}, real but below {size(limit, unit)}"
    return figure


def unresolved(e: Effect, ci: tuple[float, float], mde: float, pairs: int | None) -> str:
    unit = POINTS if e.points else PERCENT
    assert e.delta is not None
    needs = (
        f"needs {pairs} pairs of launches" if pairs is not None else "needs more pairs of launches than is sensible"
    )
    return f"{percent(e.delta, unit)} {interval(ci)}; could have seen {size(mde, unit)}; {needs}"


def ungraded(e: Effect, base: Column, new: Column) -> str:
    """E0: the change, the range that rounding allows, and what would buy a verdict."""
    if e.delta is None:
        return "the base is 0: no fraction of it; E0, no verdict"
    parts = [percent(e.delta, POINTS if e.points else PERCENT) + rounding_range(e, base, new)]
    parts += [note for note in (_about(base, "base"), _about(new, "new")) if note]
    parts.append("E0, no verdict: it needs 5 repeats of one launch each, or 4 launches each")
    return "; ".join(parts)


def rounding_range(e: Effect, base: Column, new: Column) -> str:
    """(-3.8…-7.8 %, '~24' is rounded); where no figure is marked "about", the last digits of all; else nothing."""
    about = [c for c in (base, new) if not c.samples and c.shown_rounding > 0]
    if e.points or (not about and not (base.rounding > 0 or new.rounding > 0)):
        return ""
    halves = [(c.shown_rounding if c in about else 0.0) if about else c.rounding for c in (base, new)]
    if not e.base - halves[0] > 0:
        return ""
    low = (e.new - halves[1]) / (e.base + halves[0]) - 1
    high = (e.new + halves[1]) / (e.base - halves[0]) - 1
    names = " and ".join(f"'~{v:g}'" for c, v in ((base, e.base), (new, e.new)) if c in about)
    which = f"{names} is rounded" if len(about) == 1 else f"{names or 'the figures'} are rounded"
    return f" ({between(low, high)}, {which})"


def _about(column: Column, side: str) -> str:
    note = column.note()
    return f"{side}: {note}" if note else ""


def absent(column: Column | None, config: str, where: str) -> str:
    """Why one side has no figure."""
    if column is None:
        return f"{config} has no level at {where}"
    return f"{config} at {where}: {column.note()}"
