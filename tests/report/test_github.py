"""Annotations and step summary: at most ten errors, escaped, the worst first."""

from __future__ import annotations

import re

import msgspec
from gate_verdicts import document, failed, gate_cell, never_judged, not_comparable

from dsv4bench.records.gate import Outcome
from dsv4bench.report.github import MAX_SUMMARY_BYTES, summary, workflow_commands

COMMAND = re.compile(r"^::(error|notice) title=([^:,]*)::(.*)$")


def parsed(lines: list[str]) -> list[tuple[str, str, str]]:
    found = [COMMAND.match(line) for line in lines]
    assert all(found), lines
    return [(m[1], m[2], m[3]) for m in found if m]


def test_the_worst_comes_first_and_a_roll_up_last() -> None:
    commands = parsed(workflow_commands(failed()))
    assert [kind for kind, _, _ in commands] == ["error"] * 3
    assert commands[0][1] == "gate FAIL output_tok_s C=16 ISL 1024"
    assert commands[0][2] == "-8.0%25 vs main: why"
    assert commands[1][1].startswith("gate INCONCLUSIVE")
    assert "compared 3 of 3 cells" in commands[-1][2]


def test_forty_bad_cells_give_nine_annotations_and_a_roll_up() -> None:
    cells = [gate_cell(c, Outcome.FAIL, -c / 100) for c in range(1, 41)]
    commands = parsed(workflow_commands(document(cells, Outcome.FAIL)))
    assert len(commands) == 10
    assert "C=40" in commands[0][1] and "C=32" in commands[8][1]
    assert commands[-1][2].endswith("31 more are in the summary")


def test_a_pass_is_a_notice() -> None:
    commands = parsed(workflow_commands(document([gate_cell(1, Outcome.PASS)], Outcome.PASS)))
    assert [kind for kind, _, _ in commands] == ["notice"]


def test_what_was_not_judged_is_an_error() -> None:
    for d in (not_comparable(), never_judged(), document([], Outcome.INCONCLUSIVE)):
        assert {kind for kind, _, _ in parsed(workflow_commands(d))} == {"error"}
    assert "a number is no baseline" in workflow_commands(never_judged())[-1]


def test_a_message_cannot_begin_another_command() -> None:
    """%, CR and LF in data, : and , in a property as well."""
    hostile = "100%\r\n::set-output name=x::y, z"
    d = document([gate_cell(1, Outcome.FAIL, -0.1, hostile)], Outcome.FAIL, [f"code: {hostile}"])
    lines = workflow_commands(msgspec.structs.replace(d, candidate=hostile))
    assert all("\n" not in line and "\r" not in line for line in lines)
    assert all(line.startswith("::error title=") for line in lines)
    assert "100%25%0D%0A::set-output name=x::y, z" in lines[0]
    assert parsed(lines)


def test_the_summary_is_a_table_with_every_cell() -> None:
    text = summary(failed())
    rows = [line for line in text.splitlines() if line.startswith("| output")]
    assert rows[0] == (
        "| output\\_tok\\_s C=16 ISL 1024 | 100 tok/s | 92 tok/s | -8.0% | 5% | 5.4% | **FAIL** | why |"
    )
    assert len(rows) == 3
    assert text.startswith("### gate FAIL\n") and "- hardware not told" in text


def test_the_summary_cannot_be_broken_by_text() -> None:
    d = document([gate_cell(1, Outcome.FAIL, -0.1, "a|b\n<img src=x> `c`")], Outcome.FAIL)
    row = next(line for line in summary(d).splitlines() if line.startswith("| output"))
    assert row.endswith("| **FAIL** | a\\|b &lt;img src=x&gt; \\`c\\` |")


def test_a_huge_verdict_stays_below_the_limit() -> None:
    cells = [gate_cell(c, Outcome.FAIL, -0.1, "é" * 5000) for c in range(3000)]
    d = msgspec.structs.replace(document(cells, Outcome.FAIL), notes=["n" * 100_000] * 500)
    text = summary(d)
    assert len(text.encode()) <= MAX_SUMMARY_BYTES
    assert "2800 cells more" in text
