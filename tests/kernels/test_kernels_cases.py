"""The generated calls have the features that their labels claim, and each feature decides the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dsv4bench.kernels import mla_cache, reference
from dsv4bench.kernels.calls import AttentionCall, MoeCall, PagedRows
from dsv4bench.kernels.cases import (
    BATCHES,
    PARITY,
    SMALL,
    AttentionShape,
    MoeShape,
    bench_attention,
    bench_moe,
    dense_extra,
    make_attention,
    make_experts,
    make_moe,
    make_pools,
)
from dsv4bench.kernels.generate import GUARD_ROWS
from dsv4bench.kernels.mxfp4 import dequantize

lists = pytest.mark.parametrize("cases", [SMALL, PARITY], ids=["small", "parity"])
SMALL_MOE = [c for c in SMALL if isinstance(c, MoeShape)]
SMALL_ATTENTION = [c for c in SMALL if isinstance(c, AttentionShape)]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _labelled(part: str) -> list[Any]:
    return [c for c in SMALL if part in c.label]


@lists
def test_labels_are_unique_and_name_every_size(cases: Any) -> None:
    labels = [c.label for c in cases]
    assert len(set(labels)) == len(labels)
    for case in cases:
        assert case.label.startswith(case.shape)
        batch = f"M{case.tokens}" if isinstance(case, MoeShape) else f"B{case.batch}"
        assert batch in case.label.split(",")[0].split()


@lists
@pytest.mark.parametrize(
    "feature",
    [
        "experts some -1",
        "experts a token of -1",
        "experts all -1",
        "experts skewed",
        "clamped",
        "-1 in some",
        "-1 in a request",
        "lengths absent",
        "lengths mixed",
        "lengths short",
        "lengths one empty",
        "lengths window empty",
        "lengths extra empty",
        "lengths all empty",
        "outside beyond",
        "anything beyond",
        "rope bytes NaN as E4M3",
        "padding byte 255",
        "scale bytes 0 and 254",
        "scale byte 0 that counts",
        "scale byte 254 that counts",
    ],
)
def test_both_lists_hold_every_feature(cases: Any, feature: str) -> None:
    assert any(feature in c.label for c in cases)


@lists
def test_both_lists_hold_every_size_that_matters(cases: Any) -> None:
    moe = [c for c in cases if isinstance(c, MoeShape)]
    attention = [c for c in cases if isinstance(c, AttentionShape)]
    assert {c.heads for c in attention} >= {8, 16, 64}
    assert {c.page_size for c in attention} >= {2, 64, 256}
    assert {c.window_pages_of for c in attention} >= {2, 64, 256}
    assert {c.sink for c in attention} == {True, False}
    assert 0 in {c.extra for c in attention}
    assert any(c.extra % 64 and c.window % 64 for c in attention)
    skewed = [c.tokens for c in moe if c.routing == "skewed"]
    assert any(16 < n <= 32 for n in skewed)
    assert any(n > 64 for n in skewed)
    assert "anything beyond" in cases[-1].label, "a faulty kernel may take the process with it"


def test_the_parity_list_has_the_sizes_of_the_model() -> None:
    moe = {(c.tokens, c.experts, c.top_k, c.hidden, c.inner) for c in PARITY if isinstance(c, MoeShape)}
    assert moe >= {(m, 256, 6, 4096, inner) for m in (1, 4, 16, 64) for inner in (2048, 512, 256)}
    attention = {(c.heads, c.window, c.extra) for c in PARITY if isinstance(c, AttentionShape)}
    assert attention >= {(h, 128, extra) for h in (8, 16, 64) for extra in (0, 512, dense_extra(8192))}
    assert dense_extra(8192) == 64
    assert dense_extra(8193) == 65


def test_bench_shapes_and_their_names() -> None:
    assert BATCHES == (1, 2, 4, 8, 16, 32, 64)
    assert bench_moe(16).shape == "E256 top6 D4096 I2048"
    assert bench_moe(16, inner=512).label == "E256 top6 D4096 I512 M16"
    assert bench_attention(4).shape == "H64 window128 extra512 page64 sink"
    assert bench_attention(4, heads=8, extra=0, sink=False).label == "H8 window128 extra0 page64 B4"
    assert replace(bench_attention(1), window_page_size=256).shape == "H64 window128 extra512 page256+64 sink"


@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.label)
def test_a_seed_makes_the_same_call_again_and_another_seed_another(case: Any) -> None:
    def tensors(seed: int) -> list[Tensor]:
        if isinstance(case, MoeShape):
            call = make_moe(case, seed)
            return [call.x, call.ids, call.weights, call.experts.w13, call.experts.s13, call.experts.w2]
        attention = make_attention(case, seed)
        return [attention.q, attention.window.data, attention.window.index]

    first, again, other = tensors(3), tensors(3), tensors(4)
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[-1], other[-1])
    assert first[0].isfinite().all()


def test_given_experts_and_pools_are_used() -> None:
    experts = make_experts(SMALL_MOE[0], 0)
    assert make_moe(SMALL_MOE[0], 9, experts=experts).experts is experts
    pools = make_pools(SMALL_ATTENTION[0], 0, tokens=700)
    call = make_attention(SMALL_ATTENTION[0], 9, pools=pools)
    assert call.window.data is pools.window
    assert call.extra is not None
    assert call.extra.data is pools.extra
    assert len(pools.window) == 11, "700 rows in pages of 64"


# MoE


@pytest.mark.parametrize("case", SMALL_MOE, ids=lambda c: c.label)
def test_routing(case: MoeShape) -> None:
    call = make_moe(case, 1)
    none = call.ids < 0
    assert set(call.ids[none].tolist()) <= {-1}
    assert call.ids.max() < case.experts
    for row in call.ids.tolist():
        chosen = [e for e in row if e >= 0]
        assert len(set(chosen)) == len(chosen)
    assert call.weights.sum(1).allclose(torch.ones(case.tokens))
    assert {
        "uniform": not none.any(),
        "skewed": not none.any() and bool((call.ids == call.ids[0]).all()),
        "some -1": 0 < int(none.sum()) < none.numel(),
        "a token of -1": bool(none[0].all()) and not none[1:].any(),
        "all -1": bool(none.all()),
    }[case.routing]


def _hidden(call: MoeCall) -> tuple[Tensor, Tensor]:
    """Gates and ups of each token's first expert."""
    e = call.experts
    rows = [
        dequantize(e.w13[i], e.s13[i], torch.float64) @ x.double()
        for i, x in zip(call.ids[:, 0].tolist(), call.x, strict=True)
    ]
    gate, up = torch.stack(rows).chunk(2, 1)
    return gate, up


