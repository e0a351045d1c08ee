"""A configuration's processes as one: prefill and decode workers behind a router, or (mostly) a single server.

`launch_group` refuses a port that is taken, starts the workers, then the router once they are healthy, and ends
everything that it started whatever happens. `front` gets the load. What goes wrong is one `LaunchFailed`: what
happened, its likely cause, the end of the log.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL, SIGTERM
from types import TracebackType

from dsv4bench.errors import UsageError
from dsv4bench.host.process import kill_group
from dsv4bench.host.redact import hide_values, redact, redact_text, secret_values
from dsv4bench.server.calls import Caller, Reply
from dsv4bench.server.crash import ended_how, likely_cause
from dsv4bench.server.launch import Launched, launch
from dsv4bench.server.ports import answered_by_another, port_taken
from dsv4bench.server.target import Target, parse_url

__all__ = ["Group", "LaunchFailed", "Part", "PortTaken", "launch_group", "port_taken"]

ORDER = ("prefill", "decode", "server", "router")
READY_S = 1800.0

_POLL_S = 0.1
_ASK_S = 5.0
_MAX_LOG_BYTES = 64 << 20  # of one process; the end is kept
_TAIL_LINES = 20
_LISTENS = re.compile(r"(?:running on|listening on|started at|serving on)\s+https?://[\w.\[\]:-]*?:(\d{2,5})\b", re.I)


@dataclass(frozen=True, slots=True)
class Part:
    """One process to start. `env` is added to ours; `health` is a path, None: /health, else /v1/models.

    `program`: the server's own command, where `command` runs it through another program (a leash, a profiler).
    Messages show it, and it tells whether the server is a container or on another host.
    """

    role: str
    command: list[str]
    env: dict[str, str] = field(repr=False)
    url: str
    health: str | None
    log_path: Path
    program: list[str] | None = None

    @property
    def own(self) -> list[str]:
        """The command as the user gave it."""
        return self.program or self.command

    @property
    def secrets(self) -> list[str]:
        """The secret values that this process is given, for `host.redact.hide_values`."""
        return secret_values(self.own, self.env)


class LaunchFailed(UsageError):
    """A launch that did not lead to a server that generates. `cause` None: nothing known was found in the log."""

    def __init__(self, reason: str, hint: str, cause: str | None = None, log_tail: str = "") -> None:
        super().__init__(f"{reason}; likely cause: {cause}" if cause else reason, hint)
        self.reason = reason
        self.cause = cause
        self.log_tail = log_tail


class PortTaken(LaunchFailed):
    """Another process listens where a part shall listen: nothing was started."""


@dataclass(slots=True)
class _Running:
    part: Part
    target: Target
    process: Launched
    log_from: int  # bytes that an earlier launch left in the same log


class Group:
    """The running processes of one configuration; leaving the context ends them all."""

    def __init__(self, parts: Sequence[Part], headers: Sequence[str] = ()) -> None:
        self.parts = sorted(parts, key=lambda p: ORDER.index(p.role) if p.role in ORDER else 0)
        self.started_s = time.time()
        self._headers = list(headers)
        self._secrets = secrets_of(self.parts)
        self._running: list[_Running] = []
        self._stopping = False

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def front(self) -> Part:
        """The part that gets the load: the router, else the only one."""
        return self.parts[-1]

    def part(self, role: str) -> Part | None:
        """The part of a role, or None."""
        return next((p for p in self.parts if p.role == role), None)

    @property
    def pids(self) -> dict[str, int]:
        """Role -> process id, of those that were started."""
        return {r.part.role: r.process.pid for r in self._running}

    def exited(self) -> str | None:
        """Who has ended, and how: "the decode server exited with code 1"; None while all run."""
        gone = self._gone()
        if not gone:
            return None
        return ", ".join(f"{_who(r.part)} {ended_how(r.process.exit_code or 0)}" for r in gone)

    def exit_code(self) -> int | None:
        """The exit code of the first part that ended, workers before the router; None while all run."""
        gone = self._gone()
        return gone[0].process.exit_code if gone else None

    def log_text(self) -> str:
        """What this launch has written, part by part, under a heading each when there are several.

        Without the secrets of its commands; nothing else is redacted.
        """
        texts = [(r.part.role, self._log_of(r)) for r in self._running]
        if len(texts) == 1:
            return texts[0][1]
        return "\n".join(f"== {role} ==\n{text}" for role, text in texts)

    def failure(self, reason: str) -> LaunchFailed:
        """The error for `reason`, with cause and log of the part that ended, else of the front."""
        gone, reason = self._gone(), hide_values(reason, self._secrets)
        about = gone[0] if gone else next((r for r in reversed(self._running)), None)
        if about is None:
            return LaunchFailed(reason, "nothing was started")
        path, text = about.part.log_path, self._log_of(about)
        tail = redact_text("\n".join(text.splitlines()[-_TAIL_LINES:]))
        hint = f"the end of {path}:\n{tail}" if tail else f"{path} is empty"
        return LaunchFailed(reason, hint, likely_cause(text, about.process.exit_code), tail)

    def check(self) -> None:
        """Raises LaunchFailed when a part has ended, or when another process answers on a part's port."""
        if how := self.exited():
            shown = " ".join(redact((self._gone() or self._running)[0].part.own))
            raise self.failure(f"{how} before it was ready: {shown}")

    def check_ports(self) -> None:
        """Raises LaunchFailed when a part's port is answered by a process that is not of this launch."""
        for r in self._running:
            if not r.target.on_this_host:
                continue
            other = answered_by_another(r.target.port, r.process.pid, r.part.own, r.process.started_s)
            if other is not None:
                raise self.failure(
                    f"port {r.target.port} of {_who(r.part)} is answered by {other}, which this launch did not start"
                )

    def health(self, part: Part) -> Reply:
        """One question to a part's health path; `answers` judges the reply."""
        with Caller(parse_url(part.url, self._headers), timeout_s=_ASK_S) as caller:
            if part.health is not None:
                return caller.ask(part.health)
            reply = caller.ask("/health")
            return caller.ask("/v1/models") if reply.status in (404, 405) else reply

    def wait_healthy(self, part: Part, deadline_s: float) -> None:
        """Wait for a part's health until `deadline_s` (epoch seconds). Raises LaunchFailed."""
        while True:
            self.check()
            reply = self.health(part)
            if answers(reply):
                return
            if time.time() > deadline_s:
                raise self.failure(self._unhealthy(part, reply))
            time.sleep(_POLL_S)

    def stop(self, grace_s: float = 20.0) -> None:
        """End every process: all are asked at once, and killed with their groups after `grace_s`. Twice is fine."""
        try:
            asked = [r.process for r in reversed(self._running) if r.process.exit_code is None]
            for process in asked:
                kill_group(process.pid, SIGTERM)
            end = time.monotonic() + grace_s
            while any(p.exit_code is None for p in asked) and time.monotonic() < end:
                time.sleep(_POLL_S / 2)
        finally:  # also on a second Ctrl-C: workers that outlive their parent hold GPU memory
            for r in self._running:
                kill_group(r.process.pid, SIGKILL)
            for r in self._running:
                r.process.stop(grace_s=0.0)

    def _start(self, timeout_s: float) -> None:
        targets = {p.role: parse_url(p.url, self._headers) for p in self.parts}
        for part in self.parts:
            target = targets[part.role]
            holder = port_taken(target.port) if target.on_this_host else None
            if holder is not None:
                raise PortTaken(
                    f"port {target.port} of {_who(part)} is taken by {holder}",
                    "end that process, or choose another port (port: 0 takes a free one)",
                )
        for part in self.parts:
            if part.role == "router":
                for worker in self._running:
                    self.wait_healthy(worker.part, self.started_s + timeout_s)
                self.check_ports()
            log_from = part.log_path.stat().st_size if part.log_path.is_file() else 0
            process = launch(part.command, log_path=part.log_path, env=part.env)
            self._running.append(_Running(part, targets[part.role], process, log_from))

    def _unhealthy(self, part: Part, reply: Reply) -> str:
        """What is wrong with a part that runs and does not answer, with another port that its log speaks of."""
        port, waited = parse_url(part.url).port, time.time() - self.started_s
        told = {
            p for r in self._running if r.part is part for p in _LISTENS.findall(_read(part.log_path, r.log_from))
        }
        others = sorted(told - {str(port)})
        elsewhere = f"; its log speaks of port {', '.join(others)}: does its command use {{port}}?" if others else ""
        return f"{_who(part)} was not healthy at {part.url} within {waited:.0f} s ({reply.why_not()}){elsewhere}"

    def _log_of(self, r: _Running) -> str:
        return hide_values(_read(r.part.log_path, r.log_from), self._secrets)

    def _gone(self) -> list[_Running]:
        return [r for r in self._running if r.process.exit_code is not None]


def launch_group(parts: Sequence[Part], *, timeout_s: float = READY_S, headers: Sequence[str] = ()) -> Group:
    """Start the processes of one configuration; `with launch_group(parts) as group:` ends them.

    Returns at once for a single server; with a router once its workers are healthy and it was started. Raises
    LaunchFailed for a port that is taken, a worker that ends or is not healthy within `timeout_s`, and UsageError for
    a program that cannot be started; nothing is left running then.
    """
    if not parts:
        raise UsageError("a configuration without a process", "give it a launch command")
    group = Group(parts, headers)
    try:
        group._start(timeout_s)
    except BaseException:
        group.stop()
        raise
    return group


def answers(reply: Reply) -> bool:
    """Whether a health path's reply says that the server is up; a key may still be asked for."""
    return reply.status in (200, 204, 401, 403)


def secrets_of(parts: Sequence[Part]) -> list[str]:
    """The secret values that a launch is given, longest first."""
    found = {value for part in parts for value in part.secrets}
    return sorted(found, key=lambda v: (-len(v), v))


def _who(part: Part) -> str:
    return "the server" if part.role == "server" else f"the {part.role}{'' if part.role == 'router' else ' server'}"


def _read(path: Path, start: int) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start, size - _MAX_LOG_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
