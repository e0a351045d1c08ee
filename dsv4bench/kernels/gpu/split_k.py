"""Sparse MLA decode on tensor cores, split over the rows: both caches and the sink in at most two launches.

The window's entries and the extra cache's stand in one row of positions, which is cut into splits (`split_k_plan`).
A program decodes a tile of rows once for up to 64 heads and leaves a softmax over its split (`split_k_kernel`);
`split_k_combine` joins them. With one split there is no second launch. Nothing waits for the device, the grid follows
from shapes alone, and lengths and indices are read on the device: it can be captured in a CUDA graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from dsv4bench.errors import UsageError
from dsv4bench.kernels.arguments import check_attention, compute_capability
from dsv4bench.kernels.build import Build
from dsv4bench.kernels.calls import AttentionCall, Lse, PagedRows
from dsv4bench.kernels.gpu.split_k_combine import _sparse_decode_combine_kernel
from dsv4bench.kernels.gpu.split_k_kernel import _sparse_decode_split_kernel
from dsv4bench.kernels.gpu.split_k_plan import GRAIN, Plan, plan
from dsv4bench.kernels.mla_cache import page_bytes

NAME = "sparse_decode_split_k"
_LOG2_E = 1.4426950408889634
_H200_SMS = 132  # the interpreter follows an H200's plan


class SplitK:
    """An `AttentionRunner`. `choose` (batch, heads, entries) -> Plan overrides the measured choice."""

    def __init__(self, lse: Lse = "plain", choose: Callable[[int, int, int], Plan] | None = None) -> None:
        self.lse: Lse = lse
        self._choose = choose

    def __call__(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        """-> (out bf16 [B, H, 512], lse float32 [B, H]). Raises UsageError for arguments it does not take."""
        check_attention(call, kernel=NAME, min_sm=89)
        for name, rows in (("window", call.window), ("extra", call.extra)):
            if rows is not None and rows.data.data_ptr() % 16:
                raise UsageError(f"kernel {NAME}: {name}.data is not aligned; supported: an address divisible by 16")
        batch, heads, _ = call.q.shape
        entries = call.window.index.shape[1] + (0 if call.extra is None else call.extra.index.shape[1])
        sms, sm = _gpu(call.q.device)
        cut = self._choose(batch, heads, entries) if self._choose else plan(batch, heads, entries, sms, sm)
        out = torch.empty_like(call.q)
        lse = torch.empty(batch, heads, dtype=torch.float32, device=call.q.device)
        if cut.splits == 1:
            self._split(call, cut, out, lse, overlap=False)
            return out, lse
        part = torch.empty(batch, cut.splits, heads, 512, dtype=torch.float32, device=call.q.device)
        part_lse = torch.empty(batch, cut.splits, heads, dtype=torch.float32, device=call.q.device)
        overlap = sm >= 90 and call.q.is_cuda
        self._split(call, cut, part, part_lse, overlap)
        self._combine(call, cut, part, part_lse, out, lse, overlap)
        return out, lse

    def _split(self, call: AttentionCall, cut: Plan, out: Tensor, lse: Tensor, overlap: bool) -> None:
        batch, heads, _ = call.q.shape
        window, extra = call.window, call.extra or call.window
        grid = (cut.splits, triton.cdiv(heads, cut.heads) * cut.halves, batch)
        _sparse_decode_split_kernel[grid](
            call.q,
            window.data,
            window.index,
            _length(window),
            extra.data,
            extra.index,
            _length(extra),
            lse if call.sink is None else call.sink,
            out,
            lse,
            call.scale * _LOG2_E,
            window.index.shape[1],
            extra.index.shape[1],
            heads,
            cut.splits,
            1,
            SPLIT=cut.splits > 1,
            W_PAGE=window.page_size,
            W_BYTES=page_bytes(window.page_size),
            E_PAGE=extra.page_size,
            E_BYTES=page_bytes(extra.page_size),
            HEADS=cut.heads,
            ROWS=cut.rows,
            HALVES=cut.halves,
            AHEAD=cut.ahead,
            WGMMA=cut.wgmma,
            OVERLAP=overlap,
            num_warps=cut.warps,
            num_stages=1,
            **self._features(call),
        )

    def _combine(
        self, call: AttentionCall, cut: Plan, part: Tensor, part_lse: Tensor, out: Tensor, lse: Tensor, overlap: bool
    ) -> None:
        batch, heads, _ = call.q.shape
        window, extra = call.window, call.extra or call.window
        _sparse_decode_combine_kernel[(heads, batch)](
            part,
            part_lse,
            _length(window),
            _length(extra),
            lse if call.sink is None else call.sink,
            out,
            lse,
            window.index.shape[1],
            extra.index.shape[1],
            heads,
            cut.splits,
            BLOCK_S=triton.next_power_of_2(cut.splits),
            OVERLAP=overlap,
            num_warps=cut.combine_warps,
            **self._features(call),
            **({"launch_pdl": True} if overlap else {}),  # it waits for the split kernel's results by itself
        )

    def _features(self, call: AttentionCall) -> dict[str, Any]:
        """The constants that both kernels share."""
        return {
            "EXTRA": call.extra is not None,
            "HAS_W": call.window.length is not None,
            "HAS_E": call.extra is not None and call.extra.length is not None,
            "SINK": call.sink is not None,
            "LSE_SINK": call.sink is not None and self.lse == "with_sink",
            "GRAIN": GRAIN,
        }


def _length(rows: PagedRows) -> Tensor:
    """A pointer that is not read where there are no lengths."""
    return rows.index if rows.length is None else rows.length


@functools.cache
def _gpu(device: torch.device) -> tuple[int, int]:
    """(SMs, 90 for sm_90)."""
    if device.type != "cuda":
        return _H200_SMS, 90
    return torch.cuda.get_device_properties(device).multi_processor_count, compute_capability(device)


def runner(lse: Lse = "plain") -> SplitK:
    """The implementation, ready to call. `lse`: whether the second result includes the sink."""
    return SplitK(lse)


_TYPES = {
    "q": "*bf16",
    "window": "*u8",
    "window_index": "*i32",
    "window_length": "*i32",
    "extra": "*u8",
    "extra_index": "*i32",
    "extra_length": "*i32",
    "sink": "*fp32",
    "lse": "*fp32",
    "scale2": "fp32",
    "W": "i32",
    "E": "i32",
    "H": "i32",
    "splits": "i32",
    "one": "i32",
}
_COMBINE_TYPES = {
    "part": "*fp32",
    "part_lse": "*fp32",
    "window_length": "*i32",
    "extra_length": "*i32",
    "sink": "*fp32",
    "out": "*bf16",
    "lse": "*fp32",
    "W": "i32",
    "E": "i32",
    "H": "i32",
    "splits": "i32",
}
_FEATURES = {"EXTRA": True, "HAS_W": True, "HAS_E": True, "SINK": True, "LSE_SINK": False, "GRAIN": GRAIN}
_PAGES = {"W_PAGE": 64, "W_BYTES": page_bytes(64), "E_PAGE": 64, "E_BYTES": page_bytes(64)}


def _build(cut: Plan, archs: tuple[str, ...]) -> Build:
    out = "*fp32" if cut.splits > 1 else "*bf16"
    signature = {**dict(list(_TYPES.items())[:8]), "out": out, **dict(list(_TYPES.items())[8:])}
    name = f"H{cut.heads} R{cut.rows}" + (" halves" if cut.halves == 2 else "") + (" ahead" if cut.ahead else "")
    return Build(
        function=_sparse_decode_split_kernel,
        signature=signature,
        constants={
            **_FEATURES,
            **_PAGES,
            "SPLIT": cut.splits > 1,
            "HEADS": cut.heads,
            "ROWS": cut.rows,
            "HALVES": cut.halves,
            "AHEAD": cut.ahead,
            "WGMMA": cut.wgmma,
            "OVERLAP": cut.wgmma and cut.splits > 1,
        },
        num_warps=cut.warps,
        num_stages=1,
        label=name + (" split" if cut.splits > 1 else " whole"),
        archs=archs,
        divisible_by_16=tuple(name for name, kind in signature.items() if kind.startswith("*")),
    )


def builds() -> tuple[Build, ...]:
    """Every cut that `plan` makes of 64 heads, and the combining kernel."""
    hopper = (plan(batch, 64, 640, _H200_SMS) for batch in (1, 4, 8, 64, 132))
    others = (plan(batch, 64, 640, 188, sm=120) for batch in (1, 128))
    combine = Build(
        function=_sparse_decode_combine_kernel,
        signature=_COMBINE_TYPES,
        constants={**_FEATURES, "BLOCK_S": 32, "OVERLAP": False},
        num_warps=4,
        label="combine of 32",
        divisible_by_16=tuple(name for name, kind in _COMBINE_TYPES.items() if kind.startswith("*")),
    )
    return (
        *(_build(cut, ("sm_90",)) for cut in hopper),
        *(_build(cut, ("sm_89", "sm_100", "sm_103", "sm_120", "sm_121")) for cut in others),
        combine,
    )
