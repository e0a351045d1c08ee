"""What the served fallbacks do after their attention kernels: join two caches and apply the sink, one op a launch.

The window and the extra cache are attended separately. Joining their partial results and applying the sink takes
31 elementwise launches, which a profile shows under names that say nothing of attention. Every statement here is one
of them (a `where` two: its scalar is a fill of its own); fusing any would make the baseline better than it was.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dsv4bench.kernels.calls import AttentionCall, PagedRows

# (q, one cache, scale) -> out bf16 [B, H, 512] and plain lse float32 [B, H] over the rows of that cache alone.
Attend = Callable[[Tensor, PagedRows, float], tuple[Tensor, Tensor]]


def decode(call: AttentionCall, attend: Attend) -> tuple[Tensor, Tensor]:
    """The served sequence around `attend`: window, extra, merge, sink -> out, and lse with the sink."""
    out, lse = attend(call.q, call.window, call.scale)
    if call.extra is not None:
        out, lse = merge(out, lse, *attend(call.q, call.extra, call.scale))
    if call.sink is not None:
        out, lse = apply_sink(out, lse, call.sink)
    return out, lse


def merge(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    """Two partial softmaxes over disjoint rows -> that over all of them: (bf16 [B, H, d], float32 [B, H]).

    `lse_*` are natural logarithms, -inf where a side has no row; such a side weighs nothing.
    """
    top = torch.maximum(lse_a, lse_b)
    weight_a = _weight(lse_a, top)
    weight_b = _weight(lse_b, top)
    total = weight_a + weight_b
    total = total.clamp(min=1e-30)  # both sides empty: 0 / 1e-30, and the log below stays finite beside -inf
    part_a = out_a.float()
    part_a = part_a * weight_a.unsqueeze(-1)
    part_b = out_b.float()
    part_b = part_b * weight_b.unsqueeze(-1)
    out = part_a + part_b
    out = out / total.unsqueeze(-1)
    log = torch.log(total)
    lse = top + log
    return out.to(torch.bfloat16), lse


def apply_sink(out: Tensor, lse: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """One logit a head joins the denominator and brings no value -> (bf16 [B, H, d], float32 [B, H] with it)."""
    with_sink = torch.logaddexp(lse, sink)
    weight = _weight(lse, with_sink)
    scaled = out.float()
    scaled = scaled * weight.unsqueeze(-1)
    return scaled.to(torch.bfloat16), with_sink


def _weight(lse: Tensor, top: Tensor) -> Tensor:
    """exp(lse - top), 0 where there are no rows (-inf minus -inf would be NaN)."""
    empty = lse == float("-inf")
    difference = lse - top
    weight = torch.exp(difference)
    return torch.where(empty, 0.0, weight)
