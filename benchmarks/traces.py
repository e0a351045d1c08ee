"""What it costs to read a big trace: time and peak memory, on generated files, beside a public peer on the same file.

    python benchmarks/traces.py [--kineto-mb 500] [--kernels 1000000] [--no-peer] [--json]

Two inputs are written to a temporary folder: a torch-profiler (Kineto) JSON of decode steps with the kernel names of
template libraries (about 300 characters), and an nsys export with a kernel table of the newest schema. Each reader
runs in a process of its own; time starts after its imports, memory is the process's peak and that of its child.
"decoding alone" is the whole file through msgspec's typed decoder, the fastest one known for this shape; "json" is
the standard library. HolisticTraceAnalysis is run when it is installed, otherwise its row says why not.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NAMES = [
    "_mxfp4_slot_gemv_kernel",
    "_tiled_sparse_decode_kernel",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<"
    + "cute::tuple<cute::C<128>>, " * 9
    + "int>>()",
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<" + "c10::BFloat16, " * 14 + ">>()",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024, "
    + "(cub::BlockScanAlgorithm)2, " * 8
    + "int>()",
]
KERNEL_COLUMNS = (
    *("start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid"),
    *("demangledName", "shortName", "mangledName", "launchType", "cacheConfig", "registersPerThread"),
    *("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory"),
    *("localMemoryPerThread", "localMemoryTotal", "gridId", "sharedMemoryExecuted", "graphNodeId", "graphId"),
)
KERNELS_A_STEP = 430
STEP_NS, KERNEL_NS, STEP_GAP_NS = 4_300_000, 8_000, 100_000
TARGETS = {"kineto": "at most 2x decoding alone, under 300 MiB", "nsys": "under 3 s, under 300 MiB"}
LIMIT_S = 900


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kineto-mb", type=int, default=500)
    options.add_argument("--kernels", type=int, default=1_000_000)
    options.add_argument("--no-peer", action="store_true")
    options.add_argument("--json", action="store_true")
    options.add_argument("--child", nargs=2, metavar=("READER", "FILE"), help=argparse.SUPPRESS)
    o = options.parse_args()
    if o.child:
        print(json.dumps(run_reader(o.child[0], Path(o.child[1]))))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        kineto, nsys = Path(folder) / "decode.pt.trace.json", Path(folder) / "decode.sqlite"
        write_kineto(kineto, o.kineto_mb * 1_000_000)
        write_nsys(nsys, o.kernels)
        plan = [("kineto", kineto, r) for r in ("dsv4bench", "decoding alone", "json")]
        plan += [] if o.no_peer else [("kineto", kineto, "HolisticTraceAnalysis")]
        plan += [("nsys", nsys, r) for r in ("dsv4bench", "kernel sum in SQL")]
        for kind, path, reader in plan:
            rows.append({"input": kind, "mb": path.stat().st_size / 1e6, "reader": reader, **measured(reader, path)})
            if not o.json:
                print_row(rows[-1], header=len(rows) == 1)
    if o.json:
        print(json.dumps(rows, indent=1))
    else:
        print_verdicts(rows)


def measured(reader: str, path: Path) -> dict[str, Any]:
    """One reader in a fresh process; an error becomes the reason in its row."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", reader, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT, check=False)
    except subprocess.TimeoutExpired:
        return {"reason": f"not done in {LIMIT_S} s"}
    if done.returncode:
        return {"reason": (done.stderr.strip().splitlines() or ["died without a word"])[-1][:150]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_reader(reader: str, path: Path) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT))
    prepare, read = READERS[reader]
    try:
        library = prepare()
    except ImportError as e:
        return {"reason": f"skipped: {e}"}
    idle_mib = peak_mib()
    start = time.perf_counter()
    kernels = read(library, path)
    taken = time.perf_counter() - start
    return {"s": taken, "peak_mib": peak_mib(), "idle_mib": idle_mib, "kernels": kernels}


def peak_mib() -> float:
    """Of this process, and of the largest one that it started, as if both peaks fell on one moment."""
    kib = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return kib / (1024 if sys.platform == "linux" else 1 << 20)


# --- readers: what to import before the clock starts, and what to do ---------------------------------------


def _import_ours() -> Any:
    from dsv4bench.runs import profile

    return profile


