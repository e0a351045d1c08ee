"""The one list of kernels: name, component, role, inputs, architectures, and where to load it from.

A kernel is a module below `kernels.gpu` or `kernels.peers` with two functions:

    runner() -> MoeRunner | AttentionRunner        raises UsageError naming what is missing
    builds() -> tuple[Build, ...]                  for `inspect`; bundled kernels only

Its `sources` are the modules whose text is hashed: a parity result speaks of exactly that text. Bytes and FLOPs of a
call come from `dsv4`. Nothing here imports torch or triton.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dsv4bench.errors import UsageError

Component = Literal["moe", "attention"]
# The campaign's two CUDA-core kernels are `fallback`; `second_fallback` is the later one, with tensor-core dots.
Role = Literal["fallback", "second_fallback", "optimized", "peer"]


@dataclass(frozen=True, slots=True)
class Port:
    """One input as a typed shape, for `kernels list` and for error messages."""

    name: str
    dtype: str
    shape: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to compute a component."""

    name: str
    component: Component
    role: Role
    summary: str
    module: str  # dotted, below dsv4bench.kernels
    sources: tuple[str, ...] = ()  # more modules that its numbers depend on, beside its own
    replaces: str | None = None  # the fallback whose place it takes
    min_sm: int = 80
    archs: tuple[str, ...] = ()  # exactly these, where not every one from min_sm on
    default: bool = True  # False: an explicit choice, because it changes the numbers (W4A4)
    # Of parity; the bounds on single elements follow it (see `comparison`). Public bf16 kernels: 1.7e-3 to 5.3e-3.
    rel_fro_limit: float = 1e-2

    @property
    def inputs(self) -> tuple[Port, ...]:
        return MOE_PORTS if self.component == "moe" else ATTENTION_PORTS

    def load(self) -> Any:
        """Its runner. Raises UsageError where a library is missing."""
        return self._module().runner()

    def builds(self) -> tuple[Any, ...]:
        """What `inspect` compiles; empty for a peer."""
        return () if self.role == "peer" else tuple(self._module().builds())

    def supports(self, sm: int) -> bool:
        return f"sm_{sm}" in self.archs if self.archs else sm >= self.min_sm

    def code_hash(self) -> str:
        """Of the text of its modules; 12 hex digits."""
        digest = hashlib.sha256()
        for name in (self.module, *self.sources):
            spec = importlib.util.find_spec(f"dsv4bench.kernels.{name}")
            if spec is None or spec.origin is None:
                raise UsageError(f"kernel {self.name}: its source {name} is not installed")
            digest.update(Path(spec.origin).read_bytes())
        return digest.hexdigest()[:12]

    def _module(self) -> Any:
        try:
            return importlib.import_module(f"dsv4bench.kernels.{self.module}")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("dsv4bench"):
                raise
            raise UsageError(f"kernel {self.name} needs {error.name}", "pip install 'dsv4bench[kernels]'") from None


MOE_PORTS = (
    Port("x", "bfloat16", "[M, D]"),
    Port("ids", "int32", "[M, K]; -1: no expert"),
    Port("weights", "float32", "[M, K]"),
    Port("w13", "uint8 (E2M1 pairs, low nibble even k)", "[E, 2I, D/2], gate rows first"),
    Port("s13", "uint8 (E8M0)", "[E, 2I, D/32]"),
    Port("w2", "uint8 (E2M1 pairs)", "[E, D, I/2]"),
    Port("s2", "uint8 (E8M0)", "[E, D, I/32]"),
)
ATTENTION_PORTS = (
    Port("q", "bfloat16", "[B, H, 512]"),
    Port("window.data", "uint8 (584-byte rows, footer scales)", "[pages, page_bytes]"),
    Port("window.index", "int32", "[B, topk]; negative: no row"),
    Port("window.length", "int32", "[B], optional"),
    Port("extra.data", "uint8 (584-byte rows, footer scales)", "[pages, page_bytes], optional"),
    Port("extra.index", "int32", "[B, topk], optional"),
    Port("extra.length", "int32", "[B], optional"),
    Port("sink", "float32", "[H], optional"),
)

_GROUPED = ("gpu.grouped_gemm", "gpu.routing", "gpu.epilogue", "gpu.mxfp4_pack")
_SCALED = ("gpu.scaled_moe", "gpu.scaled_gemm", *_GROUPED)

