"""Claims about what a configuration bought: percentages, the table they come from, single figures, stated causes."""

from __future__ import annotations

from dsv4bench.compare.evidence import Evidence, delta_of, rises, unit_of
from dsv4bench.compare.figures import Change, Figure, figure, percent, short
from dsv4bench.records.claims import CauseClaim, ClaimAudit, ClaimState, EffectClaim, TableClaim, ValueClaim
from dsv4bench.records.verdict import SpecState, SpecVerdict, Verdict

REPEAT = "measure both in turn, four launches each, for a verdict"
CAUSES = {"verifier saturated": SpecState.SATURATED, "accept-limited": SpecState.ACCEPT_LIMITED}


def audit_effect(c: EffectClaim, evidence: Evidence) -> ClaimAudit:
    """Which base gives the claimed percentage, whether the quoted figures are of that base, whose effect it is."""
    wanted = c.concurrency or evidence.levels(c.metric)
    found: list[str] = []
    changes: list[Change] = []
    for level in wanted:
        there = [x for b in evidence.bases(c.config) if (x := evidence.change(c.config, b, c.metric, level))]
        changes += there
        if there:
            found.append(f"{c.config} at C={level}: {'; '.join(_told(x, c.metric) for x in there)}")
        else:
            found.append(f"{c.config} at C={level}: not measured beside its parent")
    if not c.concurrency:
        found.append("the text does not say at which concurrency")
    matches = [x for x in changes if _same(c, x.delta_frac)]
    said = percent(c.change_frac, digits=0 if c.rounding_frac >= 0.005 else 1)
    if c.change_frac and changes:
        found.append(_match_text(said, matches, changes, c))
    if c.quoted is not None:
        found += _quoted(c, changes, matches, said)
    levers = evidence.levers(c.config)
    if len(levers) > 1:
        found.append(f"{c.config} bundles {', '.join(levers)}: not separable, the change is of all of them together")
        return _done(c, ClaimState.NOT_SEPARABLE, found, f"run {c.lever} alone against {evidence.parent(c.config)}")
    if not changes:
        return _done(
            c, ClaimState.NOT_SHOWN, found, f"sweep {c.config} and {evidence.parent(c.config)} at this level"
        )
    proven, text = _proven(c, evidence, changes)
    found.append(text)
    if c.change_frac and (not matches or _misquoted(c, changes, matches)):
        return _done(c, ClaimState.CONTRADICTED, found, "name the base with every percentage")
    return _done(c, ClaimState.HOLDS if proven else ClaimState.NOT_SHOWN, found, "" if proven else REPEAT)


def _told(x: Change, metric: str) -> str:
    """`+46.7 % vs A (10.7 → 15.7 tok/s) [+45.6 % to +47.9 % by rounding]`."""
    rounding = x.rounding_text
    return x.text(unit_of(metric)) + (f" [{rounding}]" if rounding else "")


def _same(c: EffectClaim, delta_frac: float) -> bool:
    return abs(delta_frac - c.change_frac) <= c.rounding_frac + 1e-9


def _match_text(said: str, matches: list[Change], changes: list[Change], c: EffectClaim) -> str:
    if matches:
        return f"{said} is the change vs {' and '.join(dict.fromkeys(x.base for x in matches))}"
    low, high = c.change_frac - c.rounding_frac, c.change_frac + c.rounding_frac
    near = [x for x in changes if x.low_frac <= high and x.high_frac >= low]
    if near:
        return (
            f"{said} does not follow from the printed figures; their rounding alone would allow it vs {near[0].base}"
        )
    return f"{said} follows from no pair of the figures"


def _quoted(c: EffectClaim, changes: list[Change], matches: list[Change], said: str) -> list[str]:
    """Whose figures stand beside the percentage."""
    if c.quoted is None:
        return []
    old, new = c.quoted
    named = f"{short(old)} → {short(new)}"
    own = [x for x in changes if _is(x.old, old) and _is(x.new, new)]
    if not own:
        return [f"the figures given with it, {named}, are in no row of the table"]
    lines = [f"the figures given with it, {named}, are vs {own[0].base}: {percent(own[0].delta_frac)}"]
    if _misquoted(c, changes, matches):
        lines.append(f"so {said} and {named} have different bases")
    return lines


def _misquoted(c: EffectClaim, changes: list[Change], matches: list[Change]) -> bool:
    if c.quoted is None:
        return False
    old, new = c.quoted
    return not any(_is(x.old, old) and _is(x.new, new) for x in matches)


def _is(f: Figure, value: float) -> bool:
    return abs(f.value - value) <= max(f.half, 1e-9)


def _proven(c: EffectClaim, evidence: Evidence, changes: list[Change]) -> tuple[bool, str]:
    """Whether the comparison's verdicts carry the claim; an effect of zero takes a proof of its own."""
    parent = evidence.parent(c.config)
    own = [v for x in changes if x.base == parent and (v := evidence.verdict(x, c.metric)) is not None]
    allowed = {Verdict.NO_EFFECT, Verdict.TRIVIAL} if not c.change_frac else {Verdict.GAIN, Verdict.LOSS}
    if own and all(v.verdict in allowed for v in own):
        return True, f"vs {parent}: {', '.join(f'{v.verdict} at C={v.concurrency}' for v in own)}"
    given = [f"{v.verdict or 'no verdict'} (grade {v.grade or 'none'}) at C={v.concurrency}" for v in own]
    what = "no effect is not proven" if not c.change_frac else "no verdict carries it"
    return False, f"{what}: {', '.join(given) or 'the comparison has no cell of it'}"


