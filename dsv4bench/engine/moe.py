"""The mixture-of-experts sublayer: choose experts, run them, add the shared one.

score = sqrt(softplus(router x)). A bias takes part in choosing only; the weights are the plain scores of the chosen
experts, normalised to sum 1 (the kernel set multiplies by route_scale). The first layers choose by token id,
from a table, and weigh by score all the same. Routed experts are the kernel set's work.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4bench.dsv4 import ModelDims
from dsv4bench.engine.spans import Spans
from dsv4bench.engine.weights import LayerWeights
from dsv4bench.kernels.sets import KernelSet


def route(x: Tensor, tokens: Tensor, w: LayerWeights, top_k: int) -> tuple[Tensor, Tensor]:
    """x [T, D], token ids [T] -> (expert ids int [T, K], weights [T, K] of sum 1)."""
    score = torch.nn.functional.softplus(x.float() @ w.router.t()).sqrt()
    if w.expert_of_token is not None:
        ids = w.expert_of_token[tokens].long()
    else:
        biased = score if w.router_bias is None else score + w.router_bias
        ids = biased.topk(top_k, dim=-1).indices
    chosen = score.gather(1, ids)
    return ids, chosen / chosen.sum(dim=-1, keepdim=True)


def feed_forward(
    x: Tensor, tokens: Tensor, w: LayerWeights, dims: ModelDims, kernels: KernelSet, spans: Spans
) -> Tensor:
    """x [T, D], normalised, of token ids [T] -> [T, D]."""
    with spans("router"):
        ids, weights = route(x, tokens, w, dims.experts_per_token)
    with spans("moe"):
        routed = kernels.moe(x, ids, weights, w.experts)
    if not dims.shared_experts:
        return routed
    with spans("dense"):
        gate, up = (x @ w.shared_w13.t()).chunk(2, dim=-1)
        limit = dims.swiglu_limit
        activated = torch.nn.functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)
        return routed + activated @ w.shared_w2.t()
