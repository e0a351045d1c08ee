"""`--help`: the verbs in the order in which a user meets them, and one short line for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from dsv4bench.cli.main import ORDER, app

ROOT: Any = typer.main.get_command(app)
WIDTH = 64  # of a verb's line on a terminal of 80 columns


def verbs(at: Any, path: str = "dsv4bench") -> Iterator[tuple[str, Any]]:
    for name, command in at.commands.items():
        yield f"{path} {name}", command
        if hasattr(command, "commands"):
            yield from verbs(command, f"{path} {name}")


ALL = dict(verbs(ROOT))


def test_the_order_names_every_verb_once() -> None:
    assert sorted(ORDER) == sorted(ROOT.commands) and len(set(ORDER)) == len(ORDER)


def test_the_help_tells_them_in_that_order(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ROOT(["--help"], prog_name="dsv4bench")
    lines = capsys.readouterr().out.partition("Commands:")[2].splitlines()
    assert [line.split()[0] for line in lines if line.strip()] == list(ORDER)


@pytest.mark.parametrize("name", [n for n in ALL if n != "dsv4bench campaign"])
def test_a_verb_has_a_first_line_that_is_not_cut(name: str) -> None:
    assert not ALL[name].get_short_help_str(WIDTH).endswith("...")


@pytest.mark.parametrize("name", ALL)
def test_every_option_says_what_it_does(name: str) -> None:
    silent = [p.name for p in ALL[name].params if not (getattr(p, "help", None) or "").strip()]
    assert not silent
    # a default that the option itself does not hold is said in one form
    odd = [p.name for p in ALL[name].params if "default)" in (p.help or "").replace("[default", "")]
    assert not odd
