"""Small nsys exports, made in the schema of each generation, of one and the same toy decode."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

HOST = 1 << 48
PID = 4242
SECRET = "hf_AbCdEfGhIjKlMnOpQrStUvWx0123"

_SHAPE = "gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory"
_FIRST = "start end deviceId contextId streamId correlationId globalPid demangledName shortName mangledName"
_LAST = "localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig"
_KERNEL = f"{_FIRST} launchType cacheConfig registersPerThread {_SHAPE} {_LAST}"
_KERNEL_2022 = _KERNEL.split()
_GREEN = [*_KERNEL_2022[:4], "greenContextId", *_KERNEL_2022[4:]]
_QMD = "qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId clusterX clusterY clusterZ clusterSchedulingPolicy"
_CLUSTER = f"{_QMD} maxPotentialClusterSize maxActiveClusters".split()
_MINIMAL = "start end deviceId streamId correlationId shortName demangledName gridX gridY gridZ blockX blockY blockZ"
_COPY = "start end deviceId contextId streamId correlationId globalPid bytes copyKind graphNodeId"
_MEMSET = "start end deviceId contextId streamId correlationId globalPid value bytes graphNodeId memKind"
_RUNTIME = "start end eventClass globalTid correlationId nameId returnValue callchainId"
_NVTX = "start end eventType rangeId category color text globalTid endGlobalTid textId domainId"
_GRAPH = "start end deviceId contextId greenContextId streamId correlationId globalPid graphId graphExecId"


@dataclass(frozen=True)
class Generation:
    version: str | None
    meta: str | None
    kernel: list[str]
    inline_text: bool
    minimal: bool = False
    cuda_devices: bool = True


GENERATIONS = {
    "2022": Generation("2.9.1", "EXPORT_META_DATA", _KERNEL_2022, inline_text=True, cuda_devices=False),
    "2022-bare": Generation(None, None, _KERNEL_2022, inline_text=True, cuda_devices=False),
    "2023": Generation("3.4.0", "META_DATA_EXPORT", _KERNEL_2022, inline_text=True, cuda_devices=False),
    "2024": Generation("3.13.2", "META_DATA_EXPORT", _GREEN, inline_text=False),
    "2025": Generation("3.20.3", "META_DATA_EXPORT", _GREEN, inline_text=False),
    "2026": Generation("3.24.14", "META_DATA_EXPORT", [*_GREEN, *_CLUSTER], inline_text=False),
    "2026.2": Generation(
        "3.25.0",
        "META_DATA_EXPORT",
        [*_GREEN, *_CLUSTER, "sharedMemoryRequestedPercentage", "tensorSizeMinusOneElements"],
        inline_text=False,
    ),
    "third-party": Generation("3.24.14", "META_DATA_EXPORT", _MINIMAL.split(), inline_text=True, minimal=True),
}

NAMES = {
    1: "void moe::slot_gemv<(int)4>(float *, int)",
    2: "slot_gemv",
    3: "_ZN3moe9slot_gemvILi4EEEvPfi",
    4: "void attn::sparse_decode<float>(float *)",
    5: "sparse_decode",
    6: "_ZN4attn13sparse_decodeIfEEvPf",
    10: "cudaLaunchKernel_v7000",
    11: "cudaGraphLaunch_v10000",
    12: "cudaMemcpyAsync_v3020",
    13: "cudaDeviceSynchronize_v3020",
    14: "cuProfilerStart",
    20: "decode[bs=1]",
    21: "prefill",
    22: "NCCL",
    23: "ncclAllReduce",
    30: f"HF_TOKEN={SECRET}\0PATH=/bin",
}


@dataclass
class Made:
    """A file under way: `rows(table, …)` fills tables of the generation's own columns."""

    path: Path
    generation: Generation = field(default_factory=lambda: GENERATIONS["2025"])
    page_size: int = 4096

    def __post_init__(self) -> None:
        self.db = sqlite3.connect(self.path)
        self.db.execute(f"PRAGMA page_size = {self.page_size}")
        self.table("StringIds", "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL")
        self.db.executemany("INSERT INTO StringIds VALUES (?, ?)", NAMES.items())
        made = self.generation
        if made.meta:
            self.table(made.meta, "name TEXT, value TEXT")
            self.db.execute(f"INSERT INTO {made.meta} VALUES ('EXPORT_SCHEMA_VERSION', ?)", (made.version,))
            self.db.execute(f"INSERT INTO {made.meta} VALUES ('EXPORT_USER', ?)", (SECRET,))

    def table(self, name: str, columns: str) -> None:
        self.db.execute(f"CREATE TABLE {name} ({columns})")

    def rows(self, table: str, columns: str | list[str], *rows: dict[str, object]) -> None:
        """Rows by column name; 0 where a column that is not nullable is not given."""
        names = columns.split() if isinstance(columns, str) else columns
        nullable = {
            "globalPid",
            "correlationId",
            "graphNodeId",
            "graphId",
            "end",
            "text",
            "textId",
            "tensorSizeMinusOneElements",
        }
        if not self.db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
            kinds = {"text": "TEXT", "tensorSizeMinusOneElements": "TEXT"}
            self.table(table, ", ".join(f'"{name}" {kinds.get(name, "INTEGER")}' for name in names))
        marks = ", ".join("?" * len(names))
        for row in rows:
            values = [row.get(name, None if name in nullable else 0) for name in names]
            self.db.execute(f"INSERT INTO {table} VALUES ({marks})", values)

    def kernels(self, *rows: dict[str, object]) -> None:
        self.rows("CUPTI_ACTIVITY_KIND_KERNEL", self.generation.kernel, *rows)

    def copies(self, *rows: dict[str, object]) -> None:
        self.rows("CUPTI_ACTIVITY_KIND_MEMCPY", _COPY, *rows)

    def memsets(self, *rows: dict[str, object]) -> None:
        self.rows("CUPTI_ACTIVITY_KIND_MEMSET", _MEMSET, *rows)

    def calls(self, *rows: dict[str, object]) -> None:
        self.rows("CUPTI_ACTIVITY_KIND_RUNTIME", _RUNTIME, *rows)

    def ranges(self, *rows: dict[str, object]) -> None:
        self.rows("NVTX_EVENTS", _NVTX, *rows)

    def graphs(self, *rows: dict[str, object]) -> None:
        self.rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", _GRAPH, *rows)

    def diagnostics(self, *texts: str) -> None:
        self.rows(
            "DIAGNOSTIC_EVENT",
            "timestamp timestampType source severity text globalPid",
            *({"text": t} for t in texts),
        )

    def capture(self, *pairs: tuple[str, str]) -> None:
        self.table("META_DATA_CAPTURE", "name TEXT, value TEXT")
        self.db.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", pairs)

    def gpus(self, *gpus: int) -> None:
        self.table(
            "TARGET_INFO_GPU",
            "id INTEGER, name TEXT, smCount INTEGER, memoryBandwidth INTEGER, uuid TEXT, cuDevice INTEGER, "
            "computeMajor INTEGER, computeMinor INTEGER",
        )
        for gpu in gpus:
            row = (gpu, "NVIDIA RTX PRO 6000", 188, 1_792_000_000_000, f"uuid-{gpu}", gpu, 12, 0)
            self.db.execute("INSERT INTO TARGET_INFO_GPU VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def cuda_devices(self, *rows: tuple[int, int, int]) -> None:
        self.table("TARGET_INFO_CUDA_DEVICE", "gpuId INTEGER, cudaId INTEGER, pid INTEGER")
        self.db.executemany("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, ?, ?)", rows)

    def done(self) -> Path:
        self.db.commit()
        self.db.close()
        return self.path


def process(pid: int = PID) -> int:
    return HOST | (pid << 24)


def thread(pid: int = PID, tid: int = 7) -> int:
    return process(pid) | tid


def kernel(start: int, end: int, /, **more: object) -> dict[str, object]:
    """A MoE kernel of 64 blocks in process PID; `more` changes it."""
    row: dict[str, object] = {
        "start": start,
        "end": end,
        "streamId": 7,
        "globalPid": process(),
        "demangledName": 1,
        "shortName": 2,
        "mangledName": 3,
        "registersPerThread": 96,
        "gridX": 64,
        "gridY": 2,
        "gridZ": 1,
        "blockX": 128,
        "blockY": 1,
        "blockZ": 1,
        "staticSharedMemory": 1024,
        "dynamicSharedMemory": 16384,
    }
    return row | more


def decode(path: Path, generation: str) -> Path:
    """Two kernels, a copy, a memset, their launches and a range, as that generation of nsys writes them."""
    made = Made(path, GENERATIONS[generation])
    attention = {"demangledName": 4, "shortName": 5, "mangledName": 6, "gridX": 1, "correlationId": 102}
    in_graph = {"graphNodeId": (5 << 32) | 1, "graphId": 5}
    # out of order: the file's order is not the time's
    made.kernels(kernel(2000, 2600, **attention, **in_graph), kernel(1000, 1500, correlationId=101))
    if generation == "third-party":
        made.rows("CUPTI_ACTIVITY_KIND_RUNTIME", "start end correlationId globalTid nameId", *_calls())
        return made.done()
    common = {"streamId": 7, "globalPid": process()}
    made.copies({"start": 3000, "end": 3100, "copyKind": 2, "correlationId": 103, **common})
    made.memsets({"start": 900, "end": 950, "correlationId": 104, **common})
    made.calls(*_calls())
    text = {"text": "decode[bs=1]"} if made.generation.inline_text else {"textId": 20}
    made.ranges({"start": 800, "end": 2700, "eventType": 59, "globalTid": thread(), **text})
    made.gpus(0)
    if made.generation.cuda_devices:
        made.cuda_devices((0, 0, PID))
    return made.done()


def _calls() -> list[dict[str, object]]:
    return [
        {"start": 850, "end": 870, "globalTid": thread(), "correlationId": 101, "nameId": 10},
        {"start": 880, "end": 890, "globalTid": thread(), "correlationId": 102, "nameId": 11},
        {"start": 895, "end": 899, "globalTid": thread(), "correlationId": 0, "nameId": 13},
    ]
