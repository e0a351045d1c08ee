"""Trace files of a window: which are of it, whether each is whole, and when to stop waiting."""

from __future__ import annotations

import gzip
import threading
import time
from pathlib import Path

import pytest

from dsv4bench.capture import rank_files
from dsv4bench.capture.rank_files import Arrivals, is_whole, rank_of, space_left

DATA = b'{"traceEvents": []}\n'


def write(folder: Path, *names: str, data: bytes = DATA) -> None:
    for name in names:
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


def names(paths: list[Path]) -> list[str]:
    return [p.name for p in paths]


def test_only_new_files_of_ranks_count(tmp_path: Path) -> None:
    write(tmp_path, "1-TP-0.trace.json.gz", "again-TP-9.trace.json.gz")
    arrivals = Arrivals(tmp_path)
    write(
        tmp_path,
        "2-TP-10.trace.json.gz",
        "2-TP-2.trace.json.gz",
        "a_rank1.5.pt.trace.json",
        "p_rank0.9.pt.trace.json.gz",
    )
    write(tmp_path, "h_1.async_llm.9.pt.trace.json.gz", "merged-2.trace.json.gz", "profiler_out_0.txt", "notes.json")
    write(tmp_path, "2-TP-0-EXTEND.trace.json.gz", "2-TP-3-DECODE.trace.json.gz", "3-TP-1-prefill.trace.json.gz")
    write(tmp_path, "again-TP-9.trace.json.gz", data=DATA * 100)  # written anew
    assert names(arrivals.new()) == [
        "p_rank0.9.pt.trace.json.gz",
        "a_rank1.5.pt.trace.json",
        "2-TP-2.trace.json.gz",
        "2-TP-3-DECODE.trace.json.gz",
        "again-TP-9.trace.json.gz",
        "2-TP-10.trace.json.gz",
    ]
    prefill = Arrivals(tmp_path / "other", "prefill")
    (tmp_path / "other").mkdir()
    write(tmp_path / "other", "2-TP-0-EXTEND.trace.json.gz", "2-TP-0-DECODE.trace.json.gz")
    assert names(prefill.new()) == ["2-TP-0-EXTEND.trace.json.gz"]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("17.5-TP-3-DP-1-EP-3.trace.json.gz", 3),
        ("c8_rank12.99.pt.trace.json.gz", 12),
        ("dp0_pp0_tp1_dcp0_ep1_rank1.5.pt.trace.json.gz", 1),
        ("host_123.555.pt.trace.json.gz", None),
    ],
)
def test_the_rank_of_a_name(name: str, rank: int | None) -> None:
    assert rank_of(Path(name)) == rank


def test_a_whole_file(tmp_path: Path) -> None:
    write(tmp_path, "a.trace.json.gz", "b.trace.json", data=DATA * 1000)
    raw = (tmp_path / "a.trace.json.gz").read_bytes()
    (tmp_path / "cut.trace.json.gz").write_bytes(raw[:-6])
    (tmp_path / "cut.trace.json").write_bytes(DATA[:-3])
    (tmp_path / "none.trace.json.gz").write_bytes(b"")
    whole = {p.name: is_whole(p) for p in tmp_path.iterdir()}
    assert whole == {
        "a.trace.json.gz": True,
        "b.trace.json": True,
        "cut.trace.json.gz": False,
        "cut.trace.json": False,
        "none.trace.json.gz": False,
    }


def test_all_ranks_are_waited_for(tmp_path: Path) -> None:
    arrivals = Arrivals(tmp_path / "later")

    def ranks() -> None:
        (tmp_path / "later").mkdir()
        for rank in range(3):
            time.sleep(0.1)
            write(tmp_path / "later", f"9-TP-{rank}.trace.json.gz")

    thread = threading.Thread(target=ranks)
    thread.start()
    assert len(arrivals.wait(3, 20, 10)) == 3
    thread.join()


def test_a_file_that_grows_is_waited_for_and_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_files, "SAY_S", 0.05)
    arrivals, said = Arrivals(tmp_path), list[str]()
    raw = gzip.compress(DATA * 5000, 0)

    def grow() -> None:
        with (tmp_path / "9-TP-0.trace.json.gz").open("wb", buffering=0) as f:
            for at in range(0, len(raw), 20_000):
                f.write(raw[at : at + 20_000])
                time.sleep(0.1)

    thread = threading.Thread(target=grow)
    thread.start()
    found = arrivals.wait(None, 20, 0.5, said.append)
    thread.join()
    assert is_whole(found[0]) and any("is writing its trace: 1 files" in line for line in said)


def test_what_never_becomes_whole_comes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_files, "TORN_S", 0.3)
    arrivals = Arrivals(tmp_path)
    (tmp_path / "9-TP-0.trace.json.gz").write_bytes(gzip.compress(DATA)[:-4])
    (torn,) = arrivals.wait(None, 20, 0.2)
    assert not is_whole(torn)


def test_nothing_comes(tmp_path: Path) -> None:
    assert Arrivals(tmp_path).wait(2, 20, 0.2) == []
    assert Arrivals(tmp_path / "never").wait(None, 20, 0.2) == []


def test_no_space_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert space_left(tmp_path / "not" / "yet") is None  # asked of the file system where it would be
    monkeypatch.setattr(rank_files, "LOW_BYTES", 1 << 60)
    assert "no space for a trace" in (space_left(tmp_path) or "")
