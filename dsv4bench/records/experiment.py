"""run.json: what was measured, on what, with which tool, and how it ended."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from dsv4bench.records.codec import Document
from dsv4bench.records.server import ServerInfo
from dsv4bench.records.workload import Plan, Workload


class Status(StrEnum):
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    ABORTED = "aborted"


class GpuInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    memory_bytes: int | None = None
    power_limit_w: float | None = None
    sm_clock_max_mhz: int | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """This host. The hostname is hashed."""

    cpu: str
    cores: int
    memory_bytes: int | None
    os: str
    kernel: str
    python: str
    hostname_sha256: str
    gpus: list[GpuInfo] = msgspec.field(default_factory=list)
    driver: str | None = None
    gpu_why_none: str | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    git: str | None = None
    dirty: bool | None = None
    packages: dict[str, str] = msgspec.field(default_factory=dict)


class FileNote(msgspec.Struct, frozen=True, kw_only=True):
    """A bulky file that git ignores: what it was when it was written."""

    sha256: str
    bytes: int


class Experiment(Document, frozen=True, kw_only=True):
    """One sweep: header and provenance. `launches` maps a launch id to the server's start time (epoch seconds)."""

    schema: str = "dsv4bench.run/1"
    id: str
    scenario: str
    config: str
    parent: str | None = None
    lever: str | None = None  # several are joined by "+"
    lever_keys: list[str] = msgspec.field(default_factory=list)  # server arguments that the lever sets
    touches: list[str] = msgspec.field(default_factory=list)  # components that the lever can change
    status: Status
    reason: str | None = None  # why it is not complete
    started_utc: str
    ended_utc: str | None = None
    workload: Workload
    workload_fingerprint: str
    plan: Plan
    server: ServerInfo
    launches: dict[str, float | None] = msgspec.field(default_factory=dict)
    machine: Machine | None  # None: imported from a file that does not say
    server_on_this_host: bool
    tool: Tool
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    command: list[str] = msgspec.field(default_factory=list)
    files: dict[str, FileNote] = msgspec.field(default_factory=dict)
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


class IndexEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of results/index.jsonl."""

    id: str
    config: str
    scenario: str
    status: Status
    started_utc: str
    engine: str
    model: str
    n_cells: int
    workload_fingerprint: str
