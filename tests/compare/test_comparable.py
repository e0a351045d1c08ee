"""What makes two arms, or two coordinates, comparable, and what the samples let through."""

from __future__ import annotations

from typing import Any

import pytest
from arms_made import HARDWARE, WORKLOAD, make_arm, make_cell, repeats

from dsv4bench.compare.comparable import Comparability, comparable, comparable_at, realised
from dsv4bench.compare.samples import Coordinate, aligned, columns, samples
from dsv4bench.errors import Unanswerable
from dsv4bench.records.cell import Invalid
from dsv4bench.records.request import TokenSource

X = "output_tok_s"


def told(base: dict[str, Any], new: dict[str, Any], **more: Any) -> Comparability:
    return comparable(make_arm("a", [], workload=WORKLOAD | base), make_arm("b", [], workload=WORKLOAD | new), **more)


def test_every_key_counts_but_seeds_and_coordinates() -> None:
    found = told(
        {"seed": 1, "isl": 1024, "osl": 256, "vocab_size": 100},
        {"seed": 2, "isl": 8192, "osl": 128, "vocab_size": 200},
    )
    assert found.differing == {"osl": [256, 128], "vocab_size": [100, 200]}
    assert found.why() == "osl: 256 vs 128; vocab_size: 100 vs 200"


def test_what_one_side_does_not_tell_is_said() -> None:
    found = told({"tokenizer": "t", "dataset": None}, {"dataset": None})
    assert found.ok
    assert found.notes == ["workload not told by both sides: tokenizer, dataset"]


@pytest.mark.parametrize(
    ("new", "differing"),
    [
        ({"driver": "570.211"}, {}),
        ({"driver": "580.1"}, {"driver": ["570", "580"]}),
        ({"hostname_sha256": "other"}, {}),
        ({"power_limit_w": 400}, {}),
        ({"n_gpus": 8}, {"n_gpus": [1, 8]}),
    ],
)
def test_hardware(new: dict[str, Any], differing: dict[str, Any]) -> None:
    base, other = make_arm("a", []), make_arm("b", [], hardware=HARDWARE | new)
    found = comparable(base, other)
    assert found.differing == differing
    assert comparable(base, other, across_hardware=True).ok
    assert bool(found.notes) is ("power_limit_w" in new)


def test_incomplete_and_unknown_are_notes() -> None:
    notes = comparable(
        make_arm("a", [], hardware=None), make_arm("b", [], hardware={"gpus": None}, complete=False)
    ).notes
    assert notes == ["hardware not told by either side", "b is not complete"]


def at(metric: str, base: dict[str, Any], new: dict[str, Any]) -> Comparability:
    facts = [realised([make_cell(1.0, **side)]) for side in (base, new)]
    (a,), (b,) = facts[0].values(), facts[1].values()
    return comparable_at(a, b, metric)


def test_chunks_and_acceptance_matter_for_gaps_between_chunks_only() -> None:
    base, new = {"tokens_per_chunk": 1.0, "accept_length": 1.0}, {"tokens_per_chunk": 1.9, "accept_length": 1.92}
    assert at(X, base, new).ok
    assert list(at("icl_p50_s", base, new).differing) == ["tokens_per_chunk", "accept_length"]
    assert at("icl_p50_s", {}, {}).notes == ["not told by both sides: tokens_per_chunk"]
    assert at("icl_p50_s", {"tokens_per_chunk": 1.0}, {"tokens_per_chunk": 1.04}).ok


def test_a_warm_prefix_cache_on_one_side() -> None:
    assert at(X, {"prefix_hit_frac": 0.0}, {"prefix_hit_frac": 0.009}).ok
    assert at(X, {"prefix_hit_frac": 0.0}, {"prefix_hit_frac": 0.4}).differing == {"prefix_hit_frac": [0.0, 0.4]}
    assert at(X, {"prefix_hit_frac": 0.0}, {}).notes == ["not told by both sides: prefix_hit_frac"]


def test_lengths_counted_from_chunks_are_no_lengths() -> None:
    assert at(X, {"osl_mean": 256.0}, {"osl_mean": 120.0, "token_source": TokenSource.CHUNKS}).ok
    assert not at(X, {"osl_mean": 256.0}, {"osl_mean": 120.0}).ok


def test_only_sound_values_become_samples() -> None:
    arm = make_arm(
        "a",
        [
            make_cell(10.0, repeat=0),
            make_cell(None, repeat=1),
            make_cell(11.0, repeat=2, invalid=Invalid.INTERRUPTED),
            make_cell(12.0, repeat=3, approximate=[X]),
            make_cell(13.0, repeat=4, token_source=TokenSource.MIXED),
        ],
    )
    assert [s.value for s in samples(arm, [X])] == [10.0]
    (column,) = columns(arm, [X]).values()
    assert column.shown == [12.0, 13.0]
    assert column.note() == (
        "1 of 5 left out: no output_tok_s; 1 of 5 left out: level invalid (interrupted); "
        "1 of 5 left out: '~12' enters no verdict; "
        "1 of 5 left out: tokens not counted by usage (mixed): shown, enters no verdict"
    )


def test_the_same_cell_twice_is_refused_and_a_second_experiment_on_one_launch_is_not() -> None:
    cell = make_cell(10.0)
    with pytest.raises(Unanswerable, match="given twice"):
        samples(make_arm("a", [cell, cell]), [X])
    pooled = make_arm("a", [cell, make_cell(10.5), make_cell(10.4, repeat=1)])
    assert [s.repeat for s in samples(pooled, [X])] == [0, 1, 2]


def test_a_prompt_length_told_to_the_token_finds_the_requested_one() -> None:
    def c(isl: int, load: int = 8) -> Coordinate:
        return Coordinate(load, None, isl)

    assert aligned([c(1024), c(8192)], [c(1021), c(8300)]) == {c(1021): c(1024), c(8300): c(8192)}
    assert aligned([c(1024)], [c(1100)]) == {c(1100): c(1100)}
    assert aligned([c(1024), c(1020)], [c(1021)]) == {c(1021): c(1021)}  # which of the two?
    assert aligned([c(1024)], [c(1024), c(1021)]) == {c(1024): c(1024), c(1021): c(1021)}
    assert aligned([c(1024)], [c(1023), c(1021)]) == {c(1023): c(1024), c(1021): c(1021)}
    assert aligned([c(1024, 4)], [c(1021)]) == {c(1021): c(1021)}


def test_repeats_of_another_launch_stand_beside() -> None:
    arm = make_arm("a", repeats([1.0, 2.0]) + repeats([3.0], launch="L1"))
    assert [(s.launch, s.repeat) for s in samples(arm, [X])] == [("L0", 0), ("L0", 1), ("L1", 0)]
