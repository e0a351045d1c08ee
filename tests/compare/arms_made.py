"""Arms and cells with only the facts that a test is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell
from dsv4bench.records.request import TokenSource

WORKLOAD = {"model": "m", "endpoint": "completions", "dataset": "random", "temperature": 0.0, "ignore_eos": True}
HARDWARE = {"gpus": "GPU X", "n_gpus": 1, "driver": "570.1"}


def make_cell(
    output_tok_s: float | None,
    concurrency: int | None = 8,
    launch: str = "L0",
    repeat: int = 0,
    isl: int = 1024,
    **more: Any,
) -> Cell:
    """A valid closed-loop level; every other figure is None unless given."""
    fields: dict[str, Any] = {
        f: None for f in Cell.__struct_fields__ if f.endswith(("_s", "_frac", "_tokens", "_user", "_mean", "_batch"))
    }
    for name in ("rounding", "approximate", "why_null", "notes", "errors"):
        fields.pop(name, None)
    fields |= {
        "cell": f"r{repeat}-c{concurrency}-i{isl}",
        "launch": launch,
        "repeat": repeat,
        "concurrency": concurrency,
        "isl": isl,
        "osl": 256,
        "started_utc": "2026-01-01T00:00:00.000Z",
        "n_sent": max(24, 4 * (concurrency or 1)),
        "n_ok": max(24, 4 * (concurrency or 1)),
        "n_err": 0,
        "token_source": TokenSource.USAGE,
        "tokens_per_chunk": None,
        "output_tok_s": output_tok_s,
        "output_tok_s_steady": None,
        "peak_in_flight": concurrency or 1,
        "timestamps": "kernel",
        "n_workers": 1,
    }
    return Cell(**(fields | more))


def make_arm(name: str, cells: Sequence[Cell], **more: Any) -> Arm:
    fields: dict[str, Any] = {"workload": WORKLOAD, "hardware": HARDWARE, "server": {}, "source": "dsv4bench"}
    return Arm(name=name, ids=[f"id-{name}"], cells=list(cells), **(fields | more))


def repeats(values: Sequence[float], **more: Any) -> list[Cell]:
    """One launch, a repeat a value."""
    return [make_cell(v, repeat=i, **more) for i, v in enumerate(values)]


def launches(values: Sequence[float], blocks: bool = False, **more: Any) -> list[Cell]:
    """A launch a value, in its own block when asked."""
    return [make_cell(v, launch=f"L{i}", block=i if blocks else None, **more) for i, v in enumerate(values)]
