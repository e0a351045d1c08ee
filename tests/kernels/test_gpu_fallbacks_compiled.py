"""The unit as proof, compiled for GPUs that are not here: the campaign's fallbacks have no MMA, the later one has.

Also what would make a baseline slow for a reason that is not its own: double precision from a literal, and spills.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

from dsv4bench.kernels.compiled import compile_build
from dsv4bench.kernels.registry import kernels
from dsv4bench.trace.sass import SassFunction, read_cubin

ARCHS = ("sm_90", "sm_120")


@pytest.fixture(scope="module", autouse=True)
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


def _read(name: str, number: int, arch: str) -> tuple[str, SassFunction]:
    (kernel,) = kernels(name)
    made = compile_build(kernel.builds()[number], arch)
    return made.function, read_cubin(made.cubin)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("number", range(4))
def test_the_slot_gemv_has_no_mma(number: int, arch: str) -> None:
    function, sass = _read("slot_gemv", number, arch)
    assert function == "_mxfp4_slot_gemv_kernel"
    assert sass.mma == {} and sass.writes and not sass.calls and sass.fp64 == 0
    assert sass.roots["FMUL"] + sass.roots["FFMA"] > 50 and sass.roots["MUFU"] > 0  # it decodes with exp2
    assert sass.spill_store_bytes == sass.spill_load_bytes == 0


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("number", range(3))
def test_the_per_head_decode_has_no_mma(number: int, arch: str) -> None:
    function, sass = _read("sparse_decode_per_head", number, arch)
    assert function == "_tiled_sparse_decode_kernel"
    assert sass.mma == {} and sass.writes and not sass.calls and sass.fp64 == 0
    assert sass.roots["FFMA"] > 100
    assert sass.spill_store_bytes < 400  # near 255 registers, as it was served; one of the choices spills nothing


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("number", [0, 3])
def test_the_multi_head_decode_has_mma(number: int, arch: str) -> None:
    function, sass = _read("sparse_decode_multi_head", number, arch)
    assert function == "_tiled_sparse_decode_kernel_mh"
    assert sum(sass.mma.values()) > 20 and sass.writes and sass.fp64 == 0
