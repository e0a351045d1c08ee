"""`dsv4bench kernels bench`: every kernel that may be timed here, beside the peers and the limits, in one run.

All data and the read ceiling are made first, then one kernel after the other prepares its weights, is checked on the
first data set of each batch, and is timed; what it held is freed before the next. A kernel without a time keeps its
row and says why. Ctrl-C, or a GPU that a kernel breaks, keeps what was measured until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from dsv4bench.errors import MeasuredBad, Unanswerable, UsageError
from dsv4bench.host.tool import tool
from dsv4bench.kernels.ceiling import sizes_around
from dsv4bench.kernels.device import sm_of
from dsv4bench.kernels.lab import CudaLab, Lab, first_line, prepared
from dsv4bench.kernels.registry import KERNELS, Component
from dsv4bench.kernels.timing import L2_MULTIPLE, timed
from dsv4bench.kernels.workload import Truth, Workload, calls_of, check, truth_of, with_router_scale
from dsv4bench.records.kernels import BenchDocument, ParityDocument
from dsv4bench.records.progress import MessageCallback
from dsv4bench.report.kernels_times import bench_markdown, us
from dsv4bench.runs.kernels_candidates import CHECK_FIRST, Candidate, Entrant, candidates, entrants
from dsv4bench.runs.kernels_counters import Asked, Counted, Target, find_ncu, ncu_counts
from dsv4bench.runs.kernels_rows import Measured, Parity, document_of
from dsv4bench.store import kernels as store
from dsv4bench.store.naming import iso, utc_now

MOST_BATCH = 64  # beyond it servers switch kernels
PEER_LIBRARIES = ("vllm", "sglang", "flashinfer-python")


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. `names` with commas; None: every kernel that is not for demand only."""

    names: str | None = None
    batch: list[int] = msgspec.field(default_factory=lambda: [1, 2, 4, 8, 16, 32, 64])
    component: str | None = None  # moe | attention
    peers: str | None = None  # a Python file that defines PEERS
    counters: bool = False
    seed: int = 0
    out: str = "results"


@dataclass(slots=True)
class _Run:
    """What a run has and finds."""

    lab: Lab
    entered: list[Entrant]
    loads: dict[Component, list[Workload]]
    found: list[Measured] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def loads_of(self, entrant: Entrant) -> list[Workload]:
        return self.loads[entrant.kernel.component]


def run_bench(
    o: BenchOptions, say: MessageCallback, lab: Lab | None = None, registry: Sequence[Candidate] = KERNELS
) -> BenchDocument:
    """Times, stored with their table. Raises UsageError, or Unanswerable where nothing can be timed here."""
    batches = checked_batches(o.batch)
    chosen = candidates(o.names, o.component, o.peers, registry)
    ncu = find_ncu() if o.counters else None
    started = utc_now()
    lab = CudaLab(o.seed) if lab is None else lab
    parity = store.read_parity(o.out, lab.facts.name)
    entered = entrants(chosen, lab.facts, parity)
    _refuse_empty(entered)
    store.ready(o.out, lab.facts.name)
    loads = {c: [lab.workload(c, b) for b in batches] for c in dict.fromkeys(e.kernel.component for e in entered)}
    every = [load for group in loads.values() for load in group]
    say("measuring the read ceiling")
    ceiling = lab.read_ceiling(sizes_around(load.floor_bytes for load in every))
    run = _Run(lab, entered, loads, notes=[*_warm(every), *_versions(parity, lab), *_libraries()])

    def keep() -> BenchDocument:
        document = document_of(iso(started), lab.facts, ceiling, run.found, run.notes)
        store.write_times(o.out, document, bench_markdown(document))
        return document

    try:
        _time_all(run, say)
        if ncu is not None:
            _count_all(run, ncu, o, say)
    except KeyboardInterrupt:
        run.notes.append("interrupted: not everything was measured")
        if any(m.timing is not None for m in run.found):
            keep()
        raise
    return keep()


def _time_all(run: _Run, say: MessageCallback) -> None:
    """Every kernel; one that breaks the GPU ends it, and the rest is marked as not reached."""
    truths: dict[int, Truth] = {}
    try:
        for entrant in run.entered:
            if entrant.why_not is not None:
                say(f"{entrant.kernel.name}: not timed: {entrant.why_not}")
            for measured in _measure(entrant, run.loads_of(entrant), truths, run.lab):
                run.found.append(measured)
                if entrant.why_not is None:
                    say(_told(measured))
    except MeasuredBad as error:
        run.notes.append(f"stopped: {error.message} ({error.hint})")
        done = {(m.kernel.name, m.load.batch) for m in run.found}
        rest = [(e.kernel, load) for e in run.entered for load in run.loads_of(e)]
        run.found += [Measured(k, load, why="not reached") for k, load in rest if (k.name, load.batch) not in done]


