"""The unit as proof, compiled for GPUs that are not here: which MMA, and that nothing spills."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

from dsv4bench.kernels.compiled import compile_build
from dsv4bench.kernels.registry import kernels
from dsv4bench.trace.sass import SassFunction, read_cubin


@pytest.fixture(scope="module", autouse=True)
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


def _all(name: str, arch: str) -> dict[str, SassFunction]:
    (kernel,) = kernels(name)
    builds = [build for build in kernel.builds() if not build.archs or arch in build.archs]
    return {build.label: read_cubin(compile_build(build, arch).cubin) for build in builds}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_packed_weights_go_to_the_tensor_cores(arch: str) -> None:
    found = _all("grouped_moe", arch)
    assert found.pop("route M64").mma == {}
    assert set(found) == {"gate_up M1", "down M1", "gate_up M64", "down M64"}
    for label, sass in found.items():
        assert set(sass.mma) == {"HMMA"}, label
        assert sass.spill_store_bytes == sass.spill_load_bytes == 0 and sass.fp64 == 0, label
        # Copied asynchronously, and read from shared memory as the fragment of the MMA; the few plain stores to
        # shared memory are of the epilogue.
        assert sass.roots["LDGSTS"] > 0 and sass.roots["LDSM"] > 0, label
        assert sass.roots["STS"] <= 32, label


@pytest.mark.parametrize(("kernel", "mma"), [("grouped_moe_w4a4", "OMMA"), ("grouped_moe_w4a8", "QMMA")])
def test_sm_120_multiplies_what_it_is_given(kernel: str, mma: str) -> None:
    for label, sass in _all(kernel, "sm_120").items():
        assert set(sass.mma) == {mma}, label
        assert sass.spill_store_bytes == sass.spill_load_bytes == 0, label


def test_the_epilogues_alone_have_no_mma() -> None:
    found = _all("grouped_moe_separate", "sm_90")
    assert set(found) == {"swiglu", "combine"}
    assert all(sass.mma == {} and sass.writes for sass in found.values())
