"""What a GPU can do: SMs, memory, bandwidth and dense peaks, each row with its source.

Peaks are FLOP/s without sparsity (datasheets often print the doubled figure). On GeForce cards bf16 and fp8 are
those with fp32 accumulation. None means that the figure could not be established, not that it is zero; a type that
the chip lacks is not in `supported`. Nothing here was measured by this tool unless `kind` says so, and an unknown
GPU has no roofline until its bandwidth is given (`custom`).
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from dsv4bench.errors import UsageError

Dtype = Literal["bf16", "fp8", "fp4", "fp32"]
Kind = Literal["datasheet", "measured", "user"]

GIB = 2**30
MIB = 2**20
GB_S = 1e9
TFLOPS = 1e12

# When a chip lacks a type, its kernels fall back to the next one.
_WIDER: dict[Dtype, Dtype] = {"fp4": "fp8", "fp8": "bf16", "bf16": "fp32"}
_FIRST_SM: dict[Dtype, int] = {"fp4": 100, "fp8": 89, "bf16": 80, "fp32": 0}


class Peaks(msgspec.Struct, frozen=True, kw_only=True):
    """Dense peaks in FLOP/s; None: not established, or not supported."""

    bf16: float | None = None
    fp8: float | None = None
    fp4: float | None = None
    fp32: float | None = None  # CUDA cores


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU model. `kind` and `source` speak of bandwidth and peaks; `memory_bytes` is nominal."""

    name: str
    aliases: tuple[str, ...] = ()
    sm: int | None = None  # compute capability: 90, 120
    sms: int | None = None
    memory_bytes: int | None = None
    bandwidth_bytes_s: float
    l2_bytes: int | None = None
    peaks: Peaks = Peaks()
    kind: Kind
    source: str
    measured_bytes_s: float | None = None  # best streaming rate seen on such a card
    measured_source: str | None = None

    def supports(self, dtype: Dtype) -> bool:
        """Whether the chip has hardware for this type (yes when its compute capability is unknown)."""
        return self.sm is None or self.sm >= _FIRST_SM[dtype]

    def peak(self, dtype: Dtype) -> float | None:
        """Peak of `dtype`, or of the next wider type where the chip lacks it; None: not established."""
        while not self.supports(dtype):
            dtype = _WIDER[dtype]
        value: float | None = getattr(self.peaks, dtype)
        return value


def _t(bf16: float | None, fp8: float | None, fp4: float | None, fp32: float | None) -> Peaks:
    """Peaks from TFLOP/s."""
    scaled = (None if v is None else v * TFLOPS for v in (bf16, fp8, fp4, fp32))
    return Peaks(**dict(zip(("bf16", "fp8", "fp4", "fp32"), scaled, strict=True)))


def _row(
    names: tuple[str, ...],
    sm: int,
    sms: int | None,
    memory_gib: float,
    bandwidth_gb_s: float,
    l2_mib: int | None,
    peaks: Peaks,
    source: str,
    measured: tuple[float, str] | None = None,
) -> Gpu:
    return Gpu(
        name=names[0],
        aliases=names[1:],
        sm=sm,
        sms=sms,
        memory_bytes=int(memory_gib * GIB),
        bandwidth_bytes_s=bandwidth_gb_s * GB_S,
        l2_bytes=None if l2_mib is None else l2_mib * MIB,
        peaks=peaks,
        kind="datasheet",
        source=source,
        measured_bytes_s=None if measured is None else measured[0] * GB_S,
        measured_source=None if measured is None else measured[1],
    )


_PRO = "NVIDIA RTX Blackwell PRO GPU Architecture v1.1, table 4 (bf16; fp8 and fp4 as 2 and 4 times it)"
_PRO_COPY = (1460.0, "copy on an RTX PRO 6000 Blackwell, published by others, edition not named")
_H200_READ = (4576.0, "read-only stream of 4 GiB on an H200, best of 14 configurations")

