"""What cannot be served is refused with the offending value, before a model is built."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from dsv4bench.dsv4 import FLASH, tiny
from dsv4bench.engine.cache import PAGE_SIZE
from dsv4bench.engine.config import EngineConfig, weight_bytes
from dsv4bench.engine.weights import RandomWeights
from dsv4bench.errors import UsageError


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": "cuda"}, "--device cuda with --preset tiny: its kernels need heads of 512 lanes, this has 64"),
        ({"device": "cuda", "preset": "flash-layers", "max_model_len": 200_000}, "--max-model-len 200000"),
        ({"moe_kernel": "fast"}, "--moe-kernel fast"),
        ({"attention_kernel": "slow"}, "--attention-kernel slow"),
        ({"device": "tpu"}, "--device tpu"),
        ({"kernels": "fast"}, "--kernels fast"),
        ({"max_running": 0}, "--max-running 0"),
        ({"queue_limit": -1}, "--queue-limit -1"),
        ({"spec_tokens": 1}, "--spec-tokens 1"),
        ({"preset": "huge"}, "huge"),
        ({"preset": "tiny", "layers": 2}, "tiny"),
    ],
)
def test_refusals(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        EngineConfig(**options)
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_the_pool_holds_the_longest_request_with_its_verification() -> None:
    config = EngineConfig(max_running=1, max_model_len=4096, spec_tokens=4)
    assert (config.pages - 1) * PAGE_SIZE >= 4096 + 4


def _stored_bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, tuple):
        return sum(map(_stored_bytes, value))
    if not dataclasses.is_dataclass(value):
        return 0
    return sum(_stored_bytes(getattr(value, field.name)) for field in dataclasses.fields(value))


def test_weight_bytes_are_those_of_the_drawn_weights() -> None:
    drawn = _stored_bytes(RandomWeights(tiny(), 0).draw())
    # Selection biases and the table of the hash layer are not parameters; mHC scales are not modelled.
    assert abs(weight_bytes(tiny()) - drawn) < 0.02 * drawn


def test_a_model_larger_than_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsv4bench.engine.config._memory_bytes", lambda: 8_000_000_000)
    with pytest.raises(UsageError, match=f"need {weight_bytes(FLASH) / 1e9:.0f} GB, this machine has 8 GB"):
        EngineConfig(preset="flash")
