"""The dimensions of a DeepSeek-V4-shaped decoder, and the presets that share its structure.

`FLASH` is DeepSeek-V4-Flash as its checkpoint's config.json gives it (43 layers, without the MTP block). Layer
types follow the checkpoint's `compress_ratios`: 0 = sliding window only, 4 = window plus the indexer's top-k of
the entries that pool 4 tokens, 128 = window plus every entry that pools 128 tokens. `DeepseekV4Config()` of
transformers orders its layers otherwise when no such list is given; the checkpoint wins here.
"""

from __future__ import annotations

import msgspec

from dsv4bench.errors import UsageError

RATIO_WINDOW = 0
RATIO_INDEXED = 4  # the only type with an indexer; its compressor pools overlapping windows of 8 tokens
RATIO_DENSE = 128
RATIOS = (RATIO_WINDOW, RATIO_INDEXED, RATIO_DENSE)

MX_BLOCK = 32  # MXFP4: one E8M0 scale for 32 weights along K


class ModelDims(msgspec.Struct, frozen=True, kw_only=True):
    """One model's shape. Raises UsageError for dimensions that the architecture cannot have."""

    name: str
    vocab_size: int
    hidden: int
    ratios: tuple[int, ...]  # one a layer: 0, 4 or 128
    hash_layers: int  # the first layers choose experts by token id
    heads: int  # query heads; there is one KV head, and K = V
    head_dim: int  # of which the last rope_dim carry RoPE
    rope_dim: int
    q_lora: int
    o_groups: int
    o_lora: int
    experts: int
    experts_per_token: int
    shared_experts: int
    expert_hidden: int
    window: int
    index_heads: int
    index_head_dim: int
    index_topk: int
    hc_mult: int = 4  # copies of the residual stream
    hc_sinkhorn_iters: int = 20
    route_scale: float = 1.5
    swiglu_limit: float = 10.0
    rope_theta: float = 1e4
    compress_rope_theta: float = 1.6e5
    norm_eps: float = 1e-6

    @property
    def layers(self) -> int:
        return len(self.ratios)

    @property
    def nope_dim(self) -> int:
        return self.head_dim - self.rope_dim

    def layer_ratio(self, layer: int) -> int:
        """Tokens that one compressed KV entry of this layer pools; 0: the layer sees its window only."""
        if not 0 <= layer < self.layers:
            raise UsageError(f"layer {layer} of {self.name}: it has layers 0 to {self.layers - 1}")
        return self.ratios[layer]

    def layers_of(self, ratio: int) -> int:
        """How many layers have this ratio."""
        return self.ratios.count(ratio)

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("hash_layers", "shared_experts") else 1
            if field.type is int and value < least:
                self._refuse(f"{field.name} = {value} must be at least {least}")
        if not self.ratios or any(r not in RATIOS for r in self.ratios):
            self._refuse(f"ratios = {self.ratios} must name 0, 4 or 128 for each layer")
        if self.hash_layers > self.layers:
            self._refuse(f"hash_layers = {self.hash_layers} exceeds {self.layers} layers")
        if self.rope_dim >= self.head_dim or self.rope_dim % 2:
            self._refuse(f"rope_dim = {self.rope_dim} must be even and below head_dim = {self.head_dim}")
        if self.heads % self.o_groups:
            self._refuse(f"heads = {self.heads} must be a multiple of o_groups = {self.o_groups}")
        if self.experts_per_token > self.experts:
            self._refuse(f"experts_per_token = {self.experts_per_token} exceeds experts = {self.experts}")
        for name in ("hidden", "expert_hidden"):
            if getattr(self, name) % MX_BLOCK:
                self._refuse(f"{name} = {getattr(self, name)} must be a multiple of {MX_BLOCK} (MXFP4 blocks)")

    def _refuse(self, what: str) -> None:
        raise UsageError(f"model {self.name}: {what}", "give dimensions that a DeepSeek-V4 decoder can have")


# config.json of deepseek-ai/DeepSeek-V4-Flash: layers 0 and 1 see the window only, then 4 and 128 alternate.
FLASH = ModelDims(
    name="flash",
    vocab_size=129_280,
    hidden=4096,
    ratios=(RATIO_WINDOW, RATIO_WINDOW, *([RATIO_INDEXED, RATIO_DENSE] * 20), RATIO_INDEXED),
    hash_layers=3,
    heads=64,
    head_dim=512,
    rope_dim=64,
    q_lora=1024,
    o_groups=8,
    o_lora=1024,
    experts=256,
    experts_per_token=6,
    shared_experts=1,
    expert_hidden=2048,
    window=128,
    index_heads=64,
    index_head_dim=128,
    index_topk=512,
)

PRESETS = ("tiny", "flash", "flash-layers")
DEFAULT_FLASH_LAYERS = 4  # two window layers, one of ratio 4, one of ratio 128: every layer type


def tiny() -> ModelDims:
    """Every part of the architecture, small enough for one CPU core: about 14 M parameters, 4 layers.

    Its step is bound by operator launches, so its times say nothing about the real model's.
    """
    return ModelDims(
        name="tiny",
        vocab_size=1024,
        hidden=256,
        ratios=(RATIO_WINDOW, RATIO_INDEXED, RATIO_DENSE, RATIO_INDEXED),
        hash_layers=1,
        heads=8,
        head_dim=64,
        rope_dim=16,
        q_lora=64,
        o_groups=2,
        o_lora=32,
        experts=32,
        experts_per_token=6,
        shared_experts=1,
        expert_hidden=128,
        window=32,
        index_heads=4,
        index_head_dim=32,
        index_topk=16,
        hc_sinkhorn_iters=4,
    )


def flash_layers(layers: int) -> ModelDims:
    """The first `layers` layers of FLASH at their real size; embeddings and LM head stay whole."""
    if not 1 <= layers <= FLASH.layers:
        raise UsageError(f"flash-layers with {layers} layers", f"give 1 to {FLASH.layers} layers")
    return msgspec.structs.replace(
        FLASH,
        name=f"flash-{layers}-layers",
        ratios=FLASH.ratios[:layers],
        hash_layers=min(FLASH.hash_layers, layers),
    )


def preset(name: str, layers: int | None = None) -> ModelDims:
    """The dimensions that `--preset` names; `layers` belongs to flash-layers alone.

    Raises UsageError for another name, or for `layers` beside a preset whose layers are fixed.
    """
    if name == "flash-layers":
        return flash_layers(DEFAULT_FLASH_LAYERS if layers is None else layers)
    if name not in PRESETS:
        raise UsageError(f"preset {name!r} is unknown", f"use one of: {', '.join(PRESETS)}")
    if layers is not None:
        raise UsageError(f"preset {name!r} has a fixed number of layers", "use --preset flash-layers --layers N")
    return tiny() if name == "tiny" else FLASH
