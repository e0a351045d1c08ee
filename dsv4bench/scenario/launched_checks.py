"""What can be wrong with a launched campaign although every value has its type: names, roles, commands, expectations.

Each `Fault` names the keys that lead to it, so that the reader finds its line. Pure: nothing is started or looked up.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

import msgspec

from dsv4bench.gpus import KNOWN, find
from dsv4bench.metrics import BY_NAME
from dsv4bench.scenario.launched import ConfigSpec, LaunchedCampaign
from dsv4bench.scenario.launched_text import known_names, placeholders

DEFAULT_CONCURRENCY = (1, 8, 16)  # as `sweep` has it
DISAGGREGATED = {"prefill", "decode", "router"}

_SHELLS = ("sh", "bash", "dash", "zsh", "env")
_OPERATORS = re.compile(r"^(&&|\|\|?|;|&|\d?>>?(&\d)?|<)$")
_UNFILLED = re.compile(r"\$(?P<name>[A-Za-z_]\w*)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong: where, what, and what to do (None: look into the reference)."""

    keys: tuple[str | int, ...]
    message: str
    hint: str | None = None


def faults(c: LaunchedCampaign) -> Iterator[Fault]:
    """Everything that is wrong, in the order of the file as far as that is known."""
    yield from _levels(c)
    yield from _deltas(c)
    yield from _family(c)
    for i, config in enumerate(c.configs):
        yield from _processes(c, config, i)
        yield from _ports(config, i)
        yield from _live(c, config, i)
    yield from _expectations(c)
    if c.profile is not None and c.profile.cubins is True:
        what = "cubins is a folder of compiled kernels, or false"
        yield Fault(("profile", "cubins"), what, "leave it out for the server's own Triton cache")


def _levels(c: LaunchedCampaign) -> Iterator[Fault]:
    levels = c.levels
    if levels.rates_req_s and levels.concurrency:
        yield Fault(
            ("levels", "rates_req_s"), "rates_req_s and concurrency cannot both be given: levels are of one kind"
        )
    if levels.requests and levels.duration_s:
        yield Fault(("levels", "duration_s"), "requests and duration_s cannot both be given: a level has one end")
    several = (
        (("levels", "concurrency"), levels.concurrency),
        (("levels", "rates_req_s"), levels.rates_req_s),
        (("workload", "isl"), c.workload.isl),
    )
    for at, values in several:
        if values is not None and not values:
            yield Fault(at, f"{at[1]} is empty: give at least one value, or leave it out")
        if values and len(set(values)) < len(values):
            yield Fault(at, f"a value of {at[1]} stands twice", "repeat: N measures every level N times")
    if c.server.endpoint == "chat" and c.workload.dataset in (None, "random"):
        what = "random prompts are token ids, and the chat endpoint takes none"
        yield Fault(("server", "endpoint"), what, "set workload: dataset: chat, or endpoint: completions")


def _deltas(c: LaunchedCampaign) -> Iterator[Fault]:
    for name in c.delta:
        if name not in BY_NAME:
            yield Fault(("delta", name), f"{name} is no metric{_near(name, BY_NAME)}", "dsv4bench metrics lists them")
        elif BY_NAME[name].direction == "none":
            yield Fault(("delta", name), f"{name} has no better or worse, so it carries no verdict")
    if c.gpu is not None and find(c.gpu) is None:
        known = ", ".join(g.name for g in KNOWN)
        yield Fault(("gpu",), f"gpu {c.gpu} is none of the known ones: {known}", "leave it out to take what is found")


def _family(c: LaunchedCampaign) -> Iterator[Fault]:
    """Names, parents and levers."""
    names = [config.name for config in c.configs]
    for i, config in enumerate(c.configs):
        at = ("configs", i)
        above = names[:i]
        if config.name in above:
            yield Fault((*at, "name"), f"config {config.name} stands there twice")
        if config.parent is not None and config.parent not in above:
            where = "is itself" if config.parent == config.name else f"is no config above it ({_listed(above)})"
            yield Fault((*at, "parent"), f"parent {config.parent} of {config.name} {where}")
        if config.lever is not None and config.parent is None:
            yield Fault((*at, "lever"), f"{config.name} has the lever {config.lever} and no parent to compare with")
        for key in ("lever_keys", "touches"):
            if getattr(config, key) and config.lever is None:
                yield Fault((*at, key), f"{config.name} has {key} and names no lever that they belong to")


def _processes(c: LaunchedCampaign, config: ConfigSpec, i: int) -> Iterator[Fault]:
    at = ("configs", i)
    if config.launch is not None and config.roles:
        yield Fault((*at, "roles"), f"{config.name} has both launch and roles: give one command, or one a role")
    elif config.launch is not None:
        port = config.port if config.port is not None else c.server.port
        known = known_names(())
        yield from _command((*at, "launch"), config.name, config.launch, known, bool(port))
        yield from _environment((*at, "env"), config.name, config.env, known)
    elif config.roles:
        found = set(config.roles)
        if found not in ({"server"}, DISAGGREGATED):
            asked = "prefill, decode and router (or server alone)"
            yield Fault((*at, "roles"), f"{config.name} has the roles {_listed(sorted(found))}; expected {asked}")
        for key in ("port", "health"):
            if getattr(config, key) is not None:
                yield Fault((*at, key), f"{config.name} has roles: {key} belongs to each of them")
        for name, role in config.roles.items():
            whose = f"{config.name}, {name}"
            known = known_names(config.roles)
            yield from _command((*at, "roles", name, "launch"), whose, role.launch, known, bool(role.port))
            yield from _environment((*at, "roles", name, "env"), whose, role.env, known)
    else:
        yield Fault((*at, "name"), f"{config.name} has neither launch nor roles: nothing would start")


