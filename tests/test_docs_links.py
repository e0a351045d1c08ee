"""What the documentation points to exists: files, headings, verbs, and the options that stand behind a verb."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from dsv4bench.cli.main import app

TOP = Path(__file__).parents[1]
PAGES = [TOP / "README.md", TOP / "PROFILE_FINDINGS.md", *sorted((TOP / "docs").glob("*.md"))]
ROOT = typer.main.get_command(app)
PLAIN_LANGUAGES = ("", "sh", "bash", "console")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
ENDS = re.compile(r"\s#|[;|&]|→|\.\s|…\s*$")  # of a command: a comment, another command, prose

pages = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)


@pages
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    wrong = []
    for target in links(page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        if not file.exists():
            wrong.append(target)
        elif anchor and anchor not in anchors(file):
            wrong.append(f"{target}: no such heading")
    assert not wrong, wrong


@pages
def test_every_command_is_one(page: Path) -> None:
    wrong = [why for command in commands(page.read_text(encoding="utf-8")) if (why := fault(command))]
    assert not wrong, wrong


def test_the_readers_of_this_test_read() -> None:
    assert sum(len(list(commands(p.read_text(encoding="utf-8")))) for p in PAGES) > 150
    assert sum(len(list(links(p.read_text(encoding="utf-8")))) for p in PAGES) > 40
    assert fault("dsv4bench sweeep URL") and fault("dsv4bench sweep URL --concurency 1")
    assert fault("dsv4bench kernels chek") and fault("dsv4bench kernels check --peers x")
    assert fault("dsv4bench sweep URL -c 1 --no-warmup") is None
    assert fault("dsv4bench profile --launch 'vllm serve M --port 1' --with nsys") is None
    assert list(commands("`sweep --repeat 5`\n```\na; dsv4bench list \\\n  --out x  # --none\n```\n")) == [
        "dsv4bench list    --out x",
        "dsv4bench sweep --repeat 5",
    ]


def links(text: str) -> Iterator[str]:
    """Targets of Markdown links that are no URL."""
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if not re.match(r"\w+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    """Of every heading, as GitHub writes them."""
    found = re.findall(r"^#+ (.+)$", without_code(page.read_text(encoding="utf-8"), spans=False), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def without_code(text: str, spans: bool = True) -> str:
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "", text) if spans else text


def commands(text: str) -> Iterator[str]:
    """From `dsv4bench` to the end of its command: of fenced blocks, then of inline code, where it may be left out."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S):
        if language in PLAIN_LANGUAGES:
            for line in block.replace("\\\n", " ").splitlines():
                yield from _in_line(line)
    for span in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        first, *rest = span.split()
        if first in ROOT.commands and any(w.startswith("--") for w in rest):  # type: ignore[attr-defined]
            yield f"dsv4bench {span}"
        else:
            yield from _in_line(span)


def _in_line(line: str) -> Iterator[str]:
    plain = QUOTED.sub("TEXT", line)
    for found in re.finditer(r"(?<![\w./])dsv4bench (?=[a-z])", plain):
        rest = plain[found.start() :]
        end = ENDS.search(rest)
        yield rest[: end.start()].rstrip() if end is not None else rest.rstrip()


def fault(command: str) -> str | None:
    """What is wrong with a command; None when its verb and its options are there."""
    words = QUOTED.sub("TEXT", command).split()[1:]
    at = ROOT
    while words and hasattr(at, "commands"):
        name = words[0]
        if name not in at.commands:
            return None if name.startswith("-") or not name.islower() else f"{command}: no verb {name}"
        at = at.commands[name]
        words = words[1:]
    known = {o for p in at.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
    asked = [re.split("[=\\],)]", w.lstrip("[("))[0] for w in words if w.lstrip("[(").startswith("--")]
    return next((f"{command}: no option {o}" for o in asked if o not in known), None)
