"""Which unit, on what evidence: counters before code before names, and unknown where none of them tells."""

from __future__ import annotations

import gzip
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from dsv4bench.attribution.counters import OPCODES, judge, unit_metrics
from dsv4bench.attribution.units import Units, UnitVerdict, runs_on
from dsv4bench.records.rules import Rules
from dsv4bench.records.trace import CounterRow, KernelCounters, Sass, SassBuild
from dsv4bench.scenario.rules import load_rules
from dsv4bench.trace.names import normalise
from dsv4bench.trace.ncu_csv import read_ncu_csv

ROOT = Path(__file__).resolve().parents[2]
TENSOR = "sm__inst_executed_pipe_tensor.sum"
HFMA2 = "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum"
BF16 = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
PIPE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
MMA_PIPE = "sm__pipe_tensor_op_hmma_type_hmma_hgmma_qgmma_cycles_active.avg.pct_of_peak_sustained_elapsed"
GRID = (16, 4, 1)
NO_RULES = Rules(components=[])


@pytest.fixture(scope="module")
def rules() -> Rules:
    return load_rules()


def row(
    metrics: Mapping[str, float],
    name: str = "k",
    grid: tuple[int, int, int] = GRID,
    compute: tuple[int, int] | None = (9, 0),
    rounded: Sequence[str] = (),
) -> CounterRow:
    return CounterRow(name, grid, (128, 1, 1), compute, 0, dict(metrics), rounded=list(rounded))


def ask(
    rows: Sequence[CounterRow],
    name: str = "k",
    grid: tuple[int, int, int] | None = GRID,
    sass: Mapping[str, Sass] | None = None,
    rules: Rules = NO_RULES,
) -> UnitVerdict:
    counters = [KernelCounters("x.csv", list(rows))]
    return runs_on(name, grid, counters=counters, sass=sass or {}, rules=rules, normalise=normalise)


def code(name: str = "k", *builds: tuple[str, set[str]]) -> dict[str, Sass]:
    return {name: Sass(name, [SassBuild(arch, frozenset(ops), "sass", "k.cubin") for arch, ops in builds])}


def operations(compute: tuple[int, int], value: float = 0.0) -> dict[str, float]:
    """Every type that the chip counts."""
    return {name: value for name in unit_metrics(compute) if "ops_path" in name}


@pytest.mark.parametrize(
    ("metrics", "compute", "unit"),
    [
        ({BF16: 1_275_068_416.0}, (12, 0), "tensor"),
        ({BF16: 0.0}, (12, 0), None),  # an FP8 kernel has no BF16 operations
        (operations((12, 0)), (12, 0), "cuda"),
        (operations((9, 0)), (12, 0), None),  # another chip's list leaves FP4 out
        (operations((12, 0)), None, None),
        ({TENSOR: 0.0}, (9, 0), "cuda"),
        ({TENSOR: 65_536.0, HFMA2: 0.0}, (9, 0), "tensor"),
        ({TENSOR: 278_784.0, HFMA2: 278_784.0}, (9, 0), "cuda"),
        ({TENSOR: 278_784.0}, (9, 0), None),  # HFMA2 not told apart
        ({TENSOR: 278_784.0}, (8, 0), None),
        ({TENSOR: 278_784.0}, None, None),
        ({TENSOR: 278_784.0}, (12, 0), "tensor"),
        ({TENSOR: 5.0, HFMA2: 6.0}, (9, 0), None),  # counts of two different launches
        ({MMA_PIPE: 17.8}, (9, 0), "tensor"),
        ({MMA_PIPE: 0.0}, (9, 0), None),  # says nothing of IMMA
        ({PIPE: 1.2}, (9, 0), None),
        ({PIPE: 0.0}, (9, 0), "cuda"),
        ({PIPE: 1.2}, (8, 6), "tensor"),
        ({OPCODES + "HMMA": 4.0, OPCODES + "FFMA": 9.0}, (9, 0), "tensor"),
        ({OPCODES + "HFMA2": 4.0, OPCODES + "FFMA": 9.0}, (9, 0), "cuda"),
        ({OPCODES + "HMMA": 0.0, OPCODES + "FFMA": 9.0}, (9, 0), "cuda"),
        ({OPCODES + "UTCOMMA": 4.0}, (10, 0), "tensor"),
        ({"gpu__time_duration.sum": 5.0}, (9, 0), None),
        ({}, (9, 0), None),
    ],
)
def test_what_the_counters_of_one_launch_say(
    metrics: dict[str, float], compute: tuple[int, int] | None, unit: str | None
) -> None:
    verdict = judge(row(metrics, compute=compute))
    assert verdict.unit == unit and verdict.why


