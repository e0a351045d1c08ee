"""What the GPU would allow at each level: the roofline of a decode step's bytes and FLOPs, beside what was measured.

Only where it can be known: the model is DeepSeek-V4-Flash or a preset that our own server names, and the GPU is in
the table or was given with its bandwidth. Context is the mean one while decoding, ISL + OSL/2. Communication and
launches are left out, so the roofline is an upper bound: a measured figure more than 10 % above it means that the
bytes or the bandwidth are wrong, never that a kernel is fast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dsv4bench.compare.ladder import Ladder, mean_known
from dsv4bench.dsv4 import FLASH, ModelDims, preset
from dsv4bench.errors import UsageError
from dsv4bench.gpus import Gpu, find
from dsv4bench.limits import step_floor
from dsv4bench.records.arm import Arm, Plain

TOO_FAST = 1.10
FLASH_NAME = "deepseek-v4-flash"
TP_ARGUMENTS = ("tensor_parallel_size", "tp_size", "tp")


def rooflines(
    arm: Arm, ladder: Ladder, *, gpu: Gpu | None = None, tp: int | None = None, verified: int | None = None
) -> tuple[dict[str, float], list[str]]:
    """Roofline tok/s by level ("8" -> tok/s), and notes: why there is none, what was assumed, what lies above it.

    `gpu` and `tp` None: as the arm's hardware and server tell. `verified` is the number of tokens a sequence that a
    step checks; unknown under speculation, the fewest that the acceptance length allows.
    """
    dims = model_of(arm)
    if dims is None:
        return {}, [f"no roofline: the dimensions of {arm.workload.get('model') or 'an untold model'} are not known"]
    if not ladder.isl:
        return {}, ["no roofline: the length of the context is not known"]
    card = gpu or gpu_of(arm)
    if card is None:
        if any(k.rpartition(".")[2] == "device" and v == "cpu" for k, v in (arm.server or {}).items()):
            return {}, ["no roofline: no GPU, the server runs on a CPU"]
        return {}, ["no roofline: the GPU is not known; name it, or give its bandwidth"]
    shards = tp or argument(arm.server, *TP_ARGUMENTS) or 1
    try:
        found = {c: _roof(arm, ladder, dims, card, c, shards, verified) for c in ladder.levels}
    except UsageError as error:
        return {}, [f"no roofline: {error.message}"]
    notes = [
        f"roofline: {dims.name} on {shards} x {card.name} ({card.bandwidth_bytes_s / 1e9:.0f} GB/s, {card.kind})"
    ]
    return {str(c): roof for c, roof in found.items()}, [*notes, *_against(ladder, found)]


def model_of(arm: Arm) -> ModelDims | None:
    """The published model by its name, or the preset that our own server was started with; None for any other."""
    server = arm.server or {}
    if server.get("engine") == "dsv4bench" and isinstance(name := server.get("preset"), str):
        try:
            return preset(name, argument(server, "layers") if name == "flash-layers" else None)
        except UsageError:
            return None
    model = arm.workload.get("model")
    return FLASH if isinstance(model, str) and model.rstrip("/").rsplit("/", 1)[-1].lower() == FLASH_NAME else None


def gpu_of(arm: Arm) -> Gpu | None:
    """The GPU of the arm's hardware when all its GPUs are of one known kind."""
    names = (arm.hardware or {}).get("gpus")
    if not isinstance(names, str):
        return None
    kinds = {name.strip() for name in names.split(",")}
    return find(kinds.pop()) if len(kinds) == 1 else None


def argument(server: Mapping[str, Plain] | None, *names: str) -> int | None:
    """The first whole number among a server's flat arguments under one of these names, at any depth."""
    for name in names:
        for key, value in (server or {}).items():
            plain = key.rsplit(".", 1)[-1].lstrip("-").replace("-", "_")
            if plain == name and isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def _roof(arm: Arm, ladder: Ladder, dims: ModelDims, gpu: Gpu, level: int, tp: int, verified: int | None) -> float:
    cells = [c for c in arm.cells if c.concurrency == level and c.isl == ladder.isl]
    isl = mean_known(c.isl_mean for c in cells) or float(ladder.isl)
    osl = mean_known(c.osl_mean for c in cells) or mean_known(c.osl for c in cells) or 0.0
    rungs = ladder.at(level)
    accept = sum(r.accept_length for r in rungs) / len(rungs)
    floor = step_floor(
        dims,
        gpu,
        level,
        max(1, round(isl + osl / 2)),
        tp=tp,
        verified=verified or math.ceil(accept),
        accept_length=accept,
    )
    return floor.output_tok_s


def _against(ladder: Ladder, roofs: Mapping[int, float]) -> list[str]:
    parts, wrong = [], []
    for level, roof in roofs.items():
        measured = ladder.measured_tok_s(level)
        if measured is None:
            continue
        parts.append(f"{measured / roof:.1%} at C={level}")
        if measured > TOO_FAST * roof:
            wrong.append(_too_fast(level, measured, roof))
    return [f"measured of the roofline: {', '.join(parts)}", *wrong] if parts else []


def _too_fast(level: int, measured: float, roof: float) -> str:
    return (
        f"C={level}: {measured:.4g} tok/s is {measured / roof:.0%} of the roofline {roof:.4g}: "
        "the bytes model, the bandwidth or the TP size is wrong, the kernels are not that fast"
    )
