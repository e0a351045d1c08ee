"""One configuration, ready to be compared: its cells and the plain facts that decide whether comparing is allowed.

Made from stored experiments (several are pooled when asked), from a scenario folder, or from another tool's file;
after this no one asks where it came from. A dictionary here holds plain keys so that a refusal can name the ones that
differ; None in place of a dictionary means "not told", which is not the same as empty.
"""

from __future__ import annotations

import msgspec

from dsv4bench.records.cell import Cell

Plain = str | int | float | bool | None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One value of one metric: the unit that statistics work on. `value` is in the metric's own unit."""

    metric: str
    config: str
    concurrency: int | None
    rate_req_s: float | None
    isl: int
    launch: str  # unique over the arm: experiment id and launch
    block: int | None
    repeat: int
    value: float


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration. `source` is dsv4bench, published, or the tool whose file it was."""

    name: str
    ids: list[str]
    source: str
    parent: str | None = None
    levers: list[str] = msgspec.field(default_factory=list)  # what was changed against the parent
    touches: dict[str, list[str]] = msgspec.field(default_factory=dict)  # lever -> components it can change
    lever_keys: dict[str, list[str]] = msgspec.field(default_factory=dict)  # lever -> keys of `server` it sets
    cells: list[Cell] = msgspec.field(default_factory=list)
    workload: dict[str, Plain] = msgspec.field(default_factory=dict)
    hardware: dict[str, Plain] | None = None
    server: dict[str, Plain] | None = None  # engine, version, arguments and environment, flat
    not_live: str | None = None  # how its lever was seen not to be in force: it gets no verdict
    complete: bool = True
    notes: list[str] = msgspec.field(default_factory=list)