def test_a_percentage_printed_as_zero_is_no_proof() -> None:
    assert judge(row({PIPE: 0.0}, rounded=[PIPE])).unit is None


@pytest.mark.parametrize("compute", [(7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0), (12, 1)])
def test_the_metrics_to_ask_for_decide(compute: tuple[int, int]) -> None:
    asked = dict.fromkeys(unit_metrics(compute), 0.0)
    assert judge(row(asked, compute=compute)).unit == "cuda"
    for name in asked:
        if "ops_path" in name:
            assert judge(row(asked | {name: 2.0}, compute=compute)).unit == "tensor"


def test_counters_of_another_grid_are_another_kernel() -> None:
    rows = [row({TENSOR: 0.0}), row({TENSOR: 9.0, HFMA2: 0.0}, grid=(1, 1, 1))]
    assert ask(rows).runs_on == "cuda"
    assert ask(rows, grid=(1, 1, 1)).runs_on == "tensor"
    elsewhere = ask(rows, grid=(2, 2, 2))
    assert (elsewhere.runs_on, elsewhere.evidence) == ("unknown", "none")
    assert "profiled at another grid only: (1, 1, 1), (16, 4, 1)" in elsewhere.note


def test_without_a_grid_in_the_trace_all_grids_must_agree() -> None:
    agree = [row({TENSOR: 0.0}), row({TENSOR: 0.0}, grid=(1, 1, 1))]
    verdict = ask(agree, grid=(0, 0, 0))
    assert (verdict.runs_on, verdict.evidence, verdict.launches) == ("cuda", "counter", 2)
    assert "the trace tells no grid" in verdict.note
    assert ask([agree[0], row({TENSOR: 9.0, HFMA2: 0.0}, grid=(1, 1, 1))], grid=None).runs_on == "unknown"


def test_one_launch_with_mma_makes_a_tensor_kernel() -> None:
    rows = [row({TENSOR: 0.0}), row({TENSOR: 9.0, HFMA2: 0.0})]
    verdict = ask(rows)
    assert verdict.runs_on == "tensor" and "1 of 2 launches" in verdict.note


def test_utilisation_is_a_mean_and_names_its_metric() -> None:
    rows = [row({TENSOR: 9.0, HFMA2: 0.0, PIPE: share, "dram__throughput.avg.pct_of_peak_sustained_elapsed": 50.0})
            for share in (10.0, 30.0)]  # fmt: skip
    verdict = ask(rows)
    assert verdict.tensor_pipe_frac == pytest.approx(0.2) and verdict.dram_frac == 0.5
    assert verdict.tensor_pipe_metric == PIPE
    busy = ask([row({TENSOR: 9.0, HFMA2: 9.0, PIPE: 1.26, MMA_PIPE: 0.0})])
    assert (busy.runs_on, busy.tensor_pipe_frac, busy.tensor_pipe_metric) == ("cuda", 0.0, MMA_PIPE)
    active = PIPE.replace("elapsed", "active")
    assert ask([row({TENSOR: 0.0, active: 5.0})]).tensor_pipe_metric == active


def test_names_of_two_tools_are_joined() -> None:
    ncu = "void Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(Params)"
    timeline = ncu.replace("Kernel2", "cutlass::Kernel2").replace("(Params)", "(int)")
    rows = [row({BF16: 5.0}, name=ncu, compute=(12, 0))]
    assert ask(rows, name=timeline).evidence == "counter"
    assert ask(rows, name=timeline.replace("s161616", "s16816")).evidence == "none"
    by_base = ask(rows, name="Kernel2")
    assert by_base.evidence == "counter" and "joined by base name" in by_base.note


