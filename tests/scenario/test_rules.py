"""Rule files: the packaged ones, a user's before them, and errors that name file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.scenario.rules import PACKAGED, load_rules, read_rules


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_packaged_rules_load_and_say_where_they_come_from() -> None:
    rules = load_rules()
    assert len(rules.components) > 30
    assert rules.source[0] == "components.yaml"
    assert all(rule.contains or rule.regex for rule in rules.components)
    assert len(rules.units) == sum(len(read_rules(path).units) for path in PACKAGED.glob("units.yaml"))


def test_a_users_rules_come_first(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "components:\n  - {component: attention, contains: [_mxfp4_slot], note: mine}\n"
        "units:\n  - {runs_on: tensor, contains: [my_mma]}\n",
    )
    rules = load_rules([path])
    assert rules.components[0].note == "mine" and rules.units[0].contains == ["my_mma"]
    assert rules.source[:2] == [str(path), "components.yaml"]
    assert len(rules.components) == len(load_rules().components) + 1


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("components:\n  - component: moe\n    contains: [a]\n  - component: mooe\n    contains: [b]\n", 4, "'mooe'"),
        ("components:\n  - component: moe\n    contain: [a]\n", 3, "contain"),
        ("components:\n  - component: moe\n", 2, "needs `contains` or `regex`"),
        ("components:\n  - {component: moe, contains: [a], regex: b}\n", 2, "not both"),
        ("components:\n  - component: moe\n    regex: 'a('\n", 3, "not a regular expression"),
        ("components:\n  - component: moe\n    regex: 'a*'\n", 3, "every kernel"),
        ("components:\n  - component: moe\n    contains: ['']\n", 3, "empty fragment"),
        ("components:\n  - component: moe\n    contains: a\n", 3, "array"),
        ("units:\n  - runs_on: fpga\n    contains: [a]\n", 2, "fpga"),
        ("components:\n  - component: [\n", 3, "not YAML"),
        ("rules: []\n", 1, "rules"),
    ],
)
def test_an_error_names_file_line_and_key(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as error:
        load_rules([path])
    assert error.value.message.startswith(f"{path}:{line}:"), error.value.message
    assert words in error.value.message
    assert error.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.yaml"):
        load_rules([tmp_path / "none.yaml"])
