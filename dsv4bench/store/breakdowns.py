"""kernels.json: breakdowns by coordinate (config, concurrency, ISL), where `compare` looks for the bounds of a lever.

They lie in the newest complete experiment of their config, or, when there is none, in
`results/breakdowns/<config>-c<C>.json`. A coordinate that is written again replaces the old one, its kernels and its
samples (`profile --with pm`) each for themselves. Read back, a breakdown becomes shares of the decode step's span, by
component: idle and overlap are rows of their own, and what no rule named is left out, so that it stays unattributed.
A breakdown without steps gives shares of busy time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from dsv4bench.errors import BenchError, UsageError
from dsv4bench.records.breakdown import BreakdownDocument, BreakdownsDocument, DeviceBreakdown, Steps
from dsv4bench.records.codec import decode, encode
from dsv4bench.records.experiment import Status
from dsv4bench.records.shares import KernelShare, SharesDocument
from dsv4bench.store import files
from dsv4bench.store.lock import Lock
from dsv4bench.store.naming import slug
from dsv4bench.store.store import Store

KERNELS, FOLDER = "kernels.json", "breakdowns"
SCHEMAS = tuple(
    kind.schema_id().partition("/")[0] for kind in (SharesDocument, BreakdownDocument, BreakdownsDocument)
)
OTHER = "other"
NEARLY_ALL = 0.95
NAMED = {"tensor": "tensor cores", "cuda": "CUDA cores"}


class Found(NamedTuple):
    """`warnings` name the files that could not be read."""

    shares: list[KernelShare]
    warnings: list[str]


def write(root: Path | str, document: BreakdownDocument) -> Path:
    """Store a breakdown under its config and coordinate; the file it went into.

    Raises UsageError when it has no config or concurrency, StoreError when it cannot be written.
    """
    if document.config is None or document.concurrency is None:
        raise UsageError("a breakdown without a coordinate is not stored", "give --name CONFIG and --concurrency C")
    folder = _home(Path(root), document.config)
    path = folder / KERNELS
    if folder.name == FOLDER:
        path = folder / f"{slug(document.config)}-c{document.concurrency}.json"
        with files.failing_as("create", folder):
            folder.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder)  # two profiles of one config would lose each other's coordinate
    try:
        place = _place(document)
        before = _read(path).breakdowns if path.exists() else []
        kept = [b for b in before if _place(b) != place]
        for old in before:
            document = _beside(document, old) if _place(old) == place else document
        devices = [msgspec.structs.replace(d, file=Path(d.file).name) for d in document.devices]  # no folders of ours
        stored = msgspec.structs.replace(document, devices=devices, error=None)
        container = BreakdownsDocument(breakdowns=sorted([*kept, stored], key=_order))
        files.write_whole(path, encode(container, indent=True) + b"\n")
    finally:
        lock.release()
    return path


def read(path: Path | str) -> list[BreakdownDocument]:
    """The breakdowns of one file. Raises StoreError or SchemaError."""
    return list(_read(Path(path)).breakdowns)


def shares_of(root: Path | str, config: str, ids: Sequence[str] = ()) -> Found:
    """What was profiled of a configuration: in the experiments `ids`, else its newest complete one, then on its own.

    Of several breakdowns of one coordinate the first found counts.
    """
    return _shares(_paths(Path(root), config, ids), config)


def shares_in(path: Path | str) -> SharesDocument:
    """Any kernels.json as shares: our breakdowns, one breakdown, or shares that a text published.

    Raises StoreError or SchemaError.
    """
    raw = files.read_bytes(Path(path))
    if schema_of(raw) == SCHEMAS[0]:
        return decode(raw, SharesDocument, str(path))
    shares = [share for document in read(path) for share in kernel_shares(document)]
    return SharesDocument(source=str(path), published=False, shares=shares)


def kernel_shares(document: BreakdownDocument) -> list[KernelShare]:
    """One breakdown's components as shares of the step's span, else of busy time; none without its coordinate."""
    if document.config is None or document.concurrency is None:
        return []
    steps, devices = document.steps, document.devices
    of: Literal["span", "busy"] = "span"
    parts = _of_step(steps) if steps is not None else {}
    if not parts:
        of, parts = "busy", _of_busy(devices)
    units = _units(devices)
    return [
        KernelShare(
            config=document.config,
            kernel=component,
            component=component,
            concurrency=document.concurrency,
            isl=document.isl,
            share_frac=share,
            of=of,
            runs_on=units.get(component, (None, None))[0],
            evidence=units.get(component, (None, None))[1],
        )
        for component, share in parts.items()
        if component != OTHER and share > 0
    ]


def _home(root: Path, config: str) -> Path:
    return _newest(root, config) or root / FOLDER


def _newest(root: Path, config: str) -> Path | None:
    """The folder of the newest complete experiment of a config."""
    if not root.is_dir():
        return None
    complete = [e for e in Store(root).list() if e.config == config and e.status is Status.COMPLETE]
    return root / complete[-1].id if complete else None


def _paths(root: Path, config: str, ids: Sequence[str]) -> list[Path]:
    named = [root / i / KERNELS for i in ids]
    newest = _newest(root, config) if not ids else None
    own = sorted((root / FOLDER).glob(f"{slug(config)}-c*.json"))
    return [p for p in [*named, *([newest / KERNELS] if newest else []), *own] if p.is_file()]


def _shares(paths: Iterable[Path], config: str) -> Found:
    found: dict[tuple[int, int | None], list[KernelShare]] = {}
    warnings = []
    for path in paths:
        try:
            document = shares_in(path)
        except BenchError as e:
            warnings.append(f"left out: {e.message}")
            continue
        here: dict[tuple[int, int | None], list[KernelShare]] = {}
        for share in document.shares:
            if share.config == config:
                here.setdefault((share.concurrency, share.isl), []).append(share)
        found = {**here, **found}
    return Found([share for shares in found.values() for share in shares], warnings)


def _read(path: Path) -> BreakdownsDocument:
    """Our container; a single breakdown, as `profile --json` prints it, reads as a container of one."""
    raw = files.read_bytes(path)
    if schema_of(raw) == SCHEMAS[1]:
        return BreakdownsDocument(breakdowns=[decode(raw, BreakdownDocument, str(path))])
    return decode(raw, BreakdownsDocument, str(path))


def _beside(new: BreakdownDocument, old: BreakdownDocument) -> BreakdownDocument:
    """Kernels and samples of one coordinate are recorded apart: each replaces its own kind, and the other stays."""
    again = {c.method for c in new.captures}
    others = [c for c in old.captures if c.method not in again]
    if again and not new.devices and new.steps is None:
        return msgspec.structs.replace(old, captures=[*others, *new.captures])
    return msgspec.structs.replace(new, captures=[*new.captures, *(c for c in others if c.activity is not None)])


class _Head(msgspec.Struct):
    schema: str = ""


def schema_of(raw: bytes) -> str:
    """A document's schema name without its version; empty where there is none."""
    try:
        return msgspec.json.decode(raw, type=_Head).schema.partition("/")[0]
    except (msgspec.MsgspecError, RecursionError):
        return ""


