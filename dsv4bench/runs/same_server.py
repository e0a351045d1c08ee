"""Is this still the server that the experiment began with? One experiment holds one configuration."""

from __future__ import annotations

from dsv4bench.compare.levers import is_volatile
from dsv4bench.records.arm import Plain
from dsv4bench.records.server import ServerInfo
from dsv4bench.store.facts import flat


def changed_settings(before: ServerInfo, now: ServerInfo) -> str:
    """What differs in words, "" for nothing: engine, version, model and arguments, less ports, paths and the like."""
    a, b = _settings(before), _settings(now)
    keys = [k for k in sorted(a.keys() | b.keys()) if a.get(k) != b.get(k) and not is_volatile(k)]
    return "; ".join(f"{k} {a.get(k)!r} -> {b.get(k)!r}" for k in keys)


def _settings(info: ServerInfo) -> dict[str, Plain]:
    told: dict[str, Plain] = {"engine": str(info.engine), "version": info.version, "model": info.model}
    return {**told, **(flat(info.args) if info.args is not None else {})}
