"""The GPUs of an nsys export, and which of them a process' CUDA ordinal means.

deviceId is the process' own ordinal under its CUDA_VISIBLE_DEVICES; TARGET_INFO_CUDA_DEVICE maps it per process. The
ordinal stays a device's number, as nsys prints it, unless it means different GPUs in different processes (one process
a rank, each with one visible GPU): there the GPU's number takes its place, or four GPUs would be one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dsv4bench.records.trace import DeviceFacts, Ints, Small
from dsv4bench.trace.nsys_database import NsysDatabase

GPUS = "TARGET_INFO_GPU"
CUDA_DEVICES = "TARGET_INFO_CUDA_DEVICE"
_PID_MASK = 0xFFFFFF


@dataclass(frozen=True, slots=True)
class Devices:
    """`by_gpu[gpu]`, and `gpu_of[pid, ordinal]` where the file tells."""

    by_gpu: dict[int, DeviceFacts]
    by_ordinal: dict[int, DeviceFacts]
    gpu_of: dict[tuple[int, int], int]

    @property
    def ambiguous(self) -> bool:
        """Does one ordinal mean several GPUs?"""
        gpus: dict[int, set[int]] = {}
        for (_, ordinal), gpu in self.gpu_of.items():
            gpus.setdefault(ordinal, set()).add(gpu)
        return any(len(meant) > 1 for meant in gpus.values())

    def numbers(self, ordinal: Small, pid: Ints) -> Small:
        """The device number of each row: the ordinal, or the GPU where ordinals are ambiguous."""
        if not self.ambiguous:
            return ordinal
        numbers = ordinal.copy()
        for (owner, own), gpu in self.gpu_of.items():
            numbers[((pid & _PID_MASK) == owner) & (ordinal == own)] = gpu
        return numbers

    def of_gpu(self, gpu: int) -> int:
        """The device number under which this GPU's rows stand: samples speak of GPUs, kernels of ordinals."""
        if self.ambiguous:
            return gpu
        return next((ordinal for (_, ordinal), meant in sorted(self.gpu_of.items()) if meant == gpu), gpu)

    def facts(self, used: list[int]) -> dict[int, DeviceFacts]:
        """Facts of the devices in use, an entry for each; of all GPUs where none is in use."""
        if not used:
            return dict(self.by_gpu)
        return {number: replace(self._known(number), index=number) for number in used}

    def _known(self, number: int) -> DeviceFacts:
        if not self.ambiguous:
            meant = {gpu for (_, ordinal), gpu in self.gpu_of.items() if ordinal == number}
            for gpu in meant:
                if gpu in self.by_gpu:
                    return self.by_gpu[gpu]
            if not meant and number in self.by_ordinal:
                return self.by_ordinal[number]
        return self.by_gpu.get(number, DeviceFacts(number))


def read_devices(db: NsysDatabase) -> Devices:
    by_gpu: dict[int, DeviceFacts] = {}
    by_ordinal: dict[int, DeviceFacts] = {}
    wanted = ("id", "cuDevice", "name", "smCount", "computeMajor", "computeMinor", "uuid", "memoryBandwidth")
    for gpu, ordinal, *told in _rows(db, GPUS, wanted):
        if isinstance(gpu, int):
            by_gpu[gpu] = _facts(gpu, told)
            by_ordinal.setdefault(ordinal if isinstance(ordinal, int) else gpu, by_gpu[gpu])
    gpu_of = {
        (pid & _PID_MASK, ordinal): gpu
        for gpu, ordinal, pid in _rows(db, CUDA_DEVICES, ("gpuId", "cudaId", "pid"))
        if isinstance(gpu, int) and isinstance(ordinal, int) and isinstance(pid, int)
    }
    return Devices(by_gpu, by_ordinal, gpu_of)


def devices_used(*numbers: Small) -> list[int]:
    return sorted({int(number) for column in numbers for number in np.unique(column)})


def _rows(db: NsysDatabase, table: str, wanted: tuple[str, ...]) -> list[tuple[object, ...]]:
    present = db.columns(table)
    if not present:
        return []
    return db.rows(f"SELECT {', '.join(c if c in present else 'NULL' for c in wanted)} FROM {table}")


def _facts(gpu: int, told: list[object]) -> DeviceFacts:
    name, sms, major, minor, uuid, bandwidth = told
    return DeviceFacts(
        index=gpu,
        name=name if isinstance(name, str) and name else None,
        sms=sms if isinstance(sms, int) and sms > 0 else None,
        compute=(major, minor) if isinstance(major, int) and isinstance(minor, int) and major > 0 else None,
        uuid=uuid if isinstance(uuid, str) and uuid else None,
        memory_bytes_s=float(bandwidth) if isinstance(bandwidth, int) and bandwidth > 0 else None,
    )
