"""Texts of an nsys export by their id in StringIds.

Only ids that an event refers to are looked up: the same table holds each process' whole environment and command line.
"""

from __future__ import annotations

from collections.abc import Iterable

from dsv4bench.trace.nsys_database import NsysDatabase

TABLE = "StringIds"
_AT_ONCE = 500  # below SQLite's limit on parameters


def strings(db: NsysDatabase, ids: Iterable[int]) -> dict[int, str]:
    """The texts of these ids; an id that the table lacks is not in the answer."""
    wanted = sorted(set(ids))
    if not {"id", "value"} <= set(db.columns(TABLE)):
        return {}
    found: dict[int, str] = {}
    for at in range(0, len(wanted), _AT_ONCE):
        some = wanted[at : at + _AT_ONCE]
        marks = ", ".join("?" * len(some))
        for key, text in db.rows(f"SELECT id, value FROM {TABLE} WHERE id IN ({marks})", some):
            if isinstance(key, int) and isinstance(text, str):
                found[key] = text
    return found
