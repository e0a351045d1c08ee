"""What cannot run on a GPU is refused in one line, before anything is allocated; what fits is counted in layers."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any

import pytest
import torch

from dsv4bench.dsv4 import flash_layers
from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.cuda import cache, device, sets
from dsv4bench.errors import UsageError
from dsv4bench.kernels import registry

GB = 10**9


def _config(layers: int = 8, **options: Any) -> EngineConfig:
    return EngineConfig(device="cuda", preset="flash-layers", layers=layers, max_model_len=4096, **options)


class Gpu:
    """What torch says of a GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.says("is_available", True)
        self.says("get_device_capability", (9, 0))
        self.says("get_device_name", "NVIDIA Example")
        self.says("mem_get_info", (140 * GB, 150 * GB))
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "triton" else find(name))
        optimized = [
            dataclasses.replace(registry.KERNELS[0], name=name, component=component, role="optimized")
            for component, name in sets.NAMES["optimized"].items()
        ]
        others = [k for k in registry.KERNELS if k.name not in sets.NAMES["optimized"].values()]
        self.offers(*others, *optimized)

    def says(self, name: str, value: Any) -> None:
        self._patch.setattr(torch.cuda, name, lambda *_: value)

    def offers(self, *kernels: registry.Kernel) -> None:
        self._patch.setattr(registry, "KERNELS", tuple(kernels))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


def _refusal(config: EngineConfig) -> str:
    with pytest.raises(UsageError) as caught:
        device.require(config)
    assert caught.value.hint and "\n" not in caught.value.message
    return f"{caught.value.message} | {caught.value.hint}"


def test_a_gpu_that_is_large_and_new_enough_is_taken(gpu: Gpu) -> None:
    device.require(_config())


def test_torch_without_cuda(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert f"this torch ({torch.__version__}) is built without CUDA" in _refusal(_config())


def test_no_gpu(gpu: Gpu) -> None:
    gpu.says("is_available", False)
    assert "torch sees no GPU | look at nvidia-smi and CUDA_VISIBLE_DEVICES" in _refusal(_config())


def test_no_triton(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert _refusal(_config()) == "--device cuda needs triton | pip install 'dsv4bench[kernels]'"


def test_an_architecture_without_e4m3(gpu: Gpu) -> None:
    gpu.says("get_device_capability", (8, 0))
    assert "NVIDIA Example is sm_80, the FP8 cache needs sm_89 or later" in _refusal(_config())


def test_a_kernel_for_other_architectures(gpu: Gpu) -> None:
    only = dataclasses.replace(registry.KERNELS[-1], archs=("sm_120",))
    gpu.offers(*(k for k in registry.KERNELS if k.name != only.name), only)
    said = _refusal(_config())
    assert f"kernel {only.name} does not run on NVIDIA Example (sm_90) | it needs sm_120" in said


@pytest.mark.parametrize("kernels", ["fallback", "optimized"])
def test_more_layers_than_fit_gives_the_number_that_fits(gpu: Gpu, kernels: str) -> None:
    config = _config(43, kernels=kernels)
    said = _refusal(config)
    fit = int(said.rsplit("--layers ", 1)[1])
    assert f"140 GB of this GPU are free: {fit} would fit" in said
    assert (
        device.needed_bytes(config, flash_layers(fit))
        <= 140 * GB
        < device.needed_bytes(config, flash_layers(fit + 1))
    )
    device.require(_config(fit, kernels=kernels))
    # The fallback keeps a second form of the experts for prefill, and float32 scales in its own.
    assert fit == {"fallback": 16, "optimized": 34}[kernels]


def test_not_even_one_layer(gpu: Gpu) -> None:
    gpu.says("mem_get_info", (2 * GB, 150 * GB))
    assert "not one layer would fit" in _refusal(_config(2))


def test_out_of_memory_after_all_is_one_line(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.says("mem_get_info", (1 * GB, 150 * GB))
    gpu.says("memory_reserved", 39 * GB)
    with (
        pytest.raises(UsageError, match=r"out of GPU memory with 8 layers on 40 GB") as caught,
        device.explaining_out_of_memory(_config(8, kernels="optimized")),
    ):
        raise torch.OutOfMemoryError("tried to allocate")
    fit = int(caught.value.hint.rsplit(" ", 1)[1])
    assert 0 < fit < 8
    with pytest.raises(RuntimeError, match="another"), device.explaining_out_of_memory(_config(1)):
        raise RuntimeError("another")


def test_a_kernel_that_this_version_has_not(gpu: Gpu) -> None:
    gpu.offers(*(k for k in registry.KERNELS if k.name != "grouped_moe"))
    with pytest.raises(UsageError, match="kernel grouped_moe is not part of this version"):
        device.require(_config())


def test_cache_bytes_are_those_of_the_caches() -> None:
    dims = flash_layers(4)
    allocated = cache.allocate(dims, 3, 5, 2, torch.device("cpu"))
    tensors = [t for layer in allocated for t in (getattr(layer, f.name) for f in dataclasses.fields(layer))]
    assert sum(t.nbytes for t in tensors if t is not None) == cache.cache_bytes(dims, 3, 5, 2)