KERNELS: tuple[Kernel, ...] = (
    Kernel(
        name="slot_gemv",
        component="moe",
        role="fallback",
        summary="one program a (token, expert) pair and 64 outputs; multiply and row sum on CUDA cores",
        module="gpu.slot_gemv",
        sources=("mxfp4",),
    ),
    Kernel(
        name="grouped_moe",
        component="moe",
        role="optimized",
        summary="tokens grouped by expert, FP4 decoded in registers into bf16 MMA, activation and top-k sum fused",
        module="gpu.grouped_moe",
        sources=_GROUPED,
        replaces="slot_gemv",
    ),
    Kernel(
        name="grouped_moe_separate",
        component="moe",
        role="optimized",
        summary="grouped_moe with activation and top-k sum as two launches of their own, to tell what they cost",
        module="gpu.grouped_moe_separate",
        sources=("gpu.grouped_moe", *_GROUPED),
        replaces="slot_gemv",
        default=False,
    ),
    Kernel(
        name="grouped_moe_w4a4",
        component="moe",
        role="optimized",
        summary="grouped, activations quantised to MXFP4: native FP4 MMA on sm_120, and a quarter of error",
        module="gpu.grouped_moe_w4a4",
        sources=_SCALED,
        replaces="slot_gemv",
        archs=("sm_120", "sm_121"),  # elsewhere Triton widens both sides to bf16, and loses extreme scales
        default=False,
        rel_fro_limit=0.4,  # of MXFP4 activations, twice: 0.22 to 0.30 seen with random weights
    ),
    Kernel(
        name="grouped_moe_w4a8",
        component="moe",
        role="optimized",
        summary="grouped, activations quantised to MXFP8, weights widened to E4M3: native FP8 MMA on sm_120",
        module="gpu.grouped_moe_w4a8",
        sources=_SCALED,
        replaces="slot_gemv",
        archs=("sm_120", "sm_121"),  # elsewhere Triton widens both sides to bf16, and loses extreme scales
        default=False,
        rel_fro_limit=0.1,  # of MXFP8 activations, twice: 0.05 to 0.075 seen with random weights
    ),
    Kernel(
        name="sparse_decode_per_head",
        component="attention",
        role="fallback",
        summary="one program a (request, head), all of top-k, fp32 multiply and sum; merge and sink one by one",
        module="gpu.per_head",
        sources=("gpu.merge",),
        min_sm=89,  # Triton converts E4M3 from there on
    ),
    Kernel(
        name="sparse_decode_multi_head",
        component="attention",
        role="second_fallback",
        summary="one program a request and block of heads, dots in bf16, bound by the valid length, no split",
        module="gpu.multi_head",
        sources=("gpu.merge",),
        replaces="sparse_decode_per_head",
    ),
    Kernel(
        name="sparse_decode_split_k",
        component="attention",
        role="optimized",
        summary="both caches and the sink in one pass, rows split, a tile decoded once for 64 heads, bf16 MMA",
        module="gpu.split_k",
        sources=("gpu.split_k_kernel", "gpu.split_k_combine", "gpu.split_k_plan"),
        replaces="sparse_decode_per_head",
        min_sm=89,  # Triton converts E4M3 from there on
    ),
    Kernel(
        name="marlin",
        component="moe",
        role="peer",
        summary="vLLM's Marlin: FP4 weights repacked, decoded in registers, bf16 MMA",
        module="peers.marlin",
    ),
    Kernel(
        name="triton_kernels",
        component="moe",
        role="peer",
        summary="OpenAI's triton_kernels as vLLM drives them: swizzled FP4 weights, bf16 MMA",
        module="peers.triton_kernels",
    ),
    Kernel(
        name="flashinfer_moe",
        component="moe",
        role="peer",
        summary="FlashInfer's CUTLASS fused MoE: bf16 activations on sm_90, MXFP8 activations from sm_100 on",
        module="peers.flashinfer_moe",
        min_sm=90,
        rel_fro_limit=0.05,  # of MXFP8: three mantissa bits, about 3 % an element
    ),
    Kernel(
        name="grouped_mm",
        component="moe",
        role="peer",
        summary="torch's grouped GEMM on experts dequantised to bf16: 3.8 times the bytes",
        module="peers.grouped_mm",
        min_sm=90,
    ),
    Kernel(
        name="flash_mla",
        component="attention",
        role="peer",
        summary="FlashMLA's sparse decode, of vLLM or sgl-flash-mla; its plan is kept between calls",
        module="peers.flash_mla",
        archs=("sm_90", "sm_100", "sm_103"),
    ),
    Kernel(
        name="flashinfer_mla",
        component="attention",
        role="peer",
        summary="FlashInfer's sparse MLA decode for sm_120: fp8 block-scaled MMA, split over the rows",
        module="peers.flashinfer_mla",
        archs=("sm_120", "sm_121"),
        rel_fro_limit=0.05,  # its query is E4M3
    ),
)


def kernels(names: str | None = None, component: Component | None = None) -> tuple[Kernel, ...]:
    """All of the list, or those named with commas. Raises UsageError for a name that is not on it."""
    chosen = KERNELS
    if names:
        by_name = {k.name: k for k in KERNELS}
        wanted = [n.strip() for n in names.split(",") if n.strip()]
        unknown = [n for n in wanted if n not in by_name]
        if unknown:
            raise UsageError(f"kernel {unknown[0]!r} is unknown", f"one of: {', '.join(by_name)}")
        chosen = tuple(by_name[n] for n in wanted)
    return tuple(k for k in chosen if component is None or k.component == component)
