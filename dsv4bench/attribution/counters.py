"""What the hardware counters of one launch say about its unit. `None` is an answer: these counters do not tell.

In order, the first that decides:
    executed opcodes     any HMMA … UTCOMMA → tensor; a mix without one → CUDA cores
    operations           Σ sm__ops_path_tensor_src_*.sum > 0 → tensor; 0 over all the types of the chip → CUDA cores
    instructions         sm__inst_executed_pipe_tensor − its HFMA2 part
    cycles by type       of MMA only (GH100), where HFMA2 is told apart

HFMA2, a packed half multiply-add, runs on the tensor pipe of GA100 and GH100: there a busy tensor pipe alone proves
nothing (`torch.randn` keeps it 1.3 % active). A type that was not counted, or is n/a, is no zero: an FP8 kernel has
no BF16 operations. A percentage printed as 0.00 is no zero either. The chips' metric names were listed with ncu's
own library (libnvperf 13.5) for each of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from dsv4bench.records.trace import CounterRow

OPCODES = "sass__inst_executed_per_opcode."
MMA = re.compile(r"[HIBDQO]MMA|[HIQB]GMMA|UTC\w*MMA")  # not HFMA2.MMA, whose root is HFMA2
OPS = "sm__ops_path_tensor_"

_AMPERE = "bf16_dst_fp32 fp16_dst_fp16 fp16_dst_fp32 fp64 int1 int4 int8 tf32_dst_fp32"
_HOPPER = "bf16_dst_fp32 fp16 fp64 fp8 int1 int8 tf32_dst_fp32"
_SHARED = "bf16_dst_fp32 fp16_dst_fp16 fp16_dst_fp32 fp4_dst_fp32 fp64 int8 tf32_dst_fp32"
_BLACKWELL = f"{_SHARED} fp4_fp6_fp8_dst_fp16 fp4_fp6_fp8_dst_fp32"
_GB20X = f"{_SHARED} fp4_fp6_dst_fp16 fp4_fp6_dst_fp32 fp8_dst_fp16 fp8_dst_fp32"
_TYPES: dict[tuple[int, int], str] = {
    (7, 5): "fp16_bf16_tf32_dst_fp32 fp16_dst_fp16 int1 int4 int8",
    (8, 0): _AMPERE,
    (8, 6): _AMPERE,
    (8, 9): f"{_AMPERE} fp8",
    (9, 0): _HOPPER,
    (10, 0): _BLACKWELL,
    (10, 3): _BLACKWELL,
    (11, 0): _BLACKWELL,
    (12, 0): _GB20X,
    (12, 1): _GB20X,
}
_NO_HFMA2_ON_TENSOR_PIPE = frozenset(_TYPES) - {(8, 0), (9, 0)}
_HFMA2 = "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum"
_INSTRUCTIONS = ("sm__inst_executed_pipe_tensor_v2.sum", "sm__inst_executed_pipe_tensor.sum")
_MMA_CYCLES = "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active"  # all but FP64
_DMMA_CYCLES = "sm__pipe_tensor_op_dmma_cycles_active"
_HALF_MMA_CYCLES = "sm__pipe_tensor_op_hmma_type_hmma_hgmma_qgmma_cycles_active"
_PIPE_CYCLES = "sm__pipe_tensor_cycles_active"
_SUBPIPES = ("sm__pipe_tensor_subpipe_hmma_cycles_active", "sm__pipe_tensor_subpipe_imma_cycles_active")
_SHARES = (".avg.pct_of_peak_sustained_elapsed", ".avg.pct_of_peak_sustained_active")
_DRAM = (
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
)


@dataclass(frozen=True, slots=True)
class CounterVerdict:
    """`unit` None: not told, and `why` says what was missing."""

    unit: Literal["tensor", "cuda"] | None
    why: str


def unit_metrics(compute: tuple[int, int]) -> list[str]:
    """Metrics that decide the unit on a chip of this compute capability, for `ncu --metrics`."""
    metrics = [f"{OPS}src_{kind}.sum" for kind in _TYPES.get(compute, "").split()]
    metrics.append("sm__inst_executed_pipe_tensor.sum")
    if compute in {(8, 0), (9, 0)}:
        metrics.append(_HFMA2)
    return [*metrics, *(_PIPE_CYCLES + share for share in _SHARES), _DRAM[0]]


def judge(row: CounterRow) -> CounterVerdict:
    """The unit of one launch from its counters."""
    said: list[str] = []
    for step in (_by_opcodes, _by_operations, _by_instructions, _by_cycles):
        verdict = step(row)
        if verdict is not None and verdict.unit is not None:
            return verdict
        if verdict is not None:
            said.append(verdict.why)
    return CounterVerdict(None, "; ".join(said) or "no tensor counter among its metrics")


def tensor_share(row: CounterRow) -> tuple[float, str] | None:
    """Tensor-pipe utilisation as a fraction, and the metric (its name ends in elapsed or active).

    Of MMA alone where the chip tells it apart, else of the whole pipe.
    """
    stems = [_MMA_CYCLES, _PIPE_CYCLES, _SUBPIPES[0]]
    if row.metrics.get(_HALF_MMA_CYCLES + _SHARES[0], 0.0) > 0 or judge(row).unit == "cuda":
        stems.insert(1, _HALF_MMA_CYCLES)
    for share in _SHARES:
        for stem in stems:
            value = row.metrics.get(stem + share)
            if value is not None:
                return value / 100, stem + share
    return None


def dram_share(row: CounterRow) -> float | None:
    """DRAM throughput as a fraction of its peak."""
    shown = (name for name in row.metrics if name.endswith(": DRAM Throughput [%]"))  # of the details page
    name = next((name for name in (*_DRAM, *shown) if name in row.metrics), None)
    return None if name is None else row.metrics[name] / 100


def _by_opcodes(row: CounterRow) -> CounterVerdict | None:
    mix = {k.removeprefix(OPCODES): v for k, v in row.metrics.items() if k.startswith(OPCODES)}
    if sum(mix.values()) <= 0:
        return None
    used = sorted(op for op, count in mix.items() if count > 0 and MMA.fullmatch(op))
    if used:
        return CounterVerdict("tensor", f"executed {' '.join(used)}")
    return CounterVerdict("cuda", f"executed {len(mix)} kinds of instruction, no MMA among them")


def _by_operations(row: CounterRow) -> CounterVerdict | None:
    counted = {k: v for k, v in row.metrics.items() if k.startswith(OPS) and k.endswith(".sum")}
    if not counted:
        return None
    total = {_type_of(k): v for k, v in counted.items() if v > 0}
    if total:
        kinds = ", ".join(f"{v:,.0f} {k}" for k, v in sorted(total.items()))
        return CounterVerdict("tensor", f"tensor operations: {kinds}")
    lacking = [kind for kind in _types(row) if f"{OPS}src_{kind}.sum" not in counted]
    if lacking or row.compute not in _TYPES:
        missing = " ".join(lacking) or "the types of this chip are not known"
        return CounterVerdict(None, f"0 {' '.join(map(_type_of, counted))} operations, not counted: {missing}")
    return CounterVerdict("cuda", "0 tensor operations of every type of the chip")


def _by_instructions(row: CounterRow) -> CounterVerdict | None:
    name = next((n for n in _INSTRUCTIONS if n in row.metrics), None)
    if name is None or name in row.rounded:
        return None
    executed = row.metrics[name]
    if executed == 0:
        return CounterVerdict("cuda", f"0 {name}")
    if row.compute in _NO_HFMA2_ON_TENSOR_PIPE:
        return CounterVerdict("tensor", f"{executed:,.0f} {name}")
    hfma2 = row.metrics.get(_HFMA2)
    if hfma2 is None or hfma2 > executed:
        return CounterVerdict(None, f"{executed:,.0f} {name}, HFMA2 among them not told (add {_HFMA2})")
    if hfma2 == executed:
        return CounterVerdict("cuda", f"{executed:,.0f} {name}, every one of them HFMA2")
    return CounterVerdict("tensor", f"{executed - hfma2:,.0f} {name} that are not HFMA2")


def _by_cycles(row: CounterRow) -> CounterVerdict | None:
    for stem in (_MMA_CYCLES, _HALF_MMA_CYCLES, _DMMA_CYCLES):
        if _highest(row, stem) > 0:
            return CounterVerdict("tensor", f"{stem} above 0")
    if _zero(row, _MMA_CYCLES) and _zero(row, _DMMA_CYCLES):
        return CounterVerdict("cuda", "0 cycles of MMA of any type")
    if _zero(row, _PIPE_CYCLES):
        return CounterVerdict("cuda", f"0 {_PIPE_CYCLES}")
    if row.compute in _NO_HFMA2_ON_TENSOR_PIPE:
        for stem in (_PIPE_CYCLES, *_SUBPIPES):
            if _highest(row, stem) > 0:
                return CounterVerdict("tensor", f"{stem} above 0")
    elif _highest(row, _PIPE_CYCLES) > 0:
        return CounterVerdict(None, f"{_PIPE_CYCLES} above 0, which HFMA2 does too")
    return None


def _types(row: CounterRow) -> list[str]:
    return _TYPES.get(row.compute, "").split() if row.compute is not None else []


def _type_of(metric: str) -> str:
    return metric.removeprefix(OPS).removeprefix("src_").removesuffix(".sum")


def _of(row: CounterRow, stem: str) -> dict[str, float]:
    return {k: v for k, v in row.metrics.items() if k.startswith(stem + ".") and ".min" not in k}


def _highest(row: CounterRow, stem: str) -> float:
    return max(_of(row, stem).values(), default=0.0)


def _zero(row: CounterRow, stem: str) -> bool:
    """A proven zero: told, by a value that is no rounding."""
    found = _of(row, stem)
    return bool(found) and not any(found.values()) and not all(name in row.rounded for name in found)
