"""The table of a sweep, letter by letter: what stands in it, what is left out, what is said in words."""

from __future__ import annotations

import io
from textwrap import dedent
from typing import Any

import pytest
from report_cells import make_cell
from rich.console import Console
from rich.text import Text

from dsv4bench.records.cell import Cell, Invalid
from dsv4bench.records.request import TokenSource
from dsv4bench.report.console import WIDTH
from dsv4bench.report.table import print_sweep


def shown(cells: list[Cell], path: str | None = "results/x", **console: Any) -> str:
    out = Console(file=io.StringIO(), **{"width": WIDTH, "color_system": None, **console})
    print_sweep(cells, path, out)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def text(block: str) -> str:
    return dedent(block).strip("\n")


NOTHING = (
    *("output_tok_s", "output_tok_s_steady", "tok_s_per_user"),
    *("ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s"),
)


def test_one_repeat() -> None:
    cells = [
        make_cell(1, output_tok_s=12.3, achieved_batch=1.0),
        make_cell(8),
        make_cell(16, output_tok_s=1023.0, tpot_p50_s=0.012),
    ]
    assert shown(cells) == text("""
            output  steady   tok/s  TTFT ms        TPOT ms        achieved
         C   tok/s   tok/s  a user      p50   p99      p50   p99     batch  failed
         1    12.3    24.0     3.0      123  2500      330  7.89       1.0       0
         8    23.5    24.0     3.0      123  2500      330  7.89       8.0       0
        16  1023.0    24.0     3.0      123  2500     12.0  7.89       8.0       0
        kernel receive stamps; client lag p99 at most 0.12 ms; tokens from usage
        repeats: 1; a verdict in compare needs --repeat 5 or more
        stored in results/x
    """)


def test_several_repeats_show_the_median_and_the_range() -> None:
    """Five of them are enough for a verdict: the footer says nothing about it any more."""
    cells = [make_cell(8, repeat=r, output_tok_s=v) for r, v in enumerate((23.0, 25.0, 24.0, 22.5, 30.3))]
    assert shown(cells) == text("""
           output             steady   tok/s  TTFT ms        TPOT ms        achieved
        C   tok/s      range   tok/s  a user      p50   p99      p50   p99     batch  failed
        8    24.0  22.5–30.3    24.0     3.0      123  2500      330  7.89       8.0       0
        kernel receive stamps; client lag p99 at most 0.12 ms; tokens from usage
        stored in results/x
    """)


def test_an_invalid_repeat_is_marked_said_and_left_out_of_the_row() -> None:
    bad = make_cell(
        8,
        repeat=1,
        output_tok_s=99.0,
        invalid=Invalid.SHORT_OUTPUT,
        invalid_why="50 of 100 outputs are shorter than OSL 256: the server does not honour ignore_eos",
        notes=["2 sent late"],
    )
    assert shown([make_cell(8, output_tok_s=20.0), bad]) == text("""
             output             steady   tok/s  TTFT ms        TPOT ms        achieved
          C   tok/s      range   tok/s  a user      p50   p99      p50   p99     batch  failed
        ! 8    20.0  20.0–20.0    24.0     3.0      123  2500      330  7.89       8.0       0
        C=8: repeat 2: INVALID short_output: 50 of 100 outputs are shorter than OSL 256: the server does not honour ignore_eos; 2 sent late
        kernel receive stamps; client lag p99 at most 0.12 ms; tokens from usage
        repeats: 2; a verdict in compare needs --repeat 5 or more
        stored in results/x
    """)  # noqa: E501


def test_a_level_that_is_invalid_in_every_repeat_keeps_its_numbers() -> None:
    bad = make_cell(8, output_tok_s=99.0, invalid=Invalid.CLIENT_SATURATED, invalid_why="client lag")
    rows = shown([bad]).splitlines()
    assert rows[2].startswith("! 8    99.0") and rows[3] == "C=8: INVALID client_saturated: client lag"


def test_some_failures() -> None:
    """What a server says is text, not markup."""
    c = make_cell(8, n_ok=20, n_err=4, errors={"stalled": 1, "http_429": 3}, error_example="slow down [please]")
    assert shown([c]) == text("""
           output  steady   tok/s  TTFT ms        TPOT ms        achieved
        C   tok/s   tok/s  a user      p50   p99      p50   p99     batch  failed
        8    23.5    24.0     3.0      123  2500      330  7.89       8.0    4/24
        C=8: failed: 3 http_429, 1 stalled (slow down [please])
        kernel receive stamps; client lag p99 at most 0.12 ms; tokens from usage
        repeats: 1; a verdict in compare needs --repeat 5 or more
        stored in results/x
    """)


