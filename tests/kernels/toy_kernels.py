"""Small functions to compile: one with a dot, one with a sum, and kernels made of them that fail in various ways."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from dsv4bench.kernels.build import Build


@triton.jit
def toy_dot(a, b, c, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@triton.jit
def toy_sum(a, b, c, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    x = tl.load(a + i[:, None] * N + i[None, :]).to(tl.float32)
    tl.store(c + i, tl.sum(x * tl.load(b + i)[None, :].to(tl.float32), axis=1))


@triton.jit
def toy_nothing(a, b, c, N: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.load(a + tl.arange(0, N))


@triton.jit
def toy_wide(a, b, c, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """Three sums of 128 x 4N kept over a loop: 12N columns of tensor memory."""
    m, k, n = tl.arange(0, 128), tl.arange(0, N), tl.arange(0, 4 * N)
    first = tl.zeros((128, 4 * N), tl.float32)
    second = tl.zeros((128, 4 * N), tl.float32)
    third = tl.zeros((128, 4 * N), tl.float32)
    for i in range(8):
        x = tl.load(a + i * N + m[:, None] * N + k[None, :])
        y = tl.load(b + i * N + k[:, None] * 4 * N + n[None, :])
        first = tl.dot(x, y, first)
        second = tl.dot(x + 1, y, second)
        third = tl.dot(x + 2, y, third)
    tl.store(c + m[:, None] * 4 * N + n[None, :], first * second * third)


@triton.jit
def toy_huge(a, b, c, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """A result of 128 x 8N: more tensor memory than its type can say, and Triton's own assertion fails."""
    m, k, n = tl.arange(0, 128), tl.arange(0, N), tl.arange(0, 8 * N)
    x = tl.load(a + m[:, None] * N + k[None, :])
    y = tl.load(b + k[:, None] * 8 * N + n[None, :])
    tl.store(c + m[:, None] * 8 * N + n[None, :], tl.dot(x, y))


toy_tuned = triton.autotune(configs=[triton.Config({}, num_warps=4)], key=[])(
    triton.heuristics({"N": lambda args: 64})(toy_sum)
)

TYPES = {"a": "*bf16", "b": "*bf16", "c": "*fp32"}


def build(function: Any, **fields: Any) -> Build:
    return Build(function, TYPES, {"N": 64}, **fields)


@dataclass(frozen=True)
class Toy:
    """A kernel of the registry, as far as compiling needs one; `number` picks its builds below."""

    name: str
    least: int = 80
    role: str = "fallback"

    def supports(self, sm: int) -> bool:
        return sm >= self.least

    def builds(self) -> tuple[Build, ...]:
        if self.name == "fatal" and multiprocessing.parent_process() is not None:
            os.write(2, b"LLVM ERROR: Cannot select: intrinsic %made.up\nStack dump:\n")
            os._exit(134)
        return {
            "fatal": (build(toy_sum),),
            "sums": (build(toy_sum, label="plain"), build(toy_tuned, label="tuned", archs=("sm_90",))),
            "dots": (build(toy_dot, divisible_by_16=("a", "b")),),
            "wrong": (Build(toy_sum, {"a": "*bf16", "c": "*fp32"}, {"N": 64}, label="untyped"), build(toy_sum)),
            "uneven": (Build(toy_sum, TYPES, {"N": 63}),),
            "empty": (build(toy_nothing, label="no store"), build(toy_wide, label="wide", num_warps=8)),
            "huge": (Build(toy_huge, TYPES, {"N": 128}, archs=("sm_100",)),),
        }[self.name]
