"""Live progress on stderr: a line that is rewritten on a terminal, a line a level elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dsv4bench.records.progress import Progress


class ProgressDisplay:
    """Enter it around a sweep; give its `show` and `say` to the run."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._last = ""

    def __enter__(self) -> ProgressDisplay:
        if self._live is not None and not self._quiet:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, message: str) -> None:
        if not self._quiet:
            self._console.print(message, style="dim", highlight=False, markup=False, soft_wrap=True)

    def show(self, p: Progress) -> None:
        if self._quiet:
            return
        if self._live is not None:
            self._live.update(Text(progress_line(p)))
        elif p.level != self._last:
            self._last = p.level
            self.say(f"[{p.level_index + 1}/{p.level_count}] {p.level}")


def progress_line(p: Progress) -> str:
    """Level, in flight, done, rate, time left; the rate is of network chunks, near tok/s on most servers."""
    done = f"{p.done}/{p.total}" if p.total is not None else str(p.done)
    failed = f"  failed {p.failed}" if p.failed else ""
    left = f"  {p.left_s:.0f} s left" if p.left_s is not None else ""
    return (
        f"[{p.level_index + 1}/{p.level_count}] {p.level}  in flight {p.in_flight}  done {done}{failed}  "
        f"~{p.chunk_s:.0f} tok/s  {p.elapsed_s:.0f} s{left}"
    )
