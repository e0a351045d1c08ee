"""The grouped MoE in a vLLM server, without a fork: a general plugin that plugs it into the MXFP4 MoE method.

In the pyproject.toml of a package that is installed beside vLLM:

    [project.entry-points."vllm.general_plugins"]
    grouped_moe = "dsv4bench.kernels.adapters.vllm:register"

vLLM calls `register` in each of its processes before a model is loaded. Written against `FusedMoEMethodBase` of
vLLM's sources (`process_weights_after_loading(layer)`, `apply(layer, x, topk_weights, topk_ids, ...)`), and tested
against objects of that shape; it has not served a model here. It is refused where `apply` has other arguments.
Expert parallelism (an expert map) is left to vLLM, and so is a layer with biases or without a limit.
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any

from dsv4bench.errors import UsageError
from dsv4bench.kernels.adapters.fused_moe import FusedMoe

if TYPE_CHECKING:
    from torch import Tensor

_MODULE, _CLASS = "vllm.model_executor.layers.quantization.mxfp4", "Mxfp4MoEMethod"
_ATTRIBUTE = "grouped_moe"  # of a layer that takes it
_logger = logging.getLogger(__name__)


def register() -> None:
    """Plugs into vLLM's own class. Raises UsageError where that is not the one this was written for."""
    import importlib

    plug(getattr(importlib.import_module(_MODULE), _CLASS))


def plug(method: Any, limit: float | None = None) -> None:
    """Replaces two methods of a class: layers that the kernel takes are repacked and run by it, others as before.

    `limit` is the clamp of the activation where a layer does not say it (`swiglu_limit`).
    """
    names = tuple(inspect.signature(method.apply).parameters)[1:5]
    if names != ("layer", "x", "topk_weights", "topk_ids"):
        raise UsageError(
            f"{method.__name__}.apply takes {', '.join(names)}: not the vLLM that this adapter was written for",
            "it wants apply(layer, x, topk_weights, topk_ids, ...)",
        )
    load, apply = method.process_weights_after_loading, method.apply

    def process_weights_after_loading(self: Any, layer: Any) -> None:
        clamp = getattr(layer, "swiglu_limit", None) or limit
        if clamp is None or not _takes(layer):
            _logger.warning("grouped MoE: a layer is left to vLLM")
            load(self, layer)
            return
        moe = FusedMoe(layer.w13_weight, layer.w13_weight_scale, layer.w2_weight, layer.w2_weight_scale, limit=clamp)
        setattr(layer, _ATTRIBUTE, moe)
        for name in ("w13_weight", "w13_weight_scale", "w2_weight", "w2_weight_scale"):
            getattr(layer, name).data = getattr(layer, name).data.new_empty(0)  # its bytes live on, repacked

    def apply_grouped(
        self: Any, layer: Any, x: Tensor, topk_weights: Tensor, topk_ids: Tensor, *rest: Any, **named: Any
    ) -> Any:
        moe = getattr(layer, _ATTRIBUTE, None)
        if moe is None:
            return apply(self, layer, x, topk_weights, topk_ids, *rest, **named)
        return moe(x, topk_weights, topk_ids)

    method.process_weights_after_loading = process_weights_after_loading
    method.apply = apply_grouped


def _takes(layer: Any) -> bool:
    biased = any(
        getattr(layer, name, None) is not None and bool(getattr(layer, name).any())
        for name in ("w13_bias", "w2_bias")
    )
    return not biased and getattr(layer, "expert_map", None) is None and layer.w13_weight.shape[-1] % 64 == 0
