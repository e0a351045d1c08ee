"""How long a leash lets its command end by itself: as long as whoever leashed it said."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from dsv4bench.capture.leash import leashed

# it needs a while to end well, and says that it did
SLOW = """
import os, signal, sys, time
def told(*_):
    time.sleep({seconds})
    os.write(1, b"ended well\\n")  # not print: the signal may come while print still holds the stream
    sys.exit(0)
signal.signal(signal.SIGTERM, told)
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("seconds", "ask_s", "said"), [(600, 0.3, ""), (0.6, 20.0, "ended well\n")])
def test_a_command_gets_the_time_that_was_asked_for(seconds: float, ask_s: float, said: str) -> None:
    command = leashed([sys.executable, "-S", "-E", "-c", SLOW.format(seconds=seconds)], ask_s=ask_s)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
        assert process.stdout.read() == said


def test_the_command_line() -> None:
    assert leashed(["x", "--ask-s", "9"], ask_s=120.0)[3:] == ["--ask-s", "120", "--", "x", "--ask-s", "9"]
    assert leashed(["x"])[3:] == ["--", "x"]
