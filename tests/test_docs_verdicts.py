"""docs/verdicts.md is complete: every outcome, state and refusal stands on it, and its limits are the code's."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from dsv4bench.compare import mechanism
from dsv4bench.compare.comparable import Realised
from dsv4bench.records.campaign import CampaignStatus, LaunchStatus, Live
from dsv4bench.records.cell import Invalid
from dsv4bench.records.claims import ClaimState
from dsv4bench.records.experiment import Status
from dsv4bench.records.gate import Outcome
from dsv4bench.records.request import ErrorKind, TokenSource
from dsv4bench.records.verdict import Grade, LeverStatus, SpecState, Verdict
from dsv4bench.trace import ncu_errors, recognise
from dsv4bench.trace.nsys_diagnosis import Cause

TOP = Path(__file__).parents[1]
PACKAGE = TOP / "dsv4bench"
PAGE = (TOP / "docs" / "verdicts.md").read_text(encoding="utf-8")
FLAT = " ".join(PAGE.split())  # a sentence may be broken over lines

# section -> what its own part of the page must name, in the form in which a reader searches for it
IN_BOLD: dict[str, type[StrEnum]] = {
    "Verdicts": Verdict,
    "Grades": Grade,
    "Levers": LeverStatus,
    "Speculation": SpecState,
    "The gate": Outcome,
    "Claims": ClaimState,
}
IN_CODE: tuple[tuple[str, str, type[StrEnum]], ...] = (  # section, head of the table
    ("Levels", "| INVALID |", Invalid),
    ("Levels", "| failed request |", ErrorKind),
    ("Levels", "| tokens from |", TokenSource),
    ("Levels", "| experiment |", Status),
    ("Campaigns", "| launch |", LaunchStatus),
    ("Campaigns", "| campaign |", CampaignStatus),
)
REFUSING = (
    *(p for room in ("attribution", "capture", "compare", "trace") for p in sorted((PACKAGE / room).glob("*.py"))),
    *(PACKAGE / "runs" / f"{name}.py" for name in ("compare", "gate_selftest", "profile_inputs", "profile_ncu")),
)


def section(name: str) -> str:
    found = re.search(rf"^## {re.escape(name)}$(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found is not None, f"no section {name}"
    return found.group(1)


def table(part: str, head: str) -> str:
    """The rows below a head, to the next empty line."""
    rows = section(part).partition(head)[2].partition("\n\n")[0]
    assert rows, f"'{part}' has no table {head}"
    return rows


@pytest.mark.parametrize(("part", "kind"), IN_BOLD.items())
def test_every_outcome_is_explained_in_its_section(part: str, kind: type[StrEnum]) -> None:
    text = section(part).partition("Live checks")[0]
    missing = [x.value for x in kind if not re.search(rf"^\| \*\*{re.escape(x.value)}\*\* \|", text, re.M)]
    assert not missing, f"{kind.__name__}: no row in '{part}' for {missing}"


@pytest.mark.parametrize(("part", "head", "kind"), IN_CODE)
def test_every_stamp_and_state_is_named_in_its_table(part: str, head: str, kind: type[StrEnum]) -> None:
    missing = [x.value for x in kind if f"`{x.value}`" not in table(part, head)]
    assert not missing, f"{kind.__name__}: '{part}' does not name {missing}"


def test_why_two_sides_are_not_comparable_stands_on_the_page() -> None:
    text = section("NOT COMPARABLE")
    assert not [name for name in Realised.__struct_fields__ if f"`{name}`" not in text]
    found = [*returned("verdicts", "_refusal"), *returned("wording", "absent")]
    assert len(found) >= 3
    assert not [m for m in found if not on_page(m, "NOT COMPARABLE")]


def test_every_state_of_a_live_check_and_no_verdict_have_a_row() -> None:
    rows = section("Levers").partition("Live checks")[2]
    assert not [x.value for x in Live if f"| **{x.value}** |" not in rows]
    assert "| **no verdict** |" in section("Verdicts")


def test_every_mechanism_has_a_row() -> None:
    names = set(mechanism_names())
    assert {"admission cap", mechanism.PER_SEQUENCE, mechanism.NOT_DETERMINED} <= names  # the reader of names works
    assert len(names) >= len(mechanism.RULES) + 2
    missing = [name for name in sorted(names) if f"| **{name}** |" not in section("Scaling")]
    assert not missing, missing


def test_every_integrity_breach_has_a_row() -> None:
    codes = set(breach_codes())
    assert {"no_cells", "littles_law", "token_parity", "clock"} <= codes
    text = section("The gate").partition("| integrity breach |")[2]
    missing = [code for code in sorted(codes) if f"`{code}`" not in text]
    assert not missing, missing


def test_every_refusal_stands_on_the_page() -> None:
    messages = [(path, m) for path in REFUSING for m in first_arguments(path, {"Unanswerable", "SchemaError"})]
    assert len(messages) > 60
    missing = [f"{path.relative_to(TOP)}: {m}" for path, m in messages if not on_page(m)]
    assert not missing, "\n".join(missing)


def test_every_fault_of_a_campaign_file_stands_on_the_page() -> None:
    found = list(arguments(PACKAGE / "scenario/launched_checks.py", {"Fault"}, 1))
    found += arguments(PACKAGE / "scenario/launched_reading.py", {"Fault"}, 1)
    assert len(found) > 30
    missing = [m for m in found if not on_page(m, "Campaigns")]
    assert not missing, "\n".join(missing)


def test_why_a_campaign_stops_stands_on_the_page() -> None:
    found = [*first_arguments(PACKAGE / "runs/campaign.py", {"MeasuredBad"})]
    found += [m for m in first_arguments(PACKAGE / "runs/campaign_begin.py", {"UsageError"}) if "from 1 to" not in m]
    assert len(found) >= 4
    assert not [m for m in found if not on_page(m, "Campaigns")]


def test_every_cause_of_a_trace_without_kernels_stands_on_the_page() -> None:
    refused = [what for _, what, _ in (*recognise._REFUSED_MAGIC, *recognise._REFUSED_JSON)]
    assert not [what for what in refused if f"`{what}`" not in section("Traces")]
    assert not [c.value for c in Cause if f"| {c.value} |" not in section("Traces")]
    assert not [line for line, _ in ncu_errors._REMEDIES if f"`{line}`" not in section("Traces")]
    found = [*kineto_causes(), *arguments(PACKAGE / "trace/nsys_diagnosis.py", {"Finding"}, 1)]
    assert len(found) > 20
    assert not [m for m in found if not on_page(m, "Traces")]


def test_why_a_plan_is_refused_stands_on_the_page() -> None:
    tree = ast.parse((PACKAGE / "attribution/plan.py").read_text(encoding="utf-8"))
    makers = ("_too_few", "_unattributed", "_inflated")
    functions = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name in makers]
    said = [x for f in functions for x in ast.walk(f) if isinstance(x, ast.Return) and isinstance(x.value, ast.List)]
    found = [template(e) for x in said if isinstance(x.value, ast.List) for e in x.value.elts]
    assert len(functions) == len(makers) and len(found) >= 6
    # a row holds the beginning or the end of the sentence, which the limit parts
    pieces = [re.split(r"[:(;]", m)[0].strip("… ").removesuffix(" x") for m in found]
    ends = [m.rpartition(": ")[2] for m in found]
    assert not [
        m for m, a, b in zip(found, pieces, ends, strict=True) if not (on_page(a, "Plans") or on_page(b, "Plans"))
    ]


def test_limits_on_the_page_are_those_of_the_code() -> None:
    stated = re.findall(r"`([a-z_.]+)\.([A-Z_]+)` = ([\d.]+)( %| points)?", PAGE)
    assert len(stated) > 40
    wrong = []
    for module, name, number, unit in stated:
        value = getattr(importlib.import_module(f"dsv4bench.{module}"), name)
        if float(value) != pytest.approx(float(number) / (100 if unit else 1)):
            wrong.append(f"{module}.{name} is {value}, the page says {number}{unit}")
    assert not wrong, "\n".join(wrong)


def mechanism_names() -> Iterator[str]:
    """The first word of every finding that a rule can give, and the two that have constants."""
    yield from (mechanism.PER_SEQUENCE, mechanism.NOT_DETERMINED)
    tree = ast.parse((PACKAGE / "compare/mechanism.py").read_text(encoding="utf-8"))
    rules = {f.__name__ for f in mechanism.RULES}  # type: ignore[attr-defined]
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name in rules:
            for x in ast.walk(function):
                match x:
                    case ast.Assign(targets=[ast.Name(id="name")], value=ast.Constant(value=str() as name)):
                        yield name
                    case ast.Assign(
                        targets=[ast.Tuple(elts=[ast.Name(id="name"), *_])],
                        value=ast.Tuple(elts=[ast.Constant(value=str() as name), *_]),
                    ):
                        yield name
                    case ast.Call(
                        func=ast.Name(id="_yes" | "_unknown"), args=[ast.Constant(value=str() as name), *_]
                    ):
                        yield name


def returned(module: str, function: str) -> Iterator[str]:
    """The sentences that a function of `compare` gives back."""
    tree = ast.parse((PACKAGE / f"compare/{module}.py").read_text(encoding="utf-8"))
    body = next(f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == function)
    for x in ast.walk(body):
        if isinstance(x, ast.Return) and x.value is not None:
            first = x.value.elts[0] if isinstance(x.value, ast.Tuple) else x.value
            if isinstance(first, ast.JoinedStr):
                yield template(first)


def breach_codes() -> Iterator[str]:
    for name in ("integrity", "soundness"):
        tree = ast.parse((PACKAGE / f"compare/{name}.py").read_text(encoding="utf-8"))
        for x in ast.walk(tree):
            match x:
                case ast.Call(func=ast.Name(id="Breach"), args=[ast.Constant(value=str() as code), *_]):
                    yield code
                case ast.Call(
                    func=ast.Name(id="_relative"), args=[*_, ast.Constant(value=str() as code), ast.Constant()]
                ):
                    yield code


def kineto_causes() -> Iterator[str]:
    tree = ast.parse((PACKAGE / "trace/kineto_absence.py").read_text(encoding="utf-8"))
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name.startswith("_cause"):
            for x in ast.walk(function):
                if isinstance(x, ast.Return) and isinstance(x.value, ast.Tuple):
                    yield template(x.value.elts[0])


def first_arguments(path: Path, names: set[str]) -> Iterator[str]:
    return arguments(path, names, 0)


def arguments(path: Path, names: set[str], position: int) -> Iterator[str]:
    """One argument of every call of these names, what is filled in replaced by `…`."""
    for x in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(x, ast.Call) and isinstance(x.func, ast.Name) and x.func.id in names and len(x.args) > position:
            yield template(x.args[position])


def template(node: ast.expr) -> str:
    """`{a} of {b}: {c}` as `… of …: …`; the file or subject that a message begins with is left out."""
    text = re.sub("…+", "…", "".join(_parts(node)))
    return re.sub(r"^(--\w+ )?…: ", "", text).strip()


def _parts(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(value=str() as text):
            yield text
        case ast.JoinedStr(values=values):
            for value in values:
                yield from _parts(value)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            yield from _parts(left)
            yield from _parts(right)
        case _:
            yield "…"


def on_page(message: str, part: str | None = None) -> bool:
    """Whether every piece of it is there, in one place; a message that is another one's words has none of its own."""
    text = FLAT if part is None else " ".join(section(part).split())
    wanted = re.escape(message.strip("… ").replace("`", ""))
    return re.search(wanted, text.replace("`", "")) is not None
