"""One launch of one configuration: its processes on a leash, ready and generating; ended whatever happens.

Every process runs on a leash (`capture.leash`), so that nothing outlives us, not even when we are killed. A port that
the scenario leaves open is a free one, drawn anew for each launch.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from dsv4bench.capture.leash import OVER_S, leashed
from dsv4bench.errors import StoreError
from dsv4bench.host.redact import redact, secret_values
from dsv4bench.records.progress import MessageCallback
from dsv4bench.scenario.launched import ConfigSpec, LaunchedCampaign
from dsv4bench.scenario.launched_reading import command_of
from dsv4bench.scenario.launched_text import fill
from dsv4bench.server.group import Group, Part, launch_group, secrets_of
from dsv4bench.server.launch import free_port
from dsv4bench.server.readiness import Ready, wait_generating
from dsv4bench.store.redaction import clean_log

_SLACK_S = 2.0  # for a leash to be seen to have ended


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of a launch before they start: their commands, filled in, by role.

    What is recorded and shown of a command has `{python}` for the Python that runs us, as the scenario has it: where
    that lies is nobody else's business.
    """

    parts: list[Part]
    commands: dict[str, list[str]]  # without the leash
    recorded: dict[str, list[str]]
    urls: dict[str, str]

    @property
    def front(self) -> str:
        """The role that gets the load."""
        return "router" if "router" in self.urls else next(iter(self.urls))

    @property
    def decodes(self) -> Part:
        """The process whose kernels are of interest."""
        role = "decode" if "decode" in self.urls else self.front
        return next(part for part in self.parts if part.role == role)

    @property
    def secrets(self) -> list[str]:
        """The secret values that its commands and environments hold, longest first."""
        return secrets_of(self.parts)


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """A running configuration. `workers`: the URLs of the roles behind a front end; none for a single server.

    `env`: the variables that the one that decodes was given.
    """

    group: Group
    url: str
    env: dict[str, str]
    workers: dict[str, str]
    ready: Ready


def planned_launch(spec: LaunchedCampaign, config: ConfigSpec, logs: Path, stem: str) -> Planned:
    """Ports drawn, placeholders filled."""
    roles = spec.processes(config)
    ports = {role: r.port or free_port() for role, r in roles.items()}
    urls = {role: f"http://127.0.0.1:{port}" for role, port in ports.items()}
    shared: dict[str, str | int] = {}
    for role, port in ports.items():
        shared |= {f"{role}_port": port, f"{role}_url": urls[role]}
    parts, commands, recorded = [], {}, {}
    for role, r in roles.items():
        shown: dict[str, str | int] = {**shared, "port": ports[role], "url": urls[role]}
        values = {**shown, "python": sys.executable}
        commands[role], recorded[role] = command_of(r.launch, values), command_of(r.launch, shown)
        name = stem if len(roles) == 1 else f"{stem}-{role}"
        parts.append(
            Part(
                role=role,
                command=leashed(commands[role], ask_s=spec.server.stop_timeout_s),
                program=recorded[role],
                env={key: fill(text, values) for key, text in r.env.items()},
                url=urls[role],
                health=r.health or spec.server.health,
                log_path=logs / f"{name}.log",
            )
        )
    return Planned(parts=parts, commands=commands, recorded=recorded, urls=urls)


@contextlib.contextmanager
def serving(spec: LaunchedCampaign, config: ConfigSpec, p: Planned, say: MessageCallback) -> Iterator[Serving]:
    """Start, wait until it generates, give it away, stop it, take secrets out of its logs. Raises LaunchFailed."""
    timeout_s = config.ready_timeout_s or spec.server.ready_timeout_s
    say(f"starting {config.name}: {shown(p)}")
    try:
        group = launch_group(p.parts, timeout_s=timeout_s)
        try:
            ready = wait_generating(
                group, timeout_s, model=spec.server.model, endpoint=spec.server.endpoint or "completions"
            )
            say(f"{config.name} generates after {ready.ready_s:.0f} s")
            workers = {role: url for role, url in p.urls.items() if role in ("prefill", "decode")}
            yield Serving(group=group, url=p.urls[p.front], env=p.decodes.env, workers=workers, ready=ready)
        finally:
            group.stop(spec.server.stop_timeout_s + OVER_S + _SLACK_S)
    finally:
        clean_logs([part.log_path for part in p.parts], p.secrets, say)


def clean_logs(logs: Iterable[Path], known: Sequence[str], say: MessageCallback) -> None:
    """Take secrets out of logs that nobody writes any more; one that cannot be rewritten is named."""
    for log in logs:
        try:
            if log.is_file():
                clean_log(log, known)
        except StoreError as e:
            say(f"{log} may hold secrets, it could not be cleaned: {e.message}")


def scenario_secrets(spec: LaunchedCampaign) -> list[str]:
    """The secret values of all its commands and environments, longest first."""
    found: set[str] = set()
    for config in spec.configs:
        for process in spec.processes(config).values():
            found.update(secret_values(command_of(process.launch, {}), process.env))
    return sorted(found, key=lambda v: (-len(v), v))


def shown(p: Planned) -> str:
    """The command that gets the load, as it is run, without secrets."""
    return shlex.join(redact(p.commands[p.front]))
