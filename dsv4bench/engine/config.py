"""What `dsv4bench serve` was asked for, checked once; the rest of the engine takes it as given."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from dsv4bench.dsv4 import ModelDims, parameters, preset
from dsv4bench.engine.cache import PAGE_SIZE
from dsv4bench.engine.cuda.limits import PAGE_SIZE as CUDA_PAGE_SIZE
from dsv4bench.engine.cuda.limits import check_shape
from dsv4bench.engine.speculation import Speculation
from dsv4bench.errors import UsageError
from dsv4bench.kernels.sets import KERNEL_NAMES, KernelName

DEFAULT_MAX_MODEL_LEN: dict[str, int] = {"cpu": 16_384, "cuda": 4096}
DEFAULT_QUEUE_LIMIT = 1024
_POOL_TOKENS_PER_REQUEST = 2048  # the KV pool holds max_running requests of this length, or one of the longest


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the server; `dims`, `speculation` and `pages` follow from them."""

    preset: str = "tiny"
    layers: int | None = None
    kernels: KernelName = "fallback"
    moe_kernel: KernelName | None = None  # instead of the set's
    attention_kernel: KernelName | None = None  # instead of the set's
    device: str = "cpu"
    cuda_graphs: bool = True  # on a GPU; without them every kernel of a decode step is launched one by one
    max_running: int = 64
    max_model_len: int = DEFAULT_MAX_MODEL_LEN["cpu"]
    queue_limit: int = DEFAULT_QUEUE_LIMIT
    prefill_chunk: int = 512  # prompt tokens a step computes at most
    spec_tokens: int = 0
    spec_accept: float = 0.7
    seed: int = 0
    threads: int = 1
    served_model_name: str = "dsv4-tiny"

    def __post_init__(self) -> None:
        if self.device not in ("cpu", "cuda"):
            raise UsageError(f"--device {self.device} is unknown", "use --device cpu or --device cuda")
        for option in ("kernels", "moe_kernel", "attention_kernel"):
            if (value := getattr(self, option)) not in (*KERNEL_NAMES, *((None,) if option != "kernels" else ())):
                flag = option.replace("_", "-")
                raise UsageError(f"--{flag} {value} is unknown", f"use one of: {', '.join(KERNEL_NAMES)}")
        for option in ("max_running", "max_model_len", "threads", "prefill_chunk"):
            if getattr(self, option) < 1:
                flag = option.replace("_", "-")
                raise UsageError(f"--{flag} {getattr(self, option)} is too small", "give 1 or more")
        if self.queue_limit < 0:
            raise UsageError(f"--queue-limit {self.queue_limit} is negative", "give 0 (nobody waits) or more")
        _ = self.speculation  # raises UsageError for what it cannot take, as `dims` does
        if self.device == "cuda":
            check_shape(self.dims, self.max_model_len)
            return  # what fits is asked of the GPU itself, when the engine is built
        needed, present = weight_bytes(self.dims), _memory_bytes()
        if present is not None and needed > present:
            raise UsageError(
                f"the weights of {self.dims.name} need {needed / 1e9:.0f} GB, "
                f"this machine has {present / 1e9:.0f} GB",
                "use --preset tiny, or fewer --layers",
            )

    @property
    def dims(self) -> ModelDims:
        return preset(self.preset, self.layers)

    @property
    def moe(self) -> KernelName:
        return self.moe_kernel or self.kernels

    @property
    def attention(self) -> KernelName:
        return self.attention_kernel or self.kernels

    @property
    def kernels_label(self) -> str:
        """What decodes: a set's name, or both components where they are of different sets."""
        return self.moe if self.moe == self.attention else f"moe {self.moe}, attention {self.attention}"

    @property
    def page_size(self) -> int:
        """Tokens a page of the KV pool."""
        return PAGE_SIZE if self.device == "cpu" else CUDA_PAGE_SIZE

    @property
    def speculation(self) -> Speculation | None:
        return Speculation(tokens=self.spec_tokens, accept=self.spec_accept) if self.spec_tokens else None

    @property
    def positions_a_step(self) -> int:
        """Forward positions of one request in a decode step."""
        return max(1, self.spec_tokens)

    @property
    def pages(self) -> int:
        """Pages of the KV pool, the unused page 0 included."""
        longest = self.max_model_len + self.positions_a_step
        usual = -(-min(longest, _POOL_TOKENS_PER_REQUEST) // self.page_size)
        return max(-(-longest // self.page_size), self.max_running * usual) + 1

    @property
    def tells_logprobs(self) -> bool:
        """On a GPU the token is drawn inside the captured step, and nothing but the token leaves it."""
        return self.device == "cpu"

    def as_args(self) -> dict[str, Any]:
        told = msgspec.structs.asdict(self)
        for option in ("moe_kernel", "attention_kernel"):
            if told[option] is None:
                del told[option]
        if self.device == "cpu":
            del told["cuda_graphs"]
        if not self.spec_tokens:  # without speculation its acceptance is no setting
            del told["spec_tokens"], told["spec_accept"]
        return told


def weight_bytes(dims: ModelDims) -> int:
    """Routed experts as packed MXFP4 (17 bytes for 32), everything else as float32, as this engine keeps them."""
    count = parameters(dims)
    return count.experts * 17 // 32 + (count.total - count.experts) * 4


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None  # the system does not say
