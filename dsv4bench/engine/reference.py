"""The decoder once more, as plainly as it can be said: no cache, no pages, no batching, no kernel set.

`logits` recomputes a whole sequence from its token ids, position by position, and is what the engine is checked
against. It shares the weights and the MXFP4 decoding with the engine, and no other code, so that a fault in
paging, masking, routing or pooling shows as a difference. Slow on purpose: use it for tens of tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from dsv4bench.dsv4 import ModelDims
from dsv4bench.engine.weights import CompressorWeights, HyperWeights, IndexerWeights, LayerWeights, ModelWeights
from dsv4bench.kernels.mxfp4 import dequantize


@torch.inference_mode()
def logits(tokens: list[int], weights: ModelWeights, dims: ModelDims) -> Tensor:
    """Logits [T, vocab] after each of T tokens."""
    streams = torch.stack([weights.embed[tokens]] * dims.hc_mult, dim=1)
    for w in weights.layers:
        x, post, comb = _fold(streams, w.hc_attn, dims)
        streams = _unfold(streams, _attention(_norm(x, w.attn_norm, dims), w, dims), post, comb)
        x, post, comb = _fold(streams, w.hc_ffn, dims)
        streams = _unfold(streams, _feed_forward(_norm(x, w.ffn_norm, dims), tokens, w, dims), post, comb)
    pre = torch.sigmoid(_coefficients(streams, weights.hc_head, dims))
    return _norm((pre[:, :, None] * streams).sum(1), weights.norm, dims) @ weights.head.T


def _norm(x: Tensor, weight: Tensor | float, dims: ModelDims) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + dims.norm_eps) * weight


def _rotate(x: Tensor, position: int, theta: float, dims: ModelDims, sign: float = 1.0) -> Tensor:
    """The last rope_dim lanes of x [..., d] as complex numbers, turned by position."""
    plain, rope = x[..., : dims.nope_dim], x[..., dims.nope_dim :]
    pairs = torch.view_as_complex(rope.double().reshape(*rope.shape[:-1], -1, 2))
    speed = theta ** (-torch.arange(0, dims.rope_dim, 2, dtype=torch.float64) / dims.rope_dim)
    turned = pairs * torch.exp(1j * sign * position * speed)
    return torch.cat((plain, torch.view_as_real(turned).flatten(-2).float()), dim=-1)


def _coefficients(streams: Tensor, w: HyperWeights, dims: ModelDims) -> Tensor:
    return _norm(streams.flatten(1), 1.0, dims) @ w.mix.T + w.base


def _fold(streams: Tensor, w: HyperWeights, dims: ModelDims) -> tuple[Tensor, Tensor, Tensor]:
    n = dims.hc_mult
    mixes = _coefficients(streams, w, dims)
    comb = torch.softmax(mixes[:, 2 * n :].reshape(-1, n, n), dim=2)
    for _ in range(dims.hc_sinkhorn_iters):
        comb = comb / comb.sum(1, keepdim=True)
        comb = comb / comb.sum(2, keepdim=True)
    folded = (torch.sigmoid(mixes[:, :n, None]) * streams).sum(1)
    return folded, 2 * torch.sigmoid(mixes[:, n : 2 * n]), comb


def _unfold(streams: Tensor, output: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    return post[:, :, None] * output[:, None, :] + torch.einsum("tij,tjd->tid", comb, streams)


def _attention(x: Tensor, w: LayerWeights, dims: ModelDims) -> Tensor:
    theta = dims.compress_rope_theta if w.ratio else dims.rope_theta
    kv = _norm(x @ w.wkv.T, w.kv_norm, dims)
    kv = torch.stack([_rotate(row, i, theta, dims) for i, row in enumerate(kv)])
    entries = _entries(x, w.compressor, dims, theta) if w.compressor else kv[:0]
    keys = _entries(x, w.indexer.compressor, dims, None) if w.indexer else entries
    out = []
    for i in range(len(x)):
        latent = _norm(x[i] @ w.wq_a.T, w.q_norm, dims)
        q = _rotate(_norm((latent @ w.wq_b.T).view(dims.heads, -1), 1.0, dims), i, theta, dims)
        attended = kv[max(0, i - dims.window + 1) : i + 1]
        if w.ratio:
            visible = (i + 1) // w.ratio
            chosen = _choose(x[i], latent, keys[:visible], w.indexer, dims) if w.indexer else slice(visible)
            attended = torch.cat((attended, entries[:visible][chosen]))
        score = q @ attended.T * dims.head_dim**-0.5
        weight = torch.softmax(torch.cat((score, w.sink[:, None]), dim=1), dim=1)[:, :-1]
        o = _rotate(weight @ attended, i, theta, dims, sign=-1.0).reshape(dims.o_groups, -1)
        low = torch.cat([w.wo_a[g] @ o[g] for g in range(dims.o_groups)])
        out.append(w.wo_b @ low)
    return torch.stack(out)


def _entries(x: Tensor, w: CompressorWeights, dims: ModelDims, theta: float | None) -> Tensor:
    """All complete entries of the sequence, [len // ratio, entry]."""
    value, gate, size = x @ w.value.T, x @ w.gate.T, len(w.norm)
    entries = []
    for j in range(len(x) // w.ratio):
        values, gates = [], []
        for half in (0, 1) if w.overlap else (0,):
            first = w.ratio * (j - 1 + half) if w.overlap else w.ratio * j
            if first < 0:
                continue
            lanes = slice(half * size, (half + 1) * size)
            values.append(value[first : first + w.ratio, lanes])
            gates.append(gate[first : first + w.ratio, lanes] + w.position[:, lanes])
        entry = (torch.softmax(torch.cat(gates), dim=0) * torch.cat(values)).sum(0)
        entry = _norm(entry, w.norm, dims)
        entries.append(entry if theta is None else _rotate(entry, w.ratio * j, theta, dims))
    return torch.stack(entries) if entries else x.new_zeros(0, size)


def _choose(x: Tensor, latent: Tensor, keys: Tensor, w: IndexerWeights, dims: ModelDims) -> Tensor:
    query = (w.query @ latent).view(dims.index_heads, -1)
    score = (w.head_weight @ x) @ torch.relu(query @ keys.T)  # its positive scale does not change the order
    return score.sort(descending=True, stable=True).indices[: dims.index_topk]  # equal scores: oldest first


def _feed_forward(x: Tensor, tokens: list[int], w: LayerWeights, dims: ModelDims) -> Tensor:
    w13, w2 = dequantize(w.experts.w13, w.experts.s13), dequantize(w.experts.w2, w.experts.s2)
    out = []
    for row, token in zip(x, tokens, strict=True):
        score = torch.sqrt(softplus(w.router @ row))
        if w.expert_of_token is not None:
            ids = w.expert_of_token[token].long()
        else:
            ids = (score + torch.as_tensor(w.router_bias)).topk(dims.experts_per_token).indices
        share = score[ids] / score[ids].sum() * dims.route_scale
        y = _expert(row, w.shared_w13, w.shared_w2, dims) if dims.shared_experts else torch.zeros_like(row)
        for expert, part in zip(ids, share, strict=True):
            y = y + part * _expert(row, w13[expert], w2[expert], dims)
        out.append(y)
    return torch.stack(out)


def _expert(x: Tensor, w13: Tensor, w2: Tensor, dims: ModelDims) -> Tensor:
    gate, up = (w13 @ x).chunk(2)
    limit = dims.swiglu_limit
    return w2 @ (silu(gate.clamp(max=limit)) * up.clamp(-limit, limit))
