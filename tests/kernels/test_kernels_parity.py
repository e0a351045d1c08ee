"""The gate: right kernels pass every case, and each fault turns red the case that is there for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from faulty_kernels import ATTENTION_FAULTS, MOE_FAULTS, Attention, Made, made
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from dsv4bench.errors import UsageError
from dsv4bench.kernels.cases import SMALL, AttentionShape, MoeShape
from dsv4bench.kernels.parity import compare, green, run_case, run_list
from dsv4bench.kernels.poison import _holes, poison, poisoned, unwritten
from dsv4bench.records.kernels import ParityRow

MOE = tuple(c for c in SMALL if isinstance(c, MoeShape))
ATTENTION = tuple(c for c in SMALL if isinstance(c, AttentionShape))
TINY = MoeShape(tokens=2, experts=4, top_k=2, hidden=64, inner=64)
SHORT = AttentionShape(batch=2, heads=2, window=6, extra=0)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """The tensors are small, and threads that wait for each other on a busy machine are slow."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _red(rows: list[ParityRow]) -> list[str]:
    return [row.case for row in rows if row.outcome != "pass"]


def test_right_kernels_pass_every_small_case_with_room_to_spare() -> None:
    rows = run_list([made("moe"), made("attention")], SMALL)
    assert _red(rows) == []
    assert len(rows) == len(SMALL)
    assert max(row.rel_fro for row in rows if row.rel_fro is not None) < 4e-3
    assert max(row.worst for row in rows if row.worst is not None) < 0.5
    assert max(row.lse_worst for row in rows if row.lse_worst is not None) < 0.01
    assert green(rows) == ["right"]


@pytest.mark.parametrize("seed", [7, 8])
def test_right_kernels_pass_with_other_numbers(seed: int) -> None:
    assert _red(run_list([made("moe"), made("attention")], SMALL, seed=seed)) == []


@pytest.mark.parametrize("fault", MOE_FAULTS)
def test_each_moe_fault_is_red_in_its_case(fault: str) -> None:
    rows = run_list([made("moe", fault)], [c for c in MOE if MOE_FAULTS[fault] in c.label])
    assert _red(rows)
    assert green(rows) == []


@pytest.mark.parametrize("fault", ATTENTION_FAULTS)
def test_each_attention_fault_is_red_in_its_case(fault: str) -> None:
    rows = run_list([made("attention", fault)], [c for c in ATTENTION if ATTENTION_FAULTS[fault] in c.label])
    assert _red(rows)
    assert green(rows) == []


@pytest.mark.parametrize(
    ("component", "fault", "only"),
    [
        ("moe", "no bound on the gate", "clamped"),
        ("moe", "2**-127 is 0", "0 that counts"),
        ("moe", "64 tokens an expert", "M68"),
        ("attention", "2**127 is infinite", "254"),
        ("attention", "window pages as the others", "page256+2"),
    ],
)
def test_some_faults_only_show_in_the_case_that_is_there_for_them(component: Any, fault: str, only: str) -> None:
    red = _red(run_list([made(component, fault)], SMALL))
    assert red
    assert all(only in label for label in red)


@pytest.mark.parametrize(
    ("component", "fault", "why"),
    [
        ("moe", "last token not written", "64 of 128 elements of out were never written"),
        ("moe", "NaN in one element", "1 of 128 elements of out are NaN"),
        ("moe", "infinite", "1 of 128 elements of out are infinite"),
        ("moe", "zeros", "relative Frobenius error 1.00e+00, limit 1.00e-02"),
        ("moe", "float32", "out is float32 [2, 64], not bfloat16 [2, 64]"),
        ("moe", "another shape", "out is bfloat16 [1, 64], not bfloat16 [2, 64]"),
        ("moe", "left from the first call", "with fresh inputs: relative Frobenius error"),
        ("moe", "changes x", "it changed its argument x"),
        ("moe", "changes a scale", "it changed its argument experts.s2"),
        ("moe", "raises", "RuntimeError: out of resources"),
        ("attention", "changes q", "it changed its argument q"),
        ("attention", "no lse", "no lse was returned"),
        ("attention", "lse in bits", "lse is off by"),
    ],
)
def test_a_red_row_says_why(component: Any, fault: str, why: str) -> None:
    row = run_case(made(component, fault), made(component, fault).load(), TINY if component == "moe" else SHORT)
    assert row.outcome == "fail"
    assert row.why is not None
    assert row.why.startswith(why)
    assert "\n" not in row.why


