"""Claims about where the time goes and how far things can go: kernel shares, their table, plateaus, targets."""

from __future__ import annotations

import math

from dsv4bench.compare.bounds import unattributed_frac
from dsv4bench.compare.evidence import Evidence, delta_of
from dsv4bench.compare.figures import Change, figure, percent, share, short
from dsv4bench.limits import MAX_UNATTRIBUTED
from dsv4bench.records.claims import ClaimAudit, ClaimState, KernelTableClaim, PlateauClaim, ShareClaim, TargetClaim
from dsv4bench.records.goal import GoalReport
from dsv4bench.records.shares import KernelShare
from dsv4bench.records.verdict import ScalingLaw

PLATEAU_DOUBLINGS = 2
ONE_SOURCE = "quote a share with its concurrency and denominator, from one breakdown"


def audit_share(c: ShareClaim, evidence: Evidence) -> ClaimAudit:
    """The text's share against the table's, and against the effect that it shall explain."""
    table = _shares(evidence, c.component)
    at = f"at C={c.concurrency}" if c.concurrency is not None else "without its concurrency"
    given = ", ".join(f"{share(s.share_frac, s.at_most)} at C={s.concurrency} ({s.config})" for s in table)
    found = [f"text: {share(c.share_frac)} of decode {at}; kernel table: {given or 'no share of ' + c.component}"]
    same = [s for s in table if c.concurrency in (None, s.concurrency)]
    differ = bool(same) and not any(_agrees(c, s) for s in same)
    for arm in evidence.arms:
        if c.lever is not None and c.lever in arm.levers:
            found += _explained(c, arm.name, table, evidence)
    if not same:
        return _done(c, ClaimState.NOT_SHOWN, found, f"profile {c.component} where the effect was seen")
    state = ClaimState.CONTRADICTED if differ else ClaimState.HOLDS
    return _done(c, state, found, ONE_SOURCE if differ or c.concurrency is None else "")


def _agrees(c: ShareClaim, s: KernelShare) -> bool:
    if s.at_most:
        return c.share_frac <= s.share_frac + 1e-9
    return abs(c.share_frac - s.share_frac) < c.rounding_frac + 1e-9


def _explained(c: ShareClaim, config: str, table: list[KernelShare], evidence: Evidence) -> list[str]:
    """What each stated share allows the lever at most, beside what was measured there."""
    found, parent = [], evidence.parent(config)
    for level in evidence.levels("output_tok_s"):
        x = evidence.change(config, parent, "output_tok_s", level)
        own = [s for s in table if s.concurrency == level and s.config == parent]
        if x is None:
            continue
        if own:
            at_most = sum(s.share_frac for s in own)
            bound = percent(_bound(at_most))
            found.append(
                f"{config} at C={level}: measured {percent(x.delta_frac)} vs {x.base}; a share of "
                f"{share(at_most, any(s.at_most for s in own))} allows at most {bound}"
            )
        elif x.delta_frac > 0:
            found.append(f"{config} at C={level}: no share of {c.component} there, so no bound: profile C={level}")
            found.append(_needed(c, x, table))
    return found


def _needed(c: ShareClaim, x: Change, table: list[KernelShare]) -> str:
    """What would have to be true of each stated share for the measured change to be this component's."""
    stated = [(share(c.share_frac), c.share_frac)]
    stated += [(f"{share(s.share_frac, s.at_most)} (as at C={s.concurrency})", s.share_frac) for s in table]
    parts = []
    for text, frac in stated:
        left = 1 / (1 + x.delta_frac) - 1 + frac  # share / speed-up
        if left > 0:
            parts.append(f"with {text} the kernel must get {frac / left:.1f}× faster")
        else:
            parts.append(f"with {text} at most {percent(_bound(frac))} is possible")
    return f"{percent(x.delta_frac)} vs {x.base} at C={x.concurrency} would mean: {'; '.join(parts)}"


def _bound(frac: float) -> float:
    return 1 / (1 - frac) - 1 if frac < 1 else math.inf


def _shares(evidence: Evidence, component: str) -> list[KernelShare]:
    document = evidence.document.shares
    return [s for s in document.shares if s.component == component] if document is not None else []


def audit_kernel_table(c: KernelTableClaim, evidence: Evidence) -> ClaimAudit:
    """How much each profile leaves unnamed; above 15 % no plan is made from it."""
    document = evidence.document.shares
    if document is None or not document.shares:
        return _done(c, ClaimState.NOT_SHOWN, ["there is no kernel table"], "dsv4bench profile --kernel-breakdown")
    found, refused = [], []
    for config, level in sorted({(s.config, s.concurrency) for s in document.shares}, key=lambda k: (-k[1], k[0])):
        own = [s for s in document.shares if (s.config, s.concurrency) == (config, level)]
        left = unattributed_frac(own)
        sums = "+".join(share(s.share_frac, s.at_most).removesuffix(" %") for s in own)
        found.append(f"{config} at C={level}: {sums} = {share(1 - left)}, unattributed {share(left)}")
        if left > MAX_UNATTRIBUTED:
            refused.append(level)
    if any(s.of == "unknown" for s in document.shares):
        found.append("of which time these are shares (kernel sum, busy or wall) is not told")
    if refused:
        levels = ", ".join(f"C={level}" for level in refused)
        limit = f"more than {share(MAX_UNATTRIBUTED)} is unattributed"
        found.append(f"no plan is made at {levels}: {limit}")
        return _done(c, ClaimState.INCOMPLETE, found, f"profile again at {levels}, and name every kernel")
    return _done(c, ClaimState.HOLDS, found)


