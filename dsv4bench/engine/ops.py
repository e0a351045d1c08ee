"""The small building blocks of the decoder: RMS norm, RoPE and its inverse, hyper-connections.

RoPE turns interleaved pairs of the last `rope_dim` lanes; YaRN's rescaling for long contexts is left out, which
changes no work. A hyper-connection keeps n copies of the residual stream: coefficients computed from all
copies fold them into one input (`hc_pre`) and spread the sublayer's output back over them (`hc_post`), with a
mixing matrix that a few Sinkhorn iterations make doubly stochastic.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4bench.engine.weights import HyperWeights


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)


class Rope:
    """Angles for every position up to `positions`, once for each theta."""

    def __init__(self, positions: int, rope_dim: int, theta: float, device: str = "cpu") -> None:
        steps = torch.arange(0, rope_dim, 2, dtype=torch.float64, device=device) / rope_dim
        angle = torch.arange(positions, dtype=torch.float64, device=device).outer(theta**-steps)
        self._dim = rope_dim
        self._cos, self._sin = angle.cos().float(), angle.sin().float()

    @property
    def tables(self) -> tuple[Tensor, Tensor]:
        """Cosines and sines, float32 [positions, rope_dim / 2]."""
        return self._cos, self._sin

    def turn_(self, x: Tensor, position: Tensor, *, inverse: bool = False) -> Tensor:
        """x [T, ..., d] by the angle of position [T], in place; returns x."""
        shape = (len(position), *([1] * (x.dim() - 2)), self._dim // 2)
        cos, sin = self._cos.index_select(0, position).view(shape), self._sin.index_select(0, position).view(shape)
        if inverse:
            sin = -sin
        rope = x[..., -self._dim :]
        even, odd = rope[..., 0::2].clone(), rope[..., 1::2].clone()
        rope[..., 0::2] = even * cos - odd * sin
        rope[..., 1::2] = even * sin + odd * cos
        return x


def hc_pre(streams: Tensor, weights: HyperWeights, iterations: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """streams [T, n, D] -> (input [T, D], post [T, n], comb [T, n, n])."""
    n = streams.shape[1]
    mixes = _mixes(streams, weights, eps)
    pre = torch.sigmoid(mixes[:, :n])
    post = 2.0 * torch.sigmoid(mixes[:, n : 2 * n])
    comb = torch.softmax(mixes[:, 2 * n :].view(-1, n, n), dim=-1)
    for _ in range(iterations):
        comb = comb / comb.sum(dim=1, keepdim=True)
        comb = comb / comb.sum(dim=2, keepdim=True)
    return torch.bmm(pre.unsqueeze(1), streams).squeeze(1), post, comb


def hc_post(streams: Tensor, output: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """The sublayer's output [T, D] back into the streams: post_i * output + sum_j comb_ij stream_j."""
    return torch.baddbmm(post.unsqueeze(2) * output.unsqueeze(1), comb, streams)


def hc_head(streams: Tensor, weights: HyperWeights, eps: float) -> Tensor:
    """The last fold, [T, n, D] -> [T, D]."""
    pre = torch.sigmoid(_mixes(streams, weights, eps))
    return torch.bmm(pre.unsqueeze(1), streams).squeeze(1)


def _mixes(streams: Tensor, weights: HyperWeights, eps: float) -> Tensor:
    flat = rms_norm(streams.flatten(1), None, eps)
    return torch.addmm(weights.base, flat, weights.mix.t())