def test_code_answers_where_counters_do_not() -> None:
    partial = [row({BF16: 0.0}, compute=(12, 0))]
    verdict = ask(partial, sass=code("k", ("sm_120", set())))
    assert (verdict.runs_on, verdict.evidence) == ("cuda", "sass")
    assert "no MMA instruction" in verdict.note and "not counted: fp16" in verdict.note
    assert ask([], sass=code("k", ("sm_90", {"HGMMA"}))).runs_on == "tensor"
    assert ask([row({TENSOR: 0.0})], sass=code("k", ("sm_90", {"HMMA"}))).evidence == "counter"


def test_builds_that_disagree_and_builds_for_another_gpu_are_no_evidence() -> None:
    mixed = ask([], sass=code("k", ("sm_90", {"HMMA"}), ("sm_90", set())))
    assert mixed.evidence == "none" and "1 of 2 builds" in mixed.note
    units = Units([], code("k", ("sm_90", {"HMMA"}), ("sm_120", set())), NO_RULES, normalise)
    assert units.of("k", GRID, compute=(12, 0)).runs_on == "cuda"
    assert units.of("k", GRID, compute=(9, 0)).runs_on == "tensor"
    assert units.of("k", GRID, compute=(8, 0)).evidence == "none"


def test_text_of_a_compiler_is_marked_weaker() -> None:
    sass = {"k": Sass("k", [SassBuild("sm_90", frozenset(), "ptx", "k.ptx")])}
    assert "PTX text, weaker" in ask([], sass=sass).note


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute",
            "cuda",
        ),
        (
            "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize32x32x64_stage6_warpsize2x2x1_tensor16x8x16_kernel",
            "tensor",
        ),
        (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_kernel__5x_cublas",
            "tensor",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(int)",
            "tensor",
        ),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(int)", "cuda"),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_tn", "tensor"),
        ("volta_h884gemm_64x128_ldg8_nn", "tensor"),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "tensor"),
        ("ampere_sgemm_128x64_nn", "cuda"),
        ("volta_scudnn_128x64_relu_interior_nn_v1", "cuda"),
        ("nvjet_sm90_tst_64x32_64x16_1x2_h_bz_NNT", "tensor"),
        ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>(int)", "cuda"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)", "cuda"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)", "cuda"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "cuda"),
        ("Memcpy HtoD (Pinned -> Device)", "cuda"),
        (
            "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_sm100f",
            "tensor",
        ),
        ("void flash::flash_fwd_splitkv_kernel<flash::Flash_fwd_kernel_traits<128, 64, 128>, false>(int)", "tensor"),
        (
            "void flash::flash_fwd_splitkv_combine_kernel<flash::Flash_fwd_kernel_traits<128, 64, 128>, 4>(int)",
            "cuda",
        ),
        ("void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(int)", "cuda"),  # `flash` in the name
        ("triton_red_fused_fused_add_rms_norm_0", "cuda"),
        ("triton_red_fused_mm_0", "unknown"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1", "unknown"),
        ("void cutlass::gemm_nn_128x128<float>(float*, float*)", "unknown"),  # a bare gemm
        ("my_flash_attention_fwd", "unknown"),
        ("conv_gemm_kernel", "unknown"),
        ("_w8a8_triton_block_scaled_mm", "unknown"),
    ],
)
def test_names_that_prove_a_unit_and_names_that_do_not(name: str, unit: str, rules: Rules) -> None:
    verdict = ask([], name=name, rules=rules)
    assert verdict.runs_on == unit
    assert verdict.evidence == ("none" if unit == "unknown" else "rule")


@pytest.mark.parametrize(
    "name", ["_mxfp4_slot_gemv_kernel", "_tiled_sparse_decode_kernel", "_tiled_sparse_decode_kernel_mh"]
)
def test_the_names_of_the_fallback_kernels_prove_nothing(name: str, rules: Rules) -> None:
    verdict = ask([], name=name, rules=rules)
    assert (verdict.runs_on, verdict.evidence) == ("unknown", "none")
    assert "--cubins" in verdict.note
    proven = ask([], name=name, rules=rules, sass=code(name, ("sm_120", set())))
    assert (proven.runs_on, proven.evidence) == ("cuda", "sass")


TRUTH = {  # tensor-pipe instructions that are not HFMA2, in our recording
    "distribution_elementwise_grid_stride_kernel": "cuda",
    "gemv_sum_kernel": "cuda",
    "dot_kernel": "tensor",
    "vectorized_elementwise_kernel": "cuda",
    "nvjet_sm90_tst_64x32_64x16_1x2_h_bz_NNT": "tensor",
    "gemv2T_kernel_val": "cuda",
}


