"""Planted mechanisms, each told by what was recorded; and what must never be called a kernel ceiling."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from queueing import GAUGES, Server, arm, changed, published, without

from dsv4bench.compare.mechanism import find_mechanism
from dsv4bench.compare.scaling import scaling_report
from dsv4bench.records.cell import Cell, Invalid
from dsv4bench.records.verdict import Mechanism

LEVELS = (1, 2, 4, 8, 16, 32)


def told(cells: list[Cell], low: int = 16, high: int = 32, **server: Any) -> Mechanism:
    return find_mechanism(cells, low, high, server)


def test_per_sequence_cost() -> None:
    found = told(Server().cells())
    assert found.name == "per-sequence kernel cost"
    assert found.evidence[0].startswith("TPOT x1.93 from C=16 to C=32")
    assert any(e.startswith("client CPU-bound: worker CPU 20%") for e in found.excluded)
    assert any(e.startswith("admission cap: the server ran 32.0 of 32") for e in found.excluded)
    assert any("host-bound server: not determinable without a trace" in e for e in found.evidence)


def test_a_ratio_of_ttft_says_of_which_average_it_is() -> None:
    cells = [msgspec.structs.replace(c, ttft_mean_s=0.1 * c.concurrency, ttft_p50_s=0.1) for c in Server().cells()]
    assert any("mean TTFT x2.00" in e for e in told(cells).evidence)
    no_mean = [msgspec.structs.replace(c, ttft_mean_s=None) for c in cells]
    assert any("median TTFT x1.00" in e for e in told(no_mean).evidence)
    neither = [msgspec.structs.replace(c, ttft_p50_s=None) for c in no_mean]
    assert any("(TTFT not recorded)" in e for e in told(neither).evidence)


@pytest.mark.parametrize(
    ("idle", "name", "where", "text"),
    [
        (
            {1: 0.5, 16: 0.001},
            "per-sequence kernel cost",
            "excluded",
            "the GPU idles 0.1% of the decode step at C=16",
        ),
        ({16: 0.001, 32: 0.4}, "host-bound server", "evidence", "the GPU idles 40.0% of the decode step at C=32"),
        ({32: 0.2}, "per-sequence kernel cost", "evidence", "not excluded: host-bound server: the GPU idles 20.0%"),
        ({1: 0.5}, "per-sequence kernel cost", "evidence", "host-bound server: not determinable without a trace"),
    ],
)
def test_a_trace_tells_a_host_bound_server(idle: dict[int, float], name: str, where: str, text: str) -> None:
    found = find_mechanism(Server().cells(), 16, 32, {}, idle)
    assert found.name == name
    assert any(text in line for line in getattr(found, where))


@pytest.mark.parametrize(
    ("idle", "name", "said"),
    [
        ({1024: {32: 0.5}}, "host-bound server", "the GPU idles 50.0%"),
        ({1024: {32: 0.01}}, "per-sequence kernel cost", "kernels do not batch"),
        ({8192: {32: 0.5}}, "per-sequence kernel cost", "kernels do not batch, unless the host is the limit"),
    ],
)
def test_idle_of_another_isl_tells_nothing(idle: dict[int, dict[int, float]], name: str, said: str) -> None:
    config = arm(Server(b_s=0.04, a_s=0.02).cells())
    (law,) = scaling_report([config], idle={config.name: idle, "another": {1024: {32: 0.5}}}).laws
    assert law.mechanism is not None and law.mechanism.name == name
    assert any(line.endswith(said) or said in line for line in [*law.notes, *law.mechanism.evidence])


def test_an_admission_cap_with_its_argument() -> None:
    found = told(Server(cap=8).cells(), max_running_requests=8, max_model_len=8)
    assert found.name == "admission cap"
    assert found.evidence[0] == "the server ran 8.0 of 32 and 24.0 waited"
    assert "the server was started with max_running_requests = 8" in found.evidence
    assert not any("max_model_len" in e for e in found.evidence)
    assert any("decode times of a request later" in e for e in found.evidence)
    assert any(e.startswith("per-sequence kernel cost: TPOT x1.00") for e in found.excluded)


def test_a_full_kv_pool_is_an_admission_cap_that_says_so() -> None:
    cells = [msgspec.structs.replace(c, kv_usage_max_frac=0.99) for c in Server(cap=8).cells()]
    assert "its KV pool was 99% full" in told(cells).evidence[0]


def test_a_cap_between_two_levels() -> None:
    """TPOT still grows from 8 to 16 before a cap of 12: the gauges decide, not the ratio."""
    assert told(Server(cap=12).cells(), 8, 16).name == "admission cap"


def test_a_cap_in_bursts_may_be_prefill() -> None:
    cells = [msgspec.structs.replace(c, icl_p99_s=5.0) for c in Server(cap=8).cells()]
    assert any("a prefill that cannot keep up" in e for e in told(cells).evidence)


def test_a_cap_without_a_waiting_gauge_is_the_servers_or_the_clients() -> None:
    found = told(without(Server(cap=8).cells(), "server_waiting_mean"))
    assert found.name == "admission or client cap"


def test_a_client_cap_by_the_servers_count() -> None:
    """The client believes that 32 are in flight; the server sees 8, and none waits."""
    cells = [
        msgspec.structs.replace(c, achieved_batch=float(c.concurrency or 0)) for c in Server(client_cap=8).cells()
    ]
    found = told(cells)
    assert found.name == "client cap"
    assert found.evidence[0].startswith("the server saw 8.0 of 32 requests")


def test_a_client_cap_by_its_own_count() -> None:
    assert told(Server(client_cap=8).cells()).name == "client cap"


def test_a_client_cap_by_littles_law() -> None:
    found = told(without(Server(client_cap=8).cells(), "achieved_batch", "decode_batch", *GAUGES))
    assert found.name == "client cap"
    assert "Little's law gives 8.0 of 32" in found.evidence[0]


def test_a_level_that_was_not_held() -> None:
    cells = changed(Server().cells(), 32, invalid=Invalid.CONCURRENCY_NOT_HELD, invalid_why="20.0 of 32 in flight")
    assert told(cells).name == "client cap"


@pytest.mark.parametrize(
    "fields",
    [
        {"invalid": Invalid.CLIENT_SATURATED, "invalid_why": "client lag p99 90 ms"},
        {"worker_cpu_frac": 0.97},
        {"client_lag_p99_s": 2.0},
    ],
)
def test_a_client_that_is_busy(fields: dict[str, Any]) -> None:
    """TPOT grows as it would for slow kernels, and still it is the client."""
    assert told(changed(Server().cells(), 32, **fields)).name == "client CPU-bound"


def test_kv_preemption_from_a_note() -> None:
    for note in ("12 preemptions", "retracted requests: 12"):
        found = told(changed(Server().cells(), 32, notes=[note], kv_usage_max_frac=0.99))
        assert found.name == "KV preemption" and "12 preemptions at C=32" in found.evidence[0]
    found = told(changed(Server().cells(), 32, notes=["0 preemptions"], kv_usage_max_frac=0.99))
    assert "KV preemption: none was counted" in found.excluded


def test_a_throttle_that_explains_the_fall() -> None:
    cells = changed(Server(b_s=0.0).cells(), 32, tpot_mean_s=0.0475 / 0.8, output_tok_s=100.0)
    cells = changed(cells, 32, gpu_sm_clock_mean_mhz=1920.0, gpu_throttle=["hw_thermal"])
    cells = changed(cells, 16, output_tok_s=125.0)
    found = told(cells)
    assert found.name == "power or thermal throttle"
    assert found.evidence[0] == "SM clock 2400 -> 1920 MHz (hw_thermal)"


def test_a_throttle_too_small_to_explain_it() -> None:
    found = told(changed(Server().cells(), 32, gpu_sm_clock_mean_mhz=2300.0, gpu_throttle=["sw_power_cap"]))
    assert found.name == "per-sequence kernel cost"
    assert any("too little to explain TPOT x1.93" in e for e in found.excluded)


def slowed(**at_32: Any) -> list[Cell]:
    """C=1 at 2400 MHz; C=16 and 32 both far below it, and close to one another."""
    cells = changed(Server().cells(), 16, gpu_sm_clock_mean_mhz=2150.0, gpu_throttle=["sw_power_cap"])
    return changed(cells, 32, gpu_sm_clock_mean_mhz=2130.0, gpu_throttle=["sw_power_cap"], **at_32)


def test_two_levels_that_are_both_slowed_do_not_exclude_throttling() -> None:
    found = told(slowed())
    line = (
        "power or thermal throttle: SM clock 2150 -> 2130 MHz (sw_power_cap); 2400 at C=1: both levels are below it"
    )
    assert found.name == "per-sequence kernel cost"
    assert any(e.startswith(f"not excluded: {line}") for e in found.evidence)
    assert not any(e.startswith("power or thermal throttle") for e in found.excluded)
    first = told(changed(slowed(), 1, gpu_sm_clock_mean_mhz=2160.0))  # within 2 % of it: nothing was slowed
    assert "power or thermal throttle: SM clock 2150 -> 2130 MHz (sw_power_cap)" in first.excluded


def test_both_levels_slowed_by_half_of_what_was_lost_since_the_first() -> None:
    cells = changed(Server(b_s=0.0).cells(), 32, gpu_sm_clock_mean_mhz=2130.0)
    cells = changed(cells, 16, gpu_sm_clock_mean_mhz=2150.0)
    rate, tpot_s = cells[-1].output_tok_s, cells[0].tpot_mean_s
    assert rate is not None and tpot_s is not None
    found = told(changed(cells, 32, output_tok_s=rate, tpot_mean_s=1.15 * tpot_s))
    assert found.name == "power or thermal throttle"
    assert found.evidence[0] == "SM clock 2150 -> 2130 MHz; 2400 at C=1"


def test_prefill_interference() -> None:
    """The undisturbed gap stays, the stalled ones and the wait for the first token grow."""
    cells = changed(Server().cells(), 32, icl_p50_s=0.68, icl_p99_s=6.8, ttft_mean_s=9.0, tpot_mean_s=0.9)
    cells = changed(cells, 16, ttft_mean_s=3.0, tpot_mean_s=0.68, icl_p50_s=0.67)
    assert told(cells).name == "prefill interference"


def test_bursts_do_not_hide_steps_that_grow() -> None:
    cells = [msgspec.structs.replace(c, icl_p99_s=5 * (c.icl_p50_s or 0)) for c in Server().cells()]
    assert told(cells).name == "per-sequence kernel cost"


def test_a_prefix_cache_that_warms_up_along_the_ladder() -> None:
    cells = [msgspec.structs.replace(c, prefix_hit_frac=0.02 * (c.concurrency or 0)) for c in Server().cells()]
    found = told(cells)
    assert found.name == "warm prefix cache"
    assert "prefix hits 2% at C=1, 64% at C=32" in found.evidence[0]
    stamped = changed(Server().cells(), 32, invalid=Invalid.CACHE_CONTAMINATED, invalid_why="64% of prompt tokens")
    assert told(stamped).name == "warm prefix cache"


def test_throughput_alone_tells_nothing() -> None:
    found = told(published({1: 10.7, 8: 22.6, 16: 23.2}), 8, 16)
    assert found.name == "not determined" and found.excluded == []
    assert found.evidence[0] == "C=8 -> 16: throughput x1.03 (TPOT and TTFT not recorded)"
    assert any("throughput alone cannot tell a slow kernel from a cap" in e for e in found.evidence)


def test_an_unwatched_client_is_not_excluded() -> None:
    """Another tool's file: TPOT grows in proportion, and nothing says that the client kept up."""
    found = told(without(Server().cells(), "worker_cpu_frac", "client_lag_p99_s"))
    assert found.name == "not determined"
    assert any("first exclude: client CPU-bound" in e for e in found.evidence)


