"""What two levels of one ladder recorded, side by side: the observations that a mechanism is told by.

Means over the cells of a level, invalid ones included, for a level stamped `client_saturated` is itself a symptom.
None is "not recorded", never "did not happen".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import msgspec

from dsv4bench.compare.ladder import mean_known
from dsv4bench.compare.throughput import Source, source_of
from dsv4bench.records.arm import Plain
from dsv4bench.records.cell import Cell, Invalid

BURSTY = 3.0  # ICL p99/p50
RUN_LIMITS = ("max_running_requests", "max_num_seqs", "max_running", "max_batch_size")

# "3 preemptions", "retracted requests: 3"
_PREEMPTIONS = re.compile(
    r"(\d+)\s+(?:preempt|retract)|(?:preempt|retract)[a-z]*(?:\s+requests)?\s*[:=]\s*(\d+)", re.IGNORECASE
)


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """The cells of one concurrency, over launches and repeats."""

    concurrency: int
    cells: Sequence[Cell]

    def mean(self, field: str) -> float | None:
        return mean_known(getattr(c, field) for c in self.cells)

    def frac(self, field: str) -> float | None:
        """A number of requests over the requested concurrency."""
        value = self.mean(field)
        return None if value is None else value / self.concurrency

    def stamped(self, invalid: Invalid) -> str | None:
        """Why a cell of this level was stamped so; None when none was."""
        found = [c for c in self.cells if c.invalid is invalid]
        return (found[0].invalid_why or invalid.value) if found else None

    @property
    def in_flight_frac(self) -> float | None:
        """Requests that the client had open, over C."""
        return self.frac("achieved_batch")

    @property
    def littles_frac(self) -> float | None:
        """Little's law: requests a second · mean E2E, over C. Ramp and drain of a short level make it less than 1."""
        rate, e2e = self.mean("request_s"), self.mean("e2e_mean_s")
        return None if rate is None or e2e is None else rate * e2e / self.concurrency

    @property
    def burstiness(self) -> float | None:
        """p99/p50 of the gaps between chunks: stalls show here before they show in a mean."""
        p99, p50 = self.mean("icl_p99_s"), self.mean("icl_p50_s")
        return None if p99 is None or not p50 else p99 / p50

    @property
    def preemptions(self) -> int | None:
        """Preemptions or retractions that the notes speak of; None when they do not."""
        counts = [
            int(m.group(1) or m.group(2)) for c in self.cells for note in c.notes for m in _PREEMPTIONS.finditer(note)
        ]
        return sum(counts) if counts else None

    @property
    def throttle(self) -> set[str]:
        return {word for c in self.cells for word in c.gpu_throttle}


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One step beyond the knee: the level where growth stops, and a higher one."""

    low: Level
    high: Level
    first: Level  # the lowest of the ladder
    figures: Source  # of throughput and TPOT
    run_limit: tuple[str, float] | None = None  # the server's told limit on requests that run at once, and its name
    idle: tuple[int, float] | None = None  # (concurrency of a trace, part of its decode step with nothing on the GPU)

    @property
    def may_run_all(self) -> bool:
        """Whether the server told a limit on running requests, and all C may run under it."""
        return self.run_limit is not None and self.run_limit[1] >= self.high.concurrency

    @property
    def room(self) -> str:
        """`max_running = 64 lets all 16 run`; empty where no limit was told."""
        if self.run_limit is None:
            return ""
        return f"{self.run_limit[0]} = {self.run_limit[1]:g} lets all {self.high.concurrency} run"

    def ratio(self, *fields: str) -> float | None:
        """high/low of the first of the fields that both levels recorded."""
        for field in fields:
            low, high = self.low.mean(field), self.high.mean(field)
            if low and high:
                return high / low
        return None

    def exponent(self, *fields: str) -> float | None:
        """p in high/low = (C_high/C_low)^p: 0 is flat, 1 is in proportion to C."""
        ratio = self.ratio(*fields)
        return None if ratio is None else math.log(ratio) / math.log(self.high.concurrency / self.low.concurrency)

    @property
    def throughput_ratio(self) -> float | None:
        low, high = (mean_known(self.figures.rate(c) for c in level.cells) for level in (self.low, self.high))
        return high / low if low and high else None

    @property
    def _tpot(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(filter(None, [self.figures.tpot, "tpot_mean_s", "tpot_p50_s"])))

    @property
    def tpot_ratio(self) -> float | None:
        return self.ratio(*self._tpot)

    @property
    def tpot_exponent(self) -> float | None:
        return self.exponent(*self._tpot)

    @property
    def ttft_ratio(self) -> float | None:
        return self.ratio("ttft_mean_s", "ttft_p50_s")

    @property
    def service_times(self) -> float | None:
        """How much later the first token came, in decode times of a request: a queue adds about one a doubling."""
        low, high = (level.mean("ttft_mean_s") or level.mean("ttft_p50_s") for level in (self.low, self.high))
        tpot, osl = self.high.mean("tpot_mean_s"), self.high.mean("osl_mean")
        if low is None or high is None or not tpot or not osl:
            return None
        return (high - low) / (tpot * osl)


def argument(key: str) -> str:
    """`server.--max-num-seqs` -> `max_num_seqs`."""
    return key.rsplit(".", 1)[-1].lstrip("-").replace("-", "_")


def pair(
    cells: Sequence[Cell],
    low: int,
    high: int,
    server: Mapping[str, Plain] | None = None,
    idle: Mapping[int, float] | None = None,
    figures: Source | None = None,
) -> Pair:
    """The two levels of one ISL; `cells` holds the whole ladder, `server` the arguments that it told.

    `figures` None: the source of these two levels alone. Of the traces the one counts that was taken at the highest
    concurrency up to `high`, and at half of it at least.
    """

    def level(concurrency: int) -> Level:
        return Level(concurrency=concurrency, cells=[c for c in cells if c.concurrency == concurrency])

    below, above = level(low), level(high)
    return Pair(
        low=below,
        high=above,
        figures=figures or source_of([*below.cells, *above.cells]),
        first=level(min(c.concurrency or low for c in cells)),
        run_limit=_run_limit(server or {}),
        idle=max(((c, part) for c, part in (idle or {}).items() if high / 2 <= c <= high), default=None),
    )


def _run_limit(server: Mapping[str, Plain]) -> tuple[str, float] | None:
    """The lowest, where it tells several."""
    told = [
        (key, float(value))
        for key, value in server.items()
        if argument(key) in RUN_LIMITS
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and value > 0
    ]
    return min(told, key=lambda limit: limit[1], default=None)
