"""The one list of generated shapes: what parity is checked on, and what is timed.

SMALL is for Triton's interpreter on a CPU, PARITY for a GPU. Both hold every feature that kernels are known to
stumble on; they differ in size. Cases that may end the process of a faulty kernel stand last.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Final

from dsv4bench.kernels.generate import Pools, make_attention, make_experts, make_moe, make_pools
from dsv4bench.kernels.shapes import AttentionShape, MoeShape, Shape

__all__ = [
    "BATCHES",
    "PARITY",
    "SMALL",
    "AttentionShape",
    "MoeShape",
    "Pools",
    "Shape",
    "bench_attention",
    "bench_moe",
    "make_attention",
    "make_experts",
    "make_moe",
    "make_pools",
]

BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)
INNER_WIDTHS: Final = (2048, 512, 256)  # whole, and a GPU's part under TP4 and TP8
HEADS: Final = (8, 16, 64)
DENSE_RATIO: Final = 128  # tokens that one entry of a dense layer's extra cache stands for


def bench_moe(tokens: int, *, inner: int = 2048) -> MoeShape:
    """One MoE layer of the model; `inner` 512 and 256 are what one GPU holds under TP4 and TP8."""
    return MoeShape(tokens=tokens, inner=inner)


def bench_attention(
    batch: int, *, heads: int = 64, extra: int = 512, page_size: int = 64, sink: bool = True
) -> AttentionShape:
    """One attention layer of the model: window 128 and, by layer type, 0, 512 or `dense_extra` entries more."""
    return AttentionShape(batch=batch, heads=heads, extra=extra, page_size=page_size, sink=sink)


def dense_extra(context: int) -> int:
    """Entries of the extra cache of a ratio-128 layer after `context` tokens."""
    return math.ceil(context / DENSE_RATIO)


def _moe_features(shape: Callable[..., MoeShape]) -> tuple[MoeShape, ...]:
    return (
        shape(tokens=5, routing="some -1"),
        shape(tokens=3, routing="a token of -1"),
        shape(tokens=2, routing="all -1"),
        shape(tokens=4, clamp=True),
        shape(tokens=3, scales="extreme"),
        shape(tokens=2, scales="0 that counts"),
        shape(tokens=2, scales="254 that counts"),
        shape(tokens=20, routing="skewed"),  # more than 16 tokens for one expert
        shape(tokens=68, routing="skewed"),  # and more than 64
    )


def _attention_features(shape: Callable[..., AttentionShape]) -> tuple[AttentionShape, ...]:
    return (
        shape(sink=False),
        shape(lengths="absent"),
        shape(lengths="absent", holes="some"),
        shape(lengths="mixed", holes="some", sink=False),
        shape(holes="a request"),
        shape(holes="a request", sink=False),
        shape(lengths="short"),
        shape(lengths="mixed", beyond="outside"),
        shape(lengths="one empty"),
        shape(lengths="one empty", sink=False),
        shape(lengths="window empty"),
        shape(lengths="extra empty", beyond="outside"),
        shape(lengths="all empty", beyond="outside"),
        shape(nan_rope=True),
        shape(nan_padding=True),
        shape(scales="extreme"),
        shape(scales="0 that counts"),
        shape(scales="254 that counts"),
    )


def _last(shape: Callable[..., AttentionShape]) -> tuple[AttentionShape, ...]:
    """Reading such an index is an illegal access, after which a process cannot use its GPU."""
    return (shape(lengths="short", beyond="anything"),)


_small_moe = functools.partial(MoeShape, experts=8, top_k=3, hidden=256, inner=128)
_small = functools.partial(AttentionShape, batch=2, heads=8, window=20, extra=40, page_size=64)
_real_moe = functools.partial(MoeShape, inner=512)
_real = functools.partial(AttentionShape, batch=4)

SMALL: Final[tuple[Shape, ...]] = (
    *(_small_moe(tokens=tokens) for tokens in (1, 4)),
    _small_moe(tokens=2, inner=64),
    _small_moe(tokens=2, hidden=384, top_k=1),
    *_moe_features(functools.partial(_small_moe, top_k=2)),
    _small(),
    *(_small(batch=1, heads=heads) for heads in (16, 64)),
    _small(extra=0),
    _small(page_size=2, extra=5),
    _small(page_size=2, window_page_size=256),
    _small(window=64, extra=96, page_size=256),
    *_attention_features(_small),
    *_last(_small),
)

PARITY: Final[tuple[Shape, ...]] = (
    *(MoeShape(tokens=tokens, inner=inner) for inner in INNER_WIDTHS for tokens in (1, 4, 16, 64)),
    *_moe_features(_real_moe),
    *(_real(heads=heads, extra=extra) for heads in HEADS for extra in (0, 512)),
    *(_real(heads=heads, extra=dense_extra(8192), page_size=2, window_page_size=256) for heads in HEADS),
    *(_real(batch=batch) for batch in (1, 16, 64)),
    _real(batch=2, extra=dense_extra(1 << 18), page_size=2),
    _real(page_size=256),
    _real(page_size=2),
    _real(window_page_size=256),
    _real(window=100, extra=77),
    _real(window=1, extra=1),
    *_attention_features(_real),
    *_attention_features(functools.partial(_real, heads=16, page_size=2, window_page_size=256)),
    *_last(_real),
)