def test_without_gauges_decoding_at_once_excludes_a_cap() -> None:
    found = told(without(Server().cells(), *GAUGES))
    assert found.name == "per-sequence kernel cost"
    assert any(e.startswith("admission cap: 32") and "decoded at once" in e for e in found.excluded)
    assert any(e.startswith("not excluded: KV preemption") for e in found.evidence)


def test_without_gauges_a_queue_is_not_given_a_name() -> None:
    found = told(without(Server(cap=8).cells(), *GAUGES))
    assert found.name == "not determined"
    assert any("requests queue before their first token" in e for e in found.evidence)


def test_flat_tpot_with_everything_excluded_is_not_determined() -> None:
    found = told(Server(b_s=0.0).cells())
    assert found.name == "not determined"
    assert any(e.startswith("per-sequence kernel cost: TPOT x1.00") for e in found.excluded)


def test_half_way_growth_is_not_determined() -> None:
    found = told(Server(a_s=0.5, b_s=0.02).cells())
    assert found.name == "not determined"
    assert any("per-sequence kernel cost: TPOT x1.39" in e for e in found.evidence)


@pytest.mark.parametrize("server", [Server(cap=8), Server(client_cap=8)])
@pytest.mark.parametrize("missing", [(), GAUGES, ("tpot_mean_s",), ("tpot_mean_s", "icl_p50_s", *GAUGES)])
def test_neither_cap_nor_client_is_ever_a_kernel_ceiling(server: Server, missing: tuple[str, ...]) -> None:
    """Whatever was left unrecorded: the same flat curve, and no word of kernels that do not batch."""
    (law,) = scaling_report([arm(without(server.cells(LEVELS), *missing))]).laws
    assert law.mechanism is not None and law.mechanism.name != "per-sequence kernel cost"
    assert not any("kernels do not batch" in n for n in law.notes)
    assert law.plateau is None or "hard ceiling" not in law.plateau.text


