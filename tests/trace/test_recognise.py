"""Files are told apart by their content; what is not read is refused by its name."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from kineto_made import document, write
from nsys_made import GENERATIONS, decode
from test_perfetto import TRACE, message, number
from test_torch_table import CSV, ROWS, printed

from dsv4bench.errors import BenchError, Unanswerable, UsageError
from dsv4bench.records.trace import KernelCounters, KernelTable, KernelTrace, Source
from dsv4bench.trace.recognise import read_evidence

NSYS_STATS = (
    "Processing [x.sqlite] with [cuda_gpu_kern_sum.py]...\n\n"
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    "100.0,33696,2,16848.0,16848.0,16000,17696,0.0,kern\n"
)
NCU = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
    '"0","1","python","127.0.0.1","kern","1","7","(32, 1, 1)","(1, 1, 1)","0","12.0","Command line profiler metrics",'
    '"sm__ops_path_tensor_src_bf16_dst_fp32.sum","","1,275,068,416"\n'
)


@pytest.mark.parametrize(
    ("content", "kind", "source"),
    [
        (document(), KernelTrace, Source.KINETO),
        (TRACE, KernelTrace, Source.PERFETTO),
        (NSYS_STATS, KernelTable, Source.NSYS_STATS),
        (CSV, KernelTable, Source.TORCH_TABLE),
        (printed(ROWS), KernelTable, Source.TORCH_TABLE),
        (NCU, KernelCounters, None),
    ],
    ids=["kineto", "perfetto", "nsys stats", "torch csv", "torch printed", "ncu"],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_content_decides(
    tmp_path: Path, content: str | bytes, kind: type, source: Source | None, zipped: bool
) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    path = write(tmp_path, gzip.compress(data) if zipped else data, "file.txt")
    (found,) = read_evidence(path, "base")
    assert isinstance(found, kind)
    assert (found.file, found.label) == (str(path), "base")  # type: ignore[union-attr]
    assert getattr(found, "source", None) == source


def test_an_nsys_export_under_any_name(tmp_path: Path) -> None:
    made = decode(tmp_path / "export.bin", next(iter(GENERATIONS)))
    (found,) = read_evidence(made, "base")
    assert isinstance(found, KernelTrace)
    assert (found.source, found.label) == (Source.NSYS, "base")


XPLANE = message(1, number(1, 1) + message(2, "/device:GPU:0"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\0" * 4096, "empty"),
        (gzip.compress(b""), "empty"),
        (gzip.compress(b"{}")[:5], "gzip data"),
        (b"PK\x05\x06" + b"\0" * 18, "nothing in it"),
        (b"PK\x03\x04" + b"\0" * 50, "zip archive"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 50, "zstd"),
        (b"\x7fELF" + b"\1" * 50, "cubin"),
        (b'{"rocprofiler-sdk-tool": [{"metadata": {}}]}', "rocprofv3"),
        (b'[{"children": [], "frame": {"name": "f"}, "metrics": {"time (ns)": 3}}]', "hatchet"),
        (XPLANE, "xplane"),
        (b'{"schema": "dsv4bench.breakdown/1"}', "own output"),
        (b"hello, world\n", "no kind"),
        (b'"Domain","Function","Process_Id"\n', "rocprofv3"),
        (b"\x00\x01\x02\x03binary", "no kind"),
    ],
)
def test_the_rest_is_refused_in_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(Unanswerable) as refused:
        read_evidence(write(tmp_path, content))
    assert said in refused.value.message
    assert "\n" not in refused.value.message + refused.value.hint
    assert refused.value.hint


def test_a_refusal_names_the_users_file_and_no_copy(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(b"hello, world\n"), "notes.gz")
    with pytest.raises(Unanswerable) as refused:
        read_evidence(path)
    assert str(path) in refused.value.message


def test_what_is_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unanswerable) as refused:
        read_evidence(write(tmp_path, "hello"))
    for kind in (".sqlite", ".nsys-rep", ".json.gz", ".pftrace", ".ncu-rep", "key_averages"):
        assert kind in refused.value.hint


@pytest.mark.parametrize("place", [lambda p: p / "missing.json", lambda p: p], ids=["missing", "folder"])
def test_what_cannot_be_opened_is_a_usage_error(tmp_path: Path, place: Callable[[Path], Path]) -> None:
    with pytest.raises(UsageError):
        read_evidence(place(tmp_path))


def test_the_beginning_of_any_kind_never_ends_in_a_traceback(tmp_path: Path) -> None:
    for data in (document().encode(), TRACE, NSYS_STATS.encode(), NCU.encode(), printed(ROWS).encode()):
        for length in range(0, min(len(data), 1500), 11):
            try:
                read_evidence(write(tmp_path, data[:length]))
            except BenchError as error:
                assert error.exit_code == 4
