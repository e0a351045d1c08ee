"""How the output parity of a campaign is told: compared or not, told or not, in a short line each."""

from __future__ import annotations

import msgspec
import report_inputs as inputs

from dsv4bench.records.campaign import MAY_DIFFER, Campaign, OutputPair, OutputParity
from dsv4bench.report.campaign import launch_table, parity_lines
from dsv4bench.report.page.blocks import Table
from dsv4bench.report.page.bottom_line import sentences
from dsv4bench.report.page.levers import parity_blocks

WHY = "1 of 1 prompts part (first at token 6); neither server tells log-probabilities, so near-ties cannot be told"
PAIR = OutputPair(prompt=0, n_base=8, n_new=8, first_difference=6)
UNTOLD = OutputParity(config="fp8-cfg", base="baseline", same=None, pairs=[PAIR], why=WHY)
MEANT = OutputParity(config="mtp", base="baseline", same=None, why=MAY_DIFFER)
SAME = OutputParity(config="mtp", base="baseline", same=True, pairs=[PAIR])


def campaign(*parity: OutputParity) -> Campaign:
    return inputs.campaign(parity=list(parity))


def test_what_was_compared_is_not_called_not_compared() -> None:
    assert parity_lines(campaign(UNTOLD, MEANT)) == [
        f"fp8-cfg: cannot be told: {WHY}",
        "mtp: not compared with baseline: its text may differ",
    ]
    table = launch_table(campaign(UNTOLD, MEANT))
    assert [str(cell) for cell in list(table.columns)[4].cells] == ["reference", "not told", "–"]


def test_an_answer_that_failed_is_no_choice_of_the_scenario() -> None:
    failed = OutputParity(config="mtp", base="baseline", same=None, why="no prompt was answered by both")
    assert failed.outcome == "cannot be told" and MEANT.outcome == "not compared"


def test_the_page_says_which_cannot_be_told() -> None:
    r = inputs.whole()

    def told(*parity: OutputParity) -> list[str]:
        found = sentences(msgspec.structs.replace(r, campaign=campaign(*parity)))
        return [s for s in found if "reedy output" in s]

    assert told(UNTOLD, MEANT) == ["Whether greedy output is still the baseline's cannot be told: fp8-cfg."]
    assert told(MEANT) == told(SAME) == []
    (table,) = parity_blocks(msgspec.structs.replace(r, campaign=campaign(UNTOLD, MEANT, SAME)))
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["cannot be told", "not compared", "the same"]
