"""The progress line, and when it is printed."""

from __future__ import annotations

import io

from rich.console import Console

from dsv4bench.records.progress import Progress
from dsv4bench.report.progress import ProgressDisplay, progress_line


def make(**fields: object) -> Progress:
    known: dict[str, object] = {
        "level": "C=8 ISL 1024",
        "level_index": 1,
        "level_count": 3,
        "in_flight": 8,
        "done": 5,
        "failed": 0,
        "total": 24,
        "chunk_s": 23.4,
        "elapsed_s": 12.0,
    }
    return Progress(**{**known, **fields})  # type: ignore[arg-type]


def test_the_line() -> None:
    assert progress_line(make()) == "[2/3] C=8 ISL 1024  in flight 8  done 5/24  ~23 tok/s  12 s"
    assert progress_line(make(failed=2, left_s=45.6)).endswith("done 5/24  failed 2  ~23 tok/s  12 s  46 s left")
    assert "done 5  ~" in progress_line(make(total=None))  # a level that ends by time has no total


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)


def test_without_a_terminal_each_level_is_one_line() -> None:
    c = console(terminal=False)
    with ProgressDisplay(c) as display:
        display.say("hello [x]")
        for done in range(5):
            display.show(make(done=done))
        display.show(make(level="C=16 ISL 1024", level_index=2))
    assert c.file.getvalue() == "hello [x]\n[2/3] C=8 ISL 1024\n[3/3] C=16 ISL 1024\n"  # type: ignore[attr-defined]


def test_on_a_terminal_the_line_is_rewritten_and_goes_away() -> None:
    c = console(terminal=True)
    with ProgressDisplay(c) as display:
        display.show(make(done=1))
        display.show(make(done=2))
        display.say("a message stays")
    shown = c.file.getvalue()  # type: ignore[attr-defined]
    assert "done 2/24" in shown and "a message stays\n" in shown.replace("\r", "")
    assert shown.rstrip().endswith("\x1b[2K") or "\x1b[2K" in shown.rsplit("done 2/24", 1)[1]  # erased at the end


def test_quiet_shows_nothing() -> None:
    for terminal in (False, True):
        c = console(terminal)
        with ProgressDisplay(c, quiet=True) as display:
            display.say("hello")
            display.show(make())
        assert "hello" not in c.file.getvalue() and "done" not in c.file.getvalue()  # type: ignore[attr-defined]
