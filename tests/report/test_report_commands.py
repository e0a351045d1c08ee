"""The commands of a campaign's report: one a configuration, whatever port each launch drew."""

from __future__ import annotations

import msgspec
import report_inputs as inputs

from dsv4bench.records.campaign import ReportInput
from dsv4bench.report.page import provenance
from dsv4bench.report.page.blocks import Fold


def shown(commands: dict[str, list[list[str]]]) -> tuple[str, list[str]]:
    """(the heading, the lines) for these commands of each configuration, launch after launch."""
    r = inputs.whole()
    assert r.campaign is not None
    waiting = {config: list(found) for config, found in commands.items()}
    launches = [
        msgspec.structs.replace(n, command=waiting[n.config].pop(0) if waiting.get(n.config) else [])
        for n in r.campaign.launches
    ]
    r = msgspec.structs.replace(r, campaign=msgspec.structs.replace(r.campaign, launches=launches))
    return read(r)


def read(r: ReportInput) -> tuple[str, list[str]]:
    (fold,) = [b for b in provenance.blocks(r) if isinstance(b, Fold) and b.summary.startswith("Commands")]
    return fold.summary, (fold.log or "").splitlines()


def serve(*words: str) -> list[str]:
    return ["{python}", "-m", "serve", *words]


def test_launches_that_differ_in_their_port_are_one_command() -> None:
    drawn = [
        serve("--port", "36669", "--url=http://127.0.0.1:36669"),
        serve("--port", "41001", "--url=http://127.0.0.1:41001"),
    ]
    head, lines = shown({"baseline": drawn, "mtp": [serve("--port=1", "--mtp"), serve("--port=2", "--mtp")]})
    assert head == "Commands; {port} was another one at each launch"
    assert lines == [
        "# baseline",
        "{python} -m serve --port {port} --url=http://127.0.0.1:{port}",
        "# mtp",
        "{python} -m serve --port={port} --mtp",
    ]


def test_a_port_that_stays_and_a_number_that_is_none_are_left() -> None:
    head, lines = shown({"baseline": [serve("--port", "30000", "--batch", "512")] * 2})
    assert head == "Commands, as they were typed" and lines[1] == "{python} -m serve --port 30000 --batch 512"
    _, lines = shown({"baseline": [serve("--port", p, "--batch", "512", "--json", '{"a": 1}') for p in ("7", "8")]})
    assert lines[1:] == ["{python} -m serve --port {port} --batch 512 --json '{\"a\": 1}'"]


def test_commands_that_differ_in_more_are_shown_with_their_launches() -> None:
    _, lines = shown({"baseline": [serve("--port", "1", "-x"), serve("--port", "2", "-y")]})
    assert lines == [
        "# baseline, launch 1",
        "{python} -m serve --port {port} -x",
        "# baseline, launch 4",
        "{python} -m serve --port {port} -y",
    ]


def test_a_port_of_the_server_itself_is_known_without_its_flag() -> None:
    r = inputs.whole()
    port = r.experiments[0].experiment.server.url.rpartition(":")[2]
    assert port.isdigit()
    _, lines = shown({r.experiments[0].experiment.config: [["serve", "-p", port], ["serve", "-p", "1"]]})
    assert "serve -p {port}" in lines and "serve -p 1" in lines
