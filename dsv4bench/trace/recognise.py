"""Which reader a file needs, told by its content and not by its suffix: `read_evidence(path, label)`.

A suffix decides only for the two binary reports of NVIDIA that no magic names. Formats that cannot answer (another
vendor's, sums without a device, archives) are refused by their name, and anything else with the list of what is read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dsv4bench.errors import BenchError, Unanswerable, UsageError
from dsv4bench.records.trace import Evidence, KernelCounters, KernelTable
from dsv4bench.trace.blocks import GZIP_MAGIC, blocks, head
from dsv4bench.trace.kineto import read_kineto
from dsv4bench.trace.ncu_csv import looks_like_ncu_csv, read_ncu_csv
from dsv4bench.trace.ncu_report import read_ncu_report
from dsv4bench.trace.nsys import read_nsys_sqlite
from dsv4bench.trace.nsys_report import read_nsys_report
from dsv4bench.trace.nsys_stats import is_nsys_stats, read_nsys_stats
from dsv4bench.trace.perfetto import read_perfetto
from dsv4bench.trace.perfetto_wire import Damaged, fields, varint
from dsv4bench.trace.torch_table import is_torch_table, read_torch_table

EXPECTED = (
    "give an nsys export (.sqlite) or report (.nsys-rep), a torch-profiler trace (.json, .json.gz, .pftrace), "
    "ncu output (--csv, .ncu-rep), or a kernel table of `nsys stats` or key_averages()"
)
LARGEST_UNZIPPED = 1 << 30
_BLANK = "\ufeff \t\r\n\0"
Report = KernelTable | KernelCounters
_SQLITE = b"SQLite format 3\0"
_NCU = b"NVR\0"
_REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_TORCH = "give a torch-profiler trace or an nsys export of an NVIDIA GPU"

_REFUSED_MAGIC = (
    (b"PK\x03\x04", "a zip archive", "unpack it, and give the trace in it"),
    (b"PK\x05\x06", "a zip archive with nothing in it", EXPECTED),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it with `zstd -d`, and give the trace in it"),
    (b"\xfd7zXZ\0", "an xz archive", "unpack it with `xz -d`, and give the trace in it"),
    (b"BZh", "a bzip2 archive", "unpack it with `bzip2 -d`, and give the trace in it"),
    (b"\x7fELF", "a compiled program or cubin", "give cubins with --cubins DIR; as a trace, " + EXPECTED),
    (
        b"QDSTRM",
        "an unfinished nsys capture (.qdstrm)",
        "import it with `nsys` (QdstrmImporter), and give the report",
    ),
    (b"%PDF", "a PDF", EXPECTED),
)
_REFUSED_JSON = (
    ('"rocprofiler-sdk-tool"', "rocprofv3's JSON (AMD)", _TORCH),
    ('"schema":"dsv4bench.', "dsv4bench's own output", "give the trace it was made from"),
    ('"schema": "dsv4bench.', "dsv4bench's own output", "give the trace it was made from"),
)


def read_evidence(path: Path, label: str | None = None) -> list[Evidence]:
    """Every timeline, table or set of counters in the file.

    Raises UsageError when it cannot be opened, Unanswerable when it is of no kind that is read, or holds no kernels.
    """
    start = _start(path)
    for magic, what, remedy in _REFUSED_MAGIC:
        if start.startswith(magic):
            raise Unanswerable(f"{path}: {what}", remedy)
    if start.startswith(_SQLITE):
        return [*read_nsys_sqlite(path, label)]
    if path.name.endswith(_REPORT_SUFFIXES):
        return [*read_nsys_report(path, label)]
    if start.startswith(_NCU):
        return [_unzipped(path, label, read_ncu_report)]
    if _is_protobuf(start):
        return [_reader_of_protobuf(path, start)(path, label)]
    text = start.decode("utf-8", "replace").lstrip(_BLANK)
    if text.startswith(("{", "[")):
        _refuse_other_json(path, text)
        return [read_kineto(path, label)]
    return [_unzipped(path, label, _read_text)]


def _start(path: Path) -> bytes:
    if path.is_dir():
        raise UsageError(f"{path} is a folder", "name the files in it, one --trace each")
    warnings: list[str] = []
    try:
        start = head(path, warnings)
    except OSError as why:
        raise UsageError(f"{path}: cannot be read ({why.strerror or why})", "give a file that exists") from why
    if not start.strip(b"\0 \r\n\t"):
        cause = warnings[0] if warnings else "the file is empty"
        raise Unanswerable(f"{path}: {cause}", "copy or capture it again, and check that the disk is not full")
    return start


def _unzipped(path: Path, label: str | None, read: Callable[[Path, str | None], Report]) -> Report:
    """What `read` makes of the file, of a temporary copy when the file is gzip and the reader takes none."""
    with path.open("rb") as file:
        if file.read(2) != GZIP_MAGIC:
            return read(path, label)
    with tempfile.TemporaryDirectory(prefix="dsv4bench-") as folder:
        plain = Path(folder) / path.name.removesuffix(".gz")
        with plain.open("wb") as copy:
            for block in blocks(path, []):
                if copy.tell() > LARGEST_UNZIPPED:
                    raise Unanswerable(f"{path}: grows beyond 1 GiB when unpacked", EXPECTED)
                copy.write(block)
        try:
            return replace(read(plain, label), file=str(path))
        except BenchError as error:
            error.message = error.message.replace(str(plain), str(path))
            raise


def _is_protobuf(start: bytes) -> bool:
    """A first field 1 of some length, whose content is a message."""
    if start[:1] != b"\x0a":
        return False
    try:
        length, at = varint(start, 1)
        message = start[at : at + length]
        return length > 0 and (len(message) < length or all(True for _ in fields(message)))
    except Damaged:
        return False


def _reader_of_protobuf(path: Path, start: bytes) -> Callable[[Path, str | None], Evidence]:
    """Perfetto, or JAX's XSpace, whose first message has a plane's name as field 2."""
    length, at = varint(start, 1)
    try:
        names = [value for number, value in fields(start[at : at + length]) if number == 2]
    except Damaged:
        names = []
    if path.name.endswith(".xplane.pb") or any(
        isinstance(n, bytes) and n[:6] in (b"/host:", b"/devic") for n in names
    ):
        raise Unanswerable(f"{path}: an xplane profile of JAX or TensorFlow", _TORCH)
    return read_perfetto


def _refuse_other_json(path: Path, text: str) -> None:
    for mark, what, remedy in _REFUSED_JSON:
        if mark in text[:4096]:
            raise Unanswerable(f"{path}: {what}", remedy)
    if '"traceEvents"' not in text and '"children"' in text and ('"frame"' in text or '"metrics"' in text):
        raise Unanswerable(
            f"{path}: a Proton or hatchet tree: sums without a timeline, by scope and not by kernel launch", _TORCH
        )


def _read_text(path: Path, label: str | None) -> Report:
    text = head(path, []).decode("utf-8", "replace").lstrip(_BLANK)
    if looks_like_ncu_csv(text):
        return read_ncu_csv(path, label)
    if is_nsys_stats(path):
        return read_nsys_stats(path, label)
    if is_torch_table(text):
        return read_torch_table(path, label)
    if text.startswith(('"Domain"', '"Kind"')) or "rocprof" in text[:200]:
        raise Unanswerable(f"{path}: rocprofv3's CSV (AMD)", _TORCH)
    raise Unanswerable(f"{path}: a file of no kind that is read here", EXPECTED)
