"""Can this machine serve what was asked for? One clear line where not, and the number of layers that would fit.

Asked before anything is allocated: torch with CUDA, a GPU, Triton, an architecture that the kernels are written for,
and memory for weights as the chosen kernels keep them, caches, and the largest step.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator

import msgspec
import torch

from dsv4bench.dsv4 import ModelDims, parameters
from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.cuda.cache import cache_bytes
from dsv4bench.engine.cuda.limits import MIN_SM
from dsv4bench.engine.cuda.sets import NAMES, wanted
from dsv4bench.errors import UsageError
from dsv4bench.kernels.arguments import interpreted

_MX_BYTES = 17 / 32  # a weight: a nibble, and its share of an E8M0 scale
# What one form of the experts takes, a weight. The fallback keeps float32 scales beside the nibbles.
_EXPERT_BYTES = {"slot_gemv": 20 / 32}
_CONTEXT_BYTES = 2 << 30  # CUDA context, cuBLAS workspaces, compiled kernels, fragmentation


def require(config: EngineConfig) -> None:
    """Raises UsageError naming what is missing or too small."""
    if interpreted():
        raise UsageError("--device cuda: TRITON_INTERPRET is set, so nothing would run on the GPU", "unset it")
    sm = _architecture()
    for kernel in (*wanted(config.moe, config.attention), *wanted("optimized", "optimized")):
        if not kernel.supports(sm):
            archs = ", ".join(kernel.archs) or f"sm_{kernel.min_sm} and later"
            raise UsageError(
                f"kernel {kernel.name} does not run on {torch.cuda.get_device_name()} (sm_{sm})",
                f"it needs {archs}; use --device cpu",
            )
    free, _ = torch.cuda.mem_get_info()
    check_memory(config, free)


def _architecture() -> int:
    """The GPU's, 90 for sm_90. Raises UsageError without one, and for one that is too old."""
    if torch.version.cuda is None:
        raise UsageError(
            f"--device cuda: this torch ({torch.__version__}) is built without CUDA",
            "install torch for CUDA, or use --device cpu",
        )
    if not torch.cuda.is_available():
        raise UsageError(
            "--device cuda: torch sees no GPU",
            "look at nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu",
        )
    if importlib.util.find_spec("triton") is None:
        raise UsageError("--device cuda needs triton", "pip install 'dsv4bench[kernels]'")
    major, minor = torch.cuda.get_device_capability()
    sm = 10 * major + minor
    if sm < MIN_SM:
        name = torch.cuda.get_device_name()
        raise UsageError(
            f"--device cuda: {name} is sm_{sm}, the FP8 cache needs sm_{MIN_SM} or later", "use --device cpu"
        )
    return sm


@contextlib.contextmanager
def explaining_out_of_memory(config: EngineConfig) -> Iterator[None]:
    """Turns torch's OutOfMemoryError while the engine is built into one line: the estimate was too small."""
    try:
        yield
    except torch.OutOfMemoryError:
        dims, (free, _) = config.dims, torch.cuda.mem_get_info()
        had = free + torch.cuda.memory_reserved()
        fit = most_layers(config, int(0.9 * had), below=dims.layers)
        hint = f"use --preset flash-layers --layers {fit}" if fit else "lower --max-running or --max-model-len"
        raise UsageError(f"out of GPU memory with {dims.layers} layers on {had / 1e9:.0f} GB", hint) from None


def check_memory(config: EngineConfig, free_bytes: int) -> None:
    """Raises UsageError, with the number of layers that fit, where the model does not."""
    dims = config.dims
    if needed_bytes(config, dims) <= free_bytes:
        return
    fit = most_layers(config, free_bytes, below=dims.layers)
    needs = f"{dims.layers} layers need {needed_bytes(config, dims) / 1e9:.0f} GB"
    has = f"{free_bytes / 1e9:.0f} GB of this GPU are free"
    if fit:
        raise UsageError(f"{needs}, {has}: {fit} would fit", f"use --preset flash-layers --layers {fit}")
    raise UsageError(f"{needs}, {has}: not one layer would fit", "free the GPU, or lower --max-running")


def most_layers(config: EngineConfig, free_bytes: int, *, below: int) -> int:
    """How many layers, fewer than `below`, fit; 0: none."""
    fewer = range(below - 1, 0, -1)
    return next((n for n in fewer if needed_bytes(config, _first(config.dims, n)) <= free_bytes), 0)


def needed_bytes(config: EngineConfig, dims: ModelDims) -> int:
    """Weights, caches, the largest step, and one layer more while it is being drawn."""
    count = parameters(dims)
    forms = {NAMES[config.moe]["moe"], NAMES["optimized"]["moe"]}
    experts = count.experts * sum(_EXPERT_BYTES.get(form, _MX_BYTES) for form in forms)
    rest = (count.total - count.experts) * 2
    # A layer is drawn as bytes, and scales are expanded through integers, beside what is kept of it.
    drawing = count.experts / dims.layers * (_MX_BYTES + 4 / 32)
    caches = cache_bytes(dims, config.pages, config.max_running + 1, config.positions_a_step)
    positions = max(config.max_running * config.positions_a_step, config.prefill_chunk)
    step = positions * (4 * dims.vocab_size + 64 * dims.hidden + 8 * dims.heads * dims.head_dim)
    return int(experts + rest + drawing + caches + step) + _CONTEXT_BYTES


def _first(dims: ModelDims, layers: int) -> ModelDims:
    hashed = min(dims.hash_layers, layers)
    return msgspec.structs.replace(dims, ratios=dims.ratios[:layers], hash_layers=hashed)