def test_clamps_are_hit_on_both_sides_and_ordinary_ones_are_not() -> None:
    (clamped,) = [c for c in SMALL_MOE if c.clamp]
    gate, up = _hidden(make_moe(clamped, 0))
    for over in (gate > 10, gate < -10, up > 10, up < -10):
        assert over.double().mean() > 0.1
    gate, up = _hidden(make_moe(replace(clamped, clamp=False), 0))
    assert gate.abs().max() < 10
    assert 1 < gate.std() < 3, "silu is neither linear nor shut"


def _without(call: MoeCall, block: int) -> MoeCall:
    x = call.x.clone()
    x[:, block * 32 : (block + 1) * 32] = 0
    return replace(call, x=x)


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / a.norm())


def test_moe_blocks_of_extreme_scale() -> None:
    cases = {c.scales: make_moe(c, 0) for c in SMALL_MOE if c.scales != "ordinary"}
    assert set(cases) == {"extreme", "0 that counts", "254 that counts"}
    for name, call in cases.items():
        truth = reference.moe(call)
        assert truth.isfinite().all()
        if name == "extreme":
            for scales in (call.experts.s13, call.experts.s2):
                assert (scales == 0).any()
                assert (scales == 254).any()
            assert _distance(truth, reference.moe(_without(_without(call, 0), 1))) < 1e-6
        else:
            assert (call.experts.s13 == int(name.split()[0])).any()
            assert _distance(truth, reference.moe(_without(call, 0))) > 0.3
            wide = dequantize(call.experts.w13, call.experts.s13)
            assert wide.isfinite().all(), "and none of it overflows float32, or bf16"
            assert wide.bfloat16().isfinite().all()


# attention


def _caches(call: AttentionCall) -> list[PagedRows]:
    return [call.window] if call.extra is None else [call.window, call.extra]


@pytest.mark.parametrize("case", SMALL_ATTENTION, ids=lambda c: c.label)
def test_every_attended_row_is_within_the_cache_and_finite(case: AttentionShape) -> None:
    call = make_attention(case, 2)
    for rows in _caches(call):
        capacity = len(rows.data) * rows.page_size
        for request in range(case.batch):
            index = reference.valid_index(rows, request)
            assert len(set(index.tolist())) == len(index)
            assert (index < capacity).all()
            assert mla_cache.gather(rows.data, rows.page_size, index).isfinite().all()
    out, _ = reference.sparse_decode(call)
    assert out.isfinite().all()
    assert out.any() or case.lengths == "all empty"


@pytest.mark.parametrize("case", SMALL_ATTENTION, ids=lambda c: c.label)
def test_around_each_cache_lies_nan(case: AttentionShape) -> None:
    for rows in _caches(make_attention(case, 0)):
        stride, size = rows.data.shape[1], rows.page_size
        memory = rows.data.as_strided((rows.data.untyped_storage().nbytes(),), (1,), 0).view(-1, stride)
        first = rows.data.storage_offset() // stride
        before, behind = memory[:first], memory[first + len(rows.data) :]
        for guard in (before, behind):
            assert len(guard) * size >= GUARD_ROWS
            every = torch.arange(len(guard) * size)
            assert mla_cache.gather(guard, size, every).isnan().all()
        assert rows.data.is_contiguous()


