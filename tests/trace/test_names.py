"""Names of kernels as different tools spell them."""

from __future__ import annotations

import csv
import os
import random
from pathlib import Path

import pytest

from dsv4bench.trace.names import base_name, demangle, normalise, short_name, spellings

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"
REAL = Path(os.environ.get("DSV4BENCH_TRACES", _BESIDE))
REDUCE = (
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfZNS0_11sum_functorIfffEclERNS_14"
    "TensorIteratorEEUlffE_EEjfLi4EEEEEvT1_"
)
SILU = "_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_EEEEvPS3_PS4_i"


@pytest.mark.parametrize(
    ("raw", "demangled"),
    [
        ("_Z13kernVectorAddPKfS0_Pfi", "kernVectorAdd"),
        ("_Z9reduce_v0ILi256EEvPiS0_", "reduce_v0<...>"),
        (REDUCE, "at::native::reduce_kernel<...>"),
        (SILU, "sgl_hip::activation::act_and_mul_kernel<...>"),
        ("_ZN5aiter4normIDF16bDF16bLi256ELb1EEEvPT0_", "aiter::norm<...>"),
        ("_ZN3FooILi4EE3barEv", "Foo<...>::bar"),
        ("_ZN3FooILN2ns4EnumE12EE3barEv", "Foo<...>::bar"),  # an enumerator's value is no length of a name
        ("_ZN12_GLOBAL__N_14kernIiEEvT_", "(anonymous namespace)::kern<...>"),
        (REDUCE[:60], "at::native::reduce_kernel<...>"),  # cut off by its tool
        ("_Z", "_Z"),
        ("_ZN9999999999aa", "_ZN9999999999aa"),
        ("triton_poi_fused_2", "triton_poi_fused_2"),
        ("void f<int>(int)", "void f<int>(int)"),
    ],
)
def test_demangle(raw: str, demangled: str) -> None:
    assert demangle(raw) == demangled


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("_mxfp4_slot_gemv_kernel", "_mxfp4_slot_gemv_kernel"),
        ("void cutlass::Kernel2<cutlass_80_x>(cutlass_80_x::Params)", "cutlass::Kernel2"),
        ("void (anonymous namespace)::f<float, 2>(float*, int)", "(anonymous namespace)::f"),
        ("void at::native::<unnamed>::f<(int)2>(T1 *)", "at::native::(anonymous namespace)::f"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int>(int)", "internal::gemvx::kernel"),
        ("void f<&(float g<float>(float const&)), 4>(float*) const", "f"),
        ("void at::f<at::g(at::T&)::{lambda()#1}::operator()() const::{l...", "at::f"),
        ("enable_if<!T7, void>::type kernel<a::[lambda() (b lambda]>(c)", "kernel"),
        ("", ""),
        ("((", "(("),
    ],
)
def test_short_name(name: str, short: str) -> None:
    assert short_name(name) == short


def test_spellings_keep_the_raw_name() -> None:
    assert spellings(REDUCE) == (REDUCE, "at::native::reduce_kernel<...>", "at::native::reduce_kernel")
    assert base_name(REDUCE) == "reduce_kernel"


SAME = [
    [  # Kineto, nsys, ncu
        "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::silu_kernel("
        "at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda()#2}::operator()() const::"
        "{lambda(float)#1}, std::array<char*, 2ul> >(int, X)",
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::<unnamed>::silu_kernel("
        "at::TensorIteratorBase &)::[lambda() (instance 1)]::operator ()() const::[lambda() (instance 2)]::"
        "operator ()() const::[lambda(float) (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)",
        "void at::vectorized_elementwise_kernel<4, at::<unnamed>::silu_kernel(at::TensorIteratorBase &)::"
        "[lambda() (instance 1)]::operator ()() const::[lambda() (instance 2)]::operator ()() const::"
        "[lambda(float) (instance 1)], std::array<char *, 2>>(int, T2, T3)",
    ],
    [
        "std::enable_if<true, void>::type internal::gemvx::kernel<int, true, 7, X<__nv_bfloat16 const> >(int)",
        "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, (bool)1, (int)7, X<const __nv_bfloat16>>(T1)",
        "enable_if<!T7, void>::type kernel<int, 1, 7, X<const __nv_bfloat16>>(T1)",
    ],
    ["void cutlass::Kernel2<cutlass_80_x>(cutlass_80_x::Params)", "void Kernel2<cutlass_80_x>(Params)"],
    ["triton_poi_fused_2", "triton_poi_fused_2"],
]


@pytest.mark.parametrize("names", SAME, ids=["lambda", "gemvx", "cutlass", "triton"])
def test_one_kernel_has_one_normal_form(names: list[str]) -> None:
    assert len({normalise(name) for name in names}) == 1


def test_two_kernels_of_one_template_differ() -> None:
    assert normalise("void cutlass::Kernel2<simt_a>(P)") != normalise("void cutlass::Kernel2<tensorop_a>(P)")
    lambdas = [f"void f<g(T&)::{{lambda()#{i}}}::operator()() const::{{lambda(int)#1}}>(int)" for i in (1, 2)]
    assert normalise(lambdas[0]) != normalise(lambdas[1])


def test_damaged_names_never_fail() -> None:
    dice = random.Random(3)
    for _ in range(3000):
        letters = list(dice.choice((REDUCE, SILU, SAME[0][0], SAME[0][1])))
        for _ in range(3):
            letters[dice.randrange(len(letters))] = dice.choice("0123456789EINLXZUD_<>()[]{}: \0é")
        name = "".join(letters[: dice.randrange(len(letters))])
        raw, demangled, short = spellings(name)
        assert raw == name
        assert bool(demangled) == bool(short) == bool(name)
        assert isinstance(normalise(name), str)


@pytest.mark.skipif(not REAL.is_dir(), reason="no collection of traces here (DSV4BENCH_TRACES)")
def test_ncu_names_are_found_in_the_nsys_tables_of_the_same_model() -> None:
    known = set()
    for path in (REAL / "tables").glob("codegandee_*kern_sum.csv"):
        with path.open(newline="") as file:
            known |= {normalise(row[8]) for row in csv.reader(file) if len(row) > 8}
    found = []
    for path in sorted((REAL / "ncu").glob("codegandee_kernel_*_details.csv")):
        with path.open(newline="") as file:
            rows = [row for row in csv.reader(file) if row and not row[0].startswith("==")]
        found.append(normalise(rows[1][rows[0].index("Kernel Name")]) in known)
    assert found == [True, True, True, False, True, True]  # the fourth is garbled by ncu itself
