"""Every weight tensor of the model with its storage format; parameter counts and bytes follow from this one list.

Formats are those of the FP4 checkpoint that servers load (`quantization_config` of DeepSeek-V4-Flash):
routed experts MXFP4 (E2M1 and one E8M0 scale for 32 weights: 0.53125 bytes a weight), dense linears and the shared
expert FP8 E4M3 with one UE8M0 scale for a 128x128 block, embeddings, LM head, router and compressors bf16, mHC and
small vectors fp32. Compressors are the doubtful case: the reference computes them in fp32, and an engine that also
stores them so reads 0.61 GB a step more. The smaller figure is kept, because a floor must not overstate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum
from typing import Literal

import msgspec

from dsv4bench.dsv4.dims import MX_BLOCK, RATIO_DENSE, RATIO_INDEXED, ModelDims

FP8_BLOCK = 128
KV_SCALE_GROUP = 64  # one UE8M0 scale for 64 E4M3 values of a KV entry
KV_SCALE_ALIGN = 8  # the scales of an entry are padded to 8 bytes

Group = Literal["experts", "attention", "shared_experts", "embed_head", "router", "other"]
Owner = Literal["moe", "router", "indexer", "compressor", "dense", "mhc"]


class Format(StrEnum):
    """How a weight is stored."""

    MXFP4 = "mxfp4"
    FP8 = "fp8"
    BF16 = "bf16"
    FP32 = "fp32"


class Weight(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of tensor, [rows, cols], of which the model holds `count`.

    `component` is the step component that reads it, `group` the line of the published parameter count.
    `use`: a `gemm` reads it whole every step, an `expert` only when chosen, a `gather` reads one row a token, a
    `vector` is a norm or bias. `split`: tensor parallelism divides it; the others stand whole on every GPU.
    """

    name: str
    component: Owner
    group: Group
    rows: int
    cols: int
    count: int
    format: Format
    use: Literal["gemm", "expert", "gather", "vector"] = "gemm"
    split: bool = True

    @property
    def parameters(self) -> int:
        return self.rows * self.cols * self.count

    @property
    def bytes_each(self) -> float:
        """Bytes of one tensor, scales included."""
        n = self.rows * self.cols
        match self.format:
            case Format.MXFP4:
                return n / 2 + n / MX_BLOCK
            case Format.FP8:
                return n + math.ceil(self.rows / FP8_BLOCK) * math.ceil(self.cols / FP8_BLOCK)
            case Format.BF16:
                return 2 * n
            case Format.FP32:
                return 4 * n


def weights(dims: ModelDims) -> tuple[Weight, ...]:
    """All weight tensors. Shapes from the checkpoint; [out, in] for linears."""
    return (*_attention(dims), *_compression(dims), *_moe(dims), *_stream(dims))


def _attention(d: ModelDims) -> Iterator[Weight]:
    def linear(name: str, rows: int, cols: int, *, split: bool = True, count: int = 1) -> Weight:
        return Weight(
            name=name,
            component="dense",
            group="attention",
            rows=rows,
            cols=cols,
            count=d.layers * count,
            format=Format.FP8,
            split=split,
        )

    per_group = d.heads // d.o_groups * d.head_dim
    yield linear("wq_a", d.q_lora, d.hidden, split=False)
    yield linear("wq_b", d.heads * d.head_dim, d.q_lora)
    yield linear("wkv", d.head_dim, d.hidden, split=False)
    yield linear("wo_a", d.o_lora, per_group, count=d.o_groups)
    yield linear("wo_b", d.hidden, d.o_groups * d.o_lora)
    yield _vector("q_norm, kv_norm, sinks", "dense", "attention", d.q_lora + d.head_dim + d.heads, d.layers)


def _compression(d: ModelDims) -> Iterator[Weight]:
    def pool(name: str, width: int, out: int, ratio: int) -> Iterator[Weight]:
        """Value and gate projections, the absolute-position embedding, the norm."""
        count = d.layers_of(ratio)
        yield Weight(
            name=f"{name} wkv, wgate",
            component="compressor",
            group="attention",
            rows=2 * width,
            cols=d.hidden,
            count=count,
            format=Format.BF16,
            split=False,
        )
        yield _vector(f"{name} ape, norm", "compressor", "attention", ratio * width + out, count)

    indexed = d.layers_of(RATIO_INDEXED)
    # Ratio 4 overlaps: each token feeds two entries, hence twice the width.
    yield from pool("compressor of ratio 4", 2 * d.head_dim, d.head_dim, RATIO_INDEXED)
    yield from pool("compressor of ratio 128", d.head_dim, d.head_dim, RATIO_DENSE)
    yield from pool("index compressor", 2 * d.index_head_dim, d.index_head_dim, RATIO_INDEXED)
    yield Weight(
        name="indexer wq_b",
        component="indexer",
        group="attention",
        rows=d.index_heads * d.index_head_dim,
        cols=d.q_lora,
        count=indexed,
        format=Format.FP8,
        split=False,
    )
    yield Weight(
        name="indexer weights_proj",
        component="indexer",
        group="attention",
        rows=d.index_heads,
        cols=d.hidden,
        count=indexed,
        format=Format.BF16,
        split=False,
    )


