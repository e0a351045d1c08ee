"""Levers: was what was asked for in force, is it the only difference, and is the output still the same?"""

from __future__ import annotations

from dsv4bench.records.campaign import LeverLive, Live, OutputParity, ReportInput
from dsv4bench.records.verdict import LeverStatus
from dsv4bench.report.compare import lever_lines, speculation_lines
from dsv4bench.report.markdown import DASH
from dsv4bench.report.page.blocks import Block, Lines, Table, missing
from dsv4bench.report.page.words import joined


def blocks(r: ReportInput) -> list[Block]:
    found: list[Block] = []
    live = r.campaign.live if r.campaign is not None else []
    if live:
        found.append(_live_table(live))
    else:
        why = "this campaign recorded none" if r.campaign is not None else "only a campaign checks them"
        found.append(missing(f"No check that levers were in force: {why}."))
    if r.verdict is not None and r.verdict.levers:
        found.append(Lines(joined(lever_lines(r.verdict.levers))))
    if r.verdict is not None and r.verdict.speculation:
        found.append(Lines(speculation_lines(r.verdict.speculation)))
    return found


def parity_blocks(r: ReportInput) -> list[Block]:
    parity = r.campaign.parity if r.campaign is not None else []
    if not parity:
        why = "this campaign recorded none" if r.campaign is not None else "only a campaign compares outputs"
        return [missing(f"No output parity: {why}.")]
    return [_parity_table(parity)]


def not_live(r: ReportInput) -> list[str]:
    """Levers that were seen not to be in force, a line each."""
    live = r.campaign.live if r.campaign is not None else []
    dead = [one for one in live if one.state is Live.NOT_LIVE]
    seen = {one.config for one in dead}
    judged = r.verdict.levers if r.verdict is not None else []
    return [
        f"Lever {one.lever} of {one.config} was not in force: {_wrong(one)}. Its figures say nothing about it."
        for one in dead
    ] + [
        f"Lever {' + '.join(one.levers)} has no verdict: {'; '.join(one.notes)}."
        for one in judged
        if one.status is LeverStatus.NOT_LIVE and one.config not in seen
    ]


def _wrong(one: LeverLive) -> str:
    wrong = [
        f'{c.where} shows "{c.seen or "nothing"}" and not "{c.wanted}"'
        for c in one.checks
        if c.state is Live.NOT_LIVE
    ]
    return "; ".join(wrong) or "no check says why"


def _live_table(live: list[LeverLive]) -> Table:
    rows = []
    for one in live:
        rows += [
            [str(one.state) if i == 0 else "", one.config if i == 0 else "", one.lever if i == 0 else "", *cells]
            for i, cells in enumerate(_checks(one))
        ]
    head = ["in force?", "configuration", "lever", "looked at", "wanted", "seen", "this check"]
    return Table("Levers: what was looked for on every launch", head, rows, text_columns=7, strong=0)


def _checks(one: LeverLive) -> list[list[str]]:
    if not one.checks:
        return [["nothing could be looked at", DASH, DASH, str(one.state)]]
    return [
        [c.where, c.wanted, c.seen if c.seen is not None else "nothing to look at", str(c.state)] for c in one.checks
    ]


def _parity_table(parity: list[OutputParity]) -> Table:
    rows = []
    for p in parity:
        differ = [x for x in p.pairs if x.first_difference is not None]
        near = sum(x.near_tie is True for x in differ)
        untold = sum(x.near_tie is None for x in differ)
        first = min((x.first_difference for x in differ if x.first_difference is not None), default=None)
        ties = f"{near} of {len(differ)} near-ties" + (f", {untold} not told" if untold else "")
        rows.append(
            [
                p.outcome,
                p.config,
                p.base,
                f"{len(differ)} of {len(p.pairs)}" if p.pairs else DASH,
                DASH if first is None else f"token {first}",
                ties if differ else DASH,
                p.why or DASH,
            ]
        )
    head = ["greedy output", "configuration", "against", "prompts that differ", "earliest", "of these", "why"]
    return Table("Output parity at temperature 0", head, rows, text_columns=3, prose=(6,), strong=0)
