"""A file that people and a generator share: prose stays byte for byte, a hand in a block shows."""

from __future__ import annotations

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.report.markers import Block, find, merge, problems

ONE = Block(id="one", heading="## 1 First", body="- a\n- b")
TWO = Block(id="two", heading="## 2 Second", body="| x |")
PROSE = "# Title\n\nMine.\n\n## 1 First\n\nBefore.\n\n## 2 Second\n\nAfter\u2028all.\n"


def kinds(text: str, *blocks: Block) -> list[tuple[str, str]]:
    return [(p.id, p.kind) for p in problems(text, blocks, "F.md")]


def test_blocks_go_below_their_headings_and_prose_stays() -> None:
    text = merge(PROSE, [ONE, TWO], "F.md")
    assert [(f.id, f.body, f.edited) for f in find(text, "F.md")] == [
        ("one", "- a\n- b", False),
        ("two", "| x |", False),
    ]
    assert text.index("## 1 First") < text.index("id=one") < text.index("## 2 Second") < text.index("id=two")
    kept = [line for line in text.split("\n") if line in PROSE.split("\n") and line]
    assert kept == [line for line in PROSE.split("\n") if line]
    assert kinds(text, ONE, TWO) == []
    assert merge(text, [ONE, TWO], "F.md") == text


def test_a_new_body_replaces_its_block_only() -> None:
    text = merge(PROSE, [ONE, TWO], "F.md").replace("Before.", "Before, by a person.")
    newer = Block(id="one", heading=ONE.heading, body="- c")
    assert kinds(text, newer, TWO) == [("one", "stale")]
    after = merge(text, [newer, TWO], "F.md")
    assert "- c" in after and "- a" not in after and "Before, by a person." in after
    assert kinds(after, newer, TWO) == []


def test_a_hand_in_a_block_is_seen_and_never_overwritten() -> None:
    text = merge(PROSE, [ONE, TWO], "F.md").replace("- b", "- b, I think")
    assert kinds(text, ONE, TWO) == [("one", "edited")]
    with pytest.raises(UsageError, match=r"edited by hand: block one \(line 7\)") as e:
        merge(text, [ONE, TWO], "F.md")
    assert "outside the markers" in e.value.hint


def test_a_missing_and_a_strange_block() -> None:
    text = merge(PROSE, [ONE, TWO], "F.md")
    three = Block(id="three", heading="## 3 Third", body="z")
    assert kinds(text, ONE, three) == [("two", "unknown"), ("three", "missing")]
    assert merge(text, [three], "F.md").endswith("## 3 Third\n\n" + text_of(three))
    again = Block(id="first-too", heading="## 1 First", body="y")
    after = merge(text, [again], "F.md")
    assert after.index("id=one") < after.index("id=first-too") < after.index("## 2 Second")


def text_of(b: Block) -> str:
    return merge("", [b], "F.md").partition(b.heading)[2].lstrip("\n")


def test_windows_line_ends_are_kept() -> None:
    text = merge(PROSE.replace("\n", "\r\n"), [ONE, TWO], "F.md")
    assert "\n" not in text.replace("\r\n", "")
    assert kinds(text, ONE, TWO) == []
    assert merge(text, [ONE, TWO], "F.md") == text


BEGIN = "<!-- dsv4bench:begin id=one sha=0123456789ab -->"
END = "<!-- dsv4bench:end -->"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"a\n{BEGIN}\nx\n", "F.md:2: block one has no end"),
        (f"{END}\n", "F.md:1: an end without its begin"),
        (f"{BEGIN}\n{BEGIN}\n{END}\n", "F.md:2: block one begins inside block one"),
        (f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n", "F.md:3: block one stands there twice"),
        ("<!-- dsv4bench:begin id=one -->\n", "F.md:1: a marker that cannot be read"),
    ],
)
def test_broken_markers_are_named_with_their_line(text: str, said: str) -> None:
    with pytest.raises(UsageError) as e:
        merge(text, [ONE], "F.md")
    assert said in e.value.message
