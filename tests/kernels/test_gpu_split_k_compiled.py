"""What the split-K decode becomes for GPUs that are not here: MMA on every path, no double precision, no spills."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

from dsv4bench.kernels.compiled import compile_build
from dsv4bench.kernels.registry import kernels
from dsv4bench.trace.sass import read_cubin

SPILL_LIMIT_BYTES = 64  # at 255 registers a few values are kept in local memory; the accumulators must not be


@pytest.fixture(scope="module", autouse=True)
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


@pytest.mark.parametrize(
    ("arch", "mma", "count"), [("sm_90", "HGMMA", 5), ("sm_120", "HMMA", 2), ("sm_89", "HMMA", 2)]
)
def test_both_products_run_on_tensor_cores(arch: str, mma: str, count: int) -> None:
    (kernel,) = kernels("sparse_decode_split_k")
    seen = 0
    for build in kernel.builds():
        if build.archs and arch not in build.archs:
            continue
        made = compile_build(build, arch)
        sass = read_cubin(made.cubin)
        assert made.too_large is None and sass.writes and sass.fp64 == 0, build.label
        assert max(sass.spill_store_bytes, sass.spill_load_bytes) < SPILL_LIMIT_BYTES, build.label
        if made.function == "_sparse_decode_combine_kernel":
            assert sass.mma == {}
            continue
        assert set(sass.mma) == {mma}, build.label
        # wgmma: 32 steps of 16 lanes once for all rows, not once a warp group, and at least two for the output
        assert 34 <= sass.mma[mma] <= (40 if mma == "HGMMA" else 200), build.label
        seen += 1
    assert seen == count
