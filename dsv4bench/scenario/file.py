"""A scenario file: the workload, the levels and the name of one sweep, checked before anything starts.

    name: decode
    server: {url: http://127.0.0.1:8000, endpoint: completions}
    workload: {isl: [1024], osl: 256, dataset: random}
    levels: {concurrency: [1, 8, 16], repeat: 5}
    config: {name: baseline}

Every key may be left out; an option on the command line wins over the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.records.workload import Endpoint


class ServerPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str | None = None
    endpoint: Endpoint | None = None
    model: str | None = None
    timeout_s: float | None = None


class WorkloadPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    isl: list[int] | None = None
    osl: int | None = None
    dataset: str | None = None
    prefix_share: float | None = None
    seed: int | None = None
    vocab: int | None = None
    temperature: float | None = None


class LevelsPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    concurrency: list[int] | None = None
    rates_req_s: list[float] | None = None
    arrivals: str | None = None
    requests: int | None = None
    duration_s: float | None = None
    repeat: int | None = None
    slo: dict[str, str | float] | None = None
    warmup: bool | None = None


class ConfigPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str | None = None
    parent: str | None = None
    lever: str | None = None


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file. None: the option's own default."""

    name: str = "sweep"
    server: ServerPart = ServerPart()
    workload: WorkloadPart = WorkloadPart()
    levels: LevelsPart = LevelsPart()
    config: ConfigPart = ConfigPart()


def read_scenario(path: Path | str) -> Scenario:
    """Raises UsageError naming file, line, key and what was expected."""
    import yaml

    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}", "give a scenario file, e.g. scenarios/decode.yaml") from e
    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise UsageError(f"{path}{line}: not YAML: {getattr(e, 'problem', e)}") from e
    try:
        return msgspec.convert({} if plain is None else plain, Scenario)
    except msgspec.ValidationError as e:
        raise UsageError(f"{path}:{_line(text, str(e))}: {e}", "see docs/scenarios.md for every key") from e


def _line(text: str, message: str) -> int:
    """The line of the key that a validation message points at (`$.levels.repeat`, or an unknown field)."""
    import yaml

    path = re.search(r"`\$([^`]*)`", message)
    unknown = re.search(r"unknown field `([^`]+)`", message)
    keys = [k for k in re.split(r"[.\[\]]+", path.group(1) if path else "") if k and k != "..."]
    keys += [unknown.group(1)] if unknown else []
    node: Any = yaml.compose(text)
    line = 1
    for key in keys:
        for key_node, value_node in getattr(node, "value", []) if isinstance(node, yaml.MappingNode) else []:
            if key_node.value == key:
                node, line = value_node, key_node.start_mark.line + 1
                break
    return line
