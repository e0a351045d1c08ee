"""Two processes must find what one pass finds, column by column; where they cannot, the one pass answers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from kineto_made import EVENTS, HEAD, document, event, kernel, write

from dsv4bench.trace import kineto, kineto_halves
from dsv4bench.trace.kineto import read_kineto
from dsv4bench.trace.kineto_halves import _first_half, collect_halves
from dsv4bench.trace.kineto_scan import BOUNDARY, NotAsTyped

NESTED = [{"name": "}, {"}, {"ph": "x"}, {"ph": "X", "name": "no event"}]


def many(count: int = 400, **args: Any) -> list[dict[str, Any]]:
    """Events of every role, names that only one half has, equal starts of several kinds, an event without a time."""
    found = []
    for i in range(count):
        found += [
            event("cpu_op", f"aten::op_{i % 7}", i, 1),
            event("user_annotation", f"step[{i // 20}]", i, 1.5),
            event("cuda_runtime", "cudaGraphLaunch" if i % 9 == 0 else "cudaLaunchKernel", i, 0.5, correlation=i),
            {"ph": "s", "id": i, "pid": 1, "tid": 1, "ts": i, "cat": "ac2g", "name": "ac2g"},
            event("gpu_memset", f"Memset {i % 5}", i + 0.25, 0.125, 0, 7, device=0, stream=7),
            kernel(f"kern_{i % 11 if i < 300 else i}", i + 0.25, 0 if i % 3 else 0.5, correlation=i, **args),
            event("gpu_user_annotation", f"step[{i // 20}]", i, 1.5, 0, 7),
        ]
    return [*found, kernel("no time", None, 1)]


def plain(value: object) -> object:
    """A record as values that `==` compares, arrays with their type."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    return value


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_halves, "SMALLEST", 1)
    monkeypatch.setattr(kineto_halves, "_WINDOW", 4096)
    monkeypatch.setattr(kineto_halves, "_cores", lambda: 2)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        with monkeypatch.context() as patch:
            patch.setattr(kineto, "collect_halves", _no_halves)
            return plain(read_kineto(path))

    return read


def _no_halves(path: Path, warnings: list[str]) -> None:
    return None


HALVED = {
    "an object": lambda: json.dumps({**HEAD, "traceEvents": many()}),
    "an object with indents": lambda: json.dumps({**HEAD, "traceEvents": many()}, indent=2),
    "a bare list": lambda: json.dumps(many()),
    "a mark of UTF-8": lambda: "\ufeff" + json.dumps({"traceEvents": many()}),
    "the head at the end": lambda: json.dumps({"traceEvents": many(), **HEAD}),
    "cut off": lambda: json.dumps({**HEAD, "traceEvents": many()})[:-1234],
    "NaN at the end": lambda: json.dumps([*many(), kernel("k", 1, 1, a=float("nan")), *EVENTS]),
    "a number of another type at the end": lambda: json.dumps([*many(), kernel("k", 1, 1, stream="7"), *EVENTS]),
    "a second document": lambda: json.dumps({**HEAD, "traceEvents": many()}) + document([kernel("later", 9e6, 1)]),
}


@pytest.mark.parametrize("case", HALVED)
def test_both_ways_find_the_same(tmp_path: Path, case: str, alone: Callable[[Path], object]) -> None:
    path = write(tmp_path, HALVED[case]())
    found = collect_halves(path, [])
    assert found is not None
    assert found.collector.timeline.kernels > 0
    assert plain(read_kineto(path)) == alone(path)


NOT_HALVED: dict[str, Callable[[], str | bytes]] = {
    "gzip": lambda: gzip.compress(json.dumps(many()).encode()),
    "NaN before the cut": lambda: json.dumps(many(3000)).replace('"registers per thread": 12', '"a": NaN', 1),
    "NaN after the cut": lambda: json.dumps([*many(2000), kernel("k", 1, 1, a=float("nan")), *many(1900)]),
    "a number of another type": lambda: json.dumps([*many(2000), kernel("k", 1, 1, stream="7"), *many(1900)]),
    "a cut in the head": lambda: json.dumps({"pg": [{"name": "x" * 90}] * 9000, "traceEvents": many(5)}),
    "a cut in the tail": lambda: json.dumps({"traceEvents": many(5), "pg": [{"name": "x" * 90}] * 9000}),
    "a cut in an argument": lambda: json.dumps([*EVENTS, kernel("k", 1, 1, a=[{"name": "x"}] * 9000), *EVENTS]),
    "UTF-16": lambda: b"\xff\xfe" + json.dumps(many()).encode("utf-16-le"),
}


@pytest.mark.parametrize("case", NOT_HALVED)
def test_one_pass_answers_for_what_cannot_be_halved(
    tmp_path: Path, case: str, alone: Callable[[Path], object]
) -> None:
    path = write(tmp_path, NOT_HALVED[case]())
    warnings: list[str] = []
    assert collect_halves(path, warnings) is None
    assert warnings == []
    assert plain(read_kineto(path)) == alone(path)


def test_only_a_cut_between_two_events_is_accepted(tmp_path: Path) -> None:
    """Every place that looks like a boundary, in events, in an argument, in the head and in the tail."""
    events = [{**e, "args": {**e["args"], "list": NESTED}} for e in EVENTS]
    lists = {"pg_config": [{"name": "a"}, {"name": "b"}]}
    text = json.dumps({**lists, "traceEvents": events, "tail": [{"name": "a"}, {"name": "b"}]})
    path = write(tmp_path, text)
    ends = {text.index(json.dumps(e)) + len(json.dumps(e)) for e in events[:-1]}
    places = [m.start() + 1 for m in BOUNDARY.finditer(text.encode())]
    accepted = {end for end in places if _is_cut(path, end)}
    assert accepted == ends
    assert len(places) > 3 * len(ends)


def _is_cut(path: Path, end: int) -> bool:
    try:
        return _first_half(path, end) is not None
    except NotAsTyped:
        return False


@pytest.mark.parametrize("fault", ["dies", "is cut short"])
def test_a_second_process_that_fails_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, alone: Callable[[Path], object]
) -> None:
    path = write(tmp_path, json.dumps(many()))
    short = "import io; o = sys.stdout; sys.stdout = io.TextIOWrapper(io.BytesIO()); send(*sys.argv[1:3]); "
    short += "o.buffer.write(sys.stdout.buffer.getvalue()[:-100])"
    code = kineto_halves._CODE.replace("send(*sys.argv[1:3])", "sys.exit(9)" if fault == "dies" else short)
    monkeypatch.setattr(kineto_halves, "_CODE", code)
    assert collect_halves(path, []) is None
    assert plain(read_kineto(path)) == alone(path)


def test_one_core_and_small_files_are_read_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, json.dumps(many(20)))
    monkeypatch.setattr(kineto_halves, "_cores", lambda: 1)
    assert collect_halves(path, []) is None
    monkeypatch.setattr(kineto_halves, "_cores", lambda: 2)
    monkeypatch.setattr(kineto_halves, "SMALLEST", path.stat().st_size + 1)
    assert collect_halves(path, []) is None
