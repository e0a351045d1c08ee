"""Section 2 of the findings: what was compared, on what, in as many lines as differ.

A value that all experiments share stands once; where they differ, the rarer value names its experiments by the last
four characters of their ids. The whole ids stand in the comparison's own file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from dsv4bench.records.campaign import Campaign
from dsv4bench.records.experiment import Experiment, Status
from dsv4bench.records.verdict import InputNote
from dsv4bench.report.findings.data import Compared
from dsv4bench.report.findings.gpu import CPU, counted, gpu_names
from dsv4bench.report.findings.tables import tag
from dsv4bench.report.markdown import DASH, number, table, text, wrapped

SHOWN_IDS = 6
NO_GPU = "no GPU: the server runs on a CPU"
_SHORT = re.compile(r"-([0-9a-f]{4})$")
_LIBRARIES = ("torch", "triton")


def setup(c: Compared) -> str:
    d, every = c.document, [x.experiment for x in c.experiments]
    lines = [text(_of_one_block(line)) for line in d.setup]
    lines += [_ran(c.campaign)] if c.campaign is not None else []
    facts = [(what, partial(_gpu, c) if told is None else told) for what, told in _FACTS]
    for what, told in facts:
        seeds = _seeds(every) if told is _workload else ""
        lines += [line if line.startswith(NO_GPU) else f"{what}: {line}{seeds}" for line in _shared(every, told)]
    lines += [f"not complete: {line}" for line in _unfinished(every)]
    if c.missing:
        lines.append(f"not in the results folder: {', '.join(map(_short, c.missing))}")
    if any(map(_shortens, d.inputs)):
        lines.append("whole ids of the experiments: `inputs` in this comparison's file in `verdicts/`")
    rows = [_row(c, note) for note in d.inputs]
    head = ["configuration", "lever", "vs", "launches", "experiments", "cells sha256", ""]
    shown = table(head, [[*row, tag(d)] for row in rows]) if rows else ""
    return "\n\n".join(part for part in (shown, wrapped(f"{line} {tag(d)}" for line in lines)) if part)


def _row(c: Compared, note: InputNote) -> list[str]:
    own = [x.experiment for x in c.experiments if x.experiment.id in note.ids]
    lever = next((x for x in c.document.levers if x.config == note.name), None)
    launches = sum(max(1, len(e.launches)) for e in own)
    return [
        text(note.name) + ("" if note.source == "dsv4bench" else f" ({text(note.source)})"),
        text(" + ".join(lever.levers) or "not named") if lever is not None else DASH,
        text(lever.parent) if lever is not None else DASH,
        str(launches) if own and len(own) == len(note.ids) else DASH,
        text(_ids(note.ids)) or "no id",
        f"`{text(note.cells_sha256[:12])}`",
    ]


def _ids(ids: Sequence[str]) -> str:
    """`7af6, 5b50`; of many the first and the last, and how many."""
    if len(ids) > SHOWN_IDS:
        return f"{_short(ids[0])} … {_short(ids[-1])} ({len(ids)})"
    return ", ".join(map(_short, ids))


def _short(experiment_id: str) -> str:
    found = _SHORT.search(experiment_id)
    return found[1] if found is not None else experiment_id


def _shortens(note: InputNote) -> bool:
    return any(_short(i) != i for i in note.ids)


def _of_one_block(line: str) -> str:
    """`in 1 block`: of a campaign of one block no order is said."""
    return line.replace(" launches in 1 blocks, every second block in reverse order", " launches in 1 block")


def _ran(campaign: Campaign) -> str:
    """Until its last launch ended: what was made of them later is no part of the measurement."""
    last = max((n.ended_utc for n in campaign.launches if n.ended_utc is not None), default=campaign.ended_utc)
    began, ended = _minute(campaign.started_utc), _minute(last)
    ended = ended.removeprefix(began[:11])
    pieces = f", in {campaign.resumed + 1} parts (it was resumed)" if campaign.resumed else ""
    status = "" if campaign.status == "complete" else f", {campaign.status}"
    return f"ran {began} to {ended} UTC{pieces}{status}; scenario sha256 `{text(campaign.scenario_sha256[:12])}`"


def _minute(utc: str | None) -> str:
    return "an unknown time" if utc is None else text(utc[:16].replace("T", " "))


# --- values that experiments share, and those that differ -------------------------------------------------


def _shared(every: Sequence[Experiment], told: Callable[[Experiment], str]) -> list[str]:
    """One line where all say the same; else one a value, the most frequent first."""
    by_value: dict[str, list[Experiment]] = {}
    for e in every:
        if value := told(e):
            by_value.setdefault(value, []).append(e)
    ranked = sorted(by_value.items(), key=lambda item: -len(item[1]))
    if len(ranked) == 1 and len(ranked[0][1]) == len(every):
        return [text(ranked[0][0])]
    lines = [f"{text(value)} ({len(own)} of {len(every)} experiments)" for value, own in ranked[:1]]
    return lines + [f"{text(value)} ({_whose(own)})" for value, own in ranked[1:]]


def _whose(own: Sequence[Experiment]) -> str:
    return text(_ids([e.id for e in own]))


def _server(e: Experiment) -> str:
    where = "on this host" if e.server_on_this_host else "on another host"
    longest = f", context of at most {e.server.max_model_len} tokens" if e.server.max_model_len else ""
    return f"{e.server.engine} {e.server.version or '(version not told)'} {where}, model {e.server.model}{longest}"


def _workload(e: Experiment) -> str:
    w = e.workload
    parts = [w.endpoint or "endpoint not told", f"{w.dataset or 'not told'} prompts", f"ISL {_list(w.isl)}"]
    parts.append("OSL of the file" if w.osl is None else f"OSL {w.osl}")
    return f"{', '.join(parts)}; {e.workload_fingerprint}"


def _load(e: Experiment) -> str:
    p = e.plan
    levels = [f"C={_list(p.concurrency)}"] if p.concurrency else []
    levels += [f"{', '.join(f'{r:g}' for r in p.rates_req_s)} req/s ({p.arrivals})"] if p.rates_req_s else []
    if p.duration_s is not None:
        length = f"{p.duration_s:g} s a level"
    else:
        length = f"{p.requests} requests a level" if p.requests is not None else "max(3C, 16) requests a level"
    repeats = f", {p.repeat} repeats" if p.repeat > 1 else ""
    return f"{' and '.join(levels) or 'levels not told'}, {length}{repeats}"


def _gpu(c: Compared, e: Experiment) -> str:
    names = gpu_names(e)
    if not names:
        return "not told"
    if names == [CPU]:
        return NO_GPU
    if e.machine is None:
        return ", ".join(names)
    parts = [counted(c, e), f"driver {e.machine.driver or 'not told'}"]
    watts = sorted({g.power_limit_w for g in e.machine.gpus if g.power_limit_w is not None})
    parts += [f"power limit {'/'.join(f'{w:g}' for w in watts)} W"] if watts else []
    clocks = sorted({g.sm_clock_max_mhz for g in e.machine.gpus if g.sm_clock_max_mhz is not None})
    parts += [f"SM clock at most {'/'.join(map(str, clocks))} MHz"] if clocks else []
    return ", ".join(parts)


def _client(e: Experiment) -> str:
    if e.machine is None:
        return f"imported from a {e.extra.get('imported_from')} file"
    memory = "" if e.machine.memory_bytes is None else f", {number(e.machine.memory_bytes / 2**30)} GiB"
    return f"{e.machine.cpu}, {e.machine.cores} cores{memory}, {e.machine.os}"


def _tool(e: Experiment) -> str:
    t = e.tool
    commit = "" if t.git is None else f" at {t.git[:12]}{' with local changes' if t.dirty else ''}"
    libraries = [f"{name} {t.packages[name]}" for name in _LIBRARIES if name in t.packages]
    return ", ".join([f"dsv4bench {t.version}{commit}", *libraries])


_FACTS: tuple[tuple[str, Callable[[Experiment], str] | None], ...] = (
    ("server", _server),
    ("workload", _workload),
    ("load", _load),
    ("GPU", None),  # of which the profiles tell, too
    ("client", _client),
    ("measured with", _tool),
)


def _seeds(every: Sequence[Experiment]) -> str:
    """Each launch of a campaign sends prompts of its own."""
    seeds = {e.workload.seed for e in every if e.workload.seed is not None}
    if len(seeds) > 1:
        return f"; prompts of {len(seeds)} seeds (each experiment's run.json)"
    return f"; prompts of seed {next(iter(seeds))}" if seeds else ""


def _unfinished(every: Sequence[Experiment]) -> list[str]:
    bad = [e for e in every if e.status is not Status.COMPLETE]
    return [f"{text(_short(e.id))} ({text(e.config)}): {e.status}: {text(e.reason or 'no reason')}" for e in bad]


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
