"""What cannot be written is said in one line, and what was written before stays whole."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from store_samples import make_cell, make_experiment, make_request

from dsv4bench.errors import StoreError
from dsv4bench.records.experiment import Status
from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.files import Appender, write_whole
from dsv4bench.store.store import Store

real_write = os.write


def full_after(n_bytes: int) -> object:
    """An os.write of a disk with `n_bytes` left."""
    left = [n_bytes]

    def write(fd: int, data: bytes) -> int:
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real_write(fd, bytes(data)[: left[0]])
        left[0] -= written
        return written

    return write


def test_a_cell_that_does_not_fit_leaves_the_ones_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with make_experiment(tmp_path) as e:
        e.append_cell(make_cell("r0"))
        with monkeypatch.context() as m:
            m.setattr(os, "write", full_after(100))
            with pytest.raises(StoreError) as failed:
                e.append_cell(make_cell("r1"))
        assert "cells.jsonl: No space left on device; 1 finished level is safe there" in failed.value.message
        assert "\n" not in failed.value.message and "free some space" in failed.value.hint
        e.append_cell(make_cell("r1"))  # space was made
    back = ExperimentDir.open(e.path)
    assert [c.cell for c in back.cells()] == ["r0", "r1"] and back.warnings == []


@pytest.mark.parametrize("left", [0, 1, 200])
def test_run_json_is_never_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    with make_experiment(tmp_path) as e:
        e.append_cell(make_cell("r0"))
        before = (e.path / "run.json").read_bytes()
        with monkeypatch.context() as m:
            m.setattr(os, "write", full_after(left))
            with pytest.raises(StoreError, match=r"cannot write .*run\.json: No space left"):
                e.finish()
        assert (e.path / "run.json").read_bytes() == before
        assert {p.name for p in e.path.iterdir()} == {"run.json", "cells.jsonl"}  # no litter, no lock
    assert Store(tmp_path).list()[0].status is Status.ABORTED


def test_what_fails_at_the_end_leaves_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise StoreError("cannot clean server.log: No space left on device")

    with make_experiment(tmp_path) as e:
        e.server_log.write_text("x\n")
        e.append_cell(make_cell("r0"))
        monkeypatch.setattr("dsv4bench.store.redaction.clean_log", full)
        with pytest.raises(StoreError, match="No space left"):
            e.finish()
    assert [(x.status, x.n_cells) for x in Store(tmp_path).list()] == [(Status.COMPLETE, 1)]


def test_a_sync_that_fails_takes_the_line_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with make_experiment(tmp_path) as e:
        e.append_cell(make_cell("r0"))
        with monkeypatch.context() as m:
            m.setattr(os, "fsync", fsync)
            with pytest.raises(StoreError, match="Input/output error"):
                e.append_cell(make_cell("r1"))
        assert [c.cell for c in e.cells()] == ["r0"]


def test_an_experiment_that_cannot_begin_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "check_writable", lambda self: None)
    monkeypatch.setattr(os, "write", full_after(400))  # enough for the lock
    with pytest.raises(StoreError, match=r"run\.json"):
        make_experiment(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_seen_before_anything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", full_after(1000))
    with pytest.raises(StoreError, match="No space left"):
        Store(tmp_path).check_writable()
    assert list(tmp_path.iterdir()) == []


def test_a_vanished_folder_is_said(tmp_path: Path) -> None:
    e = make_experiment(tmp_path)
    e.append_cell(make_cell("r0"))
    shutil.rmtree(e.path)
    with pytest.raises(StoreError, match=r"cells\.jsonl: No such file"):
        e.append_cell(make_cell("r1"))
    with pytest.raises(StoreError, match=r"run\.json: No such file"):
        e.set_status(Status.FAILED, "x")
    e.close()


def test_a_ctrl_c_behind_a_whole_line_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(fd: int) -> None:
        raise KeyboardInterrupt

    appender = Appender(tmp_path / "a")
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        appender.append(b"whole\n")
    appender.close()
    assert (tmp_path / "a").read_bytes() == b"whole\n"


def test_whole_files_are_replaced_whole(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"old")
    write_whole(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new" and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(StoreError, match="No such file"):
        write_whole(tmp_path / "no" / "a", b"")


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def test_a_real_size_limit(tmp_path: Path) -> None:
    """The kernel's own short write: cells are appended until a file may not grow any more."""
    script = (
        "import sys, pathlib; from store_samples import *; from dsv4bench.errors import StoreError\n"
        "import dsv4bench.store.store as s; s.PROBE_BYTES = 100\n"
        "e = make_experiment(pathlib.Path(sys.argv[1]))\n"
        "n = 0\n"
        "try:\n"
        "    while n < 100: e.append_cell(make_cell(f'r{n}')); n += 1\n"
        "except StoreError as err: print(n, err.message)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env=env, preexec_fn=_limit, capture_output=True, text=True, check=True,
    )  # fmt: skip
    n, _, message = done.stdout.partition(" ")
    assert "File too large" in message and f"{n} finished levels are safe there" in message
    (entry,) = Store(tmp_path).list()
    reader = Store(tmp_path).open(entry.id)
    assert int(n) == len(reader.cells()) == entry.n_cells > 1 and reader.warnings == []


def test_requests_that_do_not_fit_leave_the_levels_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with make_experiment(tmp_path) as e:
        e.append_requests("r0", [make_request(0)])
        with monkeypatch.context() as m:
            m.setattr(os, "write", full_after(50))
            with pytest.raises(StoreError, match=r"requests\.jsonl\.gz"):
                e.append_requests("r1", [make_request(1)])
        e.append_requests("r2", [make_request(2)])
    back = ExperimentDir.open(e.path)
    assert [r.cell for r in back.requests()] == ["r0", "r2"] and back.warnings == []
