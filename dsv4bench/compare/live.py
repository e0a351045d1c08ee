"""Is a lever in force on the running server? What was asked for, beside what could be seen of the server.

One contradiction is enough: not live. Live only when everything that was asked for was seen. Nothing asked for, or
something that could not be looked at: unknown, and the check's note says what was missing. Names of arguments match
over `-` and `_` and by the last parts of a dotted key; values match over types (`"2"` and 2, `true` and True).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dsv4bench.records.campaign import LeverLive, Live, LiveCheck
from dsv4bench.scenario.launched import LiveSpec, Plain

SHOWN = 160  # characters of what was seen


def lever_live(
    config: str,
    lever: str,
    spec: LiveSpec,
    *,
    args: Mapping[str, Any] | None,
    env: Mapping[str, str | None] | None,
    log: str | None,
    kernels: Sequence[str] | None,
    kernels_note: str = "",
) -> LeverLive:
    """One launch. None in place of a source: it could not be looked at; `kernels_note` says why there are no kernels.

    `env` holds the variables that are set; one whose value is None could not be read.
    """
    checks = [_argument(name, wanted, args) for name, wanted in spec.args.items()]
    checks += [_variable(name, wanted, env) for name, wanted in spec.env.items()]
    lines = log.splitlines() if log is not None and log.strip() else None
    for where, source, present, absent, missing in (
        ("log", lines, spec.log, spec.log_absent, "the server's log is empty or not at hand"),
        ("kernels", kernels or None, spec.kernels, spec.kernels_absent, kernels_note or "no kernel was recorded"),
    ):
        checks += [_pattern(where, p, source, missing, absent=False) for p in present]
        checks += [_pattern(where, p, source, missing, absent=True) for p in absent]
    return LeverLive(config=config, lever=lever, state=_state(checks), checks=checks)


def merge(found: Sequence[LeverLive], names: Sequence[str] | None = None) -> LeverLive:
    """One configuration over its launches, in their order; `names` of the launches, else they are numbered from 1.

    A check is live when it was seen in at least one launch and contradicted in none. Raises ValueError for no launch.
    """
    if not found:
        raise ValueError("no launch to merge")
    labels = list(names) if names is not None else [f"launch {i}" for i in range(1, len(found) + 1)]
    by_check: dict[tuple[str, str], list[tuple[str, LiveCheck]]] = {}
    for label, one in zip(labels, found, strict=True):
        for check in one.checks:
            by_check.setdefault((check.where, check.wanted), []).append((label, check))
    checks = [_merged(rows) for rows in by_check.values()]
    return LeverLive(config=found[0].config, lever=found[0].lever, state=_state(checks), checks=checks)


def why_not(live: LeverLive) -> str | None:
    """The first contradiction in words, for `Arm.not_live`; None when there is none."""
    for check in live.checks:
        if check.state is Live.NOT_LIVE:
            note = f" ({check.note})" if check.note else ""
            return f"{check.where}: {check.wanted} was wanted, {check.seen} was seen{note}"
    return None


def _state(checks: Sequence[LiveCheck]) -> Live:
    states = {c.state for c in checks}
    if Live.NOT_LIVE in states:
        return Live.NOT_LIVE
    return Live.LIVE if states == {Live.LIVE} else Live.UNKNOWN


def _merged(rows: Sequence[tuple[str, LiveCheck]]) -> LiveCheck:
    bad = [label for label, check in rows if check.state is Live.NOT_LIVE]
    seen = [label for label, check in rows if check.state is Live.LIVE]
    if bad:
        check = next(check for _, check in rows if check.state is Live.NOT_LIVE)
        note = f"in {', '.join(bad)} of {len(rows)} launches" if len(rows) > 1 else check.note
        return msgspec.structs.replace(check, note=note)
    if seen:
        check = next(check for _, check in rows if check.state is Live.LIVE)
        note = check.note if len(seen) == len(rows) else f"seen in {len(seen)} of {len(rows)} launches"
        return msgspec.structs.replace(check, note=note)
    return rows[0][1]


def _check(where: str, wanted: str, seen: str | None, live: bool | None, note: str | None = None) -> LiveCheck:
    state = Live.UNKNOWN if live is None else Live.LIVE if live else Live.NOT_LIVE
    shown = seen if seen is None or len(seen) <= SHOWN else seen[:SHOWN] + "…"
    return LiveCheck(where=where, wanted=wanted, seen=shown, state=state, note=note)


def _argument(name: str, wanted: Plain, args: Mapping[str, Any] | None) -> LiveCheck:
    text = f"{name}={_shown(wanted)}"
    if args is None:
        return _check("args", text, None, None, "the server does not tell its arguments")
    found = _lookup(name, args)
    if not found:
        if wanted is None:
            return _check("args", text, "not set", True)
        return _check("args", text, None, None, "the server tells its arguments, and this is not among them")
    agreeing = [key for key, value in found.items() if _same(value, wanted)]
    if agreeing and len(agreeing) < len(found):
        several = ", ".join(f"{key}={_shown(value)}" for key, value in found.items())
        return _check("args", text, several, None, "several arguments have this name: give the whole dotted key")
    key = agreeing[0] if agreeing else next(iter(found))
    return _check("args", text, f"{key}={_shown(found[key])}", bool(agreeing))


def _variable(name: str, wanted: str, env: Mapping[str, str | None] | None) -> LiveCheck:
    text = f"{name}={wanted}"
    if env is None or (name in env and env[name] is None):
        return _check("env", text, None, None, "the environment of the server's process cannot be read")
    value = env.get(name)
    if value is None:
        return _check("env", text, f"{name} is not set", False)
    return _check("env", text, f"{name}={value}", value == wanted)


def _pattern(where: str, pattern: str, source: Sequence[str] | None, missing: str, *, absent: bool) -> LiveCheck:
    text = f"no {pattern}" if absent else pattern
    try:
        search = re.compile(pattern).search
    except re.error as e:
        return _check(where, text, None, None, f"not a regular expression: {e}")
    if source is None:
        return _check(where, text, None, None, missing)
    hit = next((line for line in source if search(line)), None)
    what = "lines" if where == "log" else "kernels"
    return _check(
        where, text, f"none of {len(source)} {what}" if hit is None else hit.strip(), (hit is None) is absent
    )


def _lookup(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of this name by dotted key: the exact one, else all that end in it."""
    wanted = _plain(name)
    found = {key: value for key, value in _flat(args, "") if _plain(key) == wanted}
    return found or {key: value for key, value in _flat(args, "") if _plain(key).endswith("." + wanted)}


def _flat(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Every value by dotted key, the inner ones of objects (and of JSON text that is one) included."""
    for key, inner in value.items():
        inner = _parsed(inner)
        yield prefix + str(key), inner
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{key}.")


def _parsed(value: Any) -> Any:
    """Text that is a JSON object or list, as that; all else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _plain(key: str) -> str:
    return key.lstrip("-").replace("-", "_").lower()


def _same(seen: Any, wanted: Plain) -> bool:
    return bool(_bare(seen) == _bare(wanted))


def _bare(value: Any) -> Any:
    """A value without its spelling: numbers as floats, words for true, false and nothing as such."""
    value = _parsed(value)
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("true", "false", "none", "null"):
            return "none" if word == "null" else word
        try:
            return float(value)
        except ValueError:
            return value.strip().removeprefix("torch.")  # a dtype
    return float(value) if isinstance(value, int | float) else value


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower() if value is not None else "null"
    return value if isinstance(value, str) else json.dumps(value, default=str)