def _count_all(run: _Run, ncu: str, o: BenchOptions, say: MessageCallback) -> None:
    """Counters of whatever was timed; what could not be counted is a note."""
    targets = [Target(m.kernel.name, m.load.batch) for m in run.found if m.timing is not None]
    if not targets:
        return
    say(f"counters of {len(targets)} calls")
    counts = ncu_counts(ncu, Asked(targets, o.peers, o.seed), divmod(sm_of(run.lab.facts), 10))
    run.notes += counts.why
    nothing = Counted()
    run.found = [
        m._replace(**msgspec.structs.asdict(counts.found.get((m.kernel.name, m.load.batch), nothing)))
        for m in run.found
    ]


def checked_batches(batches: Sequence[int]) -> list[int]:
    """Ascending, each once. Raises UsageError."""
    if not batches:
        raise UsageError("no batch is given", "for instance --batch 1,4,16")
    for batch in batches:
        if not 1 <= batch <= MOST_BATCH:
            raise UsageError(f"--batch {batch}: not between 1 and {MOST_BATCH}", "decode batches only")
    return sorted(set(batches))


def check_fairly(entrant: Entrant, load: Workload, ready: object, truth: Truth) -> tuple[Parity | None, str | None]:
    """(parity, why not): green, green by a limit of its own, or None with the reason: such a kernel is not timed."""
    from dsv4bench.kernels.comparison import REL_FRO_LIMIT

    own = entrant.kernel.rel_fro_limit
    usual, wider = check(load, entrant.runner, ready, truth, (REL_FRO_LIMIT, own))
    if usual.why is None:
        return "green", None
    if wider.why is None:
        return "own tolerance", None
    return None, f"its result is wrong on this data: {wider.why}"


def fair(entrant: Entrant, load: Workload) -> Workload:
    """A peer takes the routing factor inside of the weights, where a server's router puts it."""
    return with_router_scale(load) if entrant.kernel.role == "peer" else load


def _measure(entrant: Entrant, loads: Sequence[Workload], truths: dict[int, Truth], lab: Lab) -> Iterator[Measured]:
    """All batches of one kernel. What it raises becomes its reason; what breaks the GPU is raised."""
    kernel, why, ready = entrant.kernel, entrant.why_not, None
    try:
        ready = None if why else prepared(entrant.runner, fair(entrant, loads[0]))
    except Exception as error:  # a library's, a compiler's, a user's own
        why = f"it cannot prepare these weights: {first_line(error)}"
    if why is not None:
        lab.free()
        yield from (Measured(kernel, load, why=why) for load in loads)
        return
    for load in loads:
        if id(load) not in truths:
            truths[id(load)] = truth_of(load)
        yield _one(entrant, load, ready, truths[id(load)], lab)
        lab.free()
    ready = None
    lab.free()


def _one(entrant: Entrant, load: Workload, ready: object, truth: Truth, lab: Lab) -> Measured:
    kernel, own = entrant.kernel, fair(entrant, load)
    try:
        parity, why = check_fairly(entrant, own, ready, truth)
        timing = None if why else timed(calls_of(own, entrant.runner, ready), lab.stopwatch)
        return Measured(kernel, load, timing, parity, why)
    except Exception as error:
        return Measured(kernel, load, why=first_line(error))


def _told(m: Measured) -> str:
    time = f"not timed: {m.why}" if m.timing is None else f"{us(m.timing.median_s * 1e6)} µs"
    return f"{m.kernel.name} at {m.load.batch}: {time}"


def _refuse_empty(entered: Sequence[Entrant]) -> None:
    if any(e.why_not is None for e in entered):
        return
    refused = [e for e in entered if CHECK_FIRST in (e.why_not or "")]
    first = (refused or list(entered))[0]
    more = f" (and {len(entered) - 1} more)" if len(entered) > 1 else ""
    why = f"nothing can be timed here: {first.kernel.name}{more}: {first.why_not}"
    raise Unanswerable(why, CHECK_FIRST if refused else "dsv4bench kernels list says what each needs")


def _warm(loads: Sequence[Workload]) -> list[str]:
    """Where the L2 may have helped."""
    warm = [f"{load.component} at {load.batch}" for load in loads if not load.rotation.cold]
    if not warm:
        return []
    return [f"a replay touches less than {L2_MULTIPLE} L2 sizes, the L2 may serve a part: {', '.join(warm)}"]


def _versions(parity: ParityDocument | None, lab: Lab) -> list[str]:
    """Parity was recorded for this text; other libraries may compile it otherwise."""
    if parity is None:
        return []
    then, now = parity.device, lab.facts
    pairs = (("torch", then.torch, now.torch), ("triton", then.triton, now.triton))
    return [f"parity was checked with {name} {a}, this is {b}" for name, a, b in pairs if a != b]


def _libraries() -> list[str]:
    """The versions of what peers come from."""
    found = {name: version for name, version in tool().packages.items() if name in PEER_LIBRARIES}
    return [f"installed: {', '.join(f'{name} {version}' for name, version in found.items())}"] if found else []
