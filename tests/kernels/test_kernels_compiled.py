"""Compiling for GPUs that are not here: toys with known instructions, and every way in which a build can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.kernels import compiled
from dsv4bench.kernels.attempts import Attempt, compile_all
from dsv4bench.kernels.build import Build
from dsv4bench.kernels.compiled import ARCHS, Compiled, compile_build, parse_archs, reason
from dsv4bench.kernels.registry import kernels
from dsv4bench.trace.sass import read_cubin

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def toys() -> Any:
    pytest.importorskip("triton")
    import toy_kernels

    return toy_kernels


@pytest.fixture(scope="module", autouse=True)
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One cache for all of this file: what was compiled once is read."""
    before = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    yield
    if before is None:
        del os.environ["TRITON_CACHE_DIR"]
    else:
        os.environ["TRITON_CACHE_DIR"] = before


@pytest.mark.parametrize(
    ("arch", "mma"), [("sm_80", "HMMA"), ("sm_90", "HGMMA"), ("sm_100", "UTCHMMA"), ("sm_120", "HMMA")]
)
def test_a_dot_uses_the_tensor_cores_of_every_architecture(toys: Any, arch: str, mma: str) -> None:
    made = compile_build(toys.build(toys.toy_dot), arch)
    read = read_cubin(made.cubin)
    assert (made.function, made.arch, read.arch) == ("toy_dot", arch, arch)
    assert set(read.mma) == {mma} and read.writes and made.smem_bytes > 0 and made.too_large is None
    assert ".visible .entry toy_dot" in made.ptx


def test_a_sum_uses_none(toys: Any) -> None:
    read = read_cubin(compile_build(toys.build(toys.toy_sum), "sm_90").cubin)
    assert read.mma == {} and read.instructions > 50 and read.roots["FFMA"] + read.roots["FADD"] > 0


@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_the_later_attention_fallback_uses_tensor_cores(toys: Any, arch: str) -> None:
    (kernel,) = kernels("sparse_decode_multi_head")
    read = read_cubin(compile_build(kernel.builds()[-1], arch).cubin)
    assert read.mma and set(read.mma) <= {"HGMMA", "HMMA"} and read.writes


def test_alignment_that_a_launch_knows_makes_wider_loads(toys: Any) -> None:
    plain = read_cubin(compile_build(toys.build(toys.toy_dot), "sm_90").cubin)
    aligned = read_cubin(compile_build(toys.build(toys.toy_dot, divisible_by_16=("a", "b", "c")), "sm_90").cubin)
    assert aligned.roots["LDG"] < plain.roots["LDG"]


def test_warps_are_those_of_the_build(toys: Any) -> None:
    four, eight = (compile_build(toys.build(toys.toy_sum, num_warps=n), "sm_90").ptx for n in (4, 8))
    assert ".reqntid 128" in four and ".reqntid 256" in eight


def test_a_tuned_function_is_the_one_below_its_tuners(toys: Any) -> None:
    tuned = compile_build(toys.build(toys.toy_tuned), "sm_90")
    assert tuned.function == "toy_sum" and tuned.cubin == compile_build(toys.build(toys.toy_sum), "sm_90").cubin


def test_what_does_not_fit_is_told_apart_from_what_does() -> None:
    def made(arch: str, smem: int, columns: int = 0) -> str | None:
        return Compiled("f", arch, b"", "", smem, columns, "3.6.0").too_large

    assert made("sm_90", 227 * 1024) is None and made("sm_120", 99 * 1024) is None
    assert made("sm_120", 99 * 1024 + 1) == "needs 101377 bytes of shared memory, a block of sm_120 has 101376"
    assert made("sm_100", 0, 512) is None
    assert made("sm_100", 0, 513) == "needs 513 columns of tensor memory, sm_100 has 512"


@pytest.mark.parametrize(
    ("types", "constants", "told"),
    [
        ({"a": "*bf16", "c": "*fp32"}, {"N": 64}, "argument 'b' has no type"),
        ({"a": "*bf16", "b": "*bf16", "c": "*fp32"}, {"N": 64, "M": 1}, "no argument 'M'"),
    ],
)
def test_a_build_that_contradicts_its_function(
    toys: Any, types: dict[str, str], constants: dict[str, int], told: str
) -> None:
    with pytest.raises(UsageError, match=f"build of toy_sum: .*{told}"):
        compile_build(Build(toys.toy_sum, types, constants), "sm_90")


def test_alignment_of_an_argument_that_is_none(toys: Any) -> None:
    with pytest.raises(UsageError, match="build of toy_sum: it has no argument 'd'"):
        compile_build(toys.build(toys.toy_sum, divisible_by_16=("d",)), "sm_90")


