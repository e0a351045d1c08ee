"""The truth that every kernel is held against: both components in float64, an expert or a request at a time.

Simple enough to be believed, and slow. Nothing is rounded between the steps; what a kernel rounds (the activation to
bf16 between its two GEMMs, probabilities to bf16) is for the tolerance to cover.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4bench.kernels import mla_cache, mxfp4
from dsv4bench.kernels.calls import AttentionCall, MoeCall, PagedRows


def moe(call: MoeCall) -> Tensor:
    """float64 [M, D]: route_scale * sum over the slots of weight * W2 (silu(min(gate, limit)) * clamp(up))."""
    experts = call.experts
    x = call.x.double()
    out = torch.zeros_like(x)
    for expert in torch.unique(call.ids).tolist():
        if expert < 0:
            continue
        token, slot = (call.ids == expert).nonzero(as_tuple=True)
        w13 = mxfp4.dequantize(experts.w13[expert], experts.s13[expert], torch.float64)
        w2 = mxfp4.dequantize(experts.w2[expert], experts.s2[expert], torch.float64)
        gate, up = (x[token] @ w13.T).chunk(2, dim=-1)
        gate = gate.clamp(max=experts.swiglu_limit)
        up = up.clamp(-experts.swiglu_limit, experts.swiglu_limit)
        weight = call.weights[token, slot].double().unsqueeze(-1)
        out.index_add_(0, token, weight * ((gate * torch.sigmoid(gate) * up) @ w2.T))
    return experts.route_scale * out


def sparse_decode(call: AttentionCall) -> tuple[Tensor, Tensor]:
    """-> (out float64 [B, H, 512], lse float64 [B, H]); the natural log-sum-exp of the rows alone, without the sink.

    A request without rows: out 0, lse -inf.
    """
    batch, heads, _ = call.q.shape
    out = torch.zeros(call.q.shape, dtype=torch.float64, device=call.q.device)
    lse = torch.full((batch, heads), -torch.inf, dtype=torch.float64, device=call.q.device)
    for request in range(batch):
        rows = _rows(call.window, request)
        if call.extra is not None:
            rows = torch.cat((rows, _rows(call.extra, request)))
        if len(rows) == 0:
            continue
        scores = call.scale * (call.q[request].double() @ rows.T)
        lse[request] = scores.logsumexp(-1)
        total = with_sink(lse[request], call.sink)
        out[request] = (scores - total.unsqueeze(-1)).exp() @ rows
    return out, lse


def with_sink(lse: Tensor, sink: Tensor | None) -> Tensor:
    """The log-sum-exp [.., H] with the sink's logit [H] as one more term; the sink itself where there is no row."""
    return lse if sink is None else torch.logaddexp(lse, sink.to(lse.dtype))


def valid_index(rows: PagedRows, request: int) -> Tensor:
    """The row indices that one request attends in one cache: below its length, and not negative."""
    index = rows.index[request]
    if rows.length is not None:
        index = index[: max(0, int(rows.length[request]))]
    return index[index >= 0]


def _rows(rows: PagedRows, request: int) -> Tensor:
    return mla_cache.gather(rows.data, rows.page_size, valid_index(rows, request), torch.float64)
