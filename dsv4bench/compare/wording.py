"""The sentences of a verdict: percentages, bundles, ranges that rounding allows. Every number here is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsv4bench.compare.grading import Effect
from dsv4bench.compare.samples import Column
from dsv4bench.records.verdict import BoundSource, Verdict

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


def between(low: float, high: float) -> str:
    """-3.8…-7.8 %: the smaller change first."""
    near, far = sorted((low, high), key=abs) if low * high > 0 else (low, high)
    return f"{_signed(near)}…{_signed(far)} %"


def claim(verdict: Verdict, e: Effect, limit: float) -> str:
    """What GAIN, LOSS, NO EFFECT and TRIVIAL say beside the change and its interval, which have their own fields."""
    unit = POINTS if e.points else PERCENT
    if verdict is Verdict.NO_EFFECT:
        return f"|Δ| < {size(limit, unit)} proven"
    return f"real but below {size(limit, unit)}" if verdict is Verdict.TRIVIAL else ""


def without_edges(e: Effect) -> str:
    """The change under full load, where that of whole levels holds ramp and drain."""
    low, high = e.interval(0.95)
    assert e.delta is not None, "asked for"
    return f"without ramp and drain {percent(e.delta)} [{percent(low)}, {percent(high)}]"


def unresolved(e: Effect, mde: float, pairs: int | None) -> str:
    unit = POINTS if e.points else PERCENT
    needs = (
        f"needs {pairs} pairs of launches" if pairs is not None else "needs more pairs of launches than is sensible"
    )
    return f"could have seen {size(mde, unit)}; {needs}"


def contradiction(source: BoundSource | None) -> str:
    """Which of two things must be wrong, when more was measured than the bound allows."""
    if source == "speculation":
        return "more than the bound allows: the step got shorter, too, or a measurement is wrong"
    return "more than the bound allows: the share or the measurement is wrong, or prefill got faster, too"


def bundled(config: str, levers: Sequence[str], apart: bool = False) -> str:
    """`both bundles a, b: not separable`, or where each of them was also measured alone."""
    return f"{config} bundles {', '.join(levers)}: {'each alone under Levers' if apart else 'not separable'}"


def bundle(
    alone: Mapping[str, float], product: float, together: float, ci: tuple[float, float] | None, proven: bool
) -> str:
    """What each lever did alone and how the bundle relates to their product; which way only where it is proven."""
    each = ", ".join(f"{lever} {_times(ratio)}" for lever, ratio in alone.items())
    over = together / product
    interval = "" if ci is None else f" [{ci[0]:.2f}, {ci[1]:.2f}]"
    if ci is None:
        said = ""
    elif not proven:
        said = ": not shown to be another"
    elif len(alone) == 2:
        said = f": each is worth {'more' if over > 1 else 'less'} once the other is in"
    else:
        said = f": worth {'more' if over > 1 else 'less'} together"
    both = f"product {_times(product)}, together {_times(together)}"
    return f"{each}; {both} ({_times(over)} of the product{interval}{said})"


def _times(ratio: float) -> str:
    """×1.11, ×42.1: three digits."""
    return f"×{ratio:.2f}" if ratio < 10 else f"×{ratio:.1f}" if ratio < 100 else f"×{ratio:.0f}"


def ungraded(e: Effect, base: Column, new: Column) -> str:
    """E0: the range that rounding allows, and what would buy a verdict; the change stands in its own field."""
    if e.delta is None:
        return "the base is 0: no fraction of it; E0, no verdict"
    parts = [rounding_range(e, base, new), _about(base, "base"), _about(new, "new")]
    parts.append("E0, no verdict: it needs 5 repeats of one launch each, or 4 launches each")
    return "; ".join(filter(None, parts))


def rounding_range(e: Effect, base: Column, new: Column) -> str:
    """The range of "about" values; where no figure is marked so, that of the last digits of all; else nothing."""
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
    return f"rounding allows {between(low, high)} ({which})"


def _about(column: Column, side: str) -> str:
    note = column.note()
    return f"{side}: {note}" if note else ""


def absent(column: Column | None, config: str, where: str) -> str:
    """Why one side has no figure."""
    if column is None:
        return f"{config} has no level at {where}"
    return f"{config} at {where}: {column.note()}"