def test_every_request_failed() -> None:
    """No number, and no nought in its place."""
    c = make_cell(
        8,
        n_ok=0,
        n_err=24,
        errors={"http_500": 24},
        invalid=Invalid.ALL_FAILED,
        invalid_why="no request completed",
        token_source=TokenSource.NONE,
        client_lag_p99_s=None,
        **dict.fromkeys(NOTHING),
    )
    assert shown([c]) == text("""
             output   tok/s  TTFT ms       TPOT ms       achieved
          C   tok/s  a user      p50  p99      p50  p99     batch  failed
        ! 8       –       –        –    –        –    –       8.0   24/24
        C=8: INVALID all_failed: no request completed; failed: 24 http_500
        kernel receive stamps; tokens from nothing
        repeats: 1; a verdict in compare needs --repeat 5 or more
        stored in results/x
    """)


def test_an_open_loop() -> None:
    cells = [make_cell(None, rate_req_s=rate, output_tok_s_steady=None) for rate in (0.5, 2.0)]
    cells[1] = make_cell(None, rate_req_s=2.0, output_tok_s_steady=None, notes=["4 sent late"])
    assert shown(cells) == text("""
               output   tok/s  TTFT ms        TPOT ms        achieved
        req/s   tok/s  a user      p50   p99      p50   p99     batch  failed
          0.5    23.5     3.0      123  2500      330  7.89       8.0       0
            2    23.5     3.0      123  2500      330  7.89       8.0       0
        2 req/s: 4 sent late
        kernel receive stamps; client lag p99 at most 0.12 ms; tokens from usage
        repeats: 1; a verdict in compare needs --repeat 5 or more
        stored in results/x
    """)


def test_several_lengths_and_mixed_sources() -> None:
    long = make_cell(8, isl=8192, timestamps="user", token_source=TokenSource.CHUNKS, notes=["user stamps"])
    assert shown([make_cell(8), long]) == text("""
                 output  steady   tok/s  TTFT ms        TPOT ms        achieved
        C   ISL   tok/s   tok/s  a user      p50   p99      p50   p99     batch  failed
        8  1024    23.5    24.0     3.0      123  2500      330  7.89       8.0       0
        8  8192    23.5    24.0     3.0      123  2500      330  7.89       8.0       0
        C=8 ISL 8192: user stamps
        kernel and user receive stamps; client lag p99 at most 0.12 ms; tokens from chunks and usage
        repeats: 1; a verdict in compare needs --repeat 5 or more
        stored in results/x
    """)


def test_slo_and_speculation() -> None:
    """99.6 % is not all of them."""
    cells = [make_cell(8, slo_frac=0.996, accept_length=2.344), make_cell(16, slo_frac=0.25)]
    assert shown(cells, None) == text("""
            output  steady   tok/s  TTFT ms        TPOT ms        achieved  accept      in
         C   tok/s   tok/s  a user      p50   p99      p50   p99     batch  length     SLO  failed
         8    23.5    24.0     3.0      123  2500      330  7.89       8.0    2.34  99.6 %       0
        16    23.5    24.0     3.0      123  2500      330  7.89       8.0       –  25.0 %       0
        kernel receive stamps; client lag p99 at most 0.12 ms; tokens from usage
        repeats: 1; a verdict in compare needs --repeat 5 or more
    """)


def test_nothing_measured_is_nothing_printed() -> None:
    assert shown([]) == ""


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [(0.0004321, "0.43"), (0.00999, "9.99"), (0.01, "10.0"), (0.0999, "99.9"), (0.1, "100"), (12.3456, "12346")],
)
def test_milliseconds_have_three_digits_or_more(seconds: float, ms: str) -> None:
    row = shown([make_cell(8, tpot_p50_s=seconds)]).splitlines()[2].split()
    assert row[6] == ms


def test_a_terminal_with_colours_reads_the_same() -> None:
    cells = [make_cell(8, invalid=Invalid.SHORT_OUTPUT, invalid_why="short"), make_cell(16)]
    coloured = Console(file=io.StringIO(), width=WIDTH, force_terminal=True, color_system="truecolor")
    print_sweep(cells, "results/x", coloured)
    raw = coloured.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[" in raw
    plain = Console(file=io.StringIO(), width=WIDTH, color_system=None)
    plain.print(Text.from_ansi(raw), end="")
    read = "\n".join(line.rstrip() for line in plain.file.getvalue().splitlines())  # type: ignore[attr-defined]
    assert read == shown(cells)
