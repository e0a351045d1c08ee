"""A launched campaign's file into a `LaunchedCampaign`, or one error with file, line, key and what was expected.

Everything that can be wrong without a server is found here, before the first launch: a campaign runs for hours.
`launched_checks` holds what is checked of the values; this module reads the file, fills in the environment
(`${NAME}`, `${NAME:-default}`, at reading) and the placeholders (`{python} {port} {url}`, at each launch).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.records.rules import COMPONENTS
from dsv4bench.scenario.file import Scenario, read_scenario
from dsv4bench.scenario.launched import ConfigSpec, LaunchedCampaign
from dsv4bench.scenario.launched_checks import Fault, faults
from dsv4bench.scenario.launched_text import fill
from dsv4bench.scenario.reading import line_of, read_text, read_yaml

HINT = "docs/scenarios.md has every key of a campaign file, with an example"

_VARIABLE = re.compile(r"\$?\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^{}]*))?\}")
_STARTS = re.compile(r"^[\s{-]*(launch|roles):", re.M)
_REGEX = re.compile(r"Expected `str` matching regex '.*'")
_NAME = "Expected a name of letters, digits and . _ + - that begins with a letter or a digit"

Keys = list[str | int]


def is_launched(path: Path | str) -> bool:
    """Whether this is a campaign with commands of its own: YAML whose `configs` have `launch` or `roles`.

    Never raises. What is no YAML but looks like such a file is one: `read_launched` then names the line.
    """
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return re.search(r"^configs:", text, re.M) is not None and _STARTS.search(text) is not None
    configs = found.get("configs") if isinstance(found, dict) else None
    entries = configs if isinstance(configs, list) else []
    return any(isinstance(c, dict) and ("launch" in c or "roles" in c) for c in entries)


def read_launched(path: Path | str, env: Mapping[str, str] = os.environ) -> LaunchedCampaign:
    """The campaign of a file, `${NAME}` filled in from `env`. Raises UsageError with file and line."""
    file = Path(path)
    text = read_text(file, HINT)
    try:
        found = read_yaml(file, LaunchedCampaign, HINT)
    except UsageError as e:
        if _is_a_sweep(file):
            raise UsageError(f"{file}: this is a sweep's scenario: dsv4bench sweep --scenario {file}", HINT) from e
        raise UsageError(_in_words(e.message), e.hint) from e
    for key, line in _twice(text):
        raise UsageError(f"{file}:{line}: {key} stands there twice, and only the last one would count", HINT)
    filled, problems = _with_environment(found, env)
    for fault in (*problems, *faults(filled)):
        raise UsageError(f"{file}:{line_of(text, list(fault.keys))}: {fault.message}", fault.hint or HINT)
    return filled


def variables_of(path: Path | str, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the `${NAME}` of a file that `read_launched` takes are now: name -> value, empty where it is not set."""
    import yaml

    names: set[str] = set()
    todo: list[Any] = [yaml.safe_load(read_text(Path(path), HINT))]
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            names.update(m["name"] for m in _VARIABLE.finditer(value) if not m.group().startswith("$$"))
        elif isinstance(value, dict | list):
            todo += value.values() if isinstance(value, dict) else value
    return {name: env.get(name, "") for name in sorted(names)}


def command_of(launch: str, values: Mapping[str, str | int]) -> list[str]:
    """A launch text as the words of a command: split as a shell would, then filled. No shell runs it."""
    return [fill(word, values) for word in shlex.split(launch)]


def _is_a_sweep(file: Path) -> bool:
    """Whether a file that is no campaign is the scenario of one sweep; an empty one is neither."""
    try:
        return read_scenario(file) != Scenario()
    except UsageError:
        return False


def _in_words(message: str) -> str:
    """A validation error without regular expressions, and with the usual slip of an environment named."""
    if _REGEX.search(message):
        if "touches" in message:
            expected = f"Expected a component ({', '.join(COMPONENTS)})"
        else:
            expected = "Expected a duration such as 50ms, 2s or 1.5m" if ".slo." in message else _NAME
        message = _REGEX.sub(lambda _: expected, message)
    if re.search(r"\.env\[\.\.\.\]", message) and "Expected `str`" in message:
        message += ' (quote the value: "1")'
    return message


def _with_environment(c: LaunchedCampaign, env: Mapping[str, str]) -> tuple[LaunchedCampaign, list[Fault]]:
    """The campaign with its variables filled in, and the variables that are not set."""
    problems: list[Fault] = []

    def text(value: str, *keys: str | int) -> str:
        return _VARIABLE.sub(lambda m: _value(m, env, keys, problems), value)

    def texts(values: Mapping[str, str], *keys: str | int) -> dict[str, str]:
        return {k: text(v, *keys, k) for k, v in values.items()}

    def config(i: int, spec: ConfigSpec) -> ConfigSpec:
        at = ("configs", i)
        roles = {
            name: msgspec.structs.replace(
                role,
                launch=text(role.launch, *at, "roles", name, "launch"),
                env=texts(role.env, *at, "roles", name, "env"),
            )
            for name, role in spec.roles.items()
        }
        return msgspec.structs.replace(
            spec,
            launch=None if spec.launch is None else text(spec.launch, *at, "launch"),
            roles=roles,
            env=texts(spec.env, *at, "env"),
            live=msgspec.structs.replace(spec.live, env=texts(spec.live.env, *at, "live", "env")),
        )

    model = None if c.server.model is None else text(c.server.model, "server", "model")
    profile = c.profile
    if profile is not None and isinstance(profile.cubins, str):
        profile = msgspec.structs.replace(profile, cubins=text(profile.cubins, "profile", "cubins"))
    filled = msgspec.structs.replace(
        c,
        server=msgspec.structs.replace(c.server, model=model),
        env=texts(c.env, "env"),
        configs=[config(i, spec) for i, spec in enumerate(c.configs)],
        profile=profile,
    )
    return filled, problems


def _value(found: re.Match[str], env: Mapping[str, str], keys: tuple[str | int, ...], problems: list[Fault]) -> str:
    """What stands in place of a variable; `$${NAME}` is the text `${NAME}`."""
    if found.group().startswith("$$"):
        return found.group()[1:]
    name, default = found.group("name"), found.group("default")
    value = env.get(name) or default
    if value is None:
        hint = f"export {name}=…, or give a default in the file: ${{{name}:-value}}"
        problems.append(Fault(keys, f"the environment variable {name} is not set", hint))
        return ""
    return value


def _twice(text: str) -> Iterator[tuple[str, int]]:
    """Keys that a mapping holds twice, with the line of the second: YAML would drop the first in silence."""
    import yaml

    todo: list[Any] = [yaml.compose(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))]
    while todo:
        node = todo.pop()
        if isinstance(node, yaml.SequenceNode):
            todo += node.value
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if key.value in seen:
                    yield str(key.value), key.start_mark.line + 1
                seen.add(key.value)
                todo.append(value)
