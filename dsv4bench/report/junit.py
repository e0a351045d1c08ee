"""A gate's verdict as JUnit XML: FAIL is a <failure>; INCONCLUSIVE and NOT COMPARABLE are an <error>.

Nothing is ever <skipped>, which CI systems show green. The file holds one test case more than there are cells: the
verdict itself, so that a gate that compared nothing is red, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from dsv4bench.records.gate import GateDocument, Outcome
from dsv4bench.report.gate import basis, change, headline, label, value

ERRORS = (Outcome.INCONCLUSIVE, Outcome.NOT_COMPARABLE)
# what XML 1.0 cannot carry, not even escaped
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")


def junit_xml(d: GateDocument) -> bytes:
    """One suite; the counts are those of its cases."""
    cases = list(_cases(d))
    suite = ElementTree.Element(
        "testsuite",
        name="dsv4bench gate",
        tests=str(len(cases)),
        failures=str(sum(c.find("failure") is not None for c in cases)),
        errors=str(sum(c.find("error") is not None for c in cases)),
        skipped="0",
        time="0",
    )
    if d.created_utc is not None:
        suite.set("timestamp", d.created_utc)
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _cases(d: GateDocument) -> Iterator[ElementTree.Element]:
    classname = f"gate.{d.baseline or 'baseline'}.{d.candidate or 'candidate'}"
    yield _case(classname, "verdict", d.outcome, headline(d), _whole(d))
    for i, breach in enumerate(d.integrity, start=1):
        yield _case(classname, f"integrity {i}: {breach.split(':')[0]}", Outcome.NOT_COMPARABLE, breach, breach)
    for c in d.cells:
        seen = "" if c.could_see_frac is None else f"; could see {c.could_see_frac:.1%}"
        figures = f"{value(c.metric, c.base)} -> {value(c.metric, c.new)} ({change(c)})"
        text = f"{c.reason}\n{figures}, limit {c.limit_frac:.0%}{seen}"
        yield _case(classname, label(c), c.outcome, c.reason, text)


def _case(classname: str, name: str, outcome: Outcome | None, message: str, text: str) -> ElementTree.Element:
    """No outcome at all is an error: something went wrong before there could be one."""
    case = ElementTree.Element("testcase", classname=_clean(classname), name=_clean(name), time="0")
    if outcome is Outcome.PASS:
        return case
    kind = str(outcome or "ERROR")
    tag = "failure" if outcome is Outcome.FAIL else "error"
    ElementTree.SubElement(case, tag, message=_clean(message), type=kind).text = _clean(text)
    return case


def _whole(d: GateDocument) -> str:
    hint = d.error.hint if d.error is not None else ""
    return "\n".join([headline(d), basis(d), *([hint] if hint else []), *d.integrity, *d.notes])


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
