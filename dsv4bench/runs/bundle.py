"""`dsv4bench bundle ID`: scenario, command, versions and cells of one experiment in one redacted file.

Redacted means: secrets as everywhere (`host.redact`), the server's host name and the home folders of paths. What the
server was launched with is in `experiment.server.args`, where the server tells it; trace and requests are not in it.
"""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from dsv4bench.errors import BenchError, UsageError
from dsv4bench.host.redact import redact, without_home
from dsv4bench.records.bundle import Bundle
from dsv4bench.records.campaign import LaunchStatus
from dsv4bench.records.codec import encode
from dsv4bench.records.experiment import Experiment
from dsv4bench.scenario.file import Scenario
from dsv4bench.store import campaigns
from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.files import write_whole
from dsv4bench.store.naming import iso, utc_now
from dsv4bench.store.redaction import clean_cell, clean_experiment
from dsv4bench.store.store import Store

LOCAL = {"127.0.0.1", "localhost", "::1", "0.0.0.0"}
SERVER = "SERVER"
NAMED = 3


def bundle(root: str, name: str, to: str | None = None, now: datetime | None = None) -> tuple[Bundle, Path]:
    """Writes the file and returns it with its path. Raises UsageError for a campaign or a path taken, StoreError."""
    opened = _opened(root, name)
    path = Path(to) if to is not None else Path(f"{opened.id}.bundle.json")
    made = make(opened, now, path.name)
    if path.exists():
        raise UsageError(f"{path} exists", "choose another name with --to")
    write_whole(path, encode(made, indent=True) + b"\n")
    return made, path


def _opened(root: str, name: str) -> ExperimentDir:
    try:
        return Store(root).resolve(name)
    except BenchError:
        folder = campaigns.named(root, name)
        if folder is None:
            raise
    launches = campaigns.CampaignDir.open(folder).campaign.launches
    ids = [n.experiment for n in launches if n.experiment is not None and n.status is LaunchStatus.COMPLETE]
    shown = ", ".join(ids[:NAMED]) + (" …" if len(ids) > NAMED else "")
    raise UsageError(f"{name} is a campaign; bundle takes one experiment: {shown or 'it has none that is complete'}")


def make(opened: ExperimentDir, now: datetime | None = None, file: str | None = None) -> Bundle:
    """The bundle of an opened experiment, without writing it. `file`: what it will be called."""
    e = clean_experiment(opened.experiment)
    plain = Bundle(
        id=e.id,
        created_utc=iso(now or utc_now()),
        reproduce=reproduce(e, file or f"{e.id}.bundle.json"),
        scenario=scenario_of(e),
        command=e.command,
        versions=_versions(e),
        experiment=e,
        cells=[clean_cell(c) for c in opened.cells()],
        warnings=opened.warnings,
    )
    return msgspec.convert(_without_places(msgspec.to_builtins(plain), urlsplit(e.server.url).hostname), Bundle)


def scenario_of(e: Experiment) -> dict[str, Any]:
    """The sweep as a scenario file that this version reads; the server's URL is left to the command line."""
    w, p = e.workload, e.plan
    slo = {"ttft": p.slo.ttft_s, "tpot": p.slo.tpot_s, "e2e": p.slo.e2e_s} if p.slo is not None else {}
    found: dict[str, Any] = {
        "name": e.scenario,
        "server": {"endpoint": w.endpoint, "model": e.server.model, "timeout_s": p.timeout_s},
        "workload": {
            "isl": w.isl,
            "osl": w.osl,
            "dataset": w.dataset,
            "prefix_share": w.prefix_share,
            "seed": w.seed,
            "vocab": w.vocab_size,
            "temperature": w.temperature,
        },
        "levels": {
            "concurrency": p.concurrency or None,
            "rates_req_s": p.rates_req_s or None,
            "arrivals": p.arrivals if p.rates_req_s else None,
            "requests": p.requests,
            "duration_s": p.duration_s,
            "repeat": p.repeat,
            "slo": {k: v for k, v in slo.items() if v is not None} or None,
            "warmup": p.warmup,
        },
        "config": {"name": e.config, "parent": e.parent, "lever": e.lever},
    }
    told = {k: _told(v) if isinstance(v, dict) else v for k, v in found.items()}
    msgspec.convert(told, Scenario)  # what cannot be read again reproduces nothing
    return told


def _told(part: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in part.items() if v is not None}


def _versions(e: Experiment) -> dict[str, str | None]:
    machine = e.machine
    gpus = ", ".join(g.name for g in machine.gpus) if machine is not None else ""
    return {
        "dsv4bench": e.tool.version,
        "dsv4bench_git": e.tool.git,
        "python": machine.python if machine is not None else None,
        "engine": str(e.server.engine),
        "engine_version": e.server.version,
        "driver": machine.driver if machine is not None else None,
        "client_gpus": gpus or None,
        **{f"package {name}": version for name, version in sorted(e.tool.packages.items())},
    }


def reproduce(e: Experiment, file: str) -> list[str]:
    """Extract the scenario from the bundle's file, and sweep a server like the one described."""
    name = shlex.quote(file)
    extract = f"python -c \"import json,sys; json.dump(json.load(open(sys.argv[1]))['scenario'], sys.stdout)\" {name}"
    commit = f" at {e.tool.git}" if e.tool.git else ""
    lines = [f"# dsv4bench {e.tool.version}{commit}: install it from its checkout", f"{extract} > scenario.yaml"]
    if e.workload.dataset_sha256 is not None and e.workload.dataset not in ("random", "chat"):
        lines.append(f"# the prompts are the file {e.workload.dataset}, sha256 {e.workload.dataset_sha256}")
    return [*lines, "dsv4bench sweep http://SERVER:PORT --scenario scenario.yaml"]


def _without_places(value: Any, host: str | None) -> Any:
    """A copy without secrets, the server's host name and home folders; measured numbers are untouched."""
    if isinstance(value, dict):
        return {k: _without_places(v, host) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_places(v, host) for v in value]
    if not isinstance(value, str):
        return value
    plain = str(redact(value))
    if host is not None and host not in LOCAL:
        plain = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w.-])", SERVER, plain, flags=re.IGNORECASE)
    return without_home(plain)
