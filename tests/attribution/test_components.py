"""Names to components, and the elementwise tail to its neighbour."""

from __future__ import annotations

import csv
from collections import Counter

import pytest
from trace_files import TRACES
from trace_maker import ATTENTION, MOE, MULTIPLY, NORM, Maker, unknown

from dsv4bench.attribution.components import REACH, assign, classify_all
from dsv4bench.attribution.table import table_breakdown
from dsv4bench.records.rules import COMPONENTS, ComponentRule, Rules
from dsv4bench.records.trace import KernelTable, Source, TableRow
from dsv4bench.scenario.rules import load_rules

RULES = load_rules()

# Every family of the DeepSeek-V4 kernel registry, SGLang and vLLM; names are facts.
REGISTRY = {
    "moe": [
        "_mxfp4_slot_gemv_kernel",
        "_mxfp4_gemm_kernel",
        "void marlin_moe_wna16::Marlin<1125899906909960l, 128, 1, 8>(int4 const*)",
        "void vllm::moe::moe_align_block_size_kernel<int>(int const*)",
        "void vllm::moe::count_and_sort_expert_tokens_kernel<int>(int const*)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<X>>>(P)",
        "_ZN7cutlass13device_kernelIN2at4cuda6detailINS5_17GroupProblemShapeIN4cute5tupleIJiiiEEEEEE",
        "void tensorrt_llm::kernels::expandInputRowsKernel<__nv_bfloat16>(int)",
        "doActivationKernel",
        "doGatedActivationKernel",
        "finalizeMoeRoutingKernel",
        "fusedBuildExpertMapsSortFirstTokenKernel",
        "blockExpertPrefixSumKernel",
        "kernel_cutlass_kernel_flashinferfused_moecute_dslb12xmoe_static_kernelMoEStaticKernel_object_at_",
        "sm100_fp8_fp4_mega_moe_impl",
        "sm100_bf16_mega_moe_impl",
        "void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<(cute::UMMA::Major)0>(int)",
        "bmm_E2m1xE2m1_Fp32_t128x8x256u2_s5_et128x8_m128x8x64_cga1x1x1_16dp256b_rM_TN_transOut_sm100f",
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1_swiglu",
        "_reduce_grouped",
        "triton_poi_fused_clamp_mul_silu_slice_0",
    ],
    "router": [
        "void vllm::moe::topkGatingSoftplusSqrt<8, 256, 4, 16, 32, false, int, float>(float const*)",
        "void hash_topk_kernel<int>(int)",
        "_combined_routing_compute_pow2",
        "_topk_forward",
    ],
    "attention": [
        "_tiled_sparse_decode_kernel",
        "_tiled_sparse_decode_kernel_mh",
        "void flashinfer::sparse_mla_decode_dsv4_kernel<64>(P)",
        "sparse_mla_decode_dsv4_merge_kernel",
        "sparse_mla_prefill_kernel",
        "sparse_mla_prefill_mg_kernel",
        "void sm90::decode::flash_fwd_splitkv_mla_fp8_sparse_kernel<T>(P)",
        "flash_fwd_mla_combine_kernel",
        "get_mla_metadata_kernel",
        "sparse_attn_fwd_kernel",
        "sparse_attn_fwd_for_small_topk_kernel",
        "_fp8ds_paged_attention_with_sink_multihead_kernel",
        "_finish_materialized_scores_with_sink_candidate_block_kernel",
        "_accumulate_indexed_attention_chunk_kernel",
        "_accumulate_fp8ds_global_slots_attention_chunk_multihead_kernel",
        "_fused_gather_dequant_attn_kernel",
        "kernel_cutlass_kernel_vllmv1attentionopsdeepseek_v4_opsdequant_gather_k_cutedslDequantGatherKCacheKernel",
        "_dequantize_global_slots_k_kernel",
        "_page_split_kernel",
        "_page_mark_kernel",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<X>>>(P)",
        "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausal",
        "kernel_unified_attention_2d",
    ],
    "indexer": [
        "_fp8_paged_mqa_logits_kernel",
        "_fp8_paged_mqa_logits_rowwise_kernel",
        "sm100_mqa_logits_core_impl",
        "void vllm::persistent::persistent_topk_kernel<512, 4u>(P)",
        "_fused_indexer_q_rope_quant_kernel",
        "_compute_global_topk_indices_and_lens_kernel",
        "void vllm::cp_gather_indexer_k_quant_cache_kernel<1>(char const*)",
    ],
    "compressor": [
        "_save_partial_states_kernel",
        "_fused_kv_compress_norm_rope_insert_sparse_attn",
        "_fused_kv_compress_norm_rope_insert_indexer_attn",
    ],
    "mhc": [
        "mhc_pre_big_fuse_tilelang_kernel",
        "mhc_fused_tilelang_kernel",
        "mhc_post_tilelang_kernel",
        "hc_head_fuse_tilelang_kernel",
        "void deep_gemm::sm100_tf32_hc_prenorm_gemm_impl<16384u>(int)",
        "_tf32_hc_prenorm_gemm_kernel",
        "hc_split_sinkhorn_kernel",
    ],
    "dense": [
        "_w8a8_block_fp8_matmul",
        "_w8a8_triton_block_scaled_mm",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, (deep_gemm::GemmType)0>(int)",
        "void per_token_group_quant_8bit_kernel<c10::BFloat16, __nv_fp8_e4m3>(P)",
        "_deepseek_v4_sm12x_fp8_einsum_kernel",
        "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16>(P)",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(P)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(P)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x32x8_ffma_execute_kernel",
    ],
    "glue": [
        "void vllm::deepseek_v4_fused_ops::fusedDeepseekV4QNormRopeKVRopeQuantInsertKernel<c10::BFloat16>(P)",
        "_fused_q_kv_rmsnorm_kernel",
        "_fused_inv_rope_fp8_quant_per_head",
        "void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(P)",
        "triton_red_fused_moe_forward_shared_rms_norm_0",
        "void vllm::act_and_mul_kernel<c10::BFloat16>(P)",
        "_compute_slot_mapping_kernel",
        "_compute_prefill_metadata_kernel",
    ],
    "comm": [
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)",
        "void sglang::cross_device_reduce_2stage<__nv_bfloat16, 4>(P)",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(P)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<P>(P)",
    ],
    "kv_write": ["void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(P)", "set_mla_kv_buffer_kernel"],
    "sampling": [
        "_gumbel_sample_kernel",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, int>>(R)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, E>(float*)",
        "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<P>(P)",
    ],
    "elementwise": [
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<X>>(int)",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(X)::{lambda()#3}>(int)",
        "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, sum_functor>>(R)",
        "triton_poi_fused_add_all_reduce_1",
        "triton_poi_fused_view_2",
    ],
    "copy": ["Memcpy HtoD (Pinned -> Device)", "[CUDA memset]", "memcpy32_post"],
}


