"""What the host tells the GPU about a step: one small block of integers, copied without waiting.

Everything that the host knows beforehand goes in it: which slots take part, where each request stands, its pages,
its drafts and how many of them count. What only the GPU knows, the token each request drew last, never leaves it:
it stays in the slot. Host blocks are pinned and used in turn; one is written again only after its copy has been made.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dsv4bench.engine.cuda.fused.addressing import Where
from dsv4bench.engine.cuda.fused.sampling import Draw

Ints = npt.NDArray[np.int32]
_ALIGN = 4  # integers; kernels are compiled for pointers that are multiples of 16 bytes
_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """R requests of `new` positions, `given` tokens each that come from the host, block tables of `pages`."""

    requests: int
    new: int
    given: int
    pages: int

    @property
    def fields(self) -> dict[str, tuple[int, ...]]:
        sizes: dict[str, tuple[int, ...]] = {"active": (1,)}
        for name in ("slots", "start", "accepted", "barred", "temperature", "seed", "drawn"):
            sizes[name] = (self.requests,)
        return sizes | {"given": (self.requests, self.given), "tables": (self.requests, self.pages)}

    @property
    def size(self) -> int:
        return sum(_aligned(shape) for shape in self.fields.values())


def _aligned(shape: tuple[int, ...]) -> int:
    return -(-max(1, int(np.prod(shape))) // _ALIGN) * _ALIGN


def _split(block: Any, layout: Layout) -> dict[str, Any]:
    """Views of one flat block of int32, by field."""
    views, at = {}, 0
    for name, shape in layout.fields.items():
        views[name] = block[at : at + int(np.prod(shape))].reshape(shape)
        at += _aligned(shape)
    return views


class HostBlock:
    """One pinned block, as numpy arrays by field; `temperature` is float32."""

    def __init__(self, layout: Layout, *, pinned: bool) -> None:
        self.tensor = torch.zeros(layout.size, dtype=torch.int32, pin_memory=pinned)
        self.views: dict[str, Ints] = _split(self.tensor.numpy(), layout)
        self.temperature = self.views["temperature"].view(np.float32)
        self.copied = _event() if pinned else None


@dataclass(slots=True)
class StepInputs:
    """The device's block with its views, which keep their addresses, and the host's blocks."""

    layout: Layout
    device: torch.device
    block: Tensor = field(init=False)
    where: Where = field(init=False)
    draw: Draw = field(init=False)
    given: Tensor = field(init=False)  # int32 [R, given]
    _host: deque[HostBlock] = field(init=False)

    def __post_init__(self) -> None:
        pinned = self.device.type == "cuda"
        self.block = torch.zeros(self.layout.size, dtype=torch.int32, device=self.device)
        views = _split(self.block, self.layout)
        self.where = Where(views["slots"], views["start"], views["active"], views["tables"], self.layout.new)
        heat = views["temperature"].view(torch.float32)
        self.draw = Draw(views["slots"], views["accepted"], views["barred"], heat, views["seed"], views["drawn"])
        self.given = views["given"]
        self._host = deque(HostBlock(self.layout, pinned=pinned) for _ in range(_BLOCKS))

    def next_block(self) -> HostBlock:
        """A block to write; the oldest, and zeros in it."""
        block = self._host[0]
        self._host.rotate(-1)
        if block.copied is not None:
            block.copied.synchronize()  # four steps old: it does not wait
        block.tensor.zero_()
        return block

    def send(self, block: HostBlock) -> None:
        """Copies it to the device, on the current stream."""
        self.block.copy_(block.tensor, non_blocking=True)
        if block.copied is not None:
            block.copied.record()


def _event() -> torch.cuda.Event:
    cuda: Any = torch.cuda  # its constructor has no types
    event: torch.cuda.Event = cuda.Event()
    return event


class Outbox:
    """Where drawn tokens come back to the host, without stopping it until it asks."""

    def __init__(self, requests: int, device: torch.device) -> None:
        pinned = device.type == "cuda"
        self._host = torch.zeros(requests, dtype=torch.int32, pin_memory=pinned)
        self._event = _event() if pinned else None
        self._count = 0

    def fetch(self, tokens: Tensor, count: int) -> None:
        """Starts the copy of the first `count` of tokens int32 [R]."""
        self._count = count
        self._host[:count].copy_(tokens[:count], non_blocking=True)
        if self._event is not None:
            self._event.record()

    def tokens(self) -> list[int]:
        """Waits for the copy: the one point of a step at which the host waits for the GPU."""
        if self._event is not None:
            self._event.synchronize()
        found: list[int] = self._host[: self._count].tolist()
        return found
