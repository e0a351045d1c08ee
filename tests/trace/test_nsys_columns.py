"""Columns that are filled block by block, and take no room while all their rows are one number."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.trace.nsys_columns import Column, Processes, thread_ids

blocks = st.lists(st.lists(st.integers(-2, 2), max_size=3), max_size=6)


@given(blocks)
def test_a_column_holds_what_was_put(parts: list[list[int]]) -> None:
    together = [value for part in parts for value in part]
    column, at = Column(len(together), np.int32), 0
    for part in parts:
        column.put(slice(at, at + len(part)), np.array(part, np.int64))
        at += len(part)
    taken = column.take(at)
    assert taken.tolist() == together and taken.dtype == np.int32
    if together:
        assert (taken.strides == (0,)) == (len(set(together)) == 1)


def test_ids_of_one_thread_stay_one_number() -> None:
    global_tid = np.broadcast_to(np.int64((4242 << 24) | 17), (1000,))
    pid, tid = Processes(global_tid).of(global_tid), thread_ids(global_tid)
    assert pid.strides == tid.strides == (0,)
    assert pid.tolist() == [4242] * 1000 and tid.tolist() == [17] * 1000
