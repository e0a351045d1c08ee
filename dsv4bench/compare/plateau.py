"""Where throughput stops growing, and how much of that is proven.

For two levels C1 < C2 the growth is X(C2)/X(C1), taken within each launch. It is *flat* when two one-sided tests over
at least four launches put it within ±δ (the 90 % interval lies inside), it *grows* or *falls* when its interval lies
beyond δ, and is *open* otherwise. Compared are neighbours, and each level with the first at twice its concurrency or
more, so that many small steps cannot hide a large one; levels need not be doublings, log2(C2/C1) counts them.

A plateau starts at the lowest level from which every later growth is flat. It is proven over two doublings or more,
*provisional* below that, and otherwise not shown to be flat. Curves are not monotone: dips and cliffs are reported.
A level of fewer than three rounds of requests (`throughput.py`) carries growth to it and nothing else. This says that
throughput is flat, never why; no plateau is called a hard ceiling here, since that also takes a
mechanism that is neither cap nor client, and a tested lever for each class of mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Literal

import msgspec

from dsv4bench.compare.affine import Interval, log_interval
from dsv4bench.compare.ladder import Ladder, Rung, mean_known
from dsv4bench.compare.statistics import equivalent, paired
from dsv4bench.compare.throughput import ROUNDS
from dsv4bench.records.verdict import Plateau

MIN_LAUNCHES = 4
MIN_DOUBLINGS = 2.0
_ROUNDING = 1e-9

Trend = Literal["flat", "open", "grows", "falls"]


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """X(high)/X(low). `ci` is 95 %, from launches; of one launch it is what printed digits allow, else None."""

    low: int
    high: int
    ratio: float
    ci: Interval | None
    n_launches: int
    trend: Trend
    proven: bool  # the trend rests on four launches or more
    approximate: bool = False
    short: str = ""  # which level holds too few rounds of requests for a claim

    @property
    def text(self) -> str:
        return f"X({self.high})/X({self.low}) = {self.ratio:.3f}"


def growths(ladder: Ladder, delta: float = 0.03) -> list[Growth]:
    """Growth between neighbours, and from each level to the first at twice its concurrency or more."""
    levels = ladder.levels
    pairs = set(pairwise(levels))
    n_neighbours = len(pairs)
    for low in levels:
        twice = next((c for c in levels if c >= 2 * low), None)
        if twice is not None:
            pairs.add((low, twice))
    found = (_growth(ladder, low, high, delta, n_neighbours) for low, high in sorted(pairs))
    return [g for g in found if g is not None]


def _growth(ladder: Ladder, low: int, high: int, delta: float, tests: int) -> Growth | None:
    below = {r.launch: r for r in ladder.at(low) if r.output_tok_s}
    above = {r.launch: r for r in ladder.at(high) if r.output_tok_s}
    both = [(below[k], above[k]) for k in below.keys() & above.keys()]
    if not both:
        return None
    logs = [math.log((b.output_tok_s or 0.0) / (a.output_tok_s or 1.0)) for a, b in both]
    theta, n = fmean(logs), len(logs)
    approximate = any(r.approximate for pair in both for r in pair)
    band = (math.log1p(-delta), math.log1p(delta))
    if n == 1:
        slack = both[0][0].half_digit_frac + both[0][1].half_digit_frac
        interval = (theta - slack, theta + slack) if slack else None
        trend = _seen(interval or (theta, theta), band)
    else:
        effect = paired(logs)
        interval = effect.interval()
        trend = _seen(effect.interval(1 - 0.05 / tests), band)
        if n >= MIN_LAUNCHES and not approximate and equivalent(effect.interval(0.90), *band):
            trend = "flat"
    short_below, short_above = _short(low, [a for a, _ in both]), _short(high, [b for _, b in both])
    if short_below or (short_above and trend != "grows"):
        trend = "open"  # ramp and drain lower a short level: growth to it may be believed, nothing else
    return Growth(
        low=low,
        high=high,
        ratio=math.exp(theta),
        ci=None if interval is None else (math.exp(interval[0]), math.exp(interval[1])),
        n_launches=n,
        trend=trend,
        proven=trend != "open" and n >= MIN_LAUNCHES and not approximate,
        approximate=approximate,
        short=short_below or short_above,
    )


def _short(level: int, rungs: Sequence[Rung]) -> str:
    held = [r.rounds for r in rungs if r.rounds is not None]
    return f"C={level} holds {min(held):.1f} rounds of requests, fewer than {ROUNDS}" if held else ""


def _seen(interval: Interval, band: Interval) -> Trend:
    if interval[0] > band[1]:
        return "grows"
    return "falls" if interval[1] < band[0] else "open"


def find_plateau(ladder: Ladder, delta: float = 0.03) -> tuple[Plateau | None, list[str]]:
    """The plateau if there is one, and what else the curve does: growth at its end, dips and cliffs."""
    found = growths(ladder, delta)
    notes = _breaks(found, ladder.levels, delta)
    if not found:
        return None, ["no growth ratio: no launch has throughput at two levels", *notes]
    proven = _start(found, ladder.levels, {"flat"})
    start = proven
    if proven is None or _doublings(proven, ladder.levels) < MIN_DOUBLINGS - _ROUNDING:
        start = _start(found, ladder.levels, {"flat", "open"})
    if start is None:
        last = max(found, key=lambda g: (g.high, g.low))
        word = {"grows": "still grows", "falls": "falls"}.get(last.trend, "is not flat")
        return None, [f"no plateau: throughput {word} at the highest level, {last.text}", *notes]
    return _plateau(ladder, start, found, delta, proven=start == proven), notes


def three_digits(tok_s: float) -> str:
    """At least three digits, and no power of ten: 23.4, 266, 2263."""
    return f"{tok_s:.3g}" if tok_s < 1000 else f"{tok_s:.0f}"


def _start(found: Sequence[Growth], levels: Sequence[int], allowed: set[Trend]) -> int | None:
    """The lowest level from which every later growth has an allowed trend; None when only the last one is left."""
    return next((c for c in levels[:-1] if all(g.trend in allowed for g in found if g.low >= c)), None)


def _doublings(start: int, levels: Sequence[int]) -> float:
    return math.log2(levels[-1] / start)


def _plateau(ladder: Ladder, start: int, found: Sequence[Growth], delta: float, *, proven: bool) -> Plateau:
    doublings = _doublings(start, ladder.levels)
    means = [_mean_tok_s(ladder, launch, start) for launch in ladder.launches]
    by_launch = [m for m in means if m is not None]
    ci = log_interval(by_launch)
    x = math.exp(fmean(map(math.log, by_launch)))
    later = [g for g in found if g.low >= start]
    proven = proven and doublings >= MIN_DOUBLINGS - _ROUNDING
    about = f"X = {three_digits(x)} tok/s"
    about += f", 95 % CI [{three_digits(ci[0])}, {three_digits(ci[1])}]" if ci else ""
    about += f" ({len(by_launch)} launch{'es' if len(by_launch) > 1 else ''}) from C={start}"
    ratios = ", ".join(g.text for g in later if _neighbours(g, ladder.levels))
    if proven:
        text = f"plateau: {about}, each later growth within ±{delta:.0%} (TOST) over {_count(doublings)}: {ratios}"
    elif doublings < MIN_DOUBLINGS - _ROUNDING and all(_looks_flat(g, delta) for g in later):
        top = ladder.levels[-1]
        text = f"provisional ({_count(doublings)}): {about}, {ratios}; run C={2 * top},{4 * top}"
        text += "".join(dict.fromkeys(f"; {g.short}" for g in later if g.short))
    else:
        text = f"not shown to be flat ({_count(doublings)}): {about}, {ratios}; {_why_open(later)}"
    return Plateau(from_concurrency=start, output_tok_s=x, ci_tok_s=ci, doublings=doublings, proven=proven, text=text)


def _mean_tok_s(ladder: Ladder, launch: str, start: int) -> float | None:
    return mean_known(r.output_tok_s for r in ladder.of(launch) if r.concurrency >= start)


def _looks_flat(g: Growth, delta: float) -> bool:
    """Within ±δ: of several launches their mean, of one as far as its printed digits tell."""
    low, high = g.ci if g.n_launches == 1 and g.ci is not None else (g.ratio, g.ratio)
    return low <= 1 + delta and high >= 1 - delta


def _why_open(later: Sequence[Growth]) -> str:
    short = next((g.short for g in later if g.short), "")
    if short:
        return f"{short}: run longer levels"
    launches = min(g.n_launches for g in later)
    if launches < MIN_LAUNCHES:
        return f"an equivalence test needs {MIN_LAUNCHES} launches at each level, there are {launches}"
    wide = next(g for g in later if g.trend == "open")
    if wide.approximate or wide.ci is None:
        return f"{wide.text} rests on an approximate figure"
    return f"{wide.text} could lie anywhere in [{wide.ci[0]:.3f}, {wide.ci[1]:.3f}]: run more launches"


def _breaks(found: Sequence[Growth], levels: Sequence[int], delta: float) -> list[str]:
    """Falls between neighbours by more than δ: cliffs where proven; a dip where throughput recovers later."""
    notes = []
    for g in found:
        if not _neighbours(g, levels) or g.ratio >= 1 - delta:
            continue
        fall = f"throughput falls by {1 - g.ratio:.1%} from C={g.low} to C={g.high}"
        if g.trend == "falls" and g.proven and g.ci is not None:
            notes.append(f"cliff: {fall} (by {1 - g.ci[1]:.1%} to {1 - g.ci[0]:.1%} over {g.n_launches} launches)")
        else:
            launches = f"{g.n_launches} launch{'es' if g.n_launches > 1 else ''}"
            notes.append(f"{fall} (not proven: {g.short or launches})")
        if not g.short and any(later.low >= g.high and later.ratio > 1 + delta for later in found):
            notes.append(f"not monotone: throughput dips at C={g.high} and grows again beyond it")
    return notes


def _neighbours(g: Growth, levels: Sequence[int]) -> bool:
    return levels.index(g.high) == levels.index(g.low) + 1


def _count(doublings: float) -> str:
    text = f"{doublings:.2g}"
    return f"{text} doubling" if text == "1" else f"{text} doublings"
