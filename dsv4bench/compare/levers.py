"""Is the recorded difference between a configuration and its parent exactly the lever that it claims?

Compared are the flat settings of the servers (engine, version, arguments, environment). A lever may declare the keys
it sets, globs allowed; one lever without a declaration is verified by exactly one key that differs. Several levers at
once are one bundle: their effect is split only where each was also measured alone (`bundles.py`).
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from dsv4bench.compare import wording
from dsv4bench.records.arm import Arm, Plain
from dsv4bench.records.verdict import LeverStatus, LeverVerdict

# Settings that differ from launch to launch and change no speed: where it listens, who it is, what it writes.
VOLATILE = (
    "host", "hostname", "node_ip", "*_host", "port", "*_port", "ports", "url", "base_url", "*_addr",
    "*_address", "pid", "*_pid", "ppid", "uuid", "instance_id", "random_seed", "seed", "log_*", "*_log",
    "*_log_*", "logging*", "log", "*_logging", "*_cache_dir", "crash_dump_folder", "download_dir",
    "served_model_name", "start_time", "*_start_time", "*_start_time_s", "created", "started_utc", "launch_command",
    "api_key", "*_api_key", "ssl_*", "*_ipc_name",
)  # fmt: skip


def lever_verdict(parent: Arm, new: Arm) -> LeverVerdict:
    """Verified, contradicted (other keys differ too), unverified (the servers do not tell), or not live."""
    differing, ignored = differing_settings(parent, new)
    status, extra, notes = _judge(parent, new, list(differing))
    if new.not_live is not None:
        status, extra, notes = LeverStatus.NOT_LIVE, [], [new.not_live]
    if parent.not_live is not None:
        notes.append(f"{parent.name} is not what it is named for: {parent.not_live}")
    if len(new.levers) > 1:
        notes.insert(0, wording.bundled(new.name, new.levers))
    if ignored:
        notes.append(f"ignored: {', '.join(ignored)}")
    return LeverVerdict(
        config=new.name,
        parent=parent.name,
        levers=list(new.levers),
        bundled=len(new.levers) > 1,
        status=status,
        differing=differing,
        extra_keys=extra,
        notes=notes,
    )


def differing_settings(parent: Arm, new: Arm) -> tuple[dict[str, list[Plain]], list[str]]:
    """(key -> [parent, new] for settings that differ, the volatile keys among them). Absent and None are equal."""
    a, b = parent.server or {}, new.server or {}
    if parent.server is None or new.server is None:
        return {}, []
    keys = [k for k in sorted(a.keys() | b.keys()) if not _equal(a.get(k), b.get(k))]
    ignored = [k for k in keys if is_volatile(k)]
    return {k: [a.get(k), b.get(k)] for k in keys if k not in ignored}, ignored


def is_volatile(key: str) -> bool:
    name = _plain(key).rpartition(".")[2]
    return any(fnmatchcase(name, pattern) for pattern in VOLATILE)


def _equal(a: Plain, b: Plain) -> bool:
    return a == b and isinstance(a, bool) is isinstance(b, bool)


def _plain(key: str) -> str:
    return key.lstrip("-").replace("-", "_").lower()


def _judge(parent: Arm, new: Arm, keys: list[str]) -> tuple[LeverStatus, list[str], list[str]]:
    """(status, keys beyond the lever, notes)."""
    silent = [arm.name for arm in (parent, new) if arm.server is None]
    if silent:
        return LeverStatus.UNVERIFIED, [], [f"the server of {' and '.join(silent)} does not tell its settings"]
    if not new.levers:
        if not keys:
            return LeverStatus.VERIFIED, [], ["no lever is named, and nothing differs"]
        return LeverStatus.UNVERIFIED, [], [f"no lever is named; these differ: {', '.join(keys)}"]
    if not keys:
        shown = ", ".join(new.levers)
        return LeverStatus.UNVERIFIED, [], [f"{shown} is not visible: the servers' recorded settings are equal"]
    unsaid = [lever for lever in new.levers if not new.lever_keys.get(lever)]
    unseen = [
        lever
        for lever in new.levers
        if lever not in unsaid and not any(_declares(new.lever_keys[lever], k) for k in keys)
    ]
    declared = [pattern for patterns in new.lever_keys.values() for pattern in patterns]
    extra = [k for k in keys if not _declares(declared, k)]
    if extra and not unsaid:
        return LeverStatus.CONTRADICTED, extra, [f"{', '.join(extra)} differ beside {', '.join(new.levers)}"]
    if unseen:
        return LeverStatus.UNVERIFIED, [], [f"no recorded setting shows {', '.join(unseen)}: was it applied?"]
    if not unsaid or (len(new.levers) == 1 and len(extra) == 1):
        return LeverStatus.VERIFIED, [], []
    if not extra:
        return LeverStatus.UNVERIFIED, [], [f"no recorded setting shows {', '.join(unsaid)}"]
    return (
        LeverStatus.UNVERIFIED,
        [],
        [f"{', '.join(extra)} differ and {', '.join(unsaid)} declares no keys: name them under lever_keys"],
    )


def _declares(patterns: list[str], key: str) -> bool:
    """A pattern may give the whole dotted key or its last part."""
    name = _plain(key)
    tail = name.rpartition(".")[2]
    return any(fnmatchcase(name, _plain(p)) or fnmatchcase(tail, _plain(p)) for p in patterns)
