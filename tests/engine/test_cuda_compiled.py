"""The fused kernels compile for GPUs that are not here, at the real sizes: no spills, no double precision, no calls.

The interpreter takes what the compiler refuses (a name of two types, for one), so it alone proves little.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

from cuda_launches import record

from dsv4bench.attribution.components import classify_all
from dsv4bench.kernels.build import Build
from dsv4bench.kernels.compiled import compile_build
from dsv4bench.scenario.rules import load_rules
from dsv4bench.trace.sass import read_cubin

# Of one step over four layers, beside the hot kernels: 8 to 12 a layer, and what a step begins and ends with.
LAUNCHES = 48


@pytest.fixture(scope="module")
def launches() -> list[Build]:
    with pytest.MonkeyPatch.context() as patch:
        return record(patch, requests=4, positions=2)


def test_launches_of_a_step(launches: list[Build]) -> None:
    assert len(launches) == LAUNCHES


def test_the_rules_know_every_kernel_of_ours(launches: list[Build]) -> None:
    expected = {
        "_prepare_tokens_kernel": "glue",
        "_prepare_rows_kernel": "glue",
        "_mhc_project_kernel": "mhc",
        "_mhc_fold_kernel": "mhc",
        "_q_norm_kv_cache_write_kernel": "kv_write",
        "_q_head_norm_rope_kernel": "glue",
        "_kv_compress_norm_rope_insert_kernel": "compressor",
        "_indexer_scores_kernel": "indexer",
        "_indexer_topk_kernel": "indexer",
        "_router_fused_topk_kernel": "router",
        "_shared_swiglu_kernel": "glue",  # between two dense products, whose neighbour it becomes
        "_argmax_sample_kernel": "sampling",
        "_argmax_sampled_kernel": "sampling",
    }
    names = sorted({build.function.__name__ for build in launches})
    rules = classify_all([[name] for name in names], load_rules())
    assert {name: rule and rule.component for name, rule in zip(names, rules, strict=True)} == expected


@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_they_compile_without_spills(
    launches: list[Build], arch: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: Any
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
    distinct: dict[str, Build] = {}
    for build in launches:
        key = (build.function.__name__, sorted(build.constants.items()), build.signature, build.divisible_by_16)
        distinct[repr(key)] = build
    assert len(distinct) > 15
    for build in distinct.values():
        made = compile_build(build, arch)
        sass = read_cubin(made.cubin)
        said = f"{made.function} {dict(build.constants)}"
        assert made.too_large is None, said
        assert sass.fp64 == 0 and not sass.calls, said
        assert sass.spill_store_bytes == sass.spill_load_bytes == 0, said