@pytest.mark.parametrize("component", REGISTRY)
def test_the_registry_of_deepseek_v4_kernels(component: str) -> None:
    found = classify_all([(name,) for name in REGISTRY[component]], RULES)
    wrong = {
        name: rule.component if rule else "other"
        for name, rule in zip(REGISTRY[component], found, strict=True)
        if rule is None or rule.component != component
    }
    assert wrong == {}


def test_every_component_but_other_has_a_rule_and_an_unknown_name_has_none() -> None:
    assert {rule.component for rule in RULES.components} == set(COMPONENTS) - {"other"}
    assert set(REGISTRY) == set(COMPONENTS) - {"other"}
    assert classify_all([("some_new_kernel_v7",)], RULES) == [None]


TABLES = ("T1B", "T1D", "nomtp_decode64")


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"no public trace files at {TRACES}")
@pytest.mark.parametrize("table", TABLES)
def test_published_deepseek_v4_flash_tables_leave_little_in_other(table: str) -> None:
    path = TRACES / "tables" / f"jasl_dsv4flash_sm120_{table}_torch_kernel_summary.csv"
    with path.open(newline="") as file:
        rows = [
            TableRow(r["kernel"], int(r["instances"]), round(float(r["total_ms"]) * 1e6))
            for r in csv.DictReader(file)
        ]
    assert len(rows) > 100
    breakdown = table_breakdown(KernelTable(file=path.name, source=Source.TORCH_TABLE, rows=rows), RULES, unknown)
    shares = {c.component: c.share_of_sum_frac or 0.0 for c in breakdown.components}
    assert shares["other"] < 0.03
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["dense"] > 0.3 and shares["moe"] > 0.1 and shares["indexer"] > 0.05 and shares["comm"] > 0.04


def placed(*names: str, stream: int = 7) -> list[str]:
    maker = Maker()
    for i, name in enumerate(names):
        maker.kernel(name, 10 * i, 10 * i + 5, stream=stream)
    return [COMPONENTS[c] for c in assign(maker.trace(), RULES).component]


def test_the_tail_goes_to_its_neighbour() -> None:
    assert placed(MOE, MULTIPLY, MULTIPLY, MOE) == ["moe"] * 4
    assert placed(ATTENTION, MULTIPLY, NORM) == ["attention", "attention", "glue"]
    assert placed(NORM, MULTIPLY, ATTENTION) == ["glue", "attention", "attention"]
    assert placed("mhc_fused_tilelang_kernel", MULTIPLY, "mhc_post_tilelang_kernel") == ["mhc"] * 3


def test_the_tail_stays_where_neighbours_cannot_tell() -> None:
    assert placed(ATTENTION, MULTIPLY, MOE)[1] == "elementwise"  # they disagree
    assert placed(NORM, MULTIPLY, NORM)[1] == "elementwise"
    assert placed(MULTIPLY) == ["elementwise"]
    far = placed(MOE, *[MULTIPLY] * (REACH + 2))
    assert far[REACH] == "moe" and far[REACH + 1] == "elementwise"


def test_neighbours_are_of_the_same_stream_device_and_process() -> None:
    for other in ({"stream": 8}, {"device": 1}, {"pid": 2}):
        maker = Maker()
        maker.kernel(MOE, 0, 5)
        maker.kernel(MULTIPLY, 10, 15, **other)
        maker.kernel(MOE, 20, 25)
        found = Counter(COMPONENTS[c] for c in assign(maker.trace(), RULES).component)
        assert found == {"moe": 2, "elementwise": 1}, other


def test_a_row_says_that_a_neighbour_decided() -> None:
    maker = Maker()
    maker.kernel(MOE, 0, 5)
    maker.kernel(MULTIPLY, 10, 15)
    maker.copy(20, 30)
    assignment = assign(maker.trace(), RULES)
    assert [assignment.reasons[r] for r in assignment.reason] == [
        "MXFP4 expert fallback (Triton)",
        "elementwise; neighbour on its stream: moe",
        None,
    ]


def test_the_first_rule_wins_and_without_takes_back() -> None:
    rules = Rules(
        components=[
            ComponentRule(component="router", contains=["gate"], without=["gated"]),
            ComponentRule(component="moe", regex="gate|gemv"),
        ]
    )
    found = classify_all([("gate_kernel",), ("gated_mlp",), ("xx", "demangled gate"), ("other",)], rules)
    assert [rule.component if rule else None for rule in found] == ["router", "moe", "router", None]
