"""The nsys of this machine, where it has one: no GPU is needed for its sessions, windows and reports."""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from dsv4bench.capture.nsys import NsysSession
from dsv4bench.host.nsight import find_nsys, importer_lacks
from dsv4bench.server.launch import launch

NSYS = find_nsys()
pytestmark = pytest.mark.skipif(
    NSYS is None or importer_lacks(NSYS.path) is not None, reason="no nsys here that can make reports"
)
SERVER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


def test_two_windows_an_abort_and_nothing_left(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with NsysSession(SERVER) as session, launch(session.command, log_path=log, env=session.env) as server:
        deadline = time.monotonic() + 60
        while "up" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        for label in ("c1", "c16"):
            window = session.window(label, lambda: None)
            window.open()
            time.sleep(0.2)
            captured = window.close()
            with closing(sqlite3.connect(captured.files[0])) as export:
                tables = {row[0] for row in export.execute("SELECT name FROM sqlite_master")}
            assert "META_DATA_CAPTURE" in tables and captured.seconds > 0.2
        window = session.window("c64", lambda: None)
        window.open()
        assert window.abort().endswith(", and did")
        assert session.state() == "Launched" and server.exit_code is None
    assert session.state() is None and not session.folder.exists()


def test_a_server_that_ends_is_told(tmp_path: Path) -> None:
    crash = [sys.executable, "-c", "import sys; print('out of memory'); sys.exit(3)"]
    with NsysSession(crash) as session, launch(session.command, log_path=tmp_path / "log", env=session.env) as server:
        deadline = time.monotonic() + 60
        while server.exit_code is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert server.exit_code == 3 and "out of memory" in server.log_tail(50)
