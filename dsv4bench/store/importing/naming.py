"""The configuration's name that a path tells, once what names the level or the repeat is taken off.

    runs/baseline_c8_rep2.json   -> baseline       (c8 only where the file's level is C=8)
    exp/SERVE--tp=4-BENCH--…     -> tp=4           (vLLM's sweeps)
    baseline/c8/profile_export_aiperf.json -> baseline: a name that every run of the tool has says nothing

Files are joined only inside one folder, so that baseline/out.json and new/out.json stay two configurations.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from dsv4bench.records.cell import Cell

_SERVE = re.compile(r"SERVE--(.*?)-?BENCH--")
_REPEAT = re.compile(r"(?<![A-Za-z0-9])(?:rep|repeat|run|trial|iter)[-_=]?(\d+)(?![A-Za-z0-9])", re.I)
_LEVEL = re.compile(
    r"(?<![A-Za-z0-9])(?:(?P<c>c|conc|concurrency|max_concurrency)[-_=]?(?P<n>\d+)|stage[-_=]?\d+"
    r"|(?P<r>r|rate|qps|rps)[-_=]?(?P<x>\d+(?:\.\d+)?)|(?P<y>inf|\d+(?:\.\d+)?)qps)(?![A-Za-z0-9])",
    re.I,
)
_STAMP = re.compile(r"[-_]\d{8}[-_]\d{6}$")
_EVERYWHERE = re.compile(
    r"(?:profile_export_aiperf|profile_export|benchmarks?|summary|results?|out|outputs?|metrics|lifecycle_metrics|cells)$",
    re.I,
)
_MIXED = re.compile(r"(?:_lifecycle_metrics|_summary)+$")


class PathName(msgspec.Struct, frozen=True, kw_only=True):
    """`key` joins the files of one configuration; `repeat` is the number that the path gives a run."""

    key: str
    name: str
    repeat: int | None


def path_name(path: Path, cell: Cell | None) -> PathName:
    """What the path says about a file whose only level is `cell`; None for a file of several."""
    whole = path.as_posix()
    found = _REPEAT.search(path.name)
    repeat = int(found[1]) if found else None
    serve = _SERVE.search(whole)
    if serve is not None:
        return PathName(key=whole[: serve.start()] + serve[0], name=serve[1] or "serve", repeat=repeat)
    parts = [path.stem, *(p.name for p in path.absolute().parents)]
    for up, part in enumerate(parts):
        name = _without_level(part, cell)
        if name and not _EVERYWHERE.match(name):
            folder = path.absolute().parents[up]
            return PathName(key=f"{folder.as_posix()}/{name}", name=name, repeat=repeat)
    return PathName(key=whole, name=path.stem, repeat=repeat)


def _without_level(part: str, cell: Cell | None) -> str:
    def off(found: re.Match[str]) -> str:
        if cell is None:
            return found[0]
        told = (found["n"] and cell.concurrency == int(found["n"])) or found[0].lower().startswith("stage")
        asked = found["x"] or (found["y"] if found["y"] != "inf" else None)
        matches = told or found["y"] == "inf" or (asked and cell.rate_req_s == float(asked))
        return "" if matches else found[0]

    name = _MIXED.sub("", _STAMP.sub("", part))
    name = _LEVEL.sub(off, _REPEAT.sub("", name))
    if name == part:
        return part
    return re.sub(r"([-_. ])[-_. ]+", r"\1", name).strip("-_. ")
