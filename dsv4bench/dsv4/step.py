"""Bytes and FLOPs of one decode step, by component, and of one kernel call. All figures are for ONE GPU.

What is counted: weights read once a step (routed experts: the expected number of distinct ones), KV entries and
indexer keys read, KV written, FLOPs at 2 a multiply-add. Activations passed between kernels are not: at decode
they fit the L2 cache. Nor are mHC's Sinkhorn rounds and the drafting of speculated tokens. So `ideal` costs are
lower bounds under uniform routing. `fallback` costs are what the per-slot MoE and per-head attention kernels ask of
the memory system and compute, padding included; the L2 may serve repeats, so they are no statement about DRAM.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from dsv4bench.dsv4.dims import RATIO_DENSE, RATIO_INDEXED, ModelDims
from dsv4bench.dsv4.weights import Weight, expert_bytes, index_key_bytes, kv_entry_bytes, weights
from dsv4bench.errors import UsageError

StepComponent = Literal[
    "moe", "router", "attention", "indexer", "compressor", "kv_write", "dense", "mhc", "sampling", "comm"
]
MathType = Literal["bf16", "fp8", "fp4", "fp32"]
Variant = Literal["ideal", "fallback"]
# even: everything divides by TP, the bound. replicated: as servers do it, so wq_a, wkv, compressors, indexer,
# router, mHC and the whole KV cache (one KV head) stand on every GPU.
Sharding = Literal["even", "replicated"]

BF16_BYTES = 2
LOGIT_BYTES = 4  # sampling reads fp32 logits
INDEX_BYTES = 4  # int32 position of a KV entry
ALL_REDUCES_PER_LAYER = 2  # after wo_b and after the experts

# E4M3 activations meet FP4 or FP8 weights, and KV entries are E4M3 (a kernel may still widen them to bf16, which
# lowers its own ceiling, not this one). The small projections run in bf16.
MATH: dict[StepComponent, MathType] = {"moe": "fp8", "dense": "fp8", "indexer": "fp8", "attention": "fp8"}


class ComponentCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one component moves and computes on one GPU. `bytes_link` crosses between GPUs, not DRAM."""

    component: StepComponent
    bytes_read: float = 0.0  # weights (sampling: logits; kernel calls: inputs too)
    bytes_kv: float = 0.0
    bytes_written: float = 0.0
    bytes_link: float = 0.0
    flops: float = 0.0
    math: MathType = "bf16"  # the fastest type the format allows: the peak that bounds it

    @property
    def bytes_memory(self) -> float:
        return self.bytes_read + self.bytes_kv + self.bytes_written


def expected_distinct_experts(experts: int, per_token: int, tokens: float) -> float:
    """E·(1−(1−k/E)^B): experts that a batch of `tokens` touches in one layer under uniform routing.

    Real routing is skewed and touches fewer; a batch of equal token ids touches fewer still in the hash layers.
    """
    return experts * (1 - math.pow(1 - per_token / experts, tokens))


def step_costs(
    dims: ModelDims,
    batch: int,
    context: int,
    *,
    tp: int = 1,
    verified: int = 1,
    variant: Variant = "ideal",
    sharding: Sharding = "even",
) -> tuple[ComponentCost, ...]:
    """One decode step of `batch` requests that each see `context` tokens (the new one included), per GPU.

    `verified` is the number of tokens a request that the step checks (drafts + 1 under speculation). The `ideal`
    variant reads the entries that the verified tokens of a request share once. Raises UsageError for a size
    below 1 or heads that `tp` does not divide.
    """
    _check(batch=batch, context=context, tp=tp, verified=verified)
    if dims.heads % tp:
        raise UsageError(f"tp = {tp} does not divide {dims.heads} heads of {dims.name}", "choose another TP size")
    tokens = batch * verified
    copies = tp if sharding == "even" else 1  # by how much the unsplit parts divide
    costs = [
        _moe(dims, tokens, tp, variant),
        *(_linears(dims, name, tokens, tp, copies) for name in ("router", "compressor", "dense", "mhc")),
        _indexer(dims, batch, context, verified, tp, copies),
        _attention(dims, batch, context, verified, tp, copies, variant),
        _kv_write(dims, tokens, copies),
        ComponentCost(component="sampling", bytes_read=tokens * dims.vocab_size * LOGIT_BYTES / tp),
    ]
    if tp > 1:
        message = tokens * dims.hidden * BF16_BYTES
        ring = 2 * (tp - 1) / tp  # what each GPU of a ring all-reduce sends
        link = ALL_REDUCES_PER_LAYER * dims.layers * message * ring
        costs.append(ComponentCost(component="comm", bytes_link=link))
    return tuple(costs)


def _check(**sizes: int) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise UsageError(f"{name} = {value} must be at least 1")


def _moe(d: ModelDims, tokens: int, tp: int, variant: Variant) -> ComponentCost:
    read, flops = _experts(d, tokens, variant)
    return ComponentCost(
        component="moe", bytes_read=d.layers * read / tp, flops=d.layers * flops / tp, math=MATH["moe"]
    )


def _experts(d: ModelDims, tokens: int, variant: Variant, distinct: float | None = None) -> tuple[float, float]:
    """Weight bytes and FLOPs of the routed experts of one layer."""
    slots = tokens * d.experts_per_token
    if variant == "fallback":
        # Every slot streams its expert, with scales that were expanded to fp32.
        read = slots * expert_bytes(d, scale_bytes=4)
    else:
        if distinct is None:
            distinct = expected_distinct_experts(d.experts, d.experts_per_token, tokens)
        read = distinct * expert_bytes(d)
    return read, 2 * slots * 3 * d.hidden * d.expert_hidden


