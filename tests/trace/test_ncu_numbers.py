"""Numbers and units as ncu prints them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.trace.ncu_numbers import Locale, base_unit, locale_of, number, rounded_to_zero

ENGLISH, GERMAN = Locale("."), Locale(",")


@pytest.mark.parametrize(
    ("text", "locale", "value"),
    [
        ("1,275,068,416", ENGLISH, 1_275_068_416),
        ("9,495.42", ENGLISH, 9495.42),
        ("-0.5", ENGLISH, -0.5),
        ("-1,234.5", ENGLISH, -1234.5),
        ("1.2e+06", ENGLISH, 1.2e6),
        ("12 (4; 8)", ENGLISH, 12),
        ("1.275.068.416", GERMAN, 1_275_068_416),
        ("9\u202f495,42", GERMAN, 9495.42),
        ("1,27,068", ENGLISH, None),
        ("1,2", ENGLISH, None),
        ("12x", ENGLISH, None),
        ("NVIDIA H200", ENGLISH, None),
        ("1e999", ENGLISH, None),
        ("0x10", ENGLISH, None),
    ],
)
def test_a_cell(text: str, locale: Locale, value: float | None) -> None:
    assert number(text, locale) == value


@given(st.integers(0, 10**12), st.sampled_from([ENGLISH, GERMAN]))
def test_grouping_of_any_count(value: int, locale: Locale) -> None:
    assert number(f"{value:,}".replace(",", locale.grouping), locale) == value


@given(st.text("0123456789.,-e+() ", max_size=12))
def test_any_text_is_a_finite_number_or_none(text: str) -> None:
    for locale in (ENGLISH, GERMAN):
        found = number(text, locale)
        assert found is None or abs(found) < float("inf")


@given(st.lists(st.floats(0, 1e9), min_size=1), st.sampled_from([ENGLISH, GERMAN]))
def test_the_locale_of_a_file_is_found(numbers: list[float], locale: Locale) -> None:
    swap = str.maketrans(",.", ".,") if locale is GERMAN else {}
    texts = [f"{n:,.2f}".translate(swap) for n in numbers]
    assert locale_of(texts, "f") == locale
    assert [number(t, locale) for t in texts] == [float(f"{n:.2f}") for n in numbers]


@pytest.mark.parametrize(
    ("unit", "base"),
    [
        ("Mbyte", (1e6, "byte")),
        ("Gbyte/s", (1e9, "byte/s")),
        ("byte/usecond", (1e6, "byte/s")),
        ("Kbyte/block", (1e3, "byte/block")),
        ("usecond", (1e3, "ns")),
        ("ns", (1.0, "ns")),
        ("Ghz", (1e9, "hz")),
        ("cycle/nsecond", (1e9, "cycle/s")),
        ("%", (1.0, "%")),
        ("", (1.0, "")),
        ("register/thread", (1.0, "register/thread")),
        ("Nbyte", None),
        ("byte/furlong", None),
    ],
)
def test_a_unit(unit: str, base: tuple[float, str] | None) -> None:
    assert base_unit(unit) == base


def test_only_a_printed_fraction_hides_a_value() -> None:
    assert rounded_to_zero("0.00", 1, count=False)
    assert not rounded_to_zero("0", 1, count=False)
    assert not rounded_to_zero("0.10", 1, count=False)
    assert not rounded_to_zero("0.000000", 1, count=True)  # less than one instruction is none
    assert rounded_to_zero("0.00", 1e6, count=True)  # up to 10,000 bytes are
