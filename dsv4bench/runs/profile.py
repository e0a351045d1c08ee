"""`dsv4bench profile --trace`: read the files, break them down, find the steps, plan; store it where compare looks.

One label is one capture: its files are ranks, which are never summed. Steps are the median over ranks; the plan of a
label stands on its steps. The user's figures of throughput, and the document's own `plan` and `steps`, are of the
label with the highest concurrency. What a file cannot say becomes a warning; it is an error when none says anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from dsv4bench.attribution.live_label import live_label
from dsv4bench.attribution.shift import shifts
from dsv4bench.errors import BenchError, UsageError
from dsv4bench.records.breakdown import BreakdownDocument, CaptureNote, Plan
from dsv4bench.records.shares import SharesDocument
from dsv4bench.records.trace import KernelCounters
from dsv4bench.runs.campaign_data import is_campaign, load_campaign
from dsv4bench.runs.profile_captures import Capture, beside_trace, captures_of, stored_notes
from dsv4bench.runs.profile_cubins import compiled
from dsv4bench.runs.profile_inputs import Inputs, read_inputs, trace_files
from dsv4bench.runs.profile_plan import (
    PlanOptions,
    gpu_named,
    model_named,
    plan_of_label,
    plans_of_shares,
    speedups_of,
)
from dsv4bench.scenario.rules import load_rules
from dsv4bench.store import breakdowns


class ProfileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, as it was typed; `run_profile` checks it before a file is opened."""

    traces: list[str]
    rules: list[str] = msgspec.field(default_factory=list)
    cubins: list[str] = msgspec.field(default_factory=list)
    cache: str | None = None  # a Triton cache that counts where no cubins are named; it may tell nothing
    config: str | None = None
    concurrency: list[int] = msgspec.field(default_factory=list)
    isl: int | None = None
    target_tok_s: float | None = None
    measured_tok_s: float | None = None
    inflation_ratio: float | None = None
    accept_length: float = 1.0
    gpu: str | None = None
    bandwidth_gb_s: float | None = None
    model: str | None = None
    layers: int | None = None
    tp: int | None = None
    kernel_speedups: list[str] = msgspec.field(default_factory=list)
    root: str = "results"
    captures: list[CaptureNote] = msgspec.field(default_factory=list)  # of the labels that were captured for this
    counted: list[KernelCounters] = msgspec.field(default_factory=list)  # by ncu, just now


class Profile(NamedTuple):
    """`shares` are those of files that hold shares alone; `stored` is where the breakdown went."""

    document: BreakdownDocument
    shares: list[SharesDocument]
    stored: list[Path]


def run_profile(o: ProfileOptions) -> Profile:
    """Raises UsageError for options and files that cannot be used, Unanswerable when no file can answer."""
    checked = checked_options(o)
    files = trace_files(o.traces)
    rules = load_rules([Path(r) for r in o.rules])
    inputs = read_inputs(files, o.counted)
    if o.concurrency and len(o.concurrency) not in (1, len(inputs.labels)):
        raise UsageError(
            f"--concurrency has {len(o.concurrency)} values for {len(inputs.labels)} labels",
            "give one for all, or one a label in the order of the --trace options",
        )
    sass = compiled(o.cubins, o.cache, inputs)
    captures, warnings = captures_of(inputs, rules, sass, checked)
    notes = {n.label: n for n in o.captures}
    plans, shares = _plans(captures, inputs, checked, notes)
    target = _target(captures)
    moved, said = shifts([c.steps for c in captures], [d for c in captures for d in c.devices])
    document = BreakdownDocument(
        config=o.config,
        concurrency=target.concurrency if target is not None else None,
        isl=o.isl,
        devices=[d for c in captures for d in c.devices],
        ranks=[c.ranks for c in captures if c.ranks is not None],
        steps=target.steps if target is not None else None,
        steps_by_label=[c.steps for c in captures],
        shifts=moved,
        live=[live_label(c.label, c.devices, rules) for c in captures],
        captures=[
            *(beside_trace(notes[c.label], c.steps) for c in captures if c.label in notes),
            *stored_notes(inputs),
        ],
        plan=plans[0].steps if plans else [],
        plans=plans,
        warnings=list(dict.fromkeys([*inputs.warnings, *warnings, *said])),
    )
    return Profile(document, shares, _store(o, document, captures) if o.config is not None else [])


