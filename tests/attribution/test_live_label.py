"""Which implementation is live, by the names of the kernels that ran."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsv4bench.attribution.components import classify_all
from dsv4bench.attribution.live_label import live_label
from dsv4bench.records.breakdown import DeviceBreakdown, KernelRow
from dsv4bench.scenario.rules import load_rules, read_rules

RULES = load_rules()
OURS = Path(__file__).resolve().parents[2] / "dsv4bench"


def device(**times: int) -> DeviceBreakdown:
    return of([(name, ns, None) for name, ns in times.items()])


def of(kernels: list[tuple[str, int, str | None]]) -> DeviceBreakdown:
    """Rows of (name, time, component); the component as the rules say where none is given."""
    rows = []
    for name, ns, component in kernels:
        rule = classify_all([[name]], RULES)[0]
        named = component or (rule.component if rule is not None else "other")
        rows.append(KernelRow(name=name, component=named, count=1, time_ns=ns))
    return DeviceBreakdown(
        device=0,
        label="c16",
        rank=0,
        file="f",
        window_ns=None,
        kernel_sum_ns=1,
        **dict.fromkeys(("kernel_busy_ns", "any_busy_ns", "copy_only_ns", "idle_ns", "overlap_ns")),
        opaque_graph_ns=0,
        kernels=len(rows),
        rows=rows,
    )


@pytest.mark.parametrize(
    ("moe", "attention", "text"),
    [
        (
            "_mxfp4_slot_gemv_kernel",
            "_tiled_sparse_decode_kernel",
            "moe fallback-slot-gemv, attention fallback-perhead",
        ),
        ("_mxfp4_gemm_kernel", "_tiled_sparse_decode_kernel_mh", "moe fallback-dot, attention fallback-mh"),
        (
            "void marlin_moe_wna16::Marlin<1125899906909960l, 128, 1, 8>(int4 const*)",
            "void flashinfer::sparse_mla_decode_dsv4_kernel<64>(P)",
            "moe marlin, attention flashinfer",
        ),
        (
            "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1_swiglu",
            "void sm90::decode::flash_fwd_splitkv_mla_fp8_sparse_kernel<T>(P)",
            "moe triton_kernels, attention flashmla",
        ),
        ("gate_up_kernel", "_sparse_decode_split_kernel", "moe grouped_moe, attention split-k"),
        ("scaled_down_kernel", "_fp8ds_paged_attention_with_sink", "moe grouped_moe, attention vllm-sm12x"),
        ("bmm_E2m1xE2m1_Fp32_t128x8x256u2_s5_sm100f", "nothing_known", "moe trtllm-gen, attention unknown"),
    ],
)
def test_names_tell_what_runs(moe: str, attention: str, text: str) -> None:
    kernels = [(moe, 40, None), (attention, 38, None), ("nvjet_tst_64x8", 100, None)]
    assert live_label("c16", [of(kernels)], RULES).text == text


def test_a_tenth_of_the_named_time_is_live_and_less_is_not() -> None:
    mixed = device(_tiled_sparse_decode_kernel=85, _tiled_sparse_decode_kernel_mh=10, _sparse_decode_split_kernel=5)
    assert live_label(None, [mixed], RULES).attention == ["fallback-perhead", "fallback-mh"]


def test_kernels_around_an_implementation_prove_none() -> None:
    found = live_label(None, [device(combine_kernel=9, moe_align_block_size_kernel=5, _page_split_kernel=3)], RULES)
    assert (found.moe, found.attention) == ([], [])
    assert found.notes == [
        "moe: no rule names the implementation of combine_kernel",
        "attention: no rule names the implementation of _page_split_kernel",
    ]


def test_ranks_speak_together_and_counters_without_time_speak_too() -> None:
    two = [device(gate_up_kernel=5), device(_mxfp4_slot_gemv_kernel=5)]
    assert live_label(None, two, RULES).moe == ["fallback-slot-gemv", "grouped_moe"]
    assert live_label(None, [device(gate_up_kernel=0)], RULES).moe == ["grouped_moe"]


def test_a_user_s_rule_names_an_implementation(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("components:\n  - {component: moe, contains: [my_experts], live: mine}\n")
    assert read_rules(path).components[0].live == "mine"
    assert live_label(None, [device(my_experts_v2=1)], load_rules([path])).moe == ["mine"]


def compiled_kernels() -> set[str]:
    """Names of the Triton kernels of the engine's steps: functions under @triton.jit that are called as kernels."""
    found = set()
    for folder in ("kernels/gpu", "engine/cuda"):
        for path in (OURS / folder).rglob("*.py"):
            names = re.findall(r"@triton\.jit[^\n]*\n(?:@[^\n]*\n)*def (\w+)\(", path.read_text(encoding="utf-8"))
            found |= {name for name in names if name.endswith(("_kernel", "_kernel_mh"))}
    return found


def test_every_kernel_of_ours_has_a_component() -> None:
    kernels = sorted(compiled_kernels())
    assert {"gate_up_kernel", "down_kernel", "_tiled_sparse_decode_kernel"} <= set(kernels)
    unnamed = [
        n for n, rule in zip(kernels, classify_all([[n] for n in kernels], RULES), strict=True) if rule is None
    ]
    assert unnamed == []


@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("gate_up_kernel", "moe"),
        ("scaled_gate_up_kernel", "moe"),
        ("down_kernel", "moe"),
        ("route_kernel", "moe"),
        ("combine_kernel", "moe"),
        ("down_kernel_0d1d2de3de", "moe"),  # as older Triton writes it
        ("_sparse_decode_split_kernel", "attention"),
        ("_sparse_decode_combine_kernel", "attention"),
        ("_router_fused_topk_kernel", "router"),
        ("_kv_compress_norm_rope_insert_kernel", "compressor"),
        ("_q_norm_kv_cache_write_kernel", "kv_write"),
        ("_indexer_topk_kernel", "indexer"),
        ("_mhc_fold_kernel", "mhc"),
        ("_argmax_sampled_kernel", "sampling"),
        ("_prepare_rows_kernel", "glue"),
        ("cutlass_down_kernel_of_somebody", None),  # an exact name only
    ],
)
def test_where_our_kernels_belong(name: str, component: str | None) -> None:
    rule = classify_all([[name]], RULES)[0]
    assert (rule.component if rule is not None else None) == component