def test_a_plain_function_is_none_that_triton_compiles(toys: Any) -> None:
    with pytest.raises(UsageError, match="no function that Triton compiles"):
        compile_build(toys.build(len), "sm_90")


def test_what_does_not_compile_says_why_in_one_line(toys: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Unanswerable) as failed:
        compile_build(Build(toys.toy_sum, toys.TYPES, {"N": 63}), "sm_90")
    assert failed.value.message == "toy_sum does not compile for sm_90: arange's range must be a power of 2"
    assert capfd.readouterr().out == ""


def test_the_assemblers_own_words() -> None:
    text = (
        "PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\n"
        "ptxas fatal   : (C7602) Insufficient registers (32)\nptxas fatal   : Ptx assembly aborted due to errors\n\n"
        "Repro command: ptxas -lineinfo x.ptx -o x.o\n"
    )
    assert reason(RuntimeError(text)) == "ptxas fatal   : (C7602) Insufficient registers (32)"
    assert reason(RuntimeError("")) == "RuntimeError"


@pytest.mark.parametrize("text", ["sm_9x", "hopper", "sm_91", "sm_90a", "90", "", ","])
def test_what_is_no_architecture(text: str) -> None:
    with pytest.raises(UsageError, match="--arch") as refused:
        parse_archs(text)
    assert all(arch in refused.value.hint for arch in ("sm_90", "sm_100", "sm_120"))


def test_architectures_as_people_type_them() -> None:
    assert parse_archs(" sm_120, sm_90,sm_120") == ("sm_120", "sm_90")
    assert parse_archs(",".join(ARCHS)) == ARCHS


@pytest.mark.parametrize("arch", ARCHS)
def test_triton_compiles_for_each_of_them(toys: Any, arch: str) -> None:
    assert f".target {arch}" in compile_build(toys.build(toys.toy_nothing), arch).ptx


def test_with_the_interpreter_on_nothing_is_compiled() -> None:
    pytest.importorskip("triton")
    script = "from dsv4bench.kernels.compiled import triton_version; triton_version()"
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert "UsageError: TRITON_INTERPRET is set" in done.stderr


def test_a_cache_of_our_own_goes_away_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_CACHE_DIR")
    with compiled.cache_folder():
        folder = Path(os.environ["TRITON_CACHE_DIR"])
        (folder / "x").write_text("compiled")
    assert "TRITON_CACHE_DIR" not in os.environ and not folder.exists()
    monkeypatch.setenv("TRITON_CACHE_DIR", "/someone/chose/this")
    with compiled.cache_folder():
        assert os.environ["TRITON_CACHE_DIR"] == "/someone/chose/this"
    assert os.environ["TRITON_CACHE_DIR"] == "/someone/chose/this"


def test_builds_are_compiled_in_processes_and_none_is_lost_to_another(toys: Any) -> None:
    chosen = [toys.Toy("sums", least=90), toys.Toy("fatal"), toys.Toy("uneven"), toys.Toy("huge"), toys.Toy("wrong")]
    attempts = {(a.kernel, a.label, a.arch): a for a in compile_all(chosen, ("sm_80", "sm_100"))}
    assert len(attempts) == 13
    sums = attempts["sums", "plain", "sm_100"]
    assert sums.function == "toy_sum" and sums.compiled is not None and sums.why is None
    assert read_cubin(sums.compiled.cubin).mma == {}
    why = {key: a.why for key, a in attempts.items() if a.compiled is None}
    assert why["sums", "plain", "sm_80"] == "sums does not support sm_80"
    assert ("sums", "tuned", "sm_100") not in attempts  # it is for sm_90, and another stands in its place
    assert why["fatal", "", "sm_80"] == (
        "the compiler ended its process: LLVM ERROR: Cannot select: intrinsic %made.up"
    )
    assert why["uneven", "", "sm_80"] == "toy_sum does not compile for sm_80: arange's range must be a power of 2"
    assert "512 * 32 / bitwidth" in str(why["huge", "", "sm_100"])  # the pass that failed, not only that one did
    assert "argument 'b' has no type" in str(why["wrong", "untyped", "sm_80"])
    compiled_too = {key for key, a in attempts.items() if a.compiled is not None}
    assert compiled_too >= {("sums", "plain", "sm_100"), ("wrong", "", "sm_80"), ("wrong", "", "sm_100")}
    assert all((a.compiled is None) != (a.why is None) for a in attempts.values())


def test_nothing_to_compile() -> None:
    pytest.importorskip("triton")
    assert compile_all([], ("sm_90",)) == []
    assert Attempt("k", "f", "", "sm_90").compiled is None
