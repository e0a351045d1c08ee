"""How the split-K decode is cut, from static sizes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from dsv4bench.errors import UsageError
from dsv4bench.kernels.calls import AttentionCall, PagedRows
from dsv4bench.kernels.gpu import split_k
from dsv4bench.kernels.gpu.split_k_plan import MOST_SPLITS, Plan, plan
from dsv4bench.kernels.mla_cache import page_bytes


@pytest.mark.parametrize(
    ("batch", "splits", "rows", "halves"),
    [(1, 20, 32, 2), (2, 20, 32, 2), (4, 10, 64, 2), (8, 10, 64, 1), (16, 5, 64, 1), (32, 4, 64, 1), (64, 2, 64, 1)],
)
def test_the_measured_cuts_of_an_h200(batch: int, splits: int, rows: int, halves: int) -> None:
    cut = plan(batch, 64, 640, 132)
    assert (cut.splits, cut.rows, cut.halves, cut.heads) == (splits, rows, halves, 64)


def test_no_cut_has_more_programs_than_a_wave_unless_the_batch_alone_has() -> None:
    for sm, sms in ((90, 132), (90, 78), (120, 188), (89, 142)):
        for batch in (*range(1, 140), 512):
            for heads in (1, 8, 16, 64, 128):
                for entries in (1, 2, 128, 177, 640, 2176, 8320):
                    cut = plan(batch, heads, entries, sms, sm)
                    tiles = -(-heads // cut.heads) * cut.halves * batch
                    assert 1 <= cut.splits <= min(MOST_SPLITS, -(-entries // cut.rows))
                    assert cut.splits == 1 or cut.splits * tiles <= sms


def test_a_batch_that_fills_the_gpu_is_not_split() -> None:
    assert plan(132, 64, 640, 132) == Plan(splits=1, heads=64, rows=64, halves=1, ahead=True)


def _call(change: Callable[[dict[str, Any]], None]) -> AttentionCall:
    data = torch.zeros(4, page_bytes(64), dtype=torch.uint8)
    index = torch.zeros(2, 8, dtype=torch.int32)
    parts: dict[str, Any] = {"q": torch.zeros(2, 4, 512, dtype=torch.bfloat16), "data": data, "index": index}
    change(parts)
    return AttentionCall(parts["q"], PagedRows(parts["data"], 64, parts["index"], None), None, None, 1.0)


def test_an_unaligned_cache_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def shift(parts: dict[str, Any]) -> None:
        data = parts["data"]
        parts["data"] = torch.zeros(data.numel() + 16, dtype=torch.uint8)[8 : 8 + data.numel()].view(data.shape)

    monkeypatch.setattr(split_k, "check_attention", lambda *_, **__: None)
    with pytest.raises(UsageError, match=r"window\.data is not aligned"):
        split_k.runner()(_call(shift))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(UsageError, match="q is float32"):
        split_k.runner()(_call(lambda parts: parts.update(q=parts["q"].float())))


def test_both_conventions_are_offered() -> None:
    assert split_k.runner().lse == "plain" and split_k.runner("with_sink").lse == "with_sink"
