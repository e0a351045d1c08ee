"""`kernels bench --counters`: tensor-pipe and DRAM activity of one call, from one ncu process for all kernels.

ncu serialises and replays kernels, so it never times anything here. Only the calls themselves are profiled, one a
kernel and batch; a kernel of ours, launched before each of them, tells in ncu's list where the next one begins. Each
launch of a call is weighed by its duration. The tensor pipe is that of MMA alone where the chip tells it apart (on
GH100 packed half arithmetic runs on that pipe, too). When the time is up, what was counted stays; the rest says so.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4bench.attribution.counters import dram_share, tensor_share
from dsv4bench.capture.ncu import DURATION, GH100_MMA, SHARES, NcuAsk, run_ncu
from dsv4bench.errors import BenchError, UsageError
from dsv4bench.host import nsight
from dsv4bench.records.progress import MessageCallback
from dsv4bench.records.trace import CounterRow
from dsv4bench.trace.ncu_csv import read_ncu_csv

BUDGET_S = 120.0  # after which no further call is begun; ncu then writes what it has
TIMEOUT_S = 300.0  # after which ncu is ended, and has written nothing
MARKER = "_add_up"  # of kernels.gpu.read_stream
_FEW = (
    DURATION,
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)
_HFMA2_APART = ("sm__inst_executed_pipe_tensor.sum", "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum")
_WORK = "from dsv4bench.runs.kernels_under_ncu import main; main()"


class Counted(msgspec.Struct, frozen=True):
    """Of one call, percent of elapsed cycles; None: not told."""

    tensor_pipe_pct: float | None = None
    dram_pct: float | None = None


class Target(msgspec.Struct, frozen=True):
    """One kernel at one batch."""

    kernel: str
    batch: int


class Asked(msgspec.Struct, frozen=True):
    """What the process under ncu shall do."""

    targets: list[Target]
    peers: str | None
    seed: int
    budget_s: float = BUDGET_S


class Answered(msgspec.Struct):
    """What it did: `begun` in the order of the markers, `missed` with reasons. A target may be in both."""

    begun: list[Target] = msgspec.field(default_factory=list)
    missed: list[tuple[Target, str]] = msgspec.field(default_factory=list)


class Counts(msgspec.Struct):
    """`why` says what is missing, one line a reason."""

    found: dict[tuple[str, int], Counted] = msgspec.field(default_factory=dict)
    why: list[str] = msgspec.field(default_factory=list)


class Launches(msgspec.Struct):
    """The launches that ncu saw of each (kernel, batch). `why` says what is missing, one line a reason."""

    found: dict[tuple[str, int], list[CounterRow]] = msgspec.field(default_factory=dict)
    why: list[str] = msgspec.field(default_factory=list)


def find_ncu() -> str:
    """Its path. Raises UsageError where there is none."""
    found = nsight.find_ncu()
    if found is None:
        raise UsageError("--counters needs ncu, which is not on PATH", "install Nsight Compute, or leave it out")
    return found.path


def metrics_for(compute: tuple[int, int]) -> tuple[str, ...]:
    """Few, so that ncu replays a launch few times."""
    apart = _HFMA2_APART if compute in {(8, 0), (9, 0)} else ()
    return (*_FEW, *apart, *((GH100_MMA + SHARES[0],) if compute == (9, 0) else ()))


def ncu_counts(ncu: str, asked: Asked, compute: tuple[int, int], timeout_s: float = TIMEOUT_S) -> Counts:
    """Counters of every target that could be counted; never raises for what ncu or a kernel does."""
    return weighed(ncu_launches(ncu, asked, metrics_for(compute), timeout_s))


def ncu_launches(
    ncu: str,
    asked: Asked,
    metrics: Sequence[str],
    timeout_s: float = TIMEOUT_S,
    say: MessageCallback = lambda _: None,
) -> Launches:
    """Every launch of every target's one call; never raises for what ncu or a kernel does."""
    with tempfile.TemporaryDirectory() as folder:
        question, answer, log = (Path(folder) / name for name in ("asked.json", "answer.json", "ncu.csv"))
        question.write_bytes(msgspec.json.encode(asked))
        ask = NcuAsk(metrics=metrics, by_program=True)
        target = [sys.executable, "-c", _WORK, str(question), str(answer)]
        ended = run_ncu(ncu, ask, log, target, timeout_s, say).why
        did = msgspec.json.decode(answer.read_bytes(), type=Answered) if answer.is_file() else Answered()
        try:
            rows = read_ncu_csv(log).rows if log.is_file() else []
        except BenchError as error:
            rows, ended = [], f"{error.message}; {error.hint}"
    return matched(rows, asked.targets, did, ended)


def matched(rows: Sequence[CounterRow], targets: Sequence[Target], did: Answered, ended: str) -> Launches:
    """ncu's launches in their order, cut at the markers, given to the targets that were begun in that order.

    `ended` is the reason of a target of which neither side says anything.
    """
    groups: list[list[CounterRow]] = []
    for row in rows:
        if row.name.startswith(MARKER):
            groups.append([])
        elif groups:
            groups[-1].append(row)
    why = dict(did.missed)
    seen = Launches()
    for target, group in zip(did.begun, groups, strict=False):
        if group and target not in why:
            seen.found[target.kernel, target.batch] = group
    reasons: dict[str, list[str]] = {}
    for target in targets:
        if (target.kernel, target.batch) not in seen.found:
            reasons.setdefault(why.get(target, ended), []).append(f"{target.kernel} at {target.batch}")
    seen.why = [f"no counters of {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return seen


def weighed(seen: Launches) -> Counts:
    """Of each call, the means over its launches."""
    return Counts({target: _counted(rows) for target, rows in seen.found.items()}, seen.why)


def _counted(rows: Sequence[CounterRow]) -> Counted:
    """Each launch by its duration; None where one of them lacks the figure."""
    times = [row.metrics.get(DURATION) for row in rows]
    tensor = [found[0] if (found := tensor_share(row)) is not None else None for row in rows]
    return Counted(_mean(times, tensor), _mean(times, [dram_share(row) for row in rows]))


def _mean(times: Sequence[float | None], shares: Sequence[float | None]) -> float | None:
    if any(v is None for v in (*times, *shares)) or not sum(t or 0.0 for t in times) > 0:
        return None
    whole = sum(t or 0.0 for t in times)
    return 100 * sum((t or 0.0) * (s or 0.0) for t, s in zip(times, shares, strict=True)) / whole
