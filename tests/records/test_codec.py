"""The one JSON codec: what it writes, what it refuses."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.errors import SchemaError
from dsv4bench.records.codec import Document, check_schema, decode, encode


class Thing(Document, frozen=True, kw_only=True):
    schema: str = "dsv4bench.thing/2"
    value: float | None = None
    more: object = None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [1, v], lambda v: [[v]], lambda v: {"a": {"b": (v,)}}])
def test_what_json_cannot_say_is_refused(bad: float, wrap: object) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        encode(Thing(more=wrap(bad)))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0123456789, 0.0123457),
        (-1234.56789, -1234.57),
        (1796083200.123456, 1796083200.123),
        (1234567.8912, 1234567.891),
        (999999.6, 1000000.0),
        (0.0, 0.0),
        (1e300, 1e300),
        (None, None),
    ],
)
def test_floats_are_short_and_epoch_seconds_keep_their_milliseconds(value: float, written: float) -> None:
    assert json.loads(encode(Thing(value=value)))["value"] == written


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_no_float_moves_by_more_than_its_digits(value: float) -> None:
    assert math.isclose(json.loads(encode(value)), value, rel_tol=5.0001e-6, abs_tol=1e-320)


def test_integers_and_flags_are_left_alone() -> None:
    more = {"columns": [123456789012345, 2], "flags": [True, False], "mixed": [1, 0.123456789, None], "empty": []}
    expected = {**more, "mixed": [1, 0.123457, None]}
    assert json.loads(encode(Thing(more=more)))["more"] == expected


@pytest.mark.parametrize("indent", [False, True])
def test_a_document_comes_back(indent: bool) -> None:
    thing = Thing(value=0.25, more={"ü": ["\u2028", "\x00"]})
    assert decode(encode(thing, indent=indent), Thing, "f") == thing


def test_stray_bytes_of_a_file_name_are_escaped() -> None:
    assert json.loads(encode({"a\udcff": "b\udcfe é"})) == {"a\\udcff": "b\\udcfe é"}


def test_unknown_fields_are_accepted() -> None:
    assert decode(b'{"schema":"dsv4bench.thing/2","value":1.5,"new":{"a":[1]}}', Thing, "f").value == 1.5


def test_an_older_major_is_read() -> None:
    assert decode(b'{"schema":"dsv4bench.thing/1","value":1.5}', Thing, "f").value == 1.5


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b'{"schema":"dsv4bench.thing/3"}', "written as dsv4bench.thing/3, this dsv4bench reads .* up to version 2"),
        (b'{"schema":"dsv4bench.run/1"}', "holds dsv4bench.run/1, expected dsv4bench.thing/2"),
        (b'{"value":1}', "no schema id"),
        (b'{"schema":"thing"}', "no schema id"),
        (b'{"schema":"dsv4bench.thing/-1"}', "no schema id"),
        (b'{"schema":"dsv4bench.thing/1.5"}', "no schema id"),
        (b'{"schema":7}', "not a dsv4bench.thing/2 document"),
        (b'{"schema":"dsv4bench.thing/2","value":"x"}', "Expected `float"),
        (b'{"schema":"dsv4bench.thing/2","more":"\xff"}', "UTF-8"),
        (b'{"schema":"dsv4bench.thing/2","more":' + b"[" * 100_000, "f: "),
        (b"[]", "not a dsv4bench.thing/2 document"),
        (b"", "not a dsv4bench.thing/2 document"),
        (b'{"schema":"dsv4bench.th', "not a dsv4bench.thing/2 document"),
        (b"\x00\xff", "not a dsv4bench.thing/2 document"),
    ],
)
def test_another_file_is_refused_by_name(raw: bytes, says: str) -> None:
    with pytest.raises(SchemaError, match=says) as e:
        decode(raw, Thing, "results/x/f")
    assert e.value.message.startswith("results/x/f: ") and e.value.hint


def test_check_schema_stands_alone() -> None:
    check_schema("a.b/1", "a.b/1", "f")
    with pytest.raises(SchemaError, match="no schema id"):
        check_schema(None, "a.b/1", "f")


def test_a_document_knows_its_schema() -> None:
    assert Thing.schema_id() == "dsv4bench.thing/2"
    assert msgspec.json.decode(encode(Thing()))["schema"] == "dsv4bench.thing/2"
