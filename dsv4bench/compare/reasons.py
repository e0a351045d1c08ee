"""Why a gate's cell came out as it did, and what of all cells together a reader must know.

In a closed loop tokens a second can only fall when a request takes longer, so a drop of throughput that neither TPOT
nor TTFT shows was lost outside the server: no regression of speed. One with a better TPOT is a loss of capacity. A
pass that is too good to be true, with no lever declared, is none. An odd launch, and a loss that every level shares,
are named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from dsv4bench.compare import gate
from dsv4bench.compare.gate import GATING
from dsv4bench.compare.levels import Key, mean_of
from dsv4bench.compare.statistics import SD_FLOOR, Estimate
from dsv4bench.records.cell import Cell
from dsv4bench.records.gate import Outcome

SHOWN_PART = 0.5  # of the drop of throughput that a latency must show; one of the two shows all of it
ONE_SIDED_LEVELS = 6
IMPLAUSIBLE_FRAC = 0.20
ODD_DEVIATIONS = 5.0
FULL_FRAC = 0.9  # the running gauge is read once a second, ramps included
MAD_TO_SD = 1.4826


def explained(
    k: Key, found: Outcome, estimates: Mapping[Key, Estimate], limit_frac: float, new: Sequence[Cell]
) -> tuple[Outcome, str]:
    """The reason; a drop of throughput that no latency shows is not called a regression."""
    if found is Outcome.PASS:
        return found, f"shown to be less than {limit_frac:.0%} worse"
    if found is Outcome.NOT_COMPARABLE:
        return found, "too good to be true with no lever declared"
    if found is Outcome.INCONCLUSIVE:
        return found, f"neither shown to be within {limit_frac:.0%} nor shown to be worse by it"
    change = gate.to_frac(k.metric, estimates[k].theta)
    if k.metric != "output_tok_s":
        return found, f"worse by {abs(change):.1%}"
    times = {m: estimates[Key(k.level, m)].theta for m in GATING[1:] if Key(k.level, m) in estimates}
    if not times:
        return Outcome.INCONCLUSIVE, f"throughput {change:+.1%}, and there is no TPOT or TTFT that could show it"
    told = ", ".join(f"{m[:4].upper()} {gate.to_frac(m, t):+.1%}" for m, t in times.items())
    if not any(t <= SHOWN_PART * estimates[k].theta for t in times.values()):
        lost = "the time was lost between requests (client, ramp, drain), not in the server"
        return Outcome.INCONCLUSIVE, f"throughput {change:+.1%} with {told}: {lost}; measure again"
    if times.get("tpot_p50_s", 0.0) > 0:
        return found, f"capacity lost: throughput {change:+.1%} with {told}{_running(new)}"
    return found, f"slower: throughput {change:+.1%} with {told}"


def implausible(estimates: Mapping[Key, Estimate], outcomes: Mapping[Key, Outcome]) -> dict[Key, str]:
    """Of throughput; of TPOT only where throughput did not fall, since a capped batch speeds up those inside it."""
    found = {}
    for k, e in estimates.items():
        throughput = estimates.get(Key(k.level, "output_tok_s"))
        judged = k.metric in GATING[:2] and throughput is not None and throughput.theta >= 0
        if judged and outcomes[k] is Outcome.PASS and e.theta > math.log1p(IMPLAUSIBLE_FRAC):
            change = f"{gate.to_frac(k.metric, e.theta):+.1%}"
            found[k] = (
                f"implausible: {k.level}: {k.metric} {change}, and no lever is declared (sweep --parent … --lever …)"
            )
    return found


def _running(cells: Sequence[Cell]) -> str:
    """How many the server let run, where that is fewer than were sent."""
    running, asked = mean_of(cells, lambda c: c.server_running_mean), cells[0].concurrency
    if running is None or asked is None or not running < FULL_FRAC * asked:
        return ""
    return f"; the server ran {running:.0f} of {asked}"


def one_sided(estimates: Mapping[Key, Estimate]) -> list[str]:
    """Many levels, all worse: a small loss that each of them alone may have."""
    thetas = [e.theta for k, e in estimates.items() if k.metric == "output_tok_s"]
    if len(thetas) < ONE_SIDED_LEVELS or not all(t < 0 for t in thetas):
        return []
    typical = math.expm1(median(thetas))
    return [
        f"throughput is lower at all {len(thetas)} levels (median {typical:+.1%}): one cause, or a slower machine"
    ]


def odd_launch(k: Key, d: Sequence[float], blocks: Sequence[int]) -> list[str]:
    """Named where one pair lies five robust deviations from the centre of all.

    The mean and its own error cannot show it: a single outlier moves both by the same amount.
    """
    centre = median(d)
    spread = max(MAD_TO_SD * median(abs(x - centre) for x in d), SD_FLOOR)
    odd = max(range(len(d)), key=lambda i: abs(d[i] - centre))
    if not abs(d[odd] - centre) > ODD_DEVIATIONS * spread:
        return []
    change = f"{gate.to_frac(k.metric, d[odd]):+.1%}"
    return [f"{k.level}: {k.metric} of block {blocks[odd]} is far from the others ({change})"]
