"""The grouped MoE in an SGLang server, without a fork: plugged into its DeepSeek MXFP4 MoE method.

SGLang has no plugin hook that runs in its scheduler processes; a `sitecustomize.py` on PYTHONPATH, or a launch script
of one's own, does it before the server is imported:

    from dsv4bench.kernels.adapters.sglang import register
    register()

Written against `DeepSeekMxfp4MoEMethod` of SGLang's sources (`process_weights_after_loading(layer)`,
`apply(layer, dispatch_output)`), and tested against objects of that shape; it has not served a model here. Expert ids
of other ranks must be -1, as SGLang's dispatcher makes them.
"""

from __future__ import annotations

import inspect
from typing import Any

from dsv4bench.errors import UsageError
from dsv4bench.kernels.adapters.fused_moe import FusedMoe

_MODULE, _CLASS = "sglang.srt.layers.quantization.mxfp4_deepseek", "DeepSeekMxfp4MoEMethod"
_COMBINE = "sglang.srt.layers.moe.token_dispatcher"
_ATTRIBUTE = "grouped_moe"  # of a layer that takes it
_WEIGHTS = ("w13_weight", "w13_weight_scale_inv", "w2_weight", "w2_weight_scale_inv")


def register() -> None:
    """Plugs into SGLang's own class. Raises UsageError where that is not the one this was written for."""
    import importlib

    combine = importlib.import_module(_COMBINE).StandardCombineInput
    plug(getattr(importlib.import_module(_MODULE), _CLASS), combine)


def plug(method: Any, combine: Any) -> None:
    """Replaces two methods of a class. `combine(hidden_states=...)` makes what `apply` returns."""
    names = tuple(inspect.signature(method.apply).parameters)[1:]
    if names != ("layer", "dispatch_output"):
        raise UsageError(
            f"{method.__name__}.apply takes {', '.join(names)}: not the SGLang that this adapter was written for",
            "it wants apply(layer, dispatch_output)",
        )

    def process_weights_after_loading(self: Any, layer: Any) -> None:
        limit = self.moe_runner_config.swiglu_limit
        setattr(layer, _ATTRIBUTE, FusedMoe(*(getattr(layer, name) for name in _WEIGHTS), limit=limit))
        for name in _WEIGHTS:
            getattr(layer, name).data = getattr(layer, name).data.new_empty(0)  # its bytes live on, repacked

    def apply(self: Any, layer: Any, dispatch_output: Any) -> Any:
        chosen = dispatch_output.topk_output
        moe = getattr(layer, _ATTRIBUTE)
        return combine(hidden_states=moe(dispatch_output.hidden_states, chosen.topk_weights, chosen.topk_ids))

    method.process_weights_after_loading = process_weights_after_loading
    method.apply = apply
