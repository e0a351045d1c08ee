"""One compilation of one Triton function for `inspect`: signature, constants, warps. No torch, no triton here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Build:
    """A jitted function with the types of its arguments, in Triton's spelling (`*bf16`, `*u8`, `i32`, `fp32`).

    `constants` are its constexpr values, those that a launch on a real GPU uses. `archs` empty: every architecture.
    """

    function: Any  # triton.JITFunction
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 2
    label: str = ""  # tells two builds of one function apart, for instance "BH64"
    archs: tuple[str, ...] = ()
    divisible_by_16: tuple[str, ...] = field(default=())  # pointer and integer arguments known to be aligned so
