"""The GPU engine's whole step against the plain reference, on CPU tensors through Triton's interpreter."""

from __future__ import annotations

import pytest
from cuda_checks import names, outcomes

pytest.importorskip("triton")
MODULE = "cuda_model_checks"


@pytest.fixture(scope="module")
def ended() -> dict[str, str]:
    return outcomes(MODULE)


@pytest.mark.parametrize("check", names(MODULE))
def test_model(check: str, ended: dict[str, str]) -> None:
    assert ended[check] == "", ended[check]
