"""A recorder whose window ends early: what is waited for is said at once, and another Ctrl-C does not wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from dsv4bench.records.capture import Captured
from dsv4bench.runs import told_to_stop as module
from dsv4bench.runs.told_to_stop import told_to_stop


class Window:
    """A recorder that is asked to stop; what happens meanwhile is `during`."""

    method = "torch"

    def __init__(self, during: Callable[[], object], abort_s: float = 15.0) -> None:
        self.during, self.abort_s, self.aborted = during, abort_s, 0

    def open(self) -> None: ...

    def close(self) -> Captured:
        raise NotImplementedError

    def abort(self) -> str:
        self.aborted += 1
        self.during()
        return "told, and did"


def interrupted(window: Window) -> list[str]:
    said: list[str] = []
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    with pytest.raises(KeyboardInterrupt), told_to_stop(window, said.append):  # type: ignore[arg-type]
        raise KeyboardInterrupt
    assert {n: signal.getsignal(n) for n in before} == before
    return said


def test_what_is_waited_for_is_said_before_it_is() -> None:
    seen: list[int] = []
    said: list[str] = []
    window = Window(lambda: seen.append(len(said)))
    with pytest.raises(KeyboardInterrupt), told_to_stop(window, said.append):  # type: ignore[arg-type]
        raise KeyboardInterrupt
    assert seen == [1] and "up to 15 s" in said[0] and "Ctrl-C" in said[0] and said[1] == "told, and did"
    assert interrupted(Window(lambda: None, abort_s=0.0)) == ["told, and did"]  # nothing to wait for


def test_another_ctrl_c_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TWICE_S", 0.0)
    window = Window(lambda: (signal.raise_signal(signal.SIGINT), threading.Event().wait(30)))
    said = interrupted(window)
    assert window.aborted == 1 and said[-1] == "not waited for: the recorder may still record, or still write"


def test_ctrl_c_that_came_twice_and_termination_are_no_further_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TWICE_S", 60.0)
    window = Window(lambda: [signal.raise_signal(n) for n in (signal.SIGINT, signal.SIGTERM)])
    assert interrupted(window)[-1] == "told, and did"


def test_a_thread_tells_it_too() -> None:
    said: list[str] = []

    def fail() -> None:
        with pytest.raises(ValueError, match="x"), told_to_stop(Window(lambda: None), said.append):  # type: ignore[arg-type]
            raise ValueError("x")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert said[-1] == "told, and did"