# The first name is the one NVML reports.
KNOWN: tuple[Gpu, ...] = (
    _row(
        ("NVIDIA A100-SXM4-80GB", "A100", "A100 80GB SXM"),
        *(80, 108, 80, 2039, 40),
        _t(312, None, None, 19.5),
        "NVIDIA A100 80GB datasheet",
    ),
    _row(
        ("NVIDIA H100 80GB HBM3", "H100", "H100 SXM"),
        *(90, 132, 80, 3350, 50),
        _t(989.4, 1978.9, None, 66.9),
        "NVIDIA H100 datasheet and Hopper architecture whitepaper",
    ),
    _row(
        ("NVIDIA H200", "H200 SXM"),
        *(90, 132, 141, 4800, 60),
        _t(989.4, 1978.9, None, 66.9),
        "NVIDIA H200 datasheet (sparse figures halved); L2 as the device reports it",
        _H200_READ,
    ),
    _row(
        ("NVIDIA H20", "H20 96GB"),
        *(90, 78, 96, 4000, 60),
        _t(148, 296, None, 44),
        "H20 specification as published by resellers; NVIDIA has no public datasheet",
    ),
    _row(
        ("NVIDIA B200", "B200 SXM"),
        *(100, 148, 180, 8000, 126),
        _t(2250, 4500, 9000, 75),
        "NVIDIA Blackwell architecture brief and HGX B200 page (for eight, divided); L2 from the tuning guide",
    ),
    _row(
        ("NVIDIA B300 SXM6 AC", "NVIDIA B300", "B300 SXM"),
        *(103, None, 268, 8000, None),
        _t(2250, 4500, 13500, 75),
        "NVIDIA HGX B300 page (for eight, divided; fp4 as given dense)",
    ),
    _row(
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Workstation"),
        *(120, 188, 96, 1792, 128),
        _t(503.8, 1007.6, 2015.2, 125),
        _PRO,
        _PRO_COPY,
    ),
    _row(
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Max-Q"),
        *(120, 188, 96, 1792, 128),
        _t(438.9, 877.8, 1755.6, 110),
        _PRO,
        _PRO_COPY,
    ),
    _row(
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Server"),
        *(120, 188, 96, 1597, 128),
        _t(None, None, None, 120),
        "NVIDIA RTX PRO 6000 Blackwell Server Edition datasheet; dense tensor peaks not established",
        _PRO_COPY,
    ),
    _row(
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        *(120, 170, 32, 1792, 96),
        _t(209.5, 419, 1676, 104.8),
        "NVIDIA RTX Blackwell GPU architecture whitepaper",
    ),
    _row(
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        *(89, 128, 24, 1008, 72),
        _t(165.2, 330.3, None, 82.6),
        "NVIDIA Ada GPU architecture whitepaper",
    ),
    _row(
        ("NVIDIA L40S", "L40S"),
        *(89, 142, 48, 864, 96),
        _t(362.05, 733, None, 91.6),
        "NVIDIA L40S datasheet",
    ),
    _row(
        ("NVIDIA GB10", "DGX Spark"),
        *(121, 48, 119.2, 273, 24),
        _t(None, None, 500, 31),
        "NVIDIA DGX Spark datasheet (1 PFLOP sparse fp4, halved); fp32 from Hot Chips 2025; memory is shared",
    ),
)


def find(name: str) -> Gpu | None:
    """The GPU that NVML calls `name` (or a known short form); None for any other.

    Names match whole, so that a laptop part, a PCIe variant or a MIG slice never borrows another card's figures.
    """
    wanted = _plain(name)
    for gpu in KNOWN:
        if wanted in (_plain(n) for n in (gpu.name, *gpu.aliases)):
            return gpu
    return None


def _plain(name: str) -> str:
    words = re.sub(r"[^a-z0-9]+", " ", name.lower()).split()
    return " ".join(w for w in words if w not in ("nvidia", "geforce"))


def custom(
    name: str,
    bandwidth_bytes_s: float,
    *,
    kind: Kind = "user",
    source: str = "given by the user",
    sm: int | None = None,
    sms: int | None = None,
    peaks: Peaks | None = None,
) -> Gpu:
    """A GPU that the table lacks, or one whose bandwidth was measured. Raises UsageError unless it is above 0."""
    if not 0 < bandwidth_bytes_s < float("inf"):
        raise UsageError(
            f"bandwidth of {name}: {bandwidth_bytes_s} bytes/s", "give a number above 0, e.g. 1792e9 for 1792 GB/s"
        )
    return Gpu(
        name=name,
        sm=sm,
        sms=sms,
        bandwidth_bytes_s=bandwidth_bytes_s,
        peaks=Peaks() if peaks is None else peaks,
        kind=kind,
        source=source,
    )


def measured(gpu: Gpu) -> Gpu | None:
    """`gpu` with its measured streaming rate in place of the datasheet's bandwidth; None where there is none."""
    if gpu.measured_bytes_s is None or gpu.measured_source is None:
        return None
    return msgspec.structs.replace(
        gpu, bandwidth_bytes_s=gpu.measured_bytes_s, kind="measured", source=gpu.measured_source
    )