def test_lengths_and_what_lies_beyond() -> None:
    for case in _labelled("beyond"):
        for rows in _caches(make_attention(case, 0)):
            assert rows.length is not None
            beyond = torch.arange(rows.index.shape[1]) >= rows.length[:, None]
            junk, capacity = rows.index[beyond], len(rows.data) * rows.page_size
            if case.beyond == "outside":
                assert ((junk >= capacity) & (junk < capacity + GUARD_ROWS)).all()
            else:
                assert junk.max() > 1 << 28
                assert junk.min() < -(1 << 28)
    for case in _labelled("lengths"):
        window, extra = _caches(make_attention(case, 0))
        if case.lengths == "absent":
            assert window.length is extra.length is None
            continue
        assert window.length is not None
        assert extra.length is not None
        both = torch.stack((window.length, extra.length), 1)
        full = torch.tensor([case.window, case.extra])
        assert {
            "short": bool((both >= 1).all() and (both * 8 <= full).all()),
            "mixed": bool((both <= full).all() and (both != full).any() and (both > 0).any()),
            "one empty": bool((both[0] == 0).all() and (both[1:] > 0).all()),
            "window empty": both.tolist() == [[0, case.extra]] * case.batch,
            "extra empty": both.tolist() == [[case.window, 0]] * case.batch,
            "all empty": not both.any(),
        }[case.lengths]


def test_negative_indices_stand_first_between_and_last_and_are_not_only_minus_one() -> None:
    for case in _labelled("-1 in"):
        for rows in _caches(make_attention(case, 0)):
            hole = rows.index < 0
            if case.holes == "a request":
                assert hole[0].all()
                assert not hole[1:].any()
            else:
                assert hole[:, 0].all()
                assert hole[:, -1].all()
                last_row = (~hole).int() * torch.arange(rows.index.shape[1])
                assert all(hole[r, 1 : int(last_row[r].max())].any() for r in range(case.batch)), "between rows"
                assert rows.index.min() < -1
                assert rows.index.min() >= -GUARD_ROWS


def _data_and_scales(rows: PagedRows) -> tuple[Tensor, Tensor]:
    data, scales = mla_cache.views(rows.data, rows.page_size)
    return data.flatten(0, 1), scales.flatten(0, 1)


def test_rope_bytes_that_are_nan_as_e4m3() -> None:
    (case,) = _labelled("rope bytes NaN")
    data, _ = _data_and_scales(make_attention(case, 0).window)
    rope = data[:, mla_cache.NOPE :].contiguous()
    assert rope.view(torch.float8_e4m3fn).float()[:, 0::2].isnan().all()
    assert rope.view(torch.bfloat16).float().isfinite().all()


def test_padding_bytes() -> None:
    (case,) = _labelled("padding byte 255")
    assert (_data_and_scales(make_attention(case, 0).window)[1][:, 7] == 255).all()
    _, scales = _data_and_scales(make_attention(replace(case, nan_padding=False), 0).window)
    assert len(torch.unique(scales[:, 7])) > 10
    assert len(torch.unique(scales[:, :7])) >= 3, "blocks of one row differ in their scales"


def test_attention_blocks_of_extreme_scale() -> None:
    cases = {c.scales: make_attention(c, 0) for c in SMALL_ATTENTION if c.scales != "ordinary"}
    assert set(cases) == {"extreme", "0 that counts", "254 that counts"}
    for name, call in cases.items():
        out, lse = reference.sparse_decode(call)
        for rows in _caches(call):
            data, scales = _data_and_scales(rows)
            assert mla_cache.dequantize(data, scales).bfloat16().isfinite().all()
            changed = rows.data.clone()
            _, footer = mla_cache.views(changed, rows.page_size)
            if name != "254 that counts":
                assert (scales[:, :7] == 0).any()
                footer[footer == 0] = 60  # another factor, still far below 1
            if name != "0 that counts":
                assert (scales[:, :7] == 254).any()
                footer[..., :7][footer[..., :7] == 254] = 0
            call = replace(call, **{"window" if rows is call.window else "extra": replace(rows, data=changed)})
        other, other_lse = reference.sparse_decode(call)
        if name == "extreme":
            assert _distance(out, other) < 1e-6
        else:
            assert _distance(out, other) > 0.3
            assert (lse - other_lse).abs().max() > 0.1


def test_the_sink_takes_a_share_that_shows() -> None:
    for case in SMALL_ATTENTION:
        if case.sink and case.lengths == "full" and case.holes == "none":
            call = make_attention(case, 0)
            _, lse = reference.sparse_decode(call)
            share = 1 - (lse - reference.with_sink(lse, call.sink)).exp()
            assert share.min() > 1e-3
            assert 0.1 < share.mean() < 0.9
