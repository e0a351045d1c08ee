"""Rules that people can read and extend: which kernel belongs to which component, and which name proves its unit.

Made by `scenario/rules.py` from YAML, passed to `attribution/` as values. The first rule that matches wins; a user's
rules come before the packaged ones.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

Component = Literal[
    "moe",
    "router",
    "attention",
    "indexer",
    "compressor",
    "kv_write",
    "dense",
    "mhc",
    "glue",
    "sampling",
    "comm",
    "elementwise",
    "copy",
    "other",
]
COMPONENTS: tuple[str, ...] = get_args(Component)


class ComponentRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`contains`: any of these fragments, as written, in the short or demangled name. `regex`: instead, a search."""

    component: str
    contains: list[str] = msgspec.field(default_factory=list)
    regex: str | None = None
    without: list[str] = msgspec.field(default_factory=list)  # and none of these
    tail: bool = False  # an elementwise kernel that may belong to its neighbour's component
    live: str = ""  # the implementation that this kernel proves to run (marlin, fallback-mh), where it does
    note: str = ""


class UnitRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exact fragment that proves a unit (`s16816`, `_ffma_`); never a bare `gemm` or `flash`.

    `unknown`: a name that proves nothing although it looks as if it did; no later rule is asked, the note says why.
    """

    runs_on: Literal["tensor", "cuda", "unknown"]
    contains: list[str] = msgspec.field(default_factory=list)
    regex: str | None = None
    without: list[str] = msgspec.field(default_factory=list)
    note: str = ""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    components: list[ComponentRule]
    units: list[UnitRule] = msgspec.field(default_factory=list)
    source: list[str] = msgspec.field(default_factory=list)  # the files they came from
