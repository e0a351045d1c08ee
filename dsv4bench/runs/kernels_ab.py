"""`dsv4bench kernels ab NAME`: two kernels in turn, and a verdict by `compare`'s statistics.

    pair 0: base, new    pair 1: new, base    pair 2: base, new    …                              (ABBA)

One side of a pair is one capture and the median of its replays: what a launch is to a server. The pairs' differences
of logarithms give the interval; batches share one Holm correction. Both sides are checked on the data first.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from dsv4bench import __version__
from dsv4bench.compare.grading import LAUNCHES, weigh
from dsv4bench.compare.ruling import Open, judge_family
from dsv4bench.compare.samples import Column
from dsv4bench.compare.statistics import DEFAULT_SIGMA_LAUNCH
from dsv4bench.errors import MeasuredBad, Unanswerable, UsageError
from dsv4bench.kernels.lab import CudaLab, Lab, prepared
from dsv4bench.kernels.registry import KERNELS
from dsv4bench.kernels.timing import Call, Stopwatch
from dsv4bench.kernels.workload import Workload, calls_of, truth_of
from dsv4bench.metrics import BY_NAME, KERNEL_TIME
from dsv4bench.records.arm import Sample
from dsv4bench.records.kernels import AbDocument, AbRow
from dsv4bench.records.progress import MessageCallback
from dsv4bench.records.verdict import CellVerdict
from dsv4bench.report.kernels_times import ab_markdown, us
from dsv4bench.runs.kernels_bench import check_fairly, checked_batches, fair
from dsv4bench.runs.kernels_candidates import CHECK_FIRST, Candidate, Entrant, candidates, entrants
from dsv4bench.runs.kernels_rows import kernel_sample
from dsv4bench.store import kernels as store
from dsv4bench.store.naming import iso, utc_now

MOST_PAIRS = 100
ALPHA = 0.05


class AbOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is judged against `against`; None: the fallback that it replaces."""

    name: str
    against: str | None = None
    batch: list[int] = msgspec.field(default_factory=lambda: [1, 4, 16])
    pairs: int = 6
    peers: str | None = None  # a Python file that defines PEERS
    seed: int = 0
    out: str = "results"


def run_ab(
    o: AbOptions, say: MessageCallback, lab: Lab | None = None, registry: Sequence[Candidate] = KERNELS
) -> AbDocument:
    """The verdicts, stored. Ctrl-C stores nothing: half of a comparison is none.

    Raises UsageError, Unanswerable where a side cannot be timed, MeasuredBad where one is wrong on this data.
    """
    batches = checked_batches(o.batch)
    if not LAUNCHES <= o.pairs <= MOST_PAIRS:
        raise UsageError(f"--pairs {o.pairs}", f"{LAUNCHES} at least, {MOST_PAIRS} at most")
    sides = _sides(o, registry)
    started = utc_now()
    lab = CudaLab(o.seed) if lab is None else lab
    base, new = (_ready(e) for e in entrants(sides, lab.facts, store.read_parity(o.out, lab.facts.name)))
    store.ready(o.out, lab.facts.name)
    loads = [lab.workload(base.kernel.component, batch) for batch in batches]
    weights = [prepared(e.runner, fair(e, loads[0])) for e in (base, new)]
    samples: list[Sample] = []
    for load in loads:
        calls = [_checked_calls(e, load, ready) for e, ready in zip((base, new), weights, strict=True)]
        found = in_turn(calls, o.pairs, lab.stopwatch)
        for entrant, times in zip((base, new), found, strict=True):
            name, batch = entrant.kernel.name, load.batch
            samples += [kernel_sample(name, batch, i, i, seconds) for i, seconds in enumerate(times)]
        shown = (f"{e.kernel.name} {us(median(t) * 1e6)} µs" for e, t in zip((base, new), found, strict=True))
        say(f"at {load.batch}: {', '.join(shown)}")
        lab.free()
    document = AbDocument(
        created_utc=iso(started),
        tool=__version__,
        device=lab.facts,
        component=base.kernel.component,
        base=base.kernel.name,
        new=new.kernel.name,
        code={e.kernel.name: e.kernel.code_hash() for e in (base, new)},
        rows=judged(samples, base.kernel.name, new.kernel.name, {load.batch: load.shape for load in loads}),
        samples=samples,
    )
    store.write_ab(o.out, document, ab_markdown(document))
    return document


