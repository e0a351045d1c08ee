"""How long one call takes on the GPU: CUDA-graph replays over data that the L2 cache cannot have kept.

    time of a call = median over R replays of (one replay of a graph that holds N calls) / N

Each of the N calls works on a data set of its own, so that a replay touches at least three times the L2 before it
comes back to the first one. Two captures are timed, since a capture fixes addresses. Warm-up is eager, before them:
autotuning and run-time compilation stay out of a capture. How many sets and replays there are is pure arithmetic
(`rotation`, `replays_within`); only `GraphStopwatch` needs a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

Call = Callable[[], object]

L2_MULTIPLE = 3  # what a replay must touch, in L2 sizes
LEAST_SETS, MOST_SETS = 12, 400
LEAST_REPLAYS, MOST_REPLAYS = 5, 25
WARM_CALLS, WARM_REPLAYS = 2, 2
BUDGET_S = 0.5  # GPU time of one capture's replays, warm ones aside; the fewest replays are made even so


@dataclass(frozen=True, slots=True)
class Rotation:
    """How many data sets one replay goes through, and how many bytes that is."""

    sets: int
    touched_bytes: int
    l2_bytes: int

    @property
    def cold(self) -> bool:
        """Whether the L2 can serve none of it: three times its size lies between two uses of a byte."""
        return self.touched_bytes >= L2_MULTIPLE * self.l2_bytes


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds a call. `p10_s`, `p90_s` and `least_s` are of the first capture's replays."""

    median_s: float
    again_s: float
    p10_s: float
    p90_s: float
    least_s: float
    replays: int
    calls: int


class Stopwatch(Protocol):
    """What measures: a GPU's graph replays, or a test's."""

    def replays(self, calls: Sequence[Call]) -> list[float]:
        """Seconds a call, one value a replay, of a fresh capture of `calls`."""
        ...


def rotation(bytes_a_call: float, l2_bytes: int) -> Rotation:
    """Sets for calls that each touch `bytes_a_call` distinct bytes: three L2 sizes in all, 12 to 400 of them.

    At 400 the bytes may fall short of that; `Rotation.cold` says so.
    """
    if not bytes_a_call > 0:
        raise ValueError(f"a call touches {bytes_a_call} bytes")
    wanted = math.ceil(L2_MULTIPLE * l2_bytes / bytes_a_call)
    sets = min(max(wanted, LEAST_SETS), MOST_SETS)
    return Rotation(sets, int(sets * bytes_a_call), l2_bytes)


def replays_within(replay_s: float, budget_s: float = BUDGET_S) -> int:
    """How many replays of that length fit: 5 to 25."""
    fitting = int(budget_s / replay_s) if replay_s > 0 else MOST_REPLAYS
    return min(max(fitting, LEAST_REPLAYS), MOST_REPLAYS)


def summary(first: Sequence[float], again: Sequence[float], calls: int) -> Timing:
    """Two captures' replays, in seconds a call, as one result. Percentiles by nearest rank."""
    ordered = sorted(first)
    return Timing(
        median_s=median(ordered),
        again_s=median(again),
        p10_s=_rank(ordered, 0.1),
        p90_s=_rank(ordered, 0.9),
        least_s=ordered[0],
        replays=len(ordered),
        calls=calls,
    )


def _rank(ordered: Sequence[float], p: float) -> float:
    return ordered[max(0, math.ceil(p * len(ordered)) - 1)]


def timed(calls: Sequence[Call], stopwatch: Stopwatch) -> Timing:
    """Both captures of the same calls."""
    return summary(stopwatch.replays(calls), stopwatch.replays(calls), len(calls))


class GraphStopwatch:
    """CUDA-graph replays on the current device, timed with events."""

    def __init__(self, budget_s: float = BUDGET_S) -> None:
        self._budget_s = budget_s

    def replays(self, calls: Sequence[Call]) -> list[float]:
        """Raises whatever a call raises; the capture is ended first."""
        import torch

        warm_up(calls[:WARM_CALLS])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        replay_s = [_replay_s(graph) for _ in range(WARM_REPLAYS)]
        n = replays_within(replay_s[-1], self._budget_s)
        found = [_replay_s(graph) / len(calls) for _ in range(n)]
        graph.reset()
        return found


def warm_up(calls: Sequence[Call]) -> None:
    """Run them eagerly on a side stream, as capture wants it, and wait: compilation and autotuning happen here."""
    import torch

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()


def _replay_s(graph: object) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    graph.replay()  # type: ignore[attr-defined]
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3
