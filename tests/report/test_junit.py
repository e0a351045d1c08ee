"""JUnit XML: FAIL is a failure, what could not be decided is an error, and nothing is ever skipped."""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec
import pytest
from gate_verdicts import document, failed, gate_cell, never_judged, not_comparable

from dsv4bench.records.gate import GateDocument, Outcome
from dsv4bench.report.junit import junit_xml


def suite_of(d: GateDocument) -> ElementTree.Element:
    suite = ElementTree.fromstring(junit_xml(d)).find("testsuite")
    assert suite is not None
    return suite


def outcomes(suite: ElementTree.Element) -> dict[str, str]:
    """Name of a case to the tag inside it."""
    return {case.attrib["name"]: case[0].tag if len(case) else "passed" for case in suite.iter("testcase")}


def test_each_outcome_has_its_element() -> None:
    assert outcomes(suite_of(failed())) == {
        "verdict": "failure",
        "output_tok_s C=1 ISL 1024": "passed",
        "output_tok_s C=8 ISL 1024": "error",
        "output_tok_s C=16 ISL 1024": "failure",
    }


def test_the_counts_are_those_of_the_cases() -> None:
    suite = suite_of(failed())
    assert {k: suite.attrib[k] for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "2",
        "errors": "1",
        "skipped": "0",
    }


@pytest.mark.parametrize("d", [not_comparable(), never_judged(), document([], Outcome.INCONCLUSIVE)])
def test_what_was_not_decided_is_an_error_and_never_skipped(d: GateDocument) -> None:
    suite = suite_of(d)
    assert set(outcomes(suite).values()) == {"error"}
    assert suite.attrib["errors"] == suite.attrib["tests"] != "0"
    assert b"<skipped" not in junit_xml(d)


def test_a_pass_is_all_green() -> None:
    suite = suite_of(document([gate_cell(1, Outcome.PASS)], Outcome.PASS))
    assert outcomes(suite) == {"verdict": "passed", "output_tok_s C=1 ISL 1024": "passed"}


def test_the_text_carries_the_figures_and_the_way_out() -> None:
    case = next(c for c in suite_of(failed()).iter("testcase") if "C=16" in c.attrib["name"])
    text = case[0].text or ""
    assert "100 tok/s -> 92 tok/s (-8.0%), limit 5%; could see 5.4%" in text
    assert case.attrib["classname"] == "gate.main.configB"
    whole = next(iter(suite_of(never_judged()).iter("testcase")))[0]
    assert "a number is no baseline" in (whole.text or "") and "pin one" in (whole.text or "")


def test_hostile_text_stays_well_formed() -> None:
    """Names and messages come from files and servers."""
    cells = [gate_cell(1, Outcome.FAIL, reason='<b>&"]]> \x00\x1b[31m \ud800')]
    d = msgspec.structs.replace(document(cells, Outcome.FAIL), candidate='a<&"\x01')
    suite = suite_of(d)
    case = list(suite.iter("testcase"))[1]
    assert case[0].attrib["message"] == '<b>&"]]> \ufffd\ufffd[31m \ufffd'
    assert case.attrib["classname"] == 'gate.main.a<&"\ufffd'
