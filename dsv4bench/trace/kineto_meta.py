"""The head and tail of a Kineto file: devices, rank, versions. Only keys on the list are kept: a head may hold an
environment, user names and hosts. Every value may be missing or of another type.
"""

from __future__ import annotations

import re

from dsv4bench.records.trace import DeviceFacts
from dsv4bench.trace.kineto_events import integer

_FACTS = (
    "schemaVersion",
    "cuda_runtime_version",
    "cuda_driver_version",
    "cupti_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
    "vllm_version",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "record_shapes",
    "with_stack",
    "with_flops",
    "profile_memory",
)
_RANK_IN_NAME = re.compile(r"(?:rank|TP|tp)[-_]?(\d{1,5})(?=[-_.])")


def facts(meta: dict[str, object]) -> dict[str, str]:
    """Versions and capture options, as text."""
    return {key: str(meta[key])[:80] for key in _FACTS if isinstance(meta.get(key), str | int | float)}


def devices(meta: dict[str, object]) -> dict[int, DeviceFacts]:
    """The devices by their index. AMD writes a compute capability of its own, which is left out."""
    found: dict[int, DeviceFacts] = {}
    listed = meta.get("deviceProperties")
    amd = any(key.startswith(("hip_", "roctracer")) for key in meta)
    for device in listed if isinstance(listed, list) else []:
        index = integer(device.get("id")) if isinstance(device, dict) else None
        if index is None:
            continue
        name = device.get("name")
        name = name if isinstance(name, str) and name else None
        major, minor = integer(device.get("computeMajor")), integer(device.get("computeMinor"))
        nvidia = not amd and not (name or "").startswith("AMD") and major is not None and minor is not None
        uuid = device.get("uuid")
        found[index] = DeviceFacts(
            index=index,
            name=name,
            sms=integer(device.get("numSms")),
            compute=(major, minor) if nvidia and major is not None and minor is not None else None,
            uuid=uuid if isinstance(uuid, str) else None,
        )
    return found


def rank_of(meta: dict[str, object], file_name: str) -> tuple[int | None, int | None]:
    """(rank, world size) as the file says; the rank from the file's name where it says none."""
    info = meta.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    rank, world_size = integer(info.get("rank")), integer(info.get("world_size"))
    if rank is None:
        named = _RANK_IN_NAME.search(file_name)
        rank = int(named.group(1)) if named else None
    return rank, world_size
