"""From a label's breakdown to its plan: which concurrency, which roofline, which measured kernels stand beside it.

A roofline needs the model (`--model`), the GPU (told by the trace or `--gpu`) and the context (`--isl`); what is
missing is said, and the plan then has only its bounds. Tensor parallelism is `--tp`, else the ranks of the label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from dsv4bench.attribution.binding import KernelFacts, Roof, roof
from dsv4bench.attribution.plan import Aim, plan_of_shares, plan_of_steps
from dsv4bench.dsv4 import ModelDims, preset, step_costs
from dsv4bench.errors import BenchError, UsageError
from dsv4bench.gpus import KNOWN, Gpu, custom, find
from dsv4bench.limits import roofline
from dsv4bench.records.breakdown import CaptureNote, DeviceBreakdown, KernelRow, Plan, RunsOn, Steps
from dsv4bench.records.rules import COMPONENTS
from dsv4bench.records.shares import SharesDocument

NEARLY_ALL = 0.95
IN_LABEL = re.compile(r"(?:^|[^a-z])(?:c|bs)[-_= ]?(\d+)$", re.IGNORECASE)


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user told beside the trace, checked."""

    concurrency: list[int] = msgspec.field(default_factory=list)
    isl: int | None = None
    target_tok_s: float | None = None
    measured_tok_s: float | None = None
    inflation_ratio: float | None = None
    accept_length: float = 1.0
    gpu: Gpu | None = None
    dims: ModelDims | None = None
    tp: int | None = None
    measured_k: dict[str, float] = msgspec.field(default_factory=dict)


def gpu_named(name: str | None, bandwidth_gb_s: float | None) -> Gpu | None:
    """--gpu and --bandwidth. Raises UsageError for a name that nothing is known of."""
    if bandwidth_gb_s is not None:
        known = find(name) if name is not None else None
        made = custom(name or "the GPU", bandwidth_gb_s * 1e9)
        return made if known is None else msgspec.structs.replace(made, sm=known.sm, sms=known.sms, peaks=known.peaks)
    if name is None:
        return None
    gpu = find(name)
    if gpu is None:
        raise UsageError(
            f"--gpu {name}: not known", f"give --bandwidth, or one of: {', '.join(g.name for g in KNOWN)}"
        )
    return gpu


def model_named(name: str | None, layers: int | None) -> ModelDims | None:
    """--model and --layers. Raises UsageError."""
    if name is None:
        if layers is not None:
            raise UsageError(f"--layers {layers} without --model", "give --model flash-layers")
        return None
    return preset(name, layers)


def speedups_of(pairs: Sequence[str]) -> dict[str, float]:
    """`moe=4`. Raises UsageError."""
    found = {}
    for pair in pairs:
        component, _, text = pair.partition("=")
        if component.strip() not in COMPONENTS:
            raise UsageError(f"--kernel-speedup {pair}: no component", f"one of: {', '.join(COMPONENTS)}")
        try:
            k = float(text)
        except ValueError:
            k = 0.0
        if not 0 < k < float("inf"):
            raise UsageError(f"--kernel-speedup {pair}: not a ratio above 0", "for instance --kernel-speedup moe=4")
        found[component.strip()] = k
    return found


def concurrency_of(label: str | None, index: int, steps: Steps | None, given: Sequence[int]) -> int | None:
    """As given (one for all, or one a label), else the batch that annotations tell, else a label like c16 or bs1."""
    if given:
        return given[index] if len(given) > 1 else given[0]
    if steps is not None and steps.batch is not None:
        return steps.batch
    found = IN_LABEL.search(label or "")
    return int(found.group(1)) if found else None


def plan_of_label(
    steps: Steps,
    devices: Sequence[DeviceBreakdown],
    concurrency: int | None,
    ranks: int,
    o: PlanOptions,
    *,
    is_target: bool,
    live: CaptureNote | None = None,
) -> Plan:
    """The plan of one label with so many ranks. `is_target`: the user's figures of throughput are of this one.

    `live`: how it was captured, for a label that was; its own figures stand in for what was not given.
    """
    measured = o.measured_tok_s if is_target else None
    if measured is None and live is not None:
        measured = live.output_tok_s
    inflation = _inflation(steps, concurrency, measured, o)
    if o.inflation_ratio is None and live is not None:
        inflation = live.inflation_ratio
    aim = Aim(
        concurrency=concurrency,
        measured_tok_s=measured,
        target_tok_s=o.target_tok_s if is_target else None,
        inflation_ratio=inflation,
    )
    roofs, notes = _roofs(devices, concurrency, ranks, o)
    plan = plan_of_steps(steps, aim, facts=component_facts(steps, devices), roofs=roofs, measured_k=o.measured_k)
    return plan if plan.refusals else msgspec.structs.replace(plan, notes=[*plan.notes, *notes])


