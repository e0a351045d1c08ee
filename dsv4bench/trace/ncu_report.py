"""`.ncu-rep` reports as counters of each profiled kernel, through NVIDIA's optional `ncu-report` package.

The package parses with native code, and a report may be cut or damaged: it therefore runs in a child process
(`python -m dsv4bench.trace.ncu_report FILE`, JSON on stdout), whose crash or hang is an error here and no crash. The
file's own blocks say how many results it should hold; fewer is said.

Beside the plain metrics, the executed-opcode mix of a kernel becomes `sass__inst_executed_per_opcode.HMMA` and so on,
modifiers added up: the strongest evidence of a unit there is. Values are exact; a zero in a report is a zero.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

import dsv4bench
from dsv4bench.errors import SchemaError, Unanswerable
from dsv4bench.records.trace import CounterRow, KernelCounters
from dsv4bench.trace.ncu_numbers import base_unit

MAGIC = b"NVR\x00"
OPCODES = "sass__inst_executed_per_opcode"
_TIMEOUT_S = 600.0
_KERNEL = 0  # IAction.workload_type
_AGAIN = "copy the report again from where ncu wrote it, or export it there: ncu -i x.ncu-rep --csv --page raw"


def read_ncu_report(path: Path, label: str | None = None) -> KernelCounters:
    """Counters of every kernel in the report.

    Raises SchemaError for another kind of file, Unanswerable without the package, without a kernel, or when damaged.
    """
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise SchemaError(f"{path.name}: no Nsight Compute report", "give a .ncu-rep file, or ncu's CSV")
    if importlib.util.find_spec("ncu_report") is None:
        raise Unanswerable(
            f"{path.name}: reading a .ncu-rep needs NVIDIA's ncu-report package",
            "pip install ncu-report, or export where ncu is: ncu -i x.ncu-rep --csv --page raw --print-units base",
        )
    expected, whole = results_promised(path)
    rows = _read_apart(path)
    if not rows:
        raise Unanswerable(
            f"{path.name}: the report holds no kernel", _AGAIN if not whole else "profile a kernel first"
        )
    warnings = []
    if not whole or len(rows) < expected:
        warnings.append(
            f"{path.name} is cut or damaged: {len(rows)} kernels read of {max(expected, len(rows))} or more"
        )
    return KernelCounters(file=str(path), rows=rows, label=label, warnings=warnings)


def _read_apart(path: Path) -> list[CounterRow]:
    command = [sys.executable, "-m", "dsv4bench.trace.ncu_report", str(path.resolve())]
    here = str(Path(dsv4bench.__file__).resolve().parent.parent)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))}
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False, env=env)
    except subprocess.TimeoutExpired:
        raise Unanswerable(f"{path.name}: not read within {_TIMEOUT_S:.0f} s", _AGAIN) from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise Unanswerable(f"{path.name}: damaged report: {said[-1] if said else 'the reader crashed'}", _AGAIN)
    try:
        return msgspec.json.decode(done.stdout, type=list[CounterRow])
    except msgspec.DecodeError as e:
        raise Unanswerable(f"{path.name}: damaged report: {e}", _AGAIN) from None


def results_promised(path: Path) -> tuple[int, bool]:
    """Results that the file's block headers promise, and whether its blocks end where the file does.

    A report is a magic word, then blocks: a 4-byte length, a protobuf header (field 2: number of results, field 5:
    bytes of payload), the payload.
    """
    size, results, at = path.stat().st_size, 0, 4
    with path.open("rb") as file:
        while at < size:
            file.seek(at)
            length = int.from_bytes(file.read(4), "little")
            header = file.read(length) if length <= size - at else b""
            fields = _varints(header) if len(header) == length else None
            if fields is None:
                return results, False
            results += fields.get(2, 0)
            at += 4 + length + fields.get(5, 0)
    return results, at == size


def _varints(data: bytes) -> dict[int, int] | None:
    """Top-level integers of a protobuf message by field; None when it is none."""
    fields: dict[int, int] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if at < 0 or tag & 7 not in (0, 2):
            return None
        value, at = _varint(data, at)
        if at < 0:
            return None
        if tag & 7 == 0:
            fields[tag >> 3] = value
        else:
            at += value
    return fields if at == len(data) else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Value and the position after it; position -1 past the end."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    return 0, -1


def _actions(path: str) -> list[CounterRow]:
    """What the child does: every kernel of the report."""
    context = importlib.import_module("ncu_report").load_report(path)
    found = []
    for i in range(context.num_ranges()):
        part = context.range_by_idx(i)
        for j in range(part.num_actions()):
            action = part.action_by_idx(j)
            if action.workload_type() == _KERNEL:
                found.append(_action(action))
    return found


def _action(action: Any) -> CounterRow:
    metrics: dict[str, float] = {}
    unavailable = []
    for name in action.metric_names():
        if not isinstance(name, str) or not name:  # a damaged string table
            continue
        metric = action.metric_by_name(name)
        value = metric.value()
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf"):
            base = base_unit(metric.unit() or "")
            if base is not None:
                metrics[name] = value * base[0]
        elif not isinstance(value, str):
            unavailable.append(name)
        if name == OPCODES:
            metrics |= _opcodes(metric)
    demangled = action.name(action.NameBase_DEMANGLED) or action.name(action.NameBase_FUNCTION) or ""
    return CounterRow(
        name=str(demangled),
        grid=_dims(metrics, "launch__grid_dim"),
        block=_dims(metrics, "launch__block_dim"),
        compute=_pair(metrics, "device__attribute_compute_capability"),
        device=int(metrics["launch__device_id"]) if "launch__device_id" in metrics else None,
        metrics=metrics,
        unavailable=unavailable,
    )


def _opcodes(metric: Any) -> dict[str, float]:
    names = metric.correlation_ids()
    mix: dict[str, float] = {}
    if names is None:
        return mix
    for k in range(metric.num_instances()):
        opcode = names.as_string(k)
        if isinstance(opcode, str):
            key = f"{OPCODES}.{opcode.split('.')[0]}"
            mix[key] = mix.get(key, 0.0) + metric.as_double(k)
    return mix


def _dims(metrics: dict[str, float], stem: str) -> tuple[int, int, int]:
    x, y, z = (int(metrics.get(f"{stem}_{axis}", 0)) for axis in "xyz")
    return x, y, z


def _pair(metrics: dict[str, float], stem: str) -> tuple[int, int] | None:
    major, minor = metrics.get(f"{stem}_major"), metrics.get(f"{stem}_minor")
    return None if major is None or minor is None else (int(major), int(minor))


def main() -> int:
    """The child: JSON of the rows on stdout, a line of cause on stderr and 1 when the report cannot be read."""
    try:
        rows = _actions(sys.argv[1])
    except Exception as e:
        # whatever the package raises on a damaged file (TypeError, KeyError, RuntimeError) is the file's fault
        print(json.dumps(f"{type(e).__name__}: {e}"), file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
