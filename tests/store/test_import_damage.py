"""Whatever a file holds, reading it gives arms or one error of ours; never a traceback, never a NaN."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from import_samples import ALL

from dsv4bench.errors import BenchError
from dsv4bench.records.codec import encode
from dsv4bench.store.importing import read_results

ODD = [
    None,
    0,
    -1,
    0.0,
    1e308,
    float("inf"),
    float("nan"),
    True,
    "",
    "inf",
    "x",
    [],
    [None],
    {},
    {"mean": None},
    [[1]],
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path in a document."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


def with_odd(document: Any, path: tuple[Any, ...], odd: Any) -> Any:
    changed = copy.deepcopy(document)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = odd
    return changed


def arms_or_error(path: Path) -> None:
    try:
        arms = read_results([path])
    except BenchError as e:
        assert e.message and e.hint and "\n" not in e.message
        return
    assert arms and all(encode(arm) for arm in arms)  # the codec refuses NaN and infinity


@pytest.mark.parametrize("tool", ALL)
def test_an_odd_value_at_any_place_of_a_known_file(tmp_path: Path, tool: str) -> None:
    rng = random.Random(7)
    path = tmp_path / "x.json"
    for place in places(ALL[tool]):
        for odd in rng.sample(ODD, 2):
            path.write_text(json.dumps(with_odd(ALL[tool], place, odd)), encoding="utf-8")
            arms_or_error(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON)
def test_any_document(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    arms_or_error(path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for data in (b"\xff\xfe\x00{", b"\x1f\x8b\x08binary", b"[" * 100_000, b'{"a": ' * 50_000):
        path.write_bytes(data)
        arms_or_error(path)