def _moe(d: ModelDims) -> Iterator[Weight]:
    gate_up, down = (2 * d.expert_hidden, d.hidden), (d.hidden, d.expert_hidden)
    for name, (rows, cols) in (("w1, w3", gate_up), ("w2", down)):
        yield Weight(
            name=f"experts {name}",
            component="moe",
            group="experts",
            rows=rows,
            cols=cols,
            count=d.layers * d.experts,
            format=Format.MXFP4,
            use="expert",
        )
        # The shared expert is an FP8 GEMM over every token, so its time belongs to the dense ones.
        yield Weight(
            name=f"shared expert {name}",
            component="dense",
            group="shared_experts",
            rows=rows,
            cols=cols,
            count=d.layers * d.shared_experts,
            format=Format.FP8,
        )
    yield Weight(
        name="router",
        component="router",
        group="router",
        rows=d.experts,
        cols=d.hidden,
        count=d.layers,
        format=Format.BF16,
        split=False,
    )


def _stream(d: ModelDims) -> Iterator[Weight]:
    """mHC, norms, embeddings and head."""
    mixes = d.hc_mult * (2 + d.hc_mult)  # pre, post and comb coefficients
    width = d.hc_mult * d.hidden
    # The published count files the mHC of the attention sublayer under attention, by its module name.
    for sublayer, group in (("attn", "attention"), ("ffn", "other")):
        owner: Group = "attention" if group == "attention" else "other"
        yield _mhc(f"hc_{sublayer}", owner, mixes, width, d.layers)
        yield _vector(f"hc_{sublayer} base, scale", "mhc", owner, mixes + 3, d.layers)
    yield _mhc("hc_head", "other", d.hc_mult, width, 1)
    yield _vector("hc_head base, scale", "mhc", "other", d.hc_mult + 1, 1)
    yield _vector("attn_norm, ffn_norm", "dense", "other", 2 * d.hidden, d.layers)
    yield _vector("norm", "dense", "other", d.hidden, 1)
    for name in ("embed", "head"):
        yield Weight(
            name=name,
            component="dense",
            group="embed_head",
            rows=d.vocab_size,
            cols=d.hidden,
            count=1,
            format=Format.BF16,
            use="gather" if name == "embed" else "gemm",
        )


def _mhc(name: str, group: Group, rows: int, cols: int, count: int) -> Weight:
    return Weight(
        name=name, component="mhc", group=group, rows=rows, cols=cols, count=count, format=Format.FP32, split=False
    )


def _vector(name: str, component: Owner, group: Group, size: int, count: int) -> Weight:
    return Weight(
        name=name,
        component=component,
        group=group,
        rows=1,
        cols=size,
        count=count,
        format=Format.FP32,
        use="vector",
        split=False,
    )


class ParameterCount(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters by the groups of the published count."""

    experts: int
    attention: int  # with compressors, indexers and the mHC of its sublayer
    shared_experts: int
    embed_head: int
    router: int
    other: int

    @property
    def total(self) -> int:
        return sum(msgspec.structs.astuple(self))


def parameters(dims: ModelDims) -> ParameterCount:
    """Parameters of the main model (the MTP block is not counted, nor are routing tables and selection biases).

    With the layer order of transformers' `DeepseekV4Config()` this gives its 284.326 B; the checkpoint's own order
    (FLASH) has one ratio-4 layer more and three ratio-128 layers less, hence 6.4 M parameters more.
    """
    sums = dict.fromkeys(ParameterCount.__struct_fields__, 0)
    for w in weights(dims):
        sums[w.group] += w.parameters
    return ParameterCount(**sums)


def activated_parameters(dims: ModelDims) -> float:
    """Parameters that one token meets: all but the experts it did not choose; embeddings included."""
    count = parameters(dims)
    return count.total - count.experts * (1 - dims.experts_per_token / dims.experts)


def expert_bytes(dims: ModelDims, *, scale_bytes: int = 1) -> float:
    """Bytes of one routed expert, MXFP4. `scale_bytes` is 4 where a server keeps E8M0 scales as fp32."""
    n = 3 * dims.hidden * dims.expert_hidden
    return n / 2 + n / MX_BLOCK * scale_bytes


def kv_entry_bytes(dims: ModelDims) -> int:
    """Bytes of one KV entry of one layer (window or compressed): E4M3 without RoPE, bf16 with, scales and padding.

    FLASH: 448 + 128 + 8 = 584, the fp8_ds_mla layout that FlashMLA checks.
    """
    scales = math.ceil(dims.nope_dim / KV_SCALE_GROUP)
    return dims.nope_dim + 2 * dims.rope_dim + math.ceil(scales / KV_SCALE_ALIGN) * KV_SCALE_ALIGN


def index_key_bytes(dims: ModelDims) -> int:
    """Bytes of one indexer key: E4M3 and one fp32 scale. (A server's optional FP4 index cache has about half.)"""
    return dims.index_head_dim + 4
