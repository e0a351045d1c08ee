"""Options that exclude each other, and values that no run can have: said at once, with exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command import Done

Call = Callable[..., Done]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--requests", "3", "--duration", "5"], "--requests and --duration were both given"),
        (["-c", "1", "--rate", "2"], "--concurrency and --rate were both given"),
        (["--repeat", "99999999999"], "--repeat 99999999999: more than"),
        (["--requests", "99999999999"], "--requests 99999999999: more than"),
        (["--rate", "1e12"], "--rate and --duration go up to"),
        (["--name", ""], "--name '': not a name"),
        (["--name", "a\x1bb"], "not a name"),
        (["--slo", "ttft=1s,ttft=2s"], "a limit stands twice"),
        (["--header", "Content-Length: 3"], "--header Content-Length: the client sets it itself"),
        (["--touches", "banana"], "--touches banana: not a component"),
    ],
)
def test_refused(call: Call, args: list[str], said: str) -> None:
    done = call("sweep", "http://127.0.0.1:9", *args, "--json")
    assert done.code == 2 and said in done.error and done.document["error"]["exit_code"] == 2


def test_an_option_wins_over_its_rival_in_the_file(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("levels: {duration_s: 60, rates_req_s: [1]}\n")
    done = call("sweep", "http://127.0.0.1:9", "--scenario", str(file), "--requests", "3", "-c", "1", "--json")
    assert done.code == 2 and "both given" not in done.error and "127.0.0.1:9" in done.error  # nobody listens there


def test_a_wrong_component_in_a_scenario_file(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("config:\n  touches: [banana]\n")
    done = call("sweep", "http://127.0.0.1:9", "--scenario", str(file), "--json")
    assert done.code == 2 and "Expected a component (moe, " in done.error
