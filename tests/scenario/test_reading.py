"""YAML into a type: the line of a mistake, wherever it sits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from dsv4bench.errors import UsageError
from dsv4bench.scenario.reading import line_of, read_yaml


class Item(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    levels: list[Annotated[int, Meta(ge=1)]] = []


class Kind(msgspec.Struct, forbid_unknown_fields=True):
    items: list[Item] = []
    free: dict[str, int] = {}


GOOD = "items:\n  - name: a\n    levels: [1]\n  - name: b\n    levels:\n      - 1\n      - 2\nfree: {x: 1}\n"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("      - 2", "      - 0", 7),
        ("  - name: b", "  - nome: b", 4),
        ("    levels: [1]", "    levels: 1", 3),
        ("free: {x: 1}", "free: {x: y}", 8),
        ("items:", "itens:", 1),
        ("- name: b", "- name: 7", 4),
    ],
)
def test_the_line_of_a_mistake(tmp_path: Path, old: str, new: str, line: int) -> None:
    path = tmp_path / "x.yaml"
    assert read_yaml(_written(path, GOOD), Kind, "hint").items[1].levels == [1, 2]
    with pytest.raises(UsageError) as e:
        read_yaml(_written(path, GOOD.replace(old, new)), Kind, "hint")
    assert e.value.message.startswith(f"{path}:{line}: ") and e.value.hint == "hint"


def test_what_is_no_yaml_no_text_no_file(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    with pytest.raises(UsageError, match="No such file"):
        read_yaml(path, Kind, "")
    with pytest.raises(UsageError, match=r"x\.yaml:2: not YAML"):
        read_yaml(_written(path, "items: 1\n\t- x\n"), Kind, "")
    path.write_bytes(b"a: \xff")
    with pytest.raises(UsageError, match="not UTF-8 text"):
        read_yaml(path, Kind, "")
    assert read_yaml(_written(path, ""), Kind, "") == Kind()


def test_keys_that_the_text_does_not_have() -> None:
    assert line_of("a:\n  b: 1\n", ["a", "c", "d"]) == 1
    assert line_of("", ["a"]) == 1


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("old", "new", "meant"),
    [("items:", "itens:", "items"), ("- name: b", "- nam: b", "name"), ("levels:\n", "level:\n", "levels")],
)
def test_a_key_that_is_nearly_one_is_named(tmp_path: Path, old: str, new: str, meant: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(UsageError, match=rf"unknown field .*; did you mean {meant}\?"):
        read_yaml(file, Kind, "")
    file.write_text(GOOD.replace(old, new.replace(new.strip("- ").split(":")[0], "zzzz")))
    with pytest.raises(UsageError) as refused:
        read_yaml(file, Kind, "")
    assert "zzzz" in refused.value.message and "did you mean" not in refused.value.message