def _command(at: tuple[str | int, ...], whose: str, launch: str, known: list[str], has_port: bool) -> Iterator[Fault]:
    try:
        words = shlex.split(launch)
    except ValueError as e:
        yield Fault(at, f"launch of {whose} cannot be split into words: {str(e).lower()}", "check its quotes")
        return
    if not words:
        yield Fault(at, f"launch of {whose} is empty")
        return
    for name in placeholders(launch):
        if name not in known:
            listed = ", ".join(f"{{{n}}}" for n in known)
            yield Fault(
                at, f"launch of {whose}: {{{name}}} is no placeholder{_near(name, known)}", f"known: {listed}"
            )
    yield from _shell_habits(at, whose, words)
    if not has_port and not {"port", "url"} & set(placeholders(launch)):
        yield Fault(
            at,
            f"launch of {whose} has no {{port}} and no port is set: nobody would know where it listens",
            "write e.g. --port {port}, or set port: to the one that it takes",
        )


def _environment(at: tuple[str | int, ...], whose: str, env: Mapping[str, str], known: list[str]) -> Iterator[Fault]:
    for name, value in env.items():
        yield from _unknown((*at, name), f"env of {whose}, {name}", value, known)


def _unknown(at: tuple[str | int, ...], what: str, text: str, known: list[str]) -> Iterator[Fault]:
    """Placeholders that nothing will fill."""
    for name in placeholders(text):
        if name not in known:
            listed = ", ".join(f"{{{n}}}" for n in known)
            yield Fault(at, f"{what}: {{{name}}} is no placeholder{_near(name, known)}", f"known: {listed}")


def _shell_habits(at: tuple[str | int, ...], whose: str, words: list[str]) -> Iterator[Fault]:
    """What only a shell would understand."""
    if words[0].rpartition("/")[2] in _SHELLS:
        return
    if _ASSIGNMENT.match(words[0]):
        name = words[0].partition("=")[0]
        yield Fault(at, f"launch of {whose} begins with {name}=…: no shell runs it", f'write env: {{{name}: "…"}}')
    operator = next((w for w in words if _OPERATORS.match(w)), None)
    if operator is not None:
        yield Fault(at, f"launch of {whose} has {operator}: no shell runs it", "wrap it: bash -c '… exec SERVER …'")
    for word in words:
        if found := _UNFILLED.match(word):
            name = found.group("name")
            yield Fault(at, f"launch of {whose} has ${name}: no shell runs it", f"write ${{{name}}}")


def _ports(config: ConfigSpec, i: int) -> Iterator[Fault]:
    seen: dict[int, str] = {}
    for name, role in config.roles.items():
        if role.port and role.port in seen:
            at = ("configs", i, "roles", name, "port")
            yield Fault(at, f"{config.name}: port {role.port} of {name} is that of {seen[role.port]}, too")
        seen.setdefault(role.port, name)


def _live(c: LaunchedCampaign, config: ConfigSpec, i: int) -> Iterator[Fault]:
    for key in ("log", "log_absent", "kernels", "kernels_absent"):
        for n, pattern in enumerate(getattr(config.live, key)):
            try:
                re.compile(pattern)
            except re.error as e:
                at = ("configs", i, "live", key, n)
                yield Fault(at, f"{config.name}: {pattern!r} is no regular expression: {e}")
        if key.startswith("kernels") and getattr(config.live, key):
            why = _no_trace(c, config)
            if why:
                yield Fault(
                    ("configs", i, "live", key), f"{config.name}: kernels are looked for in a trace, and {why}"
                )


def _no_trace(c: LaunchedCampaign, config: ConfigSpec) -> str | None:
    if c.profile is None:
        return "this campaign has no profile"
    if not config.profile:
        return "it has profile: false"
    return "pm records no kernels" if c.profile.method == "pm" else None


def _expectations(c: LaunchedCampaign) -> Iterator[Fault]:
    """Target and predictions: about what is measured."""
    by_name = {config.name: config for config in c.configs}
    if c.target is not None:
        if c.target.config is not None and c.target.config not in by_name:
            yield Fault(("target", "config"), f"target config {c.target.config} is none of {_listed(by_name)}")
        yield from _measured(c, ("target", "concurrency"), "target", c.target.concurrency)
    for i, p in enumerate(c.predictions):
        at = ("predictions", i)
        if p.config not in by_name:
            yield Fault((*at, "config"), f"prediction for {p.config}, which is none of {_listed(by_name)}")
        elif by_name[p.config].parent is None:
            yield Fault((*at, "config"), f"prediction for {p.config}, which has no parent to be held against")
        if p.metric not in BY_NAME:
            yield Fault((*at, "metric"), f"{p.metric} is no metric{_near(p.metric, BY_NAME)}", "dsv4bench metrics")
        if p.low_ratio > p.high_ratio:
            yield Fault((*at, "low_ratio"), f"low_ratio {p.low_ratio:g} is above high_ratio {p.high_ratio:g}")
        yield from _measured(c, (*at, "concurrency"), f"prediction for {p.config}", p.concurrency)


def _measured(c: LaunchedCampaign, at: tuple[str | int, ...], what: str, concurrency: int) -> Iterator[Fault]:
    if c.levels.rates_req_s:
        yield Fault(at, f"{what} at concurrency {concurrency}: this campaign measures request rates")
        return
    levels = c.levels.concurrency or DEFAULT_CONCURRENCY
    if concurrency not in levels:
        yield Fault(at, f"{what} at concurrency {concurrency}, which is not measured ({_listed(map(str, levels))})")


def _near(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?` when something known is spelt alike."""
    found = get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
