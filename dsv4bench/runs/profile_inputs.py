"""What `profile --trace` was given: files by label, each read for what it holds.

`[LABEL=]FILE`: files of one label are the ranks of one capture, files without a label one capture too. Timelines and
tables are what is broken down; counters (ncu) and samples are evidence and belong to every label that has none of its
own. Shares and breakdowns that this tool wrote are read back. A file that cannot answer is a failure only when no
file can; beside others it becomes a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.records.shares import SharesDocument
from dsv4bench.records.trace import DeviceSamples, KernelCounters, KernelTable, KernelTrace
from dsv4bench.store.breakdowns import SCHEMAS, read, schema_of, shares_in
from dsv4bench.trace.recognise import read_evidence

HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One --trace."""

    label: str | None
    path: Path


@dataclass(slots=True)
class Inputs:
    """Everything the files hold, in the order given."""

    labels: list[str | None] = field(default_factory=list)
    traces: list[KernelTrace] = field(default_factory=list)
    tables: list[KernelTable] = field(default_factory=list)
    counters: list[KernelCounters] = field(default_factory=list)
    samples: list[DeviceSamples] = field(default_factory=list)
    shares: list[tuple[Path, SharesDocument]] = field(default_factory=list)
    stored: list[tuple[str | None, list[BreakdownDocument]]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failures: list[Unanswerable] = field(default_factory=list)

    @property
    def answers(self) -> bool:
        """Whether any file says where time went, or on which unit a kernel ran."""
        timed = [t for t in self.traces if t.end_ns.size or t.graph_runs.end_ns.size]
        return bool(timed or self.tables or self.counters or self.shares or self.stored)


def trace_files(texts: Sequence[str]) -> list[TraceFile]:
    """The files that were named. Raises UsageError for one that is not there, or twice."""
    found = [_trace_file(text) for text in texts]
    seen: set[Path] = set()
    for file in found:
        real = file.path.resolve()
        if real in seen:
            raise UsageError(
                f"--trace {file.path} was named twice", "its time would count twice; name each file once"
            )
        seen.add(real)
    return found


def _trace_file(text: str) -> TraceFile:
    """A file's own name may hold `=`, so what exists decides; else the first `=` ends the label."""
    if _is_file(Path(text)):
        return TraceFile(None, Path(text))
    at = -1
    while (at := text.find("=", at + 1)) >= 0:
        label, path = text[:at], Path(text[at + 1 :])
        if label.strip() and _is_file(path):
            return TraceFile(label.strip(), path)
    label, equals, rest = text.partition("=")
    path = Path(rest if equals and label.strip() else text)
    if path.is_dir():
        raise UsageError(f"--trace {path}: a folder", "name its files, a --trace each")
    raise UsageError(f"--trace {text}: no such file", "give --trace FILE or --trace LABEL=FILE")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def read_inputs(files: Sequence[TraceFile], counted: Sequence[KernelCounters] = ()) -> Inputs:
    """Every file, and counters that were taken just now. Raises the first failure when no file can answer."""
    inputs = Inputs(labels=list(dict.fromkeys(f.label for f in files)), counters=list(counted))
    for file in files:
        try:
            _read(file, inputs)
        except Unanswerable as e:
            inputs.failures.append(e)
    if not inputs.answers:
        if inputs.failures:
            raise inputs.failures[0]
        raise _nothing(inputs)
    inputs.warnings += [f"left out: {e.message}" for e in inputs.failures]
    for held in (inputs.traces, inputs.tables, inputs.counters):
        for one in held:
            inputs.warnings += [f"{Path(one.file).name}: {w}" for w in one.warnings]
    return inputs


def _read(file: TraceFile, inputs: Inputs) -> None:
    if _ours(file.path):
        _read_own(file, inputs)
        return
    for one in read_evidence(file.path, file.label):
        if isinstance(one, KernelTrace):
            inputs.traces.append(one)
            inputs.samples += one.samples
        elif isinstance(one, KernelTable):
            inputs.tables.append(one)
        elif isinstance(one, KernelCounters):
            inputs.counters.append(one)
        else:
            inputs.samples.append(one)


def _ours(path: Path) -> bool:
    """Whether a file says that this tool wrote it."""
    try:
        with path.open("rb") as f:
            head = f.read(HEAD_BYTES)
    except OSError as e:
        raise UsageError(f"--trace {path}: {e.strerror}", "check the file's permissions") from e
    return head.lstrip()[:1] == b"{" and any(f'"{s}/'.encode() in head for s in SCHEMAS)


def _read_own(file: TraceFile, inputs: Inputs) -> None:
    if schema_of(file.path.read_bytes()) == SCHEMAS[0]:
        inputs.shares.append((file.path, shares_in(file.path)))
    else:
        inputs.stored.append((file.label, read(file.path)))


def _nothing(inputs: Inputs) -> Unanswerable:
    """Read without an error, and still no kernel: the readers' own words, where they have any."""
    said = [w for t in inputs.traces for w in t.warnings]
    if not inputs.traces:
        return Unanswerable(
            "samples of a device and no kernel: they tell how busy it was, not with what",
            "name the trace of the same run beside them",
        )
    name = Path(inputs.traces[0].file).name
    return Unanswerable(
        f"{name}: no kernel in it{': ' + said[0] if said else ''}",
        "trace the server's worker process while requests decode; docs/profile.md has the commands",
    )
