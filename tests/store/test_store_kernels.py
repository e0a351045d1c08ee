"""results/kernels/: parity that is joined kernel by kernel, times that are never overwritten, tables beside them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dsv4bench.errors import SchemaError, StoreError
from dsv4bench.records.kernels import BenchDocument, DeviceFacts, ParityDocument, ParityRow
from dsv4bench.store import kernels as store

GPU = DeviceFacts(name="NVIDIA H200", arch="sm_90", torch="2.11.0", triton="3.6.0")


def parity(code: dict[str, str], red: tuple[str, ...] = (), created: str = "2026-11-30T00:00:00Z") -> ParityDocument:
    return ParityDocument(
        created_utc=created,
        tool="0",
        device=GPU,
        code=code,
        green=[k for k in code if k not in red],
        red=list(red),
        rows=[ParityRow(kernel=k, case="c", outcome="fail" if k in red else "pass") for k in code],
    )


def times(created: str = "2026-11-30T01:02:03.250Z") -> BenchDocument:
    return BenchDocument(created_utc=created, tool="0", device=GPU, ceiling=None, rows=[], code={})


def write(root: Path, document: ParityDocument) -> Path:
    return store.write_parity(root, document, lambda d: f"{len(d.code)} kernels")


def test_a_place_that_cannot_take_results_is_known_before_the_run(tmp_path: Path) -> None:
    store.ready(tmp_path, GPU.name)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot create"):
        store.ready(tmp_path / "file", GPU.name)
    (store.folder_of(tmp_path, GPU.name) / "parity.json").write_text("{")
    with pytest.raises(SchemaError, match=r"parity\.json"):
        store.ready(tmp_path, GPU.name)


def test_a_gpu_has_a_folder_of_its_own(tmp_path: Path) -> None:
    assert store.folder_of(tmp_path, "NVIDIA H200") == tmp_path / "kernels" / "NVIDIA-H200"
    assert store.folder_of(tmp_path, "cpu (Triton interpreter)").name == "cpu-Triton-interpreter"


def test_a_kernel_that_is_checked_again_replaces_its_own_rows_only(tmp_path: Path) -> None:
    write(tmp_path, parity({"a": "1", "b": "1"}, red=("b",)))
    path = write(tmp_path, parity({"b": "2", "c": "1"}, created="2026-12-01T00:00:00Z"))
    found = store.read_parity(tmp_path, GPU.name)
    assert found is not None and found.code == {"a": "1", "b": "2", "c": "1"}
    assert (found.green, found.red) == (["a", "b", "c"], [])
    assert [(r.kernel, r.outcome) for r in found.rows] == [("a", "pass"), ("b", "pass"), ("c", "pass")]
    assert found.created_utc == "2026-12-01T00:00:00Z"
    assert path.with_suffix(".md").read_text() == "3 kernels"


def test_a_kernel_that_became_red_is_green_no_more() -> None:
    found = store.merged(parity({"a": "1", "b": "1"}), parity({"a": "2"}, red=("a",)))
    assert (found.green, found.red) == (["b"], ["a"])


@pytest.mark.parametrize(
    ("kernel", "code", "why"),
    [
        ("a", "1", None),
        ("a", "2", "its text changed since its parity was checked (1, now 2)"),
        ("b", "1", "its parity is red: c"),
        ("z", "1", "its parity was never checked on this GPU"),
    ],
)
def test_green_is_a_question_of_this_text(kernel: str, code: str, why: str | None) -> None:
    assert store.not_green(parity({"a": "1", "b": "1"}, red=("b",)), kernel, code) == why
    assert store.not_green(None, kernel, code) == "its parity was never checked on this GPU"


def test_skipped_throughout_is_not_green() -> None:
    document = msgspec.structs.replace(parity({"a": "1"}), green=[])
    assert store.not_green(document, "a", "1") == "its parity is not green"


def test_times_and_their_table_lie_beside_each_other(tmp_path: Path) -> None:
    path = store.write_times(tmp_path, times(), "# table\n")
    assert path.name == "times-20261130T010203Z.json" and path.with_suffix(".md").read_text() == "# table\n"
    assert store.read_times(path) == times() and store.times(tmp_path, GPU.name) == [path]


def test_times_are_never_overwritten(tmp_path: Path) -> None:
    path = store.write_times(tmp_path, times(), "first")
    with pytest.raises(StoreError, match="is there already"):
        store.write_times(tmp_path, times("2026-11-30T01:02:03.900Z"), "second")
    assert path.with_suffix(".md").read_text() == "first"


def test_nothing_was_checked_where_there_is_no_file(tmp_path: Path) -> None:
    assert store.read_parity(tmp_path, GPU.name) is None
    assert store.times(tmp_path, GPU.name) == []


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, parity({"a": "1"}))
    path.write_text('{"schema": "dsv4bench.cells/1"}')
    with pytest.raises(SchemaError, match="holds dsv4bench"):
        store.read_parity(tmp_path, GPU.name)