def _read_ours(profile: Any, path: Path) -> int:
    """The whole verb: read, break down, find the steps, plan."""
    found = profile.run_profile(profile.ProfileOptions(traces=[str(path)]))
    return sum(d.kernels for d in found.document.devices)


def _import_msgspec() -> Any:
    import msgspec

    fields: list[Any] = [("cat", str, ""), ("name", str, ""), ("ts", float, 0.0), ("dur", float, 0.0)]
    event = msgspec.defstruct("Event", fields, gc=False)
    return msgspec.json.Decoder(msgspec.defstruct("Trace", [("traceEvents", list[event])]))  # type: ignore[valid-type]


def _decode_msgspec(decoder: Any, path: Path) -> int:
    return sum(e.cat == "kernel" for e in decoder.decode(path.read_bytes()).traceEvents)


def _decode_json(library: Any, path: Path) -> int:
    with path.open(encoding="utf-8") as f:
        return sum(e.get("cat") == "kernel" for e in library.load(f)["traceEvents"])


def _import_hta() -> Any:
    from hta.trace_analysis import TraceAnalysis  # type: ignore[import-not-found]

    return TraceAnalysis


def _read_hta(analysis: Any, path: Path) -> int:
    """Parse, kernel breakdown and idle time: what answers the same question there."""
    found = analysis(trace_files={0: str(path)}, trace_dir=str(path.parent))
    _, kernels = found.get_gpu_kernel_breakdown(visualize=False)
    found.get_idle_time_breakdown(ranks=[0], visualize=False)
    return len(kernels)


def _kernel_sum(library: Any, path: Path) -> int:
    """What `nsys stats` computes, as a floor for any reader of the table."""
    query = (
        "SELECT COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN StringIds s ON s.id = k.demangledName GROUP BY s.value"
    )
    with library.connect(f"file:{path}?mode=ro", uri=True) as db:
        return sum(n for n, _ in db.execute(query))


READERS: dict[str, tuple[Callable[[], Any], Callable[[Any, Path], int]]] = {
    "dsv4bench": (_import_ours, _read_ours),
    "decoding alone": (_import_msgspec, _decode_msgspec),
    "json": (lambda: json, _decode_json),
    "HolisticTraceAnalysis": (_import_hta, _read_hta),
    "kernel sum in SQL": (lambda: sqlite3, _kernel_sum),
}

# --- inputs ------------------------------------------------------------------------------------------------


def write_kineto(path: Path, size: int) -> None:
    """Decode steps until the file has `size` bytes: annotation, graph launch, kernels, runtime calls and flows."""
    head = (
        '{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"NVIDIA H200","numSms":132,"computeMajor":9,'
        '"computeMinor":0}],"distributedInfo":{"backend":"nccl","rank":0,"world_size":1},'
        '"displayTimeUnit":"ms","baseTimeNanoseconds":1700000000000000000,"traceEvents":[\n'
    )
    with path.open("w", encoding="utf-8") as f:
        written = f.write(head)
        separator = ""
        step = 0
        while written < size:
            written += f.write(separator + ",\n".join(_kineto_step(step)))
            separator = ",\n"
            step += 1
        f.write('\n],"traceName":"generated"}\n')


def _kineto_step(step: int) -> Iterator[str]:
    start = step * STEP_NS
    yield _x("user_annotation", "step[DECODE bs=16]", start, STEP_NS - 1000, 1, 1, '"External id":1')
    for i in range(KERNELS_A_STEP):
        at, correlation = start + i * 10_000, step * KERNELS_A_STEP + i + 1
        name = NAMES[-1] if i == KERNELS_A_STEP - 1 else NAMES[i % (len(NAMES) - 1)]
        yield _x("cpu_op", f"aten::op_{i % 40}", at - 3000, 2500, 1, 1, f'"External id":{correlation}')
        runtime = f'"External id":{correlation},"cbid":211,"correlation":{correlation}'
        yield _x("cuda_runtime", "cudaLaunchKernel", at - 2000, 1500, 1, 1, runtime)
        yield f'{{"ph":"s","id":{correlation},"pid":1,"tid":1,"ts":{_us(at - 2000)},"cat":"ac2g","name":"ac2g"}}'
        yield f'{{"ph":"f","id":{correlation},"pid":0,"tid":7,"ts":{_us(at)},"cat":"ac2g","name":"ac2g","bp":"e"}}'
        args = (
            f'"External id":{correlation},"queued":0,"device":0,"context":1,"stream":7,"correlation":{correlation},'
            '"registers per thread":128,"shared memory":49152,"blocks per SM":1.0,"warps per SM":4.0,'
            f'"grid":[{64 + i % 64},1,1],"block":[128,1,1],"est. achieved occupancy %":12,"graph node id":0'
        )
        yield _x("kernel", name, at, KERNEL_NS, 0, 7, args)


