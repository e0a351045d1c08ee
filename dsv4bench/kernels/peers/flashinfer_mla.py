"""FlashInfer's sparse MLA decode for sm_120 over DeepSeek-V4's packed 584-byte cache.

The one public kernel made for the campaign's GPU. It reads pages of 64 rows, quantises the query to E4M3 for the
block-scaled MMA (the registry gives it a wider limit), and returns no log-sum-exp here. Written against the sources
of flashinfer 0.7.2; it was not run, on any GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsv4bench.errors import UsageError
from dsv4bench.kernels.calls import AttentionCall, Lse, PagedRows
from dsv4bench.kernels.peers.libraries import need, take

if TYPE_CHECKING:
    from torch import Tensor

PEER, PACKAGE = "flashinfer_mla", "flashinfer-python 0.7 or newer on sm_120, and a CUDA compiler for its first call"
ROW_BYTES, PAGE = 584, 64
WORKSPACE_BYTES = 256 * 2**20  # 64 tokens x 64 heads x 10 splits x 512 bf16 are 42 MB


class FlashInferMla:
    """An `AttentionRunner` without a log-sum-exp: its second result is None."""

    lse: Lse = "plain"

    def __init__(self, decode: Any) -> None:
        self._decode = decode
        self._workspace: Tensor | None = None
        self._lengths: dict[tuple[int, int], Tensor] = {}

    def __call__(self, call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        """Raises UsageError for pages that are not of 64 rows."""
        import torch

        extra = call.extra
        if self._workspace is None:
            self._workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=call.q.device)
        out = self._decode(
            query=call.q.unsqueeze(1),
            swa_kv_cache=_paged(call.window),
            workspace_buffer=self._workspace,
            sparse_indices=call.window.index,
            swa_topk_lens=self._length(call.window),
            compressed_kv_cache=None if extra is None else _paged(extra),
            extra_sparse_indices=None if extra is None else extra.index,
            extra_sparse_topk_lens=None if extra is None else self._length(extra),
            bmm1_scale=call.scale,
            sinks=call.sink,
            backend="sparse",
        )
        found = out[0] if isinstance(out, tuple) else out
        return found.view(call.q.shape), None

    def _length(self, rows: PagedRows) -> Tensor:
        """Lengths are wanted always; full ones are made once, so that a capture allocates nothing for them."""
        import torch

        if rows.length is not None:
            return rows.length
        shape = (rows.index.shape[0], rows.index.shape[1])
        if shape not in self._lengths:
            self._lengths[shape] = torch.full(shape[:1], shape[1], dtype=torch.int32, device=rows.index.device)
        return self._lengths[shape]


def _paged(rows: PagedRows) -> Tensor:
    """[pages, 1, 64, 584] with the stride of a whole page between pages."""
    if rows.page_size != PAGE:
        raise UsageError(f"{PEER}: pages of {rows.page_size} rows; it reads pages of {PAGE}")
    pages, page_bytes = rows.data.shape
    return rows.data.as_strided((pages, 1, PAGE, ROW_BYTES), (page_bytes, page_bytes, ROW_BYTES, 1))


def runner() -> FlashInferMla:
    """Raises UsageError where FlashInfer is missing or too old for the packed cache."""
    import inspect

    decode = take(need("flashinfer.mla", PEER, PACKAGE), "trtllm_batch_decode_sparse_mla_dsv4", PEER, PACKAGE)
    if "extra_sparse_indices" not in inspect.signature(decode).parameters:
        raise UsageError(f"{PEER}: this flashinfer decodes DeepSeek-V4 on sm_100 only", f"needs {PACKAGE}")
    return FlashInferMla(decode)
