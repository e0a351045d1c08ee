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
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dsv4bench.errors import UsageError
from dsv4bench.records.rules import COMPONENTS
from dsv4bench.records.workload import Endpoint
from dsv4bench.scenario.reading import read_yaml

Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Seconds = Annotated[float, Meta(gt=0, lt=1e9)]
Rate = Annotated[float, Meta(gt=0, lt=1e9)]
Limit = Annotated[str, Meta(pattern=r"^\s*[0-9]*\.?[0-9]+\s*(us|ms|s|m|min|h)?\s*$")] | Seconds  # 50ms, 2s, 1.5
Component = Annotated[str, Meta(pattern=f"^({'|'.join(COMPONENTS)})$")]


class ServerPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str | None = None
    endpoint: Endpoint | None = None
    model: str | None = None
    timeout_s: Seconds | None = None


class WorkloadPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    isl: list[Count] | None = None
    osl: Count | None = None
    dataset: str | None = None
    prefix_share: Annotated[float, Meta(ge=0, lt=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    vocab: Annotated[int, Meta(ge=2)] | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None


class SloPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ttft: Limit | None = None
    tpot: Limit | None = None
    e2e: Limit | None = None


class LevelsPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    concurrency: list[Count] | None = None
    rates_req_s: list[Rate] | None = None
    arrivals: Literal["poisson", "constant"] | None = None
    requests: Count | None = None
    duration_s: Seconds | None = None
    repeat: Count | None = None
    slo: SloPart | None = None
    warmup: bool | None = None


class ConfigPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str | None = None
    parent: str | None = None
    lever: str | None = None
    lever_keys: list[str] | None = None
    touches: list[Component] | None = None


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file. None: the option's own default."""

    name: str = "sweep"
    server: ServerPart = ServerPart()
    workload: WorkloadPart = WorkloadPart()
    levels: LevelsPart = LevelsPart()
    config: ConfigPart = ConfigPart()


def read_scenario(path: Path | str) -> Scenario:
    """Raises UsageError naming file, line, key and what was expected."""
    try:
        return read_yaml(Path(path), Scenario, "see docs/scenarios.md for every key")
    except UsageError as e:
        duration = "Expected a duration such as 50ms, 2s or 1.5m"
        component = f"Expected a component ({', '.join(COMPONENTS)})"
        expected = component if "touches" in e.message else duration
        raise UsageError(re.sub(r"Expected `str` matching regex '.*'", expected, e.message), e.hint) from e