def _x(category: str, name: str, ts_ns: int, dur_ns: int, pid: int, tid: int, args: str) -> str:
    return (
        f'{{"ph":"X","cat":"{category}","name":"{name}","pid":{pid},"tid":{tid},"ts":{_us(ts_ns)},'
        f'"dur":{_us(dur_ns)},"args":{{{args}}}}}'
    )


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}" if ns >= 0 else f"-{-ns // 1000}.{-ns % 1000:03d}"


def write_nsys(path: Path, kernels: int) -> None:
    """An export with a kernel table and its runtime calls, of the newest schema."""
    pid = 4242 << 24
    columns = ", ".join(f"{c} INTEGER" for c in KERNEL_COLUMNS)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA synchronous=OFF")
        db.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
        db.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.25.0')")
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        strings = [*NAMES, *(n.partition("<")[0] for n in NAMES), "cudaLaunchKernel_v7000"]
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(strings, start=1))
        db.execute(
            "CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, smCount INTEGER, "
            "computeMajor INTEGER, computeMinor INTEGER, uuid TEXT, cuDevice INTEGER)"
        )
        db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA H200', 132, 9, 0, 'GPU-0', 0)")
        db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns})")
        db.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, "
            "globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER)"
        )
        places = ",".join("?" * len(KERNEL_COLUMNS))
        db.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({places})", _nsys_kernels(kernels, pid))
        calls = (
            (i * 10_000 - 2000, i * 10_000 - 500, 0, pid | 1, i + 1, len(strings), 0, None) for i in range(kernels)
        )
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?,?)", calls)


def _nsys_kernels(count: int, pid: int) -> Iterator[tuple[int, ...]]:
    """Decode steps of KERNELS_A_STEP kernels, the last of which samples; no annotation, so it must be found."""
    for i in range(count):
        last = i % KERNELS_A_STEP == KERNELS_A_STEP - 1
        name = len(NAMES) if last else i % KERNELS_A_STEP % (len(NAMES) - 1) + 1
        start = i * 10_000 + i // KERNELS_A_STEP * STEP_GAP_NS
        yield (
            *(start, start + KERNEL_NS, 0, 1, 0, 7, i + 1, pid, name, name + len(NAMES), name),
            *(0, 0, 128, 64 + i % 64, 1, 1, 128, 1, 1, 0, 49152, 0, 0, i + 1, 102400, 0, 0),
        )


# --- output ------------------------------------------------------------------------------------------------


def print_row(row: dict[str, Any], header: bool) -> None:
    if header:
        print(f"{'input':8} {'MB':>6} {'reader':22} {'s':>8} {'peak MiB':>9} {'before':>7} {'kernels':>9}")
    head = f"{row['input']:8} {row['mb']:6.0f} {row['reader']:22}"
    if "reason" in row:
        print(f"{head} {row['reason']}")
    else:
        print(f"{head} {row['s']:8.2f} {row['peak_mib']:9.0f} {row['idle_mib']:7.0f} {row['kernels']:9d}")


def print_verdicts(rows: list[dict[str, Any]]) -> None:
    """Each target beside what was measured."""
    by = {(r["input"], r["reader"]): r for r in rows if "s" in r}
    for kind, target in TARGETS.items():
        ours = by.get((kind, "dsv4bench"))
        if ours is None:
            print(f"{kind}: not measured; target: {target}")
            continue
        said = [f"{ours['s']:.2f} s, {ours['peak_mib']:.0f} MiB"]
        for reader, word in (("decoding alone", "x decoding alone"), ("HolisticTraceAnalysis", "x the peer's speed")):
            other = by.get((kind, reader))
            if other is not None:
                factor = ours["s"] / other["s"] if "alone" in word else other["s"] / ours["s"]
                said.append(f"{factor:.2f}{word}")
        print(f"{kind}: {', '.join(said)}; target: {target}")


if __name__ == "__main__":
    main()
