"""What the GPU decoder can take, said without torch or a GPU: head size, page size, context length.

The hot kernels are written for heads of 512 lanes, 64 of them RoPE, in 584-byte cache rows; the fused ones for four
residual copies. Every preset of DeepSeek-V4-Flash's dimensions has these; the tiny one does not.
"""

from __future__ import annotations

from dsv4bench.dsv4 import ModelDims
from dsv4bench.errors import UsageError

PAGE_SIZE = 256  # tokens; a multiple of every compression ratio
MAX_CONTEXT = 131_072  # a program of the indexer holds the scores of all its ratio-4 entries, 32,768 at most
MIN_SM = 89  # the first with E4M3 conversions, which the cache needs


def check_shape(dims: ModelDims, max_model_len: int) -> None:
    """Raises UsageError for a model or a context that the CUDA kernels are not written for."""
    if (dims.head_dim, dims.rope_dim, dims.hc_mult) != (512, 64, 4):
        raise UsageError(
            f"--device cuda with --preset {dims.name}: its kernels need heads of 512 lanes, this has {dims.head_dim}",
            "use --preset flash-layers, or --device cpu",
        )
    if max_model_len > MAX_CONTEXT:
        raise UsageError(
            f"--max-model-len {max_model_len} is too long for --device cuda", f"give {MAX_CONTEXT} or less"
        )