def _linears(d: ModelDims, name: StepComponent, tokens: int, tp: int, copies: int) -> ComponentCost:
    """The weights that `name` reads whole each step, or one row a token of."""
    read = flops = 0.0
    for w in weights(d):
        if w.component != name:
            continue
        parts = tp if w.split else copies
        read += _read_bytes(w, tokens) / parts
        if w.use == "gemm":
            flops += 2 * w.parameters * tokens / parts
    return ComponentCost(component=name, bytes_read=read, flops=flops, math=MATH.get(name, "bf16"))


def _read_bytes(w: Weight, tokens: int) -> float:
    if w.use == "gather":
        return min(tokens, w.rows) * w.bytes_each / w.rows * w.count
    return w.bytes_each * w.count


def _indexer(d: ModelDims, batch: int, context: int, verified: int, tp: int, copies: int) -> ComponentCost:
    """Projections, and the scores of every ratio-4 entry for every token."""
    linears = _linears(d, "indexer", batch * verified, tp, copies)
    keys = context // RATIO_INDEXED * d.layers_of(RATIO_INDEXED)
    scores = 2 * d.index_heads * d.index_head_dim * keys * batch * verified
    return msgspec.structs.replace(
        linears,
        bytes_kv=batch * keys * index_key_bytes(d) / copies,
        flops=linears.flops + scores / copies,
    )


def _attention(
    d: ModelDims, batch: int, context: int, verified: int, tp: int, copies: int, variant: Variant
) -> ComponentCost:
    """The sparse attention itself; its projections are dense, its entries those that each layer type selects."""
    seen = sum(_entries(d, ratio, context) for ratio in d.ratios)  # by one token, over all layers
    if variant == "fallback":
        # One program a head gathers the entries anew, pads a rank's heads to the full count and marches
        # through the padded top-k however short the context is.
        marched = sum(_padded_entries(d, ratio, context) for ratio in d.ratios)
        reads, heads, computed = batch * verified * marched * d.heads, d.heads, marched
        parts = 1
    else:
        # The window slides by one a token; the choice of the top-k is taken to be the same.
        extra = d.layers * (min(d.window + verified - 1, context) - min(d.window, context))
        reads, heads, computed = batch * (seen + extra), d.heads // tp, seen
        parts = copies
    return ComponentCost(
        component="attention",
        bytes_kv=reads * kv_entry_bytes(d) / parts,
        flops=4 * heads * d.head_dim * computed * batch * verified,
        math=MATH["attention"],
    )


def _entries(d: ModelDims, ratio: int, context: int) -> int:
    """KV entries that one token attends to in a layer of this ratio."""
    window = min(d.window, context)
    if ratio == RATIO_INDEXED:
        return window + min(d.index_topk, context // RATIO_INDEXED)
    return window + (context // RATIO_DENSE if ratio == RATIO_DENSE else 0)


def _padded_entries(d: ModelDims, ratio: int, context: int) -> int:
    if ratio == RATIO_INDEXED:
        return d.window + d.index_topk
    return d.window + (math.ceil(context / RATIO_DENSE) if ratio == RATIO_DENSE else 0)


def _kv_write(d: ModelDims, tokens: int, copies: int) -> ComponentCost:
    """One window entry a layer and token; compressed entries and index keys once in `ratio` tokens."""
    entry = kv_entry_bytes(d)
    per_token = d.layers * entry + d.layers_of(RATIO_DENSE) * entry / RATIO_DENSE
    per_token += d.layers_of(RATIO_INDEXED) * (entry + index_key_bytes(d)) / RATIO_INDEXED
    return ComponentCost(component="kv_write", bytes_written=tokens * per_token / copies)


def moe_call(
    dims: ModelDims, tokens: int, *, tp: int = 1, distinct: float | None = None, variant: Variant = "ideal"
) -> ComponentCost:
    """One MoE layer for `tokens` tokens: both expert GEMMs, input and output; router and shared expert excluded.

    `distinct` is the number of experts that the routing at hand touches; None takes the expectation.
    """
    _check(tokens=tokens, tp=tp)
    if distinct is not None and not 0 < distinct <= dims.experts:
        raise UsageError(f"distinct = {distinct} experts of {dims.experts}")
    read, flops = _experts(dims, tokens, variant, distinct)
    activations = tokens * dims.hidden * BF16_BYTES
    return ComponentCost(
        component="moe",
        bytes_read=read / tp + activations,
        bytes_written=activations,
        flops=flops / tp,
        math=MATH["moe"],
    )


def attention_call(
    dims: ModelDims,
    batch: int,
    *,
    heads: int | None = None,
    window: int | None = None,
    extra: int = 0,
    variant: Variant = "ideal",
) -> ComponentCost:
    """One sparse-attention layer: `batch` requests, one token each, over `window` + `extra` valid entries.

    `heads` are those that the kernel computes (None: all of the model). Reads q, entries and int32 indices,
    writes the bf16 output. Entries of different requests are taken to be distinct.
    """
    heads = dims.heads if heads is None else heads
    window = dims.window if window is None else window
    entries = window + extra
    _check(batch=batch, heads=heads, entries=entries)
    rereads = heads if variant == "fallback" else 1
    vectors = batch * heads * dims.head_dim * BF16_BYTES
    return ComponentCost(
        component="attention",
        bytes_read=vectors + batch * entries * INDEX_BYTES,
        bytes_kv=batch * entries * kv_entry_bytes(dims) * rereads,
        bytes_written=vectors,
        flops=4 * batch * heads * dims.head_dim * entries,
        math=MATH["attention"],
    )
