"""Which process listens on a port, and what it was started with."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsv4bench.host.listening import Listening, listening

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
SERVER = (
    "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """(port, pid) of a process of its own, in a folder of its own."""
    env = {**os.environ, "TRACES_GO_TO": "prof", "SECRET_KEY": "not asked for"}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, "--flag", "a b"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=env,
        text=True,
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    yield port, process.pid
    process.communicate("\n")


def test_the_process_behind_a_port(server: tuple[int, int], tmp_path: Path) -> None:
    port, pid = server
    found = listening(port, ["TRACES_GO_TO", "NOT_SET"])
    assert found is not None and found.pid == pid
    assert found.command[-2:] == ["--flag", "a b"]
    assert found.environment == {"TRACES_GO_TO": "prof"}  # no variable that was not asked for
    assert found.own_root and found.path("prof") == tmp_path / "prof" and found.path("/abs") == Path("/abs")
    assert "not asked for" not in repr(found)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
        mine = listening(port)
        assert mine is not None and mine.pid == os.getpid()
    assert listening(port) is None


def test_a_process_in_a_container_has_another_root() -> None:
    inside, its_root = Listening(pid=42, folder="/app", own_root=False), Path("/proc", "42", "root")
    assert inside.path("traces") == its_root / "app" / "traces"
    assert inside.path("/srv/x") == its_root / "srv" / "x"


def test_where_there_is_no_proc(tmp_path: Path) -> None:
    assert listening(80, proc=tmp_path) is None
