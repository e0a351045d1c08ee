"""FlashMLA's sparse decode over DeepSeek-V4's fp8 cache: vLLM's build, else the package `flash_mla`.

Hand-scheduled CUDA for Hopper and data-centre Blackwell, with a planner kernel whose result is kept for calls of one
shape, as servers do over the layers of a step; `keep_plan=False` plans anew in every call. Written against vLLM
0.25.1 and sgl-flash-mla 1.0.0. `FlashMla` was run on an H200 over vLLM 0.25.1's interface with its libraries loaded
by hand; the import of either whole package was not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsv4bench.errors import UsageError
from dsv4bench.kernels.calls import AttentionCall, Lse, PagedRows
from dsv4bench.kernels.peers.libraries import need, take

if TYPE_CHECKING:
    from torch import Tensor

PEER, PACKAGE = "flash_mla", "vllm 0.25 or newer, or sgl-flash-mla"
ROW_BYTES, WIDTH = 584, 512
HEADS = (64, 128)
Shape = tuple[int, ...]


class FlashMla:
    """An `AttentionRunner` over a module that has FlashMLA's Python interface."""

    lse: Lse = "plain"

    def __init__(self, interface: Any, keep_plan: bool = True) -> None:
        self._interface, self._keep_plan = interface, keep_plan
        self._plans: dict[Shape, Any] = {}

    def __call__(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        """Raises UsageError for a number of heads that FlashMLA does not compute."""
        if call.q.shape[1] not in HEADS:
            raise UsageError(f"{PEER}: {call.q.shape[1]} heads; it computes {HEADS[0]} or {HEADS[1]}")
        window, extra = call.window, call.extra
        out, lse = self._interface.flash_mla_with_kvcache(
            q=call.q.unsqueeze(1),
            k_cache=paged(window),
            block_table=None,
            cache_seqlens=None,
            head_dim_v=WIDTH,
            tile_scheduler_metadata=self._plan(call),
            softmax_scale=call.scale,
            is_fp8_kvcache=True,
            indices=window.index.unsqueeze(1),
            attn_sink=call.sink,
            extra_k_cache=None if extra is None else paged(extra),
            extra_indices_in_kvcache=None if extra is None else extra.index.unsqueeze(1),
            topk_length=window.length,
            extra_topk_length=None if extra is None else extra.length,
        )
        return out.squeeze(1), lse.squeeze(-1)

    def _plan(self, call: AttentionCall) -> Any:
        """A kept plan holds for equal shapes and equal lengths; calls that give lengths are planned each time."""
        caches = [call.window] if call.extra is None else [call.window, call.extra]
        if not self._keep_plan or any(rows.length is not None for rows in caches):
            return self._interface.get_mla_metadata()[0]
        shape = (*call.q.shape, *(n for rows in caches for n in (rows.page_size, rows.index.shape[1])))
        if shape not in self._plans:
            self._plans[shape] = self._interface.get_mla_metadata()[0]
        return self._plans[shape]


def paged(rows: PagedRows) -> Tensor:
    """The cache as FlashMLA sees it: [pages, page_size, 1, 584] with the stride of a whole page between pages."""
    pages, page_bytes = rows.data.shape
    return rows.data.as_strided((pages, rows.page_size, 1, ROW_BYTES), (page_bytes, ROW_BYTES, ROW_BYTES, 1))


def interface() -> Any:
    """vLLM's module, else flash_mla. Raises UsageError saying why neither is there."""
    try:
        need("vllm._flashmla_C", PEER, PACKAGE)
        found = need("vllm.third_party.flashmla.flash_mla_interface", PEER, PACKAGE)
    except UsageError as vllms:
        try:
            found = need("flash_mla", PEER, PACKAGE)
        except UsageError as own:
            raise UsageError(f"{vllms.message}; {own.message.removeprefix(f'{PEER}: ')}", own.hint) from own
    for name in ("flash_mla_with_kvcache", "get_mla_metadata"):
        take(found, name, PEER, PACKAGE)
    return found


def runner() -> FlashMla:
    """Raises UsageError naming what is missing."""
    return FlashMla(interface())
