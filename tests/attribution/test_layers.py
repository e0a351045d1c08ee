"""The period of a step's kernels and the layers in it."""

from __future__ import annotations

import numpy as np

from dsv4bench.attribution.layers import layer_count, period


def of(text: str) -> int | None:
    return period(np.array([ord(c) for c in text]))


def test_the_smallest_period_between_a_head_and_a_tail() -> None:
    assert of("e" + "abc" * 6 + "xyz") == 3
    assert of("e" + "abcabd" * 5 + "xyz") == 6  # layers of two kinds take turns
    assert of("aaaa") == 1


def test_no_period_in_a_sequence_that_does_not_repeat() -> None:
    assert of("abcdefghijkl") is None
    assert of("abcabc" + "defghijklmnopqrstuv") is None  # too little of the step
    assert of("") is None and of("a") is None


def test_layers_are_what_most_layer_kernels_agree_on() -> None:
    step = [("attention", 43.0), ("router", 43.0), ("moe", 86.0), ("indexer", 21.0), ("mhc", 43.0), ("sampling", 1.0)]
    assert layer_count(step) == 43
    assert layer_count([("elementwise", 500.0), ("elementwise", 500.0), ("moe", 4.0)]) is None
    assert layer_count([("moe", 1.0), ("attention", 1.0)]) is None
    assert layer_count([("moe", 6.4), ("attention", 6.4)]) is None  # no whole number a step
