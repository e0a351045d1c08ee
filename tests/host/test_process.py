"""File limits are raised or refused with a hint, and a child ends with its parent."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.host.process import die_with_parent, kill_group, need_files, raise_file_limit


@pytest.fixture
def limits():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_rises_to_the_hard_one(limits: tuple[int, int]) -> None:
    _, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    now = raise_file_limit()
    assert now == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert now > 256


def test_enough_files_pass_and_too_many_are_refused(limits: tuple[int, int]) -> None:
    need_files(8)
    impossible = raise_file_limit()  # + 64 is more than there is
    with pytest.raises(UsageError) as refused:
        need_files(impossible)
    assert str(impossible) in refused.value.message
    assert "ulimit" in refused.value.hint


_PARENT = """
import subprocess, sys, time
from dsv4bench.host.process import die_with_parent
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"],
                         preexec_fn=die_with_parent(), process_group=0)
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is Linux's")
def test_a_child_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(child, 0)  # it lives
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert _gone(child), "the child outlived its killed parent"


def test_a_group_is_killed_whole() -> None:
    leader = subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True, process_group=0
    )
    assert leader.stdout is not None
    grandchild = int(leader.stdout.readline())
    assert kill_group(leader.pid, signal.SIGKILL)
    leader.wait()
    leader.stdout.close()
    assert _gone(grandchild)


def test_an_empty_group_is_told() -> None:
    child = subprocess.Popen(["true"], process_group=0)
    child.wait()
    assert not kill_group(child.pid, signal.SIGTERM)


def test_nothing_is_set_up_where_the_kernel_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert die_with_parent() is None


def _gone(pid: int) -> bool:
    """Whether a process ends (a zombie that nobody reaps counts as ended)."""
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False
