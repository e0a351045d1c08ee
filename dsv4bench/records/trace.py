"""What a trace file said: one columnar timeline, a table of sums, counters of kernels, or samples of a device.

All times are integer nanoseconds on the file's own clock, never passed through a float. A reader fills what the file
tells; a column the file lacks is zero-filled and named in `missing`. Arrays of one timeline have one length and one
order, by start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Literal

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


class Source(StrEnum):
    NSYS = "nsys"
    KINETO = "kineto"
    PERFETTO = "perfetto"
    NCU = "ncu"
    NSYS_STATS = "nsys-stats"
    TORCH_TABLE = "torch-table"


class Kind(IntEnum):
    """What an interval on the device is."""

    KERNEL = 0
    COPY = 1
    MEMSET = 2


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A device as the file describes it. None: not told."""

    index: int
    name: str | None = None
    sms: int | None = None
    compute: tuple[int, int] | None = None
    uuid: str | None = None
    memory_bytes_s: float | None = None


@dataclass(frozen=True, slots=True)
class Spans:
    """Named host or device ranges (NVTX, user annotations, gpu projections), columnar."""

    start_ns: Ints
    end_ns: Ints
    name: Small  # index into `names`
    pid: Ints
    tid: Ints
    on_device: npt.NDArray[np.bool_]  # a projection, not a host range
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Launches:
    """Host calls that put work on a device: kernel, graph and copy launches, columnar."""

    start_ns: Ints
    end_ns: Ints
    pid: Ints
    tid: Ints
    correlation: Ints
    is_graph: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class GraphRuns:
    """Whole CUDA-graph launches whose kernels the file does not show (nsys --cuda-graph-trace=graph), columnar."""

    start_ns: Ints
    end_ns: Ints
    device: Small
    pid: Ints
    graph_id: Ints


@dataclass(frozen=True, slots=True)
class KernelTrace:
    """Every timeline, whatever its file was. Row i is one kernel, copy or memset.

    `kernel_names[k]` = (raw, demangled, short) for `name[i] == k`. `grid` and `block` are (n, 3), zero where unknown.
    `correlation` is unique per `pid` at most; kernels of one graph launch share it.
    """

    file: str
    source: Source
    start_ns: Ints
    end_ns: Ints
    kind: Bytes
    device: Small
    stream: Ints
    pid: Ints
    name: Small
    grid: Small
    block: Small
    registers: Small
    shared_bytes: Small
    graph_id: Ints
    graph_node_id: Ints
    correlation: Ints
    kernel_names: list[tuple[str, str, str]]
    spans: Spans
    launches: Launches
    graph_runs: GraphRuns
    devices: dict[int, DeviceFacts] = field(default_factory=dict)
    label: str | None = None
    rank: int | None = None
    world_size: int | None = None
    facts: dict[str, str] = field(default_factory=dict)  # versions, capture options: never the environment
    missing: list[str] = field(default_factory=list)  # columns or tables that the file lacks
    warnings: list[str] = field(default_factory=list)
    samples: list[DeviceSamples] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True)
class TableRow:
    name: str
    count: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class KernelTable:
    """Sums only (`nsys stats`, torch key averages): shares of the kernel sum, no timeline, no idle."""

    file: str
    source: Source
    rows: list[TableRow]
    label: str | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CounterRow:
    """One profiled launch (or the mean of several): metrics in base units, NaN never, n/a left out."""

    name: str  # as the tool gave it
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    compute: tuple[int, int] | None
    device: int | None
    metrics: dict[str, float]
    unavailable: list[str] = field(default_factory=list)  # metrics given as n/a
    rounded: list[str] = field(default_factory=list)  # printed as 0.00: below the printed digits, not proven zero


@dataclass(frozen=True, slots=True)
class KernelCounters:
    """ncu output. Durations in it are of a serialised, replayed kernel and enter no share."""

    file: str
    rows: list[CounterRow]
    label: str | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SassBuild:
    """One compiled kernel: the MMA opcodes in it. An empty set from `sass` proves that no tensor core is used."""

    arch: str  # sm_90, without the a or f of a feature set; "" where not told
    opcodes: frozenset[str]  # of MMA only; names of PTX or TTGIR operations where the proof is not sass
    proof: Literal["sass", "ptx", "ttgir"]
    file: str


@dataclass(frozen=True, slots=True)
class Sass:
    """Every build of one kernel name: a Triton cache keeps one for each specialisation and GPU."""

    name: str
    builds: list[SassBuild]


@dataclass(frozen=True, slots=True)
class Disassembly:
    """What a folder of cubins holds."""

    source: str
    kernels: dict[str, Sass]
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeviceSamples:
    """A device's counters over time (nsys GPU_METRICS, PM sampling, GPM): percent of peak, its quantum named.

    `metrics[name]` has one value a `time_ns`; NaN where that sample lacks it. With `span_ns`, sample i covers the
    `span_ns[i]` before `time_ns[i]`, and what no sample covers was not measured.
    """

    file: str
    device: int
    time_ns: Ints
    metrics: dict[str, npt.NDArray[np.float64]]
    quantum_frac: float | None = None  # the smallest step of a value: 0.01 for integer percents
    label: str | None = None
    span_ns: Ints | None = None


Evidence = KernelTrace | KernelTable | KernelCounters | DeviceSamples