def test_a_gauge_read_between_requests_is_no_cap() -> None:
    """Short requests: the server is seen with 27 of 32, and none waits. That is no missing client."""
    found = told(changed(Server().cells(), 32, server_running_mean=27.0, server_waiting_mean=0.0))
    assert found.name == "per-sequence kernel cost"
    assert any(e.startswith("client cap: the server saw 27.0 of 32") for e in found.excluded)


def test_a_limit_above_the_mean_of_its_gauge_is_named() -> None:
    cells = changed(Server(cap=8).cells(), 32, server_running_mean=6.5, server_waiting_mean=24.0)
    assert "the server was started with --max-num-seqs = 8" in told(cells, **{"--max-num-seqs": 8}).evidence
    assert not any("started with" in e for e in told(cells, **{"--max-num-seqs": 64}).evidence)


def test_a_small_throttle_does_not_explain_a_large_fall() -> None:
    """Throughput falls by a third and the clock by 4 %: whatever it is, it is not the clock."""
    cells = changed(Server(b_s=0.0).cells(), 16, output_tok_s=150.0)
    cells = changed(cells, 32, output_tok_s=100.0, tpot_mean_s=0.07, gpu_sm_clock_mean_mhz=2300.0)
    found = told(cells)
    assert found.name == "not determined"
    assert any(e.startswith("power or thermal throttle: SM clock 2400 -> 2300 MHz") for e in found.excluded)