def test_both_conventions_of_the_lse_are_held_to_their_own_truth() -> None:
    for convention in ("plain", "with_sink"):
        runner = Attention(lse=convention)
        assert _red(run_list([Made("k", "attention", runner)], ATTENTION)) == []
        runner.lse, other = "plain" if convention == "with_sink" else "with_sink", runner.lse

        class Mislabelled:
            lse = runner.lse

            def __call__(self, call: Any, told: str = other) -> Any:
                return Attention(lse=told)(call)

        rows = run_list([Made("k", "attention", Mislabelled())], [SHORT])
        assert _red(rows) == [SHORT.label]


# compare


def _pair(rows: int = 4) -> tuple[Tensor, Tensor]:
    truth = torch.randn(rows, 256, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return truth.bfloat16(), truth


def test_rounding_to_bf16_passes_and_its_error_is_what_it_is() -> None:
    out, truth = _pair()
    found = compare(out, None, truth)
    assert found.why is None
    assert found.rel_fro == pytest.approx(float((out.double() - truth).norm() / truth.norm()))
    assert found.lse_worst is None


def test_a_small_row_among_large_ones_is_held_to_its_own_size() -> None:
    _, truth = _pair()
    truth[1] *= 1e-4
    out = truth.bfloat16()
    assert compare(out, None, truth).why is None
    out[1] = 0
    found = compare(out, None, truth)
    assert found.rel_fro is not None
    assert found.rel_fro < 1e-2, "which is why the Frobenius error alone does not do"
    assert found.why is not None
    assert found.why.startswith("element [1, ")


def test_where_the_reference_is_zero_only_zero_passes() -> None:
    truth = torch.zeros(2, 8, dtype=torch.float64)
    out = torch.zeros(2, 8, dtype=torch.bfloat16)
    assert compare(out, None, truth) == compare(-out, None, truth)
    assert compare(out, None, truth).why is None
    out[1, 3] = 1e-30
    assert compare(out, None, truth).why == "1 elements are not 0 where the reference is"


def test_the_limit_is_the_kernels_own_and_the_element_bound_follows_it() -> None:
    noise = torch.randn(4, 256, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    _, truth = _pair()
    out = (truth + 0.05 * noise).bfloat16()
    assert compare(out, None, truth).why is not None
    found = compare(out, None, truth, rel_fro_limit=0.1)
    assert found.why is None
    assert found.worst is not None
    assert found.worst < 1
    row = run_case(made("moe", "one token off by 3 %", rel_fro_limit=0.1), made("moe").load(), TINY)
    assert row.rel_fro_limit == 0.1


@pytest.mark.parametrize(
    ("lse", "why"),
    [
        ([1.0, -math.inf], None),
        ([1.004, -math.inf], None),
        ([1.006, -math.inf], "lse is off by 6.00e-03"),
        ([1.0, -1e30], "lse of 1 heads is finite, the reference -inf"),
        ([-math.inf, -math.inf], "1 of 2 elements of lse are infinite"),
        ([1.0, math.nan], "1 of 2 elements of lse are NaN"),
    ],
)
def test_lse(lse: list[float], why: str | None) -> None:
    out, truth = torch.ones(1, 2, 4).bfloat16(), torch.ones(1, 2, 4).double()
    found = compare(out, torch.tensor([lse]), truth, torch.tensor([[1.0, -math.inf]], dtype=torch.float64))
    assert found.why == why


# poison


def _alike(size: Any, dtype: torch.dtype) -> list[Tensor]:
    some = torch.zeros(size, dtype=dtype)
    return [
        torch.empty(size, dtype=dtype),
        torch.empty_like(some),
        some.new_empty(size),
        torch.empty_strided(size, some.stride(), dtype=dtype),
        torch.empty_like(some.transpose(0, 1)),
        torch.empty_permuted(size, (1, 0), dtype=dtype),
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_what_python_allocates_holds_nan_until_it_is_written(dtype: torch.dtype) -> None:
    with poisoned("cpu"):
        tensors = _alike((3, 5), dtype)
        assert all(t.isnan().all() for t in tensors)
        written = torch.zeros(3, 5, dtype=dtype)
    assert not written.any()
    if dtype != torch.float64:
        assert [unwritten(t) for t in tensors] == [15] * 6
        assert unwritten(torch.full((4,), math.nan, dtype=dtype)) == 0, "a computed NaN is another one"


def test_the_poison_of_other_types() -> None:
    with poisoned("cpu"):
        assert torch.empty(3, dtype=torch.float8_e4m3fn).float().isnan().all()
        assert torch.empty(3, dtype=torch.float8_e8m0fnu).float().isnan().all()
        assert torch.empty(3, dtype=torch.int32).min() > 1 << 30
        assert torch.empty(0, 4).shape == (0, 4)
        assert torch.empty(2, dtype=torch.bool).all()
    sparse = poison(torch.zeros(4, 6)[:, ::2])
    assert sparse.isnan().all()


def _segment(kind: str, *blocks: tuple[str, int], **more: Any) -> dict[str, Any]:
    listed = [{"state": state, "size": size} for state, size in blocks]
    return {"device": 0, "segment_type": kind, "segment_pool_id": (0, 0), "blocks": listed, **more}


def test_the_holes_of_the_allocator_are_filled_in_sizes_that_it_serves_from_them() -> None:
    mib = 1 << 20
    segments = [
        _segment("small", ("active_allocated", 512), ("inactive", 1024), ("inactive", mib + 512)),
        _segment("large", ("inactive", 19 * mib), ("active_pending_free", mib)),
        _segment("large", ("inactive", 7 * mib), device=1),
        _segment("large", ("inactive", 7 * mib), segment_pool_id=(0, 1)),  # of a captured graph
    ]
    assert list(_holes(segments, 0)) == [1024, mib, 512, 19 * mib]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_what_an_extension_allocates_on_a_gpu_holds_nan() -> None:
    kept = [torch.zeros(n, device="cuda") for n in (16, 5000, 300_000, 800_000, 5_000_000) for _ in range(20)]
    del kept[1::2]  # holes of zeros in segments of both kinds
    with poisoned("cuda"), _disable_current_modes():  # as C++ allocates: below the dispatch mode
        made = [torch.empty(n, device="cuda") for n in (64, 5000, 262_144, 262_145, 1 << 20, 15 << 20)]
        assert [unwritten(t) for t in made] == [t.numel() for t in made]


# run_list


def test_a_kernel_that_cannot_be_loaded_is_one_row_and_is_not_green() -> None:
    missing = Made("marlin", "moe", UsageError("kernel marlin needs vllm"), role="peer")
    rows = run_list([missing, made("moe")], [TINY, SHORT])
    assert [(r.kernel, r.case, r.outcome, r.why) for r in rows] == [
        ("marlin", "all", "skipped", "kernel marlin needs vllm"),
        ("right", TINY.label, "pass", None),
    ]
    assert green(rows) == ["right"]


class _Refuses:
    def prepare(self, experts: Any) -> None:
        raise UsageError("kernel x: H = 2; supported: 64")


@pytest.mark.parametrize(("role", "outcome"), [("peer", "skipped"), ("optimized", "fail")])
def test_a_peer_may_refuse_a_case_and_a_bundled_kernel_may_not(role: Any, outcome: str) -> None:
    row = run_case(Made("x", "moe", None, role=role), _Refuses(), TINY)
    assert (row.outcome, row.why) == (outcome, "kernel x: H = 2; supported: 64")


def test_peers_are_not_held_to_scales_that_no_model_has() -> None:
    rows = run_list([made("moe", role="peer"), made("attention", role="peer")], SMALL)
    skipped = [row.case for row in rows if row.outcome == "skipped"]
    assert len(skipped) == 4
    assert all(label.endswith("that counts") for label in skipped)


def test_what_a_kernel_changed_is_restored_for_the_next_one() -> None:
    rows = run_list([made("moe", "changes a scale"), made("moe")], [TINY, TINY])
    assert [(r.kernel, r.outcome) for r in rows] == [("changes a scale", "fail"), ("right", "pass")] * 2


def test_progress_sees_each_row_as_it_is_found() -> None:
    seen: list[ParityRow] = []
    rows = run_list([made("moe")], [TINY, SHORT], progress=seen.append)
    assert seen == rows