def checked_options(o: ProfileOptions) -> PlanOptions:
    """What was given beside the files. Raises UsageError."""
    for option, value in (
        ("--target", o.target_tok_s),
        ("--measured", o.measured_tok_s),
        ("--inflation", o.inflation_ratio),
        ("--isl", o.isl),
        ("--tp", o.tp),
        *(("--concurrency", c) for c in o.concurrency),
    ):
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"{option} {value:g}", "give a number above 0")
    if not 1 <= o.accept_length < float("inf"):
        raise UsageError(f"--accept-length {o.accept_length:g}", "it is 1 without speculative decoding, else above 1")
    return PlanOptions(
        isl=o.isl,
        concurrency=o.concurrency,
        target_tok_s=o.target_tok_s,
        measured_tok_s=o.measured_tok_s,
        inflation_ratio=o.inflation_ratio,
        accept_length=o.accept_length,
        gpu=gpu_named(o.gpu, o.bandwidth_gb_s),
        dims=model_named(o.model, o.layers),
        tp=o.tp,
        measured_k=speedups_of(o.kernel_speedups),
    )


def _target(captures: Sequence[Capture]) -> Capture | None:
    """The label of the highest concurrency; the last one where none is known."""
    return max(reversed(captures), key=lambda c: c.concurrency or 0, default=None)


def _plans(
    captures: Sequence[Capture], inputs: Inputs, o: PlanOptions, notes: Mapping[str, CaptureNote]
) -> tuple[list[Plan], list[SharesDocument]]:
    """The target's plan first."""
    target = _target(captures)
    ordered = sorted(captures, key=lambda c: c is not target)
    plans = [
        plan_of_label(
            *(c.steps, c.devices, c.concurrency, c.world_size, o),
            is_target=c is target,
            live=notes.get(c.label or ""),
        )
        for c in ordered
        if any(d.window_ns for d in c.devices)
    ]
    documents = []
    for path, document in inputs.shares:
        documents.append(document)
        plans += plans_of_shares(document, *_beside_shares(path, o))
    return plans, documents


def _beside_shares(path: Path, o: PlanOptions) -> tuple[PlanOptions, dict[int, float]]:
    """Published shares lie in a campaign's folder: what it measured and aims at stands in for what was not given."""
    if not is_campaign(path.parent):
        return o, {}
    try:
        campaign = load_campaign(path.parent)
    except BenchError:
        return o, {}
    if campaign.shares is None or not campaign.arms:
        return o, {}
    goal = campaign.goal
    config = goal.config if goal is not None else campaign.arms[0].name
    measured = {
        c.concurrency: c.output_tok_s
        for arm in campaign.arms
        if arm.name == config
        for c in arm.cells
        if c.concurrency is not None and c.output_tok_s is not None
    }
    if goal is not None and o.target_tok_s is None:
        o = msgspec.structs.replace(o, target_tok_s=goal.output_tok_s)
    return o, measured


def _store(o: ProfileOptions, document: BreakdownDocument, captures: Sequence[Capture]) -> list[Path]:
    """Each label under its own coordinate."""
    if not captures:
        raise UsageError(f"--name {o.config}: shares alone are not stored", "name a trace")
    unknown = [c.label or "the trace" for c in captures if c.concurrency is None]
    if unknown:
        raise UsageError(
            f"--name {o.config}: the concurrency of {unknown[0]} is not known", "give --concurrency, one a label"
        )
    if len({c.concurrency for c in captures}) < len(captures):
        raise UsageError(f"--name {o.config}: two labels have one concurrency", "store them under different names")
    return [breakdowns.write(o.root, _only(document, c)) for c in captures]


def _only(document: BreakdownDocument, capture: Capture) -> BreakdownDocument:
    """What a coordinate keeps."""
    plans = [p for p in document.plans if p.label == capture.label]
    return msgspec.structs.replace(
        document,
        concurrency=capture.concurrency,
        devices=capture.devices,
        ranks=[capture.ranks] if capture.ranks is not None else [],
        steps=capture.steps,
        steps_by_label=[capture.steps],
        shifts=[],
        live=[one for one in document.live if one.label == capture.label],
        captures=[one for one in document.captures if one.label == capture.label],
        plan=plans[0].steps if plans else [],
        plans=plans,
    )
