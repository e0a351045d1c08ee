"""One registry of measured quantities: every float of a cell is in it, or is named here as a coordinate."""

from __future__ import annotations

import typing

import msgspec
import pytest

from dsv4bench.metrics import BY_NAME, KERNEL_TIME, METRICS, Metric
from dsv4bench.records.cell import Cell

# floats that are no metric: coordinates, sizes, and what qualifies another number
NO_METRIC = {
    "rate_req_s",
    "duration_s",
    "isl_mean",
    "osl_mean",
    "steady_s",
    "steady_frac",
    "client_lag_p50_s",
    "client_lag_max_s",
    "server_output_tokens",
    "gpu_sm_clock_mean_mhz",
    "gpu_power_mean_w",
}


def float_fields() -> set[str]:
    hints = typing.get_type_hints(Cell)
    return {f.name for f in msgspec.structs.fields(Cell) if hints[f.name] in (float, float | None)}


def test_every_float_of_a_cell_is_a_metric_or_a_coordinate() -> None:
    floats = float_fields()
    assert {"output_tok_s", "tpot_p50_s", "rate_req_s"} <= floats  # the reader of types works
    assert floats == set(BY_NAME) - {KERNEL_TIME} | NO_METRIC  # a kernel's time is of no server's cell
    assert set(BY_NAME) & NO_METRIC == set()


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(METRICS)


@pytest.mark.parametrize("m", METRICS, ids=lambda m: m.name)
def test_a_metric_says_what_it_is(m: Metric) -> None:
    assert len(m.definition) > 10
    assert m.delta_frac is None or 0 < m.delta_frac < 1
    if m.delta_frac is not None:
        assert m.direction != "none", "a metric with a smallest change worth a verdict has a better side"
    ending = {"s": "_s", "frac": "_frac", "tok/s": "tok_s", "1/s": "_s"}.get(m.unit)
    if ending is not None:
        assert ending in m.name, "the unit stands in the name"


def test_percentiles_of_one_quantity_point_the_same_way() -> None:
    for stem in ("ttft", "tpot", "icl", "e2e", "output_tok_s"):
        assert len({m.direction for m in METRICS if m.name.startswith(stem)}) == 1
    assert BY_NAME["tpot_p50_s"].direction == "lower" and BY_NAME["output_tok_s"].direction == "higher"