def plans_of_shares(document: SharesDocument, o: PlanOptions, measured: Mapping[int, float]) -> list[Plan]:
    """A plan for each coordinate, the highest concurrency first: the target is meant there."""
    places = sorted({(s.config, s.concurrency) for s in document.shares}, key=lambda p: (-p[1], p[0]))
    plans = []
    for config, c in places:
        here = [s for s in document.shares if (s.config, s.concurrency) == (config, c)]
        first = c == places[0][1]
        known = o.measured_tok_s if first and o.measured_tok_s is not None else measured.get(c)
        aim = Aim(concurrency=c, measured_tok_s=known, target_tok_s=o.target_tok_s if first else None)
        try:
            plan = plan_of_shares(here, aim, o.measured_k)
        except BenchError as e:
            plan = Plan(concurrency=c, refusals=[f"{e.message}: {e.hint}"])
        plans.append(msgspec.structs.replace(plan, label=config))
    return plans


def component_facts(steps: Steps, devices: Sequence[DeviceBreakdown]) -> dict[str, KernelFacts]:
    """What the kernels of each component are known for; counters and grids are means over their time."""
    found = {}
    for c in steps.components:
        rows = [r for d in devices for r in d.rows if r.component == c.component]
        found[c.component] = KernelFacts(
            time_ns=c.median_ns,
            launches=c.launches,
            runs_on=_unit(rows),
            sm_coverage_frac=_mean([(r.time_ns, _coverage(r, devices)) for r in rows]),
            dram_frac=_mean([(r.time_ns, r.dram_frac) for r in rows]),
            tensor_pipe_frac=_mean([(r.time_ns, r.tensor_pipe_frac) for r in rows]),
        )
    return found


def _unit(rows: Sequence[KernelRow]) -> RunsOn:
    total = sum(r.time_ns for r in rows)
    units: tuple[RunsOn, ...] = ("tensor", "cuda")
    for unit in units:
        if total and sum(r.time_ns for r in rows if r.runs_on == unit) >= NEARLY_ALL * total:
            return unit
    return "unknown"


def _coverage(row: KernelRow, devices: Sequence[DeviceBreakdown]) -> float | None:
    known = [g.sms for d in devices if d.gpu and (g := find(d.gpu)) is not None and g.sms]
    if row.grid is None or not known:
        return None
    x, y, z = row.grid
    return min(1.0, x * y * z / known[0])


def _mean(pairs: Sequence[tuple[int, float | None]]) -> float | None:
    """Over time; None unless more than half of the time is known."""
    known = [(ns, value) for ns, value in pairs if value is not None]
    weight, total = sum(ns for ns, _ in known), sum(ns for ns, _ in pairs)
    if not weight or 2 * weight <= total:
        return None
    return sum(ns * value for ns, value in known) / weight


def _inflation(steps: Steps, concurrency: int | None, measured: float | None, o: PlanOptions) -> float | None:
    """As told, else the traced step over the one that the measured throughput means."""
    if o.inflation_ratio is not None or measured is None or concurrency is None or not steps.median_ns:
        return o.inflation_ratio
    return steps.median_ns / 1e9 * measured / (concurrency * o.accept_length)


def _roofs(
    devices: Sequence[DeviceBreakdown], concurrency: int | None, ranks: int, o: PlanOptions
) -> tuple[dict[str, Roof], list[str]]:
    gpu = o.gpu or next((g for d in devices if d.gpu and (g := find(d.gpu)) is not None), None)
    needed = (
        ("--model", o.dims),
        ("--gpu (or --bandwidth)", gpu),
        ("--isl", o.isl),
        ("--concurrency", concurrency),
    )
    missing = [option for option, value in needed if value is None]
    if missing or o.dims is None or gpu is None or o.isl is None or concurrency is None:
        return {}, [f"no roofline, so no k from it: give {', '.join(missing)}"]
    tp = o.tp or max(1, ranks)
    try:
        costs = step_costs(o.dims, concurrency, o.isl, tp=tp)
    except UsageError as e:
        return {}, [f"no roofline: {e.message}"]
    found: dict[str, Roof] = {c.component: roof(roofline(c, gpu), c.flops, gpu) for c in costs}
    return found, [f"roofline of {o.dims.name} at C={concurrency}, {o.isl} tokens of context, TP={tp}, on {gpu.name}"]