def in_turn(sides: Sequence[Sequence[Call]], pairs: int, stopwatch: Stopwatch) -> tuple[list[float], list[float]]:
    """Seconds a call of both sides, one value a pair; which goes first alternates."""
    times: tuple[list[float], list[float]] = ([], [])
    for pair in range(pairs):
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            times[side].append(median(stopwatch.replays(sides[side])))
    return times


def judged(samples: Sequence[Sample], base: str, new: str, shapes: dict[int, str]) -> list[AbRow]:
    """One verdict a batch, by the rules of `compare`: less time is a gain."""
    metric = BY_NAME[KERNEL_TIME]
    assert metric.delta_frac is not None
    cells = []
    for batch in shapes:
        a, b = (Column([s for s in samples if (s.config, s.concurrency) == (k, batch)]) for k in (base, new))
        effect = weigh(a, b, metric, DEFAULT_SIGMA_LAUNCH)
        assert effect.estimate is not None, "enough pairs were asked for"
        cell = CellVerdict(
            metric=metric.name,
            concurrency=batch,
            isl=0,
            config=new,
            versus="parent",
            versus_name=base,
            base=effect.base,
            new=effect.new,
            delta_frac=effect.delta,
            better=effect.new < effect.base,
            limit_frac=metric.delta_frac,
            verdict=None,
            grade=effect.grade,
            n_base=effect.n_base,
            n_new=effect.n_new,
        )
        cells.append(Open(cell, effect, effect.estimate, metric, metric.delta_frac, False, list(effect.notes)))
    judge_family(cells, ALPHA)
    return [_row(c.cell, shapes[c.cell.concurrency or 0]) for c in cells]


def _row(cell: CellVerdict, shape: str) -> AbRow:
    assert cell.base is not None and cell.new is not None and cell.concurrency is not None
    return AbRow(
        batch=cell.concurrency,
        shape=shape,
        base_us=cell.base * 1e6,
        new_us=cell.new * 1e6,
        delta_frac=cell.delta_frac,
        ci_frac=cell.ci_frac,
        limit_frac=cell.limit_frac,
        pairs=cell.n_new,
        verdict=cell.verdict,
        grade=cell.grade,
        reason=cell.reason.replace("pairs of launches", "pairs"),
    )


def _sides(o: AbOptions, registry: Sequence[Candidate]) -> list[Candidate]:
    """Base and new, of one component. Raises UsageError."""
    new, *more = candidates(o.name, None, o.peers, registry)
    against = o.against
    if against is None:
        fallback = next(k.name for k in registry if k.component == new.component and k.role == "fallback")
        against = getattr(new, "replaces", None) or fallback
    base, *others = candidates(against, None, o.peers, registry)
    if more or others:
        raise UsageError("two kernels are compared, no more", "dsv4bench kernels ab NAME --against OTHER")
    if base.name == new.name:
        raise UsageError(f"{new.name} is compared with itself", "name another one with --against")
    if base.component != new.component:
        raise UsageError(
            f"{new.name} is a kernel of {new.component}, {base.name} of {base.component}", "no common job"
        )
    return [base, new]


def _ready(entrant: Entrant) -> Entrant:
    if entrant.why_not is not None:
        hint = CHECK_FIRST if CHECK_FIRST in entrant.why_not else "dsv4bench kernels list says what it needs"
        raise Unanswerable(f"{entrant.kernel.name}: {entrant.why_not.removesuffix(f': {CHECK_FIRST}')}", hint)
    return entrant


def _checked_calls(entrant: Entrant, load: Workload, ready: object) -> list[Call]:
    own = fair(entrant, load)
    parity, why = check_fairly(entrant, own, ready, truth_of(load))
    if parity is None:
        raise MeasuredBad(f"{entrant.kernel.name} at {load.batch}: {why}", "nothing was timed")
    return calls_of(own, entrant.runner, ready)