def queued(**fields: Any) -> list[Cell]:
    """The server ran 10.8 of 16 and 2.5 waited; its decode steps were interrupted."""
    known = {"server_running_mean": 10.8, "server_waiting_mean": 2.5, "icl_p99_s": 15.6 * 0.1, "icl_p50_s": 0.1}
    return changed(Server().cells((1, 2, 4, 8, 16)), 16, **{**known, **fields})


def test_a_queue_below_the_told_limit_is_no_admission_cap() -> None:
    found = told(queued(), 8, 16, max_running=64)
    assert found.name == "prefill cannot keep up"
    said = "2.5 of 16 requests waited, though max_running = 64 lets all 16 run; ICL p99/p50 = 15.6"
    assert found.evidence[0].startswith(said)
    assert any(
        e.startswith("admission cap: the server ran 10.8 of 16 and 2.5 waited, though") for e in found.excluded
    )


@pytest.mark.parametrize(
    "server", [{}, {"max_running": 12}, {"max_running": True}, {"max_num_seqs": 12, "max_batch_size": 64}]
)
def test_the_same_queue_without_a_told_limit_above_it_is_an_admission_cap(server: dict[str, Any]) -> None:
    assert told(queued(), 8, 16, **server).name == "admission cap"


def test_a_full_kv_pool_caps_below_the_told_limit() -> None:
    found = told(queued(kv_usage_max_frac=0.99), 8, 16, **{"--max-num-seqs": 64})
    assert found.name == "admission cap" and "its KV pool was 99% full" in found.evidence[0]


@pytest.mark.parametrize("fields", [{"kv_usage_max_frac": None}, {"icl_p99_s": 0.15}, {"icl_p99_s": None}])
def test_a_queue_with_room_that_nothing_explains_is_not_determined(fields: dict[str, Any]) -> None:
    """TPOT grows in proportion, too: a queue that is not explained does not become a slow kernel."""
    found = told(queued(**fields), 8, 16, max_num_seqs=16)
    assert found.name == "not determined"
    assert any("max_num_seqs = 16 lets all 16 run" in e for e in found.evidence)
