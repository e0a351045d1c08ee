from __future__ import annotations

import pickle
from typing import IO, Any

import pytest

from dsv4bench.load.reading import Capture, Read
from dsv4bench.load.spool import Spool
from dsv4bench.records.request import ErrorKind


def capture(index: int, size: int = 1000) -> Capture:
    made = Capture(index, requested=8, t_sched=5, position=index)
    made.t_send, made.t_end, made.retried = 10 + index, 20 + index, bool(index % 2)
    made.error, made.error_text = (ErrorKind.STALLED, "silent") if index % 3 == 0 else (None, None)
    made.reads = [Read(index, index + 1, bytes([index % 256]) * size), Read(0, 7, b"end")]
    return made


def fields(made: Capture) -> list[Any]:
    return [getattr(made, name) for name in Capture.__slots__]


@pytest.mark.parametrize("bound_bytes", [0, 1, 3000, 5000, 1 << 20])
def test_every_capture_comes_back_once_in_order_wherever_it_was_kept(bound_bytes: int) -> None:
    kept = Spool(bound_bytes)
    for i in range(12):
        kept.add(capture(i, size=1000 + 500 * (i % 3)))
    assert len(kept) == 12
    for _ in range(2):  # the worker reads twice: for the stamps, then for the records
        assert [fields(c) for c in kept] == [fields(capture(i, size=1000 + 500 * (i % 3))) for i in range(12)]


def test_memory_holds_no_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    dumped: list[Capture] = []

    def dump(made: Capture, file: IO[bytes], protocol: int) -> None:
        dumped.append(made)
        file.write(pickle.dumps(made, protocol))

    monkeypatch.setattr("dsv4bench.load.spool.pickle.dump", dump)
    kept = Spool(5000)
    for i in range(8):
        kept.add(capture(i))
    assert [c.index for c in dumped] == [4, 5, 6, 7]  # some 1240 bytes each
    assert [c.index for c in kept] == list(range(8))


def test_an_error_is_still_the_same_kind_after_the_disk() -> None:
    kept = Spool(0)
    kept.add(capture(0))
    (back,) = kept
    assert back.error is ErrorKind.STALLED


def test_an_empty_spool() -> None:
    assert (list(Spool()), len(Spool())) == ([], 0)