def audit_table(c: TableClaim, evidence: Evidence) -> ClaimAudit:
    """Changes that no sentence speaks of, worst first: all vs the parent, and losses vs the baseline."""
    discussed, limit, sign = evidence.discussed(), delta_of(c.metric), 1 if rises(c.metric) else -1
    silent: list[Change] = []
    for arm in evidence.arms:
        for level in evidence.levels(c.metric):
            for base in evidence.bases(arm.name):
                x = evidence.change(arm.name, base, c.metric, level)
                own = base == evidence.parent(arm.name)
                loses = x is not None and sign * x.delta_frac <= -limit
                if x is not None and ((own and (arm.name, level) not in discussed) or (not own and loses)):
                    silent.append(x)
    silent.sort(key=lambda x: sign * x.delta_frac)
    found = [f"{x.config} at C={x.concurrency}: {_told(x, c.metric)}{_about(x)}; not in the text" for x in silent]
    if not found:
        return _done(c, ClaimState.HOLDS, ["the text speaks of every change in the table"])
    return _done(c, ClaimState.INCOMPLETE, found, "show every cell, the worst first")


def _about(x: Change) -> str:
    named = [f.text for f in (x.old, x.new) if f.about]
    return f"; {' and '.join(named)} is an about-value, so this enters no verdict" if named else ""


def audit_value(c: ValueClaim, evidence: Evidence) -> ClaimAudit:
    """A figure given as "about" can be shown, and decides nothing."""
    f = figure(evidence.arms, c.config, c.metric, c.concurrency)
    where = f"{c.config} at C={c.concurrency}"
    if f is None:
        return _done(c, ClaimState.NOT_SHOWN, [f"{where}: no {c.metric} in the data"])
    spread = f" ± {f.half:g}" if f.half else ""
    if not f.about:
        return _done(c, ClaimState.HOLDS, [f"{where}: {f.text}{spread}, given as a figure"])
    used = [
        v
        for v in evidence.document.cells
        if v.metric == c.metric
        and v.concurrency == c.concurrency
        and c.config in (v.config, v.versus_name)
        and v.verdict is not None
        and v.verdict is not Verdict.NOT_COMPARABLE
    ]
    found = [f"{where}: {f.text}{spread} is an about-value: it enters no verdict"]
    found += list(dict.fromkeys(f"yet {v.config} vs {v.versus_name} says {v.verdict}" for v in used))
    state = ClaimState.CONTRADICTED if used else ClaimState.NOT_SHOWN
    return _done(c, state, found, "store the raw figure, or measure the cell again")


def audit_cause(c: CauseClaim, evidence: Evidence) -> ClaimAudit:
    """A stated reason against the decomposition of speculative decoding at the same levels."""
    metric, parent = "output_tok_s", evidence.parent(c.config)
    found, states = list[str](), list[SpecState]()
    for level in c.concurrency:
        x = evidence.change(c.config, parent, metric, level)
        spec = _spec(c, evidence, level)
        states.append(spec.state if spec is not None else SpecState.NOT_MEASURED)
        change = f"{x.text(unit_of(metric))}; " if x is not None else ""
        why = f"{spec.state} ({spec.reason})" if spec is not None else "cause not measured (no acceptance length)"
        found.append(f"{c.config} at C={level}: {change}{why}")
    for p in evidence.document.scaling.predictions if evidence.document.scaling is not None else []:
        if p.config == c.config and p.measured_tok_s:
            off = percent(p.predicted_tok_s / p.measured_tok_s - 1)
            found.append(
                f"hypothesis at C={p.concurrency}: {p.verified} tokens verified a step, {p.accept_length:.3g} "
                f"accepted and the law of {p.base} alone give {short(p.predicted_tok_s)} tok/s, {off} vs measured"
            )
    if all(s is CAUSES[c.cause] for s in states):
        return _done(c, ClaimState.HOLDS, found)
    if all(s is SpecState.NOT_MEASURED for s in states):
        return _done(c, ClaimState.NOT_SHOWN, found, "record the acceptance length of both configurations")
    wrong = any(s not in (CAUSES[c.cause], SpecState.NOT_MEASURED) for s in states)
    return _done(c, ClaimState.CONTRADICTED if wrong else ClaimState.NOT_SHOWN, found)


def _spec(c: CauseClaim, evidence: Evidence, level: int) -> SpecVerdict | None:
    own = [s for s in evidence.document.speculation if s.config == c.config and s.concurrency == level]
    return next((s for s in own if s.base == evidence.parent(c.config)), own[0] if own else None)


def _done(
    c: EffectClaim | TableClaim | ValueClaim | CauseClaim, state: ClaimState, found: list[str], action: str = ""
) -> ClaimAudit:
    return ClaimAudit(claim=c.id, said=c.text, state=state, found=found, action=action)
