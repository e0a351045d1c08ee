"""Provenance: on what, with what, how and from which seeds was this measured?

A fact that is equal everywhere is said once; one that differs is said for each configuration that it holds for.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dsv4bench.records.campaign import Campaign, LaunchNote, ReportInput
from dsv4bench.records.experiment import Experiment
from dsv4bench.report.page import levels
from dsv4bench.report.page.blocks import Block, Fold, Table, missing
from dsv4bench.report.page.words import listed, moment
from dsv4bench.scenario.launched_text import local_ports, portless

GIB = 1 << 30
NOT_TOLD = "not told"
ABSENT = "not set"
_PLAIN = re.compile(r"[\w@%+=:,./{}-]+", re.ASCII)


def blocks(r: ReportInput) -> list[Block]:
    experiments = [d.experiment for d in levels.ordered(r)]
    found: list[Block] = []
    if r.campaign is not None:
        found.append(_campaign(r))
    if not experiments:
        return [*found, missing("No experiment could be read, so nothing is known of the machine or the server.")]
    found.append(_facts(experiments))
    found += _arguments(experiments)
    commands = _commands(r, experiments)
    several = "{port}" in commands
    head = "Commands; {port} was another one at each launch" if several else "Commands, as they were typed"
    found.append(Fold(head, log=commands, short=True))
    packages = {f"{k} {v}" for e in experiments for k, v in e.tool.packages.items()}
    if packages:
        found.append(Fold("Packages of the client", lines=[", ".join(sorted(packages))]))
    hashes = [
        f"{e.id}/{name}: sha256 {note.sha256}, {note.bytes} bytes"
        for e in experiments
        for name, note in e.files.items()
    ]
    if hashes:
        found.append(Fold("Files that git does not hold", lines=hashes))
    return found


def _campaign(r: ReportInput) -> Block:
    c = r.campaign
    assert c is not None
    parents = ", ".join(f"{c.levers.get(k, k)}: {k} on {p}" for k, p in c.parents.items())
    rows = [
        ["campaign", f"{c.name} ({c.id})"],
        ["status", f"{c.status}" + (f": {c.reason}" if c.reason else "")],
        [
            "started, ended (UTC)",
            f"{moment(c.started_utc)}, {moment(c.ended_utc)}" + (f"; resumed {c.resumed} times" if c.resumed else ""),
        ],
        ["configurations", _configurations(c)],
        ["levers", parents or NOT_TOLD],
        ["blocks, order seed", f"{c.blocks}, {c.seed}"],
        ["scenario sha256", c.scenario_sha256],
        ["comparison", c.verdict or "none stored"],
    ]
    return Table("The campaign", ["fact", "value"], rows, prose=(1,))


def _configurations(c: Campaign) -> str:
    named = ", ".join(c.configs)
    return named if c.baseline == "baseline" else f"{named}; the baseline is {c.baseline}"


FACTS: dict[str, Callable[[Experiment], str]] = {
    "GPU of the client's host": lambda e: _gpus(e),
    "driver": lambda e: (e.machine.driver if e.machine is not None else None) or NOT_TOLD,
    "machine": lambda e: _machine(e),
    "server runs": lambda e: (
        "on this host" if e.server_on_this_host else "on another host: its GPUs are not seen from here"
    ),
    "server": lambda e: f"{e.server.engine} {e.server.version or '(version not told)'}",
    "model": lambda e: e.server.model,
    "workload": lambda e: _workload(e),
    "levels": lambda e: _plan(e),
    "prompt seed": lambda e: NOT_TOLD if e.workload.seed is None else str(e.workload.seed),
    "tool": lambda e: (
        f"dsv4bench {e.tool.version}, commit {e.tool.git or NOT_TOLD}"
        + (" (uncommitted changes)" if e.tool.dirty else "")
    ),
    "environment": lambda e: ", ".join(f"{k}={v}" for k, v in sorted(e.environment.items())) or NOT_TOLD,
    "not told by the server": lambda e: "; ".join(f"{k}: {v}" for k, v in e.server.missing.items()) or "nothing",
}


def _facts(experiments: list[Experiment]) -> Table:
    rows = []
    for name, told in FACTS.items():
        values: dict[str, list[str]] = {}
        for e in experiments:
            values.setdefault(told(e), []).append(f"{e.config} {e.id.rpartition('-')[2]}")
        for i, (value, of) in enumerate(values.items()):
            rows.append([name if i == 0 else "", value, "all" if len(values) == 1 else listed(of)])
    return Table("What it was measured on", ["fact", "value", "of"], rows, prose=(1, 2))


def _arguments(experiments: list[Experiment]) -> list[Block]:
    """Server arguments by configuration: those that differ in a table, those that are equal on demand."""
    told = {e.config: _leaves(e.server.args) for e in experiments if e.server.args is not None}
    silent = sorted({e.config for e in experiments} - set(told))
    found: list[Block] = []
    keys = sorted({k for args in told.values() for k in args})
    shown = {k: [_plain(args[k]) if k in args else ABSENT for args in told.values()] for k in keys}
    differ = {k: v for k, v in shown.items() if len(set(v)) > 1}
    if differ:
        rows = [[k, *v] for k, v in differ.items()]
        found.append(Table("Server arguments that differ", ["argument", *told], rows, text_columns=1 + len(told)))
    equal = [f"{k} = {v[0]}" for k, v in shown.items() if k not in differ]
    if equal:
        found.append(Fold(f"Server arguments that are equal ({len(equal)})", lines=equal))
    if silent:
        found.append(missing(f"The server of {listed(silent)} does not tell its arguments."))
    return found


def _leaves(args: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names, so that one that differs does not bring its whole section along."""
    found: dict[str, Any] = {}
    for key, value in args.items():
        if isinstance(value, Mapping) and value:
            found.update(_leaves(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _commands(r: ReportInput, experiments: list[Experiment]) -> str:
    """Of a campaign each configuration's command once; its launches are named where it had several commands."""
    if r.campaign is None:  # the experiments of a campaign hold the commands of their launches
        found = [f"# {e.config}, {e.id}\ndsv4bench {shlex.join(e.command)}" for e in experiments if e.command]
        return "\n".join(found) or "none recorded"
    urls = {e.id: e.server.url for e in experiments}
    launches: dict[str, list[LaunchNote]] = {}
    for n in r.campaign.launches:
        if n.command:
            launches.setdefault(n.config, []).append(n)
    found = []
    for config, notes in launches.items():
        own = {n.order: n.command for n in notes}
        if len(set(map(tuple, own.values()))) > 1:
            own = {n.order: portless(n.command, _ports(n, urls)) for n in notes}
        alike: dict[str, list[str]] = {}
        for order, words in own.items():
            alike.setdefault(_joined(words), []).append(str(order))
        for command, of in alike.items():
            which = f", launch {listed(of)}" if len(alike) > 1 else ""
            found.append(f"# {config}{which}\n{command}")
    return "\n".join(found) or "none recorded"


def _ports(n: LaunchNote, urls: Mapping[str, str]) -> set[str]:
    return local_ports([*n.command, urls.get(n.experiment or "", "")])


def _joined(words: Sequence[str]) -> str:
    """For a shell, but that placeholders are not quoted."""
    return " ".join(word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in words)


def _gpus(e: Experiment) -> str:
    if e.machine is None:
        return "no machine is recorded (imported)"
    if not e.machine.gpus:
        return f"none{f' ({e.machine.gpu_why_none})' if e.machine.gpu_why_none else ''}"
    names = [g.name for g in e.machine.gpus]
    counted = ", ".join(f"{names.count(n)} × {n}" for n in dict.fromkeys(names))
    limits = {g.power_limit_w for g in e.machine.gpus if g.power_limit_w is not None}
    return counted + (f", power limit {'/'.join(f'{w:g}' for w in sorted(limits))} W" if limits else "")


def _machine(e: Experiment) -> str:
    m = e.machine
    if m is None:
        return f"not recorded; imported from {e.extra.get('imported_from', 'another tool')}"
    memory = f", {m.memory_bytes / GIB:.0f} GiB" if m.memory_bytes else ""
    return f"{m.cpu}, {m.cores} cores{memory}; {m.os}, {m.kernel}; Python {m.python}; host {m.hostname_sha256[:8]}"


def _workload(e: Experiment) -> str:
    w = e.workload
    osl = "lengths of the file" if w.osl is None else f"OSL {w.osl}"
    eos = "" if w.ignore_eos is None else f", ignore_eos {w.ignore_eos}"
    isl = ", ".join(map(str, w.isl))
    return (
        f"{w.endpoint or NOT_TOLD}, dataset {w.dataset or NOT_TOLD}, ISL {isl}, {osl}{eos}, {e.workload_fingerprint}"
    )


def _plan(e: Experiment) -> str:
    p = e.plan
    load = ", ".join(f"{x:g} req/s" for x in p.rates_req_s) or f"C={', '.join(map(str, p.concurrency))}"
    return f"{load}; repeats {p.repeat}" + ("" if p.warmup else "; no warm-up")
