"""`dsv4bench baseline set` and `list`, and what `gate --baseline` accepts: a pinned name or an experiment's id.

A gate compares with what somebody chose and said why. A literal number, or a configuration whose newest experiment
would be taken silently, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4bench.compare.integrity import breaches_of_arm
from dsv4bench.errors import StoreError, Unanswerable, UsageError
from dsv4bench.records.gate import BaselineEntry, BaselinesDocument
from dsv4bench.runs.arms import arm_of
from dsv4bench.store import baselines
from dsv4bench.store.naming import iso, utc_now
from dsv4bench.store.store import MIN_PREFIX, Store

HOW = "dsv4bench baseline set NAME ID --reason …"


def set_baseline(root: str, name: str, experiment_id: str, reason: str) -> BaselineEntry:
    """Pin a name to a complete, sound experiment. Raises UsageError, StoreError or Unanswerable."""
    store = Store(root)
    ids = experiment_ids(store)
    if name in ids:
        raise UsageError(f"{name} is an experiment's id", f"give the baseline a name of its own: {HOW}")
    found = by_id(experiment_id, ids)
    if found is None:
        raise UsageError(
            f"{experiment_id}: not an experiment's id in {root}",
            "a baseline is one experiment, named by its id; dsv4bench list shows them",
        )
    unsound = breaches_of_arm(arm_of([store.open(found)]), found)
    if unsound:
        raise Unanswerable(f"{unsound[0]}", "a baseline must be sound; measure it again")
    pin = baselines.pin(Path(root), name, found, reason, iso(utc_now()))
    return _entry(name, pin, _configs(store).get(found))


def list_baselines(root: str) -> BaselinesDocument:
    """Every pinned name; an id that is gone has no config. Raises StoreError."""
    configs = _configs(Store(root))
    return BaselinesDocument(
        baselines=[_entry(name, pin, configs.get(pin.id)) for name, pin in baselines.pins(Path(root)).items()]
    )


def pinned_id(root: str, text: str) -> str:
    """The experiment that `gate --baseline` means. Raises UsageError for anything that is no pin and no id."""
    store = Store(root)
    ids = experiment_ids(store)
    found = by_id(text, ids)
    if found is not None:
        return found
    pinned = baselines.read(Path(root))
    if text in pinned:
        if pinned[text] not in ids:
            raise StoreError(f"{root}: {text} is pinned to {pinned[text]}, which is not there", HOW)
        return pinned[text]
    if is_number(text):
        raise UsageError(f"--baseline {text}: a number is no baseline", f"measure one and pin it: {HOW}")
    if text in _configs(store).values():
        raise UsageError(
            f"--baseline {text}: a configuration, and its newest experiment may be anything; it is not pinned",
            f"choose one: {HOW}; of a campaign's configurations, gate --campaign NAME takes every launch",
        )
    names = f"pinned are {', '.join(pinned)}" if pinned else "nothing is pinned yet"
    raise UsageError(f"--baseline {text}: neither a pinned name nor an id in {root}; {names}", HOW)


def by_id(text: str, ids: Sequence[str]) -> str | None:
    """The id, or the only one that begins so; a date alone is long enough only where it is unambiguous."""
    if text in ids:
        return text
    begins = [i for i in ids if len(text) >= MIN_PREFIX and i.startswith(text)]
    if len(begins) > 1:
        raise UsageError(f"{text} begins {len(begins)} ids: {', '.join(begins[:5])}", "give more of the id")
    return begins[0] if begins and not is_number(text) else None


def experiment_ids(store: Store) -> list[str]:
    return [e.id for e in store.list()]


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _configs(store: Store) -> dict[str, str]:
    return {e.id: e.config for e in store.list()}


def _entry(name: str, pin: baselines.Pin, config: str | None) -> BaselineEntry:
    return BaselineEntry(name=name, config=config, **msgspec.structs.asdict(pin))
