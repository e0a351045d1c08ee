"""Makes a fixture of an nsys SQLite export: only the tables a reader needs, only the strings they name.

    python scrub_nsys.py EXPORT.sqlite FIXTURE.sqlite [--last-ms 60]

An export holds the whole environment and the command lines of every traced process. Nothing of that is copied: tables
are chosen by name, strings by being referred to from a kept row, facts of the capture by their key.
"""

from __future__ import annotations

import argparse
import sqlite3
from pathlib import Path

TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
    "GPU_METRICS",
    "TARGET_INFO_GPU",
    "TARGET_INFO_CUDA_DEVICE",
    "TARGET_INFO_GPU_METRICS",
    "TARGET_INFO_SESSION_START_TIME",
    "ENUM_CUDA_MEMCPY_OPER",
    "ENUM_NSYS_EVENT_TYPE",
)
TIMED = {name: "start" for name in TABLES if name.startswith(("CUPTI_", "NVTX_"))} | {"GPU_METRICS": "timestamp"}
FACTS = ("GPU_METRICS_OPTIONS:", "CUDA_OPTIONS:", "EXPORT_", "SCHEMA_VERSION", "EXPORT_SCHEMA_VERSION")
STRING_COLUMNS = ("nameId", "shortName", "demangledName", "mangledName", "textId")


def scrub(source: Path, target: Path, last_ms: float | None) -> None:
    """Copy the kept tables; with `last_ms`, only rows that begin in the last so many milliseconds of kernels."""
    target.unlink(missing_ok=True)
    out = sqlite3.connect(target)
    out.execute("ATTACH ? AS src", (str(source),))
    present = {name for (name,) in out.execute("SELECT name FROM src.sqlite_master WHERE type = 'table'")}
    since = None
    if last_ms is not None:
        ends = [
            out.execute(f"SELECT max(start) FROM src.{name}").fetchone()[0] for name in TABLES[:4] if name in present
        ]
        since = max(e for e in ends if e is not None) - round(last_ms * 1e6)
    strings: set[int] = set()
    for name in TABLES:
        if name not in present:
            continue
        (layout,) = out.execute("SELECT sql FROM src.sqlite_master WHERE name = ?", (name,)).fetchone()
        out.execute(layout)
        where = f' WHERE "{TIMED[name]}" >= {since}' if since is not None and name in TIMED else ""
        out.execute(f'INSERT INTO main."{name}" SELECT * FROM src."{name}"{where}')
        columns = {row[1] for row in out.execute(f'PRAGMA main.table_info("{name}")')}
        for column in columns & set(STRING_COLUMNS):
            strings |= {
                key for (key,) in out.execute(f'SELECT DISTINCT "{column}" FROM main."{name}"') if key is not None
            }
    out.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    for key in strings:
        out.execute("INSERT INTO StringIds SELECT id, value FROM src.StringIds WHERE id = ?", (key,))
    for name in ("META_DATA_CAPTURE", "META_DATA_EXPORT"):
        if name in present:
            out.execute(f"CREATE TABLE {name} (name TEXT, value TEXT)")
            for key, value in out.execute(f"SELECT name, value FROM src.{name}").fetchall():
                if str(key).startswith(FACTS):
                    out.execute(f"INSERT INTO {name} VALUES (?, ?)", (key, value))
    out.commit()
    out.execute("DETACH src")
    out.execute("VACUUM")
    out.close()


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("source", type=Path)
    options.add_argument("target", type=Path)
    options.add_argument("--last-ms", type=float)
    asked = options.parse_args()
    scrub(asked.source, asked.target, asked.last_ms)