def test_our_recording_of_the_hfma2_trap() -> None:
    """The tensor pipe is busy in all of these but `gemv_sum_kernel`; only two of them multiply matrices."""
    counters = read_ncu_csv(ROOT / "tests" / "data" / "ncu_h200_hfma2.csv")
    units = Units([counters], {}, NO_RULES, normalise)
    found = {normalise(r.name).partition("<")[0]: units.of(r.name, r.grid) for r in counters.rows}
    assert {name: verdict.runs_on for name, verdict in found.items()} == TRUTH
    assert {verdict.evidence for verdict in found.values()} == {"counter"}
    assert found["dot_kernel"].launches == 2


def _real(*parts: str) -> Path:
    told = os.environ.get("DSV4BENCH_TRACES")
    path = (Path(told) if told else ROOT.parent / "shared" / "data" / "traces").joinpath(*parts)
    if not path.exists():
        pytest.skip("no collection of traces here (DSV4BENCH_TRACES)")
    return path


def test_every_kernel_of_the_rtx_5090_files(rules: Rules) -> None:
    for n, unit, evidence in (
        (1, "cuda", "rule"),  # only BF16 was counted: 0, which leaves FP16, FP8 and FP4 open
        (2, "cuda", "rule"),
        (3, "tensor", "counter"),
        (4, "cuda", "rule"),
        (5, "tensor", "counter"),
        (6, "cuda", "rule"),
    ):
        counters = read_ncu_csv(_real("ncu", f"codegandee_kernel_000{n}_details.csv"))
        (only,) = counters.rows
        verdict = Units([counters], {}, rules, normalise).of(only.name, only.grid)
        assert (verdict.runs_on, verdict.evidence) == (unit, evidence), n
        assert verdict.dram_frac is not None and 0 < verdict.dram_frac < 1


def test_every_kernel_of_our_h200_files(rules: Rules) -> None:
    """Counters are the truth here; neither verdicts nor name rules may contradict them."""
    seen = 0
    for name in ("hfma2", "attn_16_flashmla-sgl-rocm-base", "moe_16_hum-bf16", "moe_1_marlin-tk"):
        counters = read_ncu_csv(_real("own", f"h200_ncu_{name}.csv"))
        units, names = Units([counters], {}, rules, normalise), Units([], {}, rules, normalise)
        for r in counters.rows:
            truth = "tensor" if r.metrics[TENSOR] > r.metrics[HFMA2] else "cuda"
            verdict = units.of(r.name, r.grid, r.block)
            assert (verdict.runs_on, verdict.evidence) == (truth, "counter"), r.name
            assert names.of(r.name).runs_on in (truth, "unknown"), r.name
            seen += 1
    assert seen > 100


def test_the_gh200_report(rules: Rules) -> None:
    pytest.importorskip("ncu_report")
    from dsv4bench.trace.ncu_report import read_ncu_report

    counters = read_ncu_report(_real("ncu", "cs599k_rmsnorm_triton.ncu-rep"))
    (only,) = counters.rows
    assert only.metrics[PIPE] > 0.9  # percent, all of it HFMA2
    verdict = Units([counters], {}, NO_RULES, normalise).of(only.name, only.grid)
    assert (verdict.runs_on, verdict.evidence, verdict.tensor_pipe_frac) == ("cuda", "counter", 0.0)


def test_the_h100_file_whose_ffma_gemm_others_call_tensor(rules: Rules, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(gzip.decompress(_real("nsys", "nsysai_h100_2gpu_1s.sqlite.gz").read_bytes()))
    query = (
        "SELECT s.value, SUM(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN StringIds s ON s.id = k.demangledName GROUP BY 1"
    )
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        times = connection.execute(query).fetchall()
    units = Units([], {}, rules, normalise)
    total = sum(time for _, time in times)
    by_unit = {unit: sum(t for name, t in times if units.of(name).runs_on == unit) for unit in ("tensor", "cuda")}
    ffma = sum(time for name, time in times if "_ffma_" in name)
    assert ffma / total > 0.86
    assert by_unit["tensor"] == 0 and by_unit["cuda"] / total > 0.99
