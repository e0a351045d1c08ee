"""Synthetic timelines: one line a kernel, copy, launch, range or graph run; the maker sorts and numbers them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dsv4bench.attribution.units import UnitVerdict
from dsv4bench.records.trace import (
    DeviceFacts,
    DeviceSamples,
    GraphRuns,
    KernelTrace,
    Kind,
    Launches,
    Source,
    Spans,
)

Dims = tuple[int, int, int]


@dataclass
class Maker:
    """Collects events; `trace()` gives the KernelTrace."""

    kernels: list[tuple[int, int, int, int, int, int, str, Dims, Dims, int, int]] = field(default_factory=list)
    spans: list[tuple[int, int, str, int, int, bool]] = field(default_factory=list)
    launches: list[tuple[int, int, int, int, int, bool]] = field(default_factory=list)
    runs: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    devices: dict[int, DeviceFacts] = field(default_factory=dict)
    samples: list[DeviceSamples] = field(default_factory=list)

    def kernel(
        self,
        name: str,
        start: int,
        end: int,
        *,
        device: int = 0,
        stream: int = 7,
        pid: int = 1,
        correlation: int = 0,
        grid: Dims = (0, 0, 0),
        block: Dims = (0, 0, 0),
        kind: Kind = Kind.KERNEL,
        node: int = 0,
    ) -> None:
        self.kernels.append((start, end, kind, device, stream, pid, name, grid, block, correlation, node))

    def copy(self, start: int, end: int, *, device: int = 0, kind: Kind = Kind.COPY) -> None:
        self.kernel("Memcpy HtoD", start, end, device=device, stream=9, kind=kind)

    def span(self, name: str, start: int, end: int, *, pid: int = 1, tid: int = 1, on_device: bool = False) -> None:
        self.spans.append((start, end, name, pid, tid, on_device))

    def launch(self, correlation: int, at: int, *, pid: int = 1, tid: int = 1, graph: bool = False) -> None:
        self.launches.append((at, at + 1, pid, tid, correlation, graph))

    def run(self, start: int, end: int, *, device: int = 0, graph: int = 1) -> None:
        self.runs.append((start, end, device, 1, graph))

    def trace(self) -> KernelTrace:
        rows = sorted(self.kernels, key=lambda k: k[0])
        names = {name: i for i, name in enumerate(dict.fromkeys(k[6] for k in rows))}
        span_names = {name: i for i, name in enumerate(dict.fromkeys(s[2] for s in self.spans))}

        def wide(table: list[tuple[int, ...]], column: int) -> np.ndarray:
            return np.array([row[column] for row in table], dtype=np.int64)

        def narrow(values: list[int]) -> np.ndarray:
            return np.array(values, dtype=np.int32)

        dims = [np.array([k[i] for k in rows], dtype=np.int32).reshape(-1, 3) for i in (7, 8)]
        zeros = narrow([0] * len(rows))
        return KernelTrace(
            file="made.json",
            source=Source.KINETO,
            start_ns=wide(rows, 0),
            end_ns=wide(rows, 1),
            kind=np.array([k[2] for k in rows], dtype=np.uint8),
            device=narrow([k[3] for k in rows]),
            stream=wide(rows, 4),
            pid=wide(rows, 5),
            name=narrow([names[k[6]] for k in rows]),
            grid=dims[0],
            block=dims[1],
            registers=zeros,
            shared_bytes=zeros,
            graph_id=wide([(1 if k[10] else 0,) for k in rows], 0),
            graph_node_id=wide(rows, 10),
            correlation=wide(rows, 9),
            kernel_names=[(name, name, name) for name in names],
            spans=Spans(
                start_ns=wide(self.spans, 0),
                end_ns=wide(self.spans, 1),
                name=narrow([span_names[s[2]] for s in self.spans]),
                pid=wide(self.spans, 3),
                tid=wide(self.spans, 4),
                on_device=np.array([s[5] for s in self.spans], dtype=np.bool_),
                names=list(span_names),
            ),
            launches=Launches(
                *(wide(self.launches, i) for i in range(5)),
                is_graph=np.array([la[5] for la in self.launches], dtype=np.bool_),
            ),
            graph_runs=GraphRuns(
                start_ns=wide(self.runs, 0),
                end_ns=wide(self.runs, 1),
                device=narrow([r[2] for r in self.runs]),
                pid=wide(self.runs, 3),
                graph_id=wide(self.runs, 4),
            ),
            devices=self.devices,
            samples=self.samples,
        )


def unknown(
    name: str, grid: Dims | None = None, block: Dims | None = None, compute: tuple[int, int] | None = None
) -> UnitVerdict:
    return UnitVerdict(runs_on="unknown", evidence="none", note="")


MOE = "_mxfp4_slot_gemv_kernel"
ATTENTION = "_tiled_sparse_decode_kernel"
NORM = "_fused_q_kv_rmsnorm_kernel"
SAMPLE = "_gumbel_sample_kernel"
MULTIPLY = "void at::native::vectorized_elementwise_kernel<4, MulFunctor<float>>(int)"


def decode(
    maker: Maker,
    steps: int,
    *,
    layers: int = 3,
    begin: int = 1000,
    tick: int = 10,
    idle: int = 50,
    late: int = 0,
    annotation: str | None = "step[DECODE bs=4]",
    graph: bool = False,
    device: int = 0,
    pid: int = 1,
    sample: bool = True,
    first_correlation: int = 1,
) -> list[int]:
    """A server's decode steps: norm, attention, moe a layer, then sampling outside the range; `late` ns behind the
    host. Returns the starts of the steps on the device; each is `layers * 3 * tick + tick + idle` long.
    """
    at, correlation, starts = begin, first_correlation, []
    for _ in range(steps):
        host = at
        starts.append(at + late)
        names = [NORM, ATTENTION, MOE] * layers
        if graph:
            maker.launch(correlation, host, pid=pid, graph=True)
        for i, name in enumerate(names):
            if not graph:
                correlation += 1
                maker.launch(correlation, host + i, pid=pid)
            maker.kernel(
                name,
                at + late,
                at + late + tick,
                device=device,
                pid=pid,
                correlation=correlation,
                node=i + 1 if graph else 0,
            )
            at += tick
        correlation += 1
        if annotation:
            maker.span(annotation, host, host + len(names) + 1, pid=pid)
        if sample:
            maker.launch(correlation, host + len(names) + 2, pid=pid)
            maker.kernel(SAMPLE, at + late, at + late + tick, device=device, pid=pid, correlation=correlation)
            correlation += 1
        at += tick + idle
    return starts