def _place(b: BreakdownDocument) -> tuple[str | None, int | None, int | None]:
    return b.config, b.concurrency, b.isl


def _order(b: BreakdownDocument) -> tuple[str, int, int]:
    return b.config or "", b.concurrency or 0, b.isl or 0


def _of_step(steps: Steps) -> dict[str, float]:
    """Exclusive shares of the span; idle, copies and overlap too. Medians of parts that exceed it are scaled down."""
    span = steps.median_ns
    if not span or any(c.exclusive_median_ns is None for c in steps.components):
        return {}
    times = {c.component: c.exclusive_median_ns or 0 for c in steps.components}
    for name, time_ns in (
        ("copy", steps.copy_only_median_ns),
        ("idle", steps.idle_median_ns),
        ("overlap", steps.overlap_median_ns),
    ):
        if time_ns:
            times[name] = times.get(name, 0) + time_ns
    whole = max(span, sum(times.values()))
    return {name: ns / whole for name, ns in times.items()}


def _of_busy(devices: Sequence[DeviceBreakdown]) -> dict[str, float]:
    """Of the busiest device, without what ran at the same time as another component."""
    timed = [d for d in devices if d.kernel_busy_ns]
    if not timed:
        return {}
    one = max(timed, key=lambda d: d.kernel_busy_ns or 0)
    busy = one.kernel_busy_ns or 1
    parts = {c.component: c.exclusive_ns / busy for c in one.components if c.exclusive_ns is not None}
    return {**parts, "overlap": (one.overlap_ns or 0) / busy}


def _units(devices: Sequence[DeviceBreakdown]) -> dict[str, tuple[str | None, str | None]]:
    """What nearly all of a component's time runs on, with the evidence of its largest kernel."""
    found = {}
    for component in {r.component for d in devices for r in d.rows}:
        rows = [r for d in devices for r in d.rows if r.component == component]
        total = sum(r.time_ns for r in rows)
        for unit, name in NAMED.items():
            own = [r for r in rows if r.runs_on == unit]
            if total and sum(r.time_ns for r in own) >= NEARLY_ALL * total:
                found[component] = (name, max(own, key=lambda r: r.time_ns).evidence)
    return {c: (name, evidence) for c, (name, evidence) in found.items()}
