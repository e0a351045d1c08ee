"""Is this a server, or something in front of servers? Gauges and profiles belong to the workers behind it.

SGLang's router lists its workers (`/workers`, older `/list_workers`), a prefill/decode front end answers with its
workers' documents, a dynamo front end tells in `/health` how many instances it has. A profile of a front end would
show nothing of a decode step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dsv4bench.records.server import Worker
from dsv4bench.server.calls import Caller

ADVICE = "its gauges and profiles are at the workers' URLs"
ROLES = ("prefill", "decode")


class FrontEnd(NamedTuple):
    """What it is, in words that begin with "a", and the workers that it names."""

    what: str
    workers: list[Worker]


def listed_front_end(caller: Caller) -> FrontEnd | None:
    """A router that lists its workers."""
    found = caller.ask("/workers").json()
    if isinstance(found, dict) and isinstance(found.get("workers"), list):
        workers = [_listed(entry) for entry in found["workers"]]
        return FrontEnd(f"a router over {len(workers)} workers", workers)
    found = caller.ask("/list_workers").json()
    if isinstance(found, dict) and isinstance(found.get("urls"), list):
        workers = [Worker(url=url if isinstance(url, str) else None) for url in found["urls"]]
        return FrontEnd(f"a router over {len(workers)} workers", workers)
    return None


def disaggregated(info: dict[str, Any]) -> FrontEnd | None:
    """A prefill/decode front end, from its `/server_info`: one document a worker."""
    workers = []
    for role in ROLES:
        documents = info.get(role)
        found = documents if isinstance(documents, list) else []
        workers += [Worker(url=_address(d), role=role) for d in found if isinstance(d, dict)]
    return FrontEnd(f"a prefill/decode front end of {len(workers)} workers", workers) if workers else None


def dynamo(caller: Caller, owner: str | None) -> FrontEnd | None:
    """NVIDIA's dynamo: its /health tells the instances, or the model's owner tells who answers."""
    health = caller.ask("/health").json()
    if isinstance(health, dict) and isinstance(health.get("instances"), list):
        return FrontEnd(f"a dynamo front end over {len(health['instances'])} instances", [])
    if (owner or "").lower() == "nvidia":
        return FrontEnd("a dynamo front end, as the model's owner 'nvidia' tells", [])
    return None


def _listed(entry: Any) -> Worker:
    if isinstance(entry, str):
        return Worker(url=entry)
    if not isinstance(entry, dict):
        return Worker()
    url = entry.get("url") or entry.get("base_url")
    role = str(entry.get("worker_type") or entry.get("role") or "").lower()
    return Worker(url=url if isinstance(url, str) else None, role=role if role in ROLES else None)


def _address(document: dict[str, Any]) -> str | None:
    """A worker's own arguments tell where it listens; "all interfaces" is no address that another host could use."""
    host, port = document.get("host"), document.get("port")
    if not isinstance(host, str) or not isinstance(port, int) or host in ("0.0.0.0", "::", ""):
        return None
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