def audit_plateau(c: PlateauClaim, evidence: Evidence) -> ClaimAudit:
    """Growth from the stated level on, how many doublings it rests on, and whether a mechanism was found."""
    levels = [level for level in evidence.levels(c.metric) if level >= c.from_concurrency]
    if len(levels) < 2:
        return _done(c, ClaimState.NOT_SHOWN, [f"no two levels from C={c.from_concurrency} on"], _further(c, levels))
    first, last = levels[0], levels[-1]
    doublings = math.log2(last / first)
    count = f"{doublings:.3g} doubling{'' if doublings == 1 else 's'}"
    found, grows = [], []
    for arm in evidence.arms:
        low, high = (figure(evidence.arms, arm.name, c.metric, level) for level in (first, last))
        if low is None or high is None:
            continue
        ratio = high.value / low.value
        found.append(f"{arm.name}: ×{ratio:.3f} from C={first} to C={last} ({low.text} → {high.text} tok/s)")
        if ratio > 1 + delta_of(c.metric) and not (low.about or high.about):
            grows.append(arm.name)
    laws = _laws(evidence)
    found += [_law_text(law) for law in laws if law.ceiling_tok_s is not None]
    if grows:
        found.append(f"{', '.join(grows)} still grows by more than {share(delta_of(c.metric))}")
        return _done(c, ClaimState.CONTRADICTED, found, _further(c, levels))
    proven = [law for law in laws if law.plateau is not None and law.plateau.proven]
    known = all(law.mechanism is not None and law.mechanism.name != "not determined" for law in laws)
    if doublings >= PLATEAU_DOUBLINGS and laws and len(proven) == len(laws):
        if known:
            return _done(c, ClaimState.HOLDS, [*found, f"proven flat over {count}, for the configurations tested"])
        found.append(f"flat over {count}, and the mechanism is not determined: a plateau, no hard ceiling")
        return _done(c, ClaimState.NOT_SHOWN, found, "record the server's gauges on both sides of the knee")
    if doublings < PLATEAU_DOUBLINGS:
        found.append(f"provisional plateau ({count}); {PLATEAU_DOUBLINGS} are needed")
        return _done(c, ClaimState.NOT_SHOWN, found, _further(c, levels))
    found.append(f"not shown to be flat over {count}: that takes an equivalence test over launches")
    return _done(c, ClaimState.NOT_SHOWN, found, "measure four launches of each configuration")


def _further(c: PlateauClaim, levels: list[int]) -> str:
    last = max([*levels, c.from_concurrency])
    return f"run C={2 * last},{4 * last}"


def _laws(evidence: Evidence) -> list[ScalingLaw]:
    return evidence.document.scaling.laws if evidence.document.scaling is not None else []


def _law_text(law: ScalingLaw) -> str:
    mechanism = law.mechanism.name if law.mechanism is not None else "not determined"
    if law.holds is False:
        return f"{law.config}: the affine law does not hold, so no fitted ceiling; mechanism {mechanism}"
    knee = f", half of it at C={law.knee:.2g}" if law.knee is not None else ""
    return f"{law.config}: fitted ceiling {short(law.ceiling_tok_s or 0)} tok/s{knee}; mechanism {mechanism}"


def audit_target(c: TargetClaim, evidence: Evidence) -> ClaimAudit:
    """The ceiling of the whole plan, beside the target."""
    g = evidence.document.goal
    if g is None:
        return _done(c, ClaimState.NOT_SHOWN, ["no target and plan are given as data"], "add target and plan")
    found = _need(g)
    for i, item in enumerate(g.items):
        free = "free" if item.kernel_speedup is None else f"{item.kernel_speedup:g}× faster"
        alone = _ceiling(item.alone_tok_s, item.alone_ratio)
        text = f"{item.name}: {', '.join(item.components)} ({share(item.share_frac)}) {free} gives at most {alone}"
        joint = f"; with all before it at most {_ceiling(item.joint_tok_s, item.joint_ratio)}" if i else ""
        found.append(text + joint)
    if g.why:
        return _done(c, ClaimState.NOT_SHOWN, [*found, g.why], "profile at the target's concurrency")
    last = g.items[-1]
    whole = f"the whole plan gives at most {_ceiling(last.joint_tok_s, last.joint_ratio)}"
    found.append(f"{whole} against a target of {short(g.target_tok_s)} tok/s")
    if g.of == "unknown":
        found.append("the shares' denominator is unknown; they are taken as shares of the step")
    if g.reached:
        return _done(c, ClaimState.NOT_SHOWN, [*found, "a ceiling is no forecast"], "predict each item, then measure")
    return _done(c, ClaimState.CONTRADICTED, found, "the rest of the step must be named and shrink, too")


def _need(g: GoalReport) -> list[str]:
    if g.measured_tok_s is None or g.step_s is None or g.needed_ratio is None or g.needed_cut_frac is None:
        return []
    wanted_ms = 1e3 * g.concurrency / g.target_tok_s
    return [
        f"{g.config} at C={g.concurrency}: {short(g.measured_tok_s)} tok/s, {short(1e3 * g.step_s)} ms a token; "
        f"{short(g.target_tok_s)} tok/s is {short(wanted_ms)} ms, ×{g.needed_ratio:.3g}: "
        f"{100 * g.needed_cut_frac:.1f} % of that time must vanish"
    ]


def _ceiling(tok_s: float | None, ratio: float | None) -> str:
    return "no bound" if tok_s is None or ratio is None else f"{short(tok_s)} tok/s (×{ratio:.3g})"


def _done(
    c: ShareClaim | KernelTableClaim | PlateauClaim | TargetClaim,
    state: ClaimState,
    found: list[str],
    action: str = "",
) -> ClaimAudit:
    return ClaimAudit(claim=c.id, said=c.text, state=state, found=found, action=action)
