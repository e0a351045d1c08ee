"""Traces in the states they are found in: malformed, cut off, wrongly encoded. Each is a fault of a public issue."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from kineto_made import EVENTS, WORK, document, kernel, work, write

from dsv4bench.errors import BenchError
from dsv4bench.trace import kineto_scan
from dsv4bench.trace.blocks import blocks
from dsv4bench.trace.kineto import read_kineto
from dsv4bench.trace.kineto_scan import Scanner

SAME = {
    "gzip under .json": lambda text: gzip.compress(text.encode()),
    "a bare list": lambda text: json.dumps(EVENTS),
    "UTF-8 with a mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "two gzip members": lambda text: gzip.compress(text[:700].encode()) + gzip.compress(text[700:].encode()),
    "a trailing empty event": lambda text: json.dumps([*EVENTS, {}]),
    "a trailing comma": lambda text: json.dumps(EVENTS)[:-1] + ", ]",
    "infinite bandwidth": lambda text: text.replace('"registers per thread": 12', '"bandwidth (GB/s)": Infinity', 2),
    "NaN": lambda text: text.replace('"registers per thread": 12', '"occupancy": NaN', 1),
    "a control character": lambda text: text.replace("aten::mm", "aten\x01::\tmm"),
    "bytes that are no UTF-8": lambda text: text.encode().replace(b"aten::mm", b"aten\xff\xfe::mm"),
    "an integer beyond 64 bits": lambda text: text.replace('"correlation": 8', '"correlation": 99999999999999999999'),
    "the events first": lambda text: json.dumps({"traceEvents": EVENTS, "distributedInfo": {"rank": 3}}),
    "another list of objects with names": lambda text: document(pg_config=[{"name": "a"}, {"name": "b"}]),
    "objects inside an argument": lambda text: text.replace(
        '"registers per thread": 12', '"x": [{"name": "a"}, {"name": "b"}]'
    ),
    "an unescaped path": lambda text: text.replace("aten::mm", r"C:\models\dsv4\x"),
}


@pytest.mark.parametrize("case", SAME)
def test_nothing_is_lost(tmp_path: Path, case: str) -> None:
    change: Callable[[str], str | bytes] = SAME[case]
    changed = change(document())
    assert changed not in (document(), document().encode())
    trace = read_kineto(write(tmp_path, changed))
    assert work(trace) == WORK
    assert len(trace.launches.start_ns) == 3
    assert trace.warnings == []


def test_utf_16_is_read_and_said(tmp_path: Path) -> None:
    trace = read_kineto(write(tmp_path, b"\xff\xfe" + document().encode("utf-16-le")))
    assert work(trace) == WORK
    assert len(trace.warnings) == 1


def test_two_documents_are_read_and_said(tmp_path: Path) -> None:
    later = [kernel("later", 500, 1)]
    trace = read_kineto(write(tmp_path, document() + "\n" + document(later)))
    assert work(trace) == WORK | {("later", 500000, 501000, 0)}
    assert any("2 JSON documents" in line for line in trace.warnings)


def test_an_event_with_a_missing_quote_is_left_out_and_said(tmp_path: Path) -> None:
    text = document().replace('"name": "kern_a"', '"name": "kern_a')
    trace = read_kineto(write(tmp_path, text))
    assert work(trace) == WORK - {("kern_a", 105125, 109500, 0)}
    assert any("1 damaged entries" in line for line in trace.warnings)


def test_a_damaged_head_does_not_hide_the_events(tmp_path: Path) -> None:
    trace = read_kineto(write(tmp_path, document().replace('"schemaVersion": 1', '"schemaVersion": oops')))
    assert work(trace) == WORK
    assert trace.warnings


def test_a_windows_path_in_the_last_event_keeps_the_tail(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [kernel("k", 1, 1), kernel("PATH", 2, 1)], "distributedInfo": {"rank": 6}})
    trace = read_kineto(write(tmp_path, text.replace("PATH", r"\models")))
    assert trace.rank == 6
    assert work(trace) == {("k", 1000, 2000, 0), (r"\models", 2000, 3000, 0)}


@pytest.mark.parametrize("zipped", [False, True])
def test_a_file_cut_anywhere_gives_a_part_and_says_so(tmp_path: Path, zipped: bool) -> None:
    whole = json.dumps(json.loads(document()), separators=(",", ":")).encode()
    whole = gzip.compress(whole) if zipped else whole
    parts = set()
    for length in range(len(whole)):
        try:
            trace = read_kineto(write(tmp_path, whole[:length]))
        except BenchError as error:
            assert "\n" not in error.message
            assert error.exit_code == 4
            continue
        found = work(trace)
        assert found <= WORK
        assert found == WORK or trace.warnings
        parts.add(len(found))
    assert parts >= ({5} if zipped else {1, 2, 3, 4, 5})


def test_changed_bytes_never_end_in_a_traceback(tmp_path: Path) -> None:
    dice, whole = random.Random(20260), document().encode()
    outcomes = set()
    for _ in range(600):
        data = bytearray(whole)
        for _ in range(dice.choice((1, 2, 5))):
            data[dice.randrange(len(data))] = dice.randrange(256)
        try:
            outcomes.add(len(read_kineto(write(tmp_path, bytes(data)))) > 0)
        except BenchError as error:
            outcomes.add(error.exit_code)
    assert True in outcomes


ODD = [None, True, -1, 2**64, 10**30, 1.5, float("inf"), "", "x", "\ud800", [], {}, [[]], "1e999999999", 1e300]


@pytest.mark.parametrize("key", ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "device", "stream", "grid"])
def test_a_value_of_another_type_harms_only_its_own_event(tmp_path: Path, key: str) -> None:
    for value in ODD:
        odd = kernel("odd", 50, 1)
        (odd if key in odd else odd["args"])[key] = value
        trace = read_kineto(write(tmp_path, json.dumps([kernel("before", 1, 1), odd, kernel("after", 90, 1)])))
        assert {("before", 1000, 2000, 0), ("after", 90000, 91000, 0)} <= work(trace)
        if key in ("ts", "dur") and value not in (True, 1.5, 1e300):
            assert len(trace) == 3 or trace.warnings


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200000,
        '{"a":' * 200000,
        '{"traceEvents":[' + "[" * 200000,
        '"',
        "[",
        "{",
        "nonsense",
        '{"traceEvents": 3}',
    ],
)
def test_what_is_no_trace_at_all_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BenchError) as refused:
        read_kineto(write(tmp_path, text))
    assert refused.value.exit_code == 4
    assert refused.value.hint


def test_pieces_of_any_size_give_the_same_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boundaries fall everywhere: between events, inside strings, inside the list of an argument, at NaN."""
    events = [{**e, "args": {**e["args"], "list": [{"name": "}, {"}, {"ph": "x"}]}} for e in EVENTS * 40]
    text = json.dumps({"traceEvents": events}).replace('"registers per thread": 12', '"a": NaN', 7)
    path = write(tmp_path, text)
    whole = [e.name for batch in Scanner(blocks(path, []), []).batches() for e in batch]
    for chunk, small, block in ((4096, 256, 100), (3000, 64, 4096), (300, 300, 7), (1 << 16, 1 << 10, 1 << 12)):
        monkeypatch.setattr(kineto_scan, "CHUNK", chunk)
        monkeypatch.setattr(kineto_scan, "SMALL", small)
        warnings: list[str] = []
        pieces = Scanner(blocks(path, warnings, block), warnings)
        assert [e.name for batch in pieces.batches() for e in batch] == whole
        assert warnings == []


def test_memory_stays_bounded(tmp_path: Path) -> None:
    """A hundred thousand events of one batch each are let go: the scanner never holds more than two pieces."""
    path = write(tmp_path, json.dumps([kernel("k" * 300, i, 1) for i in range(60000)]))
    scanner = Scanner(blocks(path, [], 1 << 20), [])
    longest = 0
    for _ in scanner.batches():
        longest = max(longest, len(scanner._buffer))
    assert path.stat().st_size > 2 * kineto_scan.CHUNK
    assert longest <= kineto_scan.CHUNK + (2 << 20)


def test_a_damaged_gzip_gives_every_byte_up_to_the_damage(tmp_path: Path) -> None:
    dice = random.Random(1)
    data = bytes(dice.randrange(97, 123) for _ in range(60000))
    packed = gzip.compress(data)
    for name, content in (("cut", packed[:20000]), ("checksum", packed[:-8] + bytes(8)), ("junk", packed + b"junk")):
        warnings: list[str] = []
        found = b"".join(blocks(write(tmp_path, content, name), warnings, 4096))
        assert data.startswith(found)
        assert len(found) == 60000 or name == "cut"
        assert len(found) > 30000
        assert len(warnings) == 1
