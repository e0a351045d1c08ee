"""The leash ends everything below it, whatever its command did to get away, and passes its exit code on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsv4bench.capture import leash
from dsv4bench.capture.leash import leashed

IMPATIENT = "import sys; from dsv4bench.capture import leash; leash._INSIST_S = 0.1; sys.exit(leash.main())"
PYTHON = [sys.executable, "-S", "-E", "-c"]
# a grandchild in a session of its own, whose parent has ended: it belongs to init, or to the leash
ESCAPED = """
import os, subprocess, sys, time
inner = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
outer = f"import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', {inner!r}], start_new_session=True)"
subprocess.Popen([sys.executable, "-S", "-c", outer]).wait()
"""


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("code", "expected"), [("import sys; sys.exit(3)", 3), ("pass", 0)])
def test_the_exit_code_is_the_commands(code: str, expected: int) -> None:
    assert subprocess.run(leashed([*PYTHON, code]), timeout=30, check=False).returncode == expected


def test_a_command_ended_by_a_signal() -> None:
    code = "import os; os.kill(os.getpid(), 9)"
    assert subprocess.run(leashed([*PYTHON, code]), timeout=30, check=False).returncode == 128 + 9


def test_a_command_that_is_not_there() -> None:
    done = subprocess.run(leashed(["/no/such/program"]), capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 127 and "cannot start /no/such/program" in done.stderr


def test_its_own_options_are_not_the_commands() -> None:
    command = leashed(["nsys", "launch", "--remove", "x", "--", "y"], Path("/folder"))
    assert command[1:] == [
        *("-m", "dsv4bench.capture.leash", "--remove", "/folder", "--"),
        *("nsys", "launch", "--remove", "x", "--", "y"),
    ]
    code = "import sys; print(sys.argv[1:])"
    done = subprocess.run(
        leashed([*PYTHON, code, "--remove", "a", "--", "b"]), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['--remove', 'a', '--', 'b']"


def test_what_outlives_the_command_is_ended() -> None:
    """The command ends at once, well; its orphan would stay for ten minutes."""
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT, "--", *PYTHON, ESCAPED],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert not lives(int(done.stdout))


def test_what_does_not_listen_is_killed() -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    shorter = IMPATIENT.replace("leash.", "leash.ASK_S = 0.5; leash.", 1)
    process = subprocess.Popen(
        [sys.executable, "-c", shorter, "--", *PYTHON, deaf], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    (child,) = children_of(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM
    assert not lives(child)
    process.stdout.close()


def test_the_folder_stays_while_its_owner_lives(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    subprocess.run(leashed([*PYTHON, "pass"], folder), timeout=30, check=True)
    assert folder.is_dir()


def test_the_folder_goes_when_its_owner_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    begun = tmp_path / "begun"
    command = leashed([*PYTHON, f"import time; open({str(begun)!r}, 'w'); time.sleep(600)"], folder)
    code = (
        "import subprocess, time; from dsv4bench.host.process import die_with_parent\n"
        f"subprocess.Popen({command!r}, preexec_fn=die_with_parent())\n"
        "print('up', flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    owner.stdout.readline()
    until = time.monotonic() + 20
    while not begun.exists() and time.monotonic() < until:  # by then the leash has its handlers
        time.sleep(0.02)
    owner.kill()
    owner.wait(10)
    deadline = time.monotonic() + 20
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not folder.exists()
    owner.stdout.close()


def test_descendants_are_found_by_their_parents() -> None:
    child = subprocess.Popen([*PYTHON, "import time; time.sleep(600)"])
    try:
        assert child.pid in leash.descendants() and os.getpid() not in leash.descendants()
    finally:
        child.kill()
        child.wait()


def children_of(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
