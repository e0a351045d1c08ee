"""One capture a label: its devices, its steps, its ranks and its concurrency, from everything that the files hold.

Counters and samples are evidence for the label that they stand under; counters without a trace of their own are
evidence for all. Breakdowns that were stored come back as captures. Warnings say which label, rank and device they
are of.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from dsv4bench.attribution.breakdown import device_breakdowns
from dsv4bench.attribution.prepared import prepared
from dsv4bench.attribution.ranks import joined, summary
from dsv4bench.attribution.steps import steps_of
from dsv4bench.attribution.units import Units
from dsv4bench.records.breakdown import BreakdownDocument, CaptureNote, DeviceBreakdown, RankSummary, Steps
from dsv4bench.records.rules import Rules
from dsv4bench.records.trace import KernelCounters, KernelTable, KernelTrace, Sass
from dsv4bench.runs.profile_counters import counted_device
from dsv4bench.runs.profile_inputs import Inputs
from dsv4bench.runs.profile_plan import PlanOptions, concurrency_of
from dsv4bench.trace.names import normalise


class Capture(NamedTuple):
    """One label."""

    label: str | None
    devices: list[DeviceBreakdown]
    steps: Steps
    ranks: RankSummary | None
    concurrency: int | None
    world_size: int


def captures_of(
    inputs: Inputs, rules: Rules, sass: dict[str, Sass], o: PlanOptions
) -> tuple[list[Capture], list[str]]:
    """Every label with something timed, else what counters alone tell; then what must be said."""
    captures, warnings = [], []
    for index, label in enumerate(inputs.labels):
        traces = [t for t in inputs.traces if t.label == label]
        timed: list[KernelTrace | KernelTable] = [*traces, *(t for t in inputs.tables if t.label == label)]
        if not timed:
            continue
        units = Units(_evidence_for(label, inputs), sass, rules, normalise)
        found = [_attributed(t, rules, units) for t in timed]
        devices = [d for its, _ in found for d in its]
        steps = joined([s for _, s in found if s is not None]) or Steps(label=label, count=0, method="none")
        world = max([t.world_size or 0 for t in traces] + [0])
        ranks, said = summary(label, devices, world or None)
        concurrency = concurrency_of(label, index, steps, o.concurrency)
        captures.append(Capture(label, devices, steps, ranks, concurrency, max(world, len(devices))))
        warnings += [*said, *(f"{_named(d)}: {w}" for d in devices for w in d.warnings)]
        warnings += [f"{label}: {w}" if label else w for w in steps.warnings]
        warnings += _other_batch(captures[-1])
    captures += _stored(inputs)
    if not captures and inputs.counters:
        captures = [_of_counters(c, rules, sass) for c in inputs.counters]
        warnings.append(
            "counters alone: kernels are serialised and replayed under ncu, so there is no time and no share"
        )
    return captures, warnings


def _attributed(
    timed: KernelTrace | KernelTable, rules: Rules, units: Units
) -> tuple[list[DeviceBreakdown], Steps | None]:
    """One file's devices, and its steps where it has a timeline; what both need is found once and let go."""
    if isinstance(timed, KernelTable):
        return device_breakdowns(timed, rules, units.of), None
    known = prepared(timed, rules)
    return device_breakdowns(timed, rules, units.of, known=known), steps_of(timed, rules, known)


def _other_batch(c: Capture) -> list[str]:
    if c.concurrency is None or c.steps.batch in (None, c.concurrency):
        return []
    where = f"{c.label}: " if c.label else ""
    return [f"{where}{c.steps.batch} sequences a step in the trace, called C={c.concurrency}"]


def _stored(inputs: Inputs) -> list[Capture]:
    """Breakdowns that were stored; several of one file are told apart by their coordinate."""
    captures = []
    for label, found in inputs.stored:
        for b in found:
            own = _own_label(label, b, alone=len(found) == 1)
            devices, steps = b.devices, b.steps or Steps(count=0, method="none")
            if own is not None:
                devices = [msgspec.structs.replace(d, label=own) for d in devices]
                steps = msgspec.structs.replace(steps, label=own)
            ranks, _ = summary(own or steps.label, devices)
            captures.append(Capture(own or steps.label, devices, steps, ranks, b.concurrency, len(devices)))
            inputs.warnings += b.warnings
    return captures


def stored_notes(inputs: Inputs) -> list[CaptureNote]:
    """How breakdowns that were stored had been captured, under the label that they have now."""
    return [
        msgspec.structs.replace(note, label=_own_label(label, b, alone=len(found) == 1) or note.label)
        for label, found in inputs.stored
        for b in found
        for note in b.captures
    ]


def _own_label(label: str | None, b: BreakdownDocument, alone: bool) -> str | None:
    if alone:
        return label
    return f"{label or b.config} C={b.concurrency}" + (f" ISL {b.isl}" if b.isl is not None else "")


def beside_trace(note: CaptureNote, steps: Steps) -> CaptureNote:
    """The trace's own decode step beside the one that was measured without a profiler."""
    if steps.median_ns is None:
        return note
    trace_s, without = steps.median_ns / 1e9, note.tpot_without_s
    if without is None or note.tokens_a_step is None:
        return msgspec.structs.replace(note, trace_step_s=trace_s)
    difference = trace_s / (without * note.tokens_a_step) - 1
    return msgspec.structs.replace(note, trace_step_s=trace_s, step_difference_frac=difference)


def _named(d: DeviceBreakdown) -> str:
    rank = None if d.rank is None else f"rank {d.rank}"
    return ", ".join(part for part in (d.label, rank, f"device {d.device}") if part)


def _evidence_for(label: str | None, inputs: Inputs) -> list[KernelCounters]:
    """Counters of this label, else those of labels that have no trace of their own."""
    own = [c for c in inputs.counters if c.label == label]
    with_time = {t.label for t in inputs.traces} | {t.label for t in inputs.tables}
    return own or [c for c in inputs.counters if c.label not in with_time]


def _of_counters(counters: KernelCounters, rules: Rules, sass: dict[str, Sass]) -> Capture:
    device = counted_device(counters, rules, Units([counters], sass, rules, normalise))
    return Capture(counters.label, [device], Steps(label=counters.label, count=0, method="none"), None, None, 1)
