"""Signals while something runs: SIGTERM, and the hang-up of a terminal, as Ctrl-C; and handlers for a while."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

Handler = Callable[[int, Any], Any] | signal.Handlers


@contextlib.contextmanager
def handled(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """In here these handlers are in force, afterwards those before; outside of the main thread nothing is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """In here these signals raise KeyboardInterrupt; a hang-up that is ignored (nohup) stays ignored."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    ends = (signal.SIGTERM, signal.SIGHUP)
    with handled({number: interrupt for number in ends if signal.getsignal(number) is not signal.SIG_IGN}):
        yield
