"""Each fused kernel of the GPU engine against the CPU engine's own code, through Triton's interpreter."""

from __future__ import annotations

import pytest
from cuda_checks import names, outcomes

pytest.importorskip("triton")
MODULE = "cuda_fused_checks"


@pytest.fixture(scope="module")
def ended() -> dict[str, str]:
    return outcomes(MODULE)


@pytest.mark.parametrize("check", names(MODULE))
def test_fused(check: str, ended: dict[str, str]) -> None:
    assert ended[check] == "", ended[check]
