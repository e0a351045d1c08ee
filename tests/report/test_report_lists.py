"""The smaller tables: metrics, experiments, one experiment's header, the selftest's errors."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from report_cells import printed

from dsv4bench.metrics import METRICS
from dsv4bench.records.experiment import Experiment, IndexEntry, Machine, Status, Tool
from dsv4bench.records.selftest import SelftestDocument, SelftestLevel
from dsv4bench.records.server import Engine, ServerInfo
from dsv4bench.records.workload import Plan, Workload
from dsv4bench.report.definitions import metrics_table
from dsv4bench.report.experiments import experiments_table, header_lines
from dsv4bench.report.selftest import selftest_table


def test_every_metric_is_listed_with_unit_direction_and_definition() -> None:
    lines = printed(metrics_table(METRICS), width=600).splitlines()
    assert lines[0].split()[:4] == ["metric", "unit", "better", "δ"]
    rows = {line.split()[0]: line for line in lines[1:]}
    assert set(rows) == {m.name for m in METRICS}
    for m in METRICS:
        row = rows[m.name]
        assert m.definition in row and m.peers in row and m.unit in row
        assert (m.direction in row.split()[2:4]) == (m.direction != "none")
        if m.delta_frac is not None:
            assert f" {m.delta_frac:.0%} " in row


def test_a_list_of_experiments() -> None:
    entry = IndexEntry(
        id="20261201T000000Z-sweep-baseline-12ab",
        config="baseline",
        scenario="sweep",
        status=Status.COMPLETE,
        started_utc="2026-12-01T00:00:00.000Z",
        engine="vllm",
        model="org/[model]",
        n_cells=15,
        workload_fingerprint="w:1",
    )
    assert printed(experiments_table([entry])) == (
        "id                                    config    status    cells  engine  model\n"
        "20261201T000000Z-sweep-baseline-12ab  baseline  complete     15  vllm    org/[model]"
    )


@pytest.fixture
def experiment() -> Experiment:
    workload = Workload(
        endpoint="completions", dataset="random", prompt_kind="token_ids", isl=[1024, 8192], osl=256, seed=7
    )
    return Experiment(
        id="20261201T000000Z-sweep-configB-12ab",
        scenario="sweep",
        config="configB",
        status=Status.ABORTED,
        reason="interrupted",
        started_utc="2026-12-01T00:00:00.000Z",
        workload=workload,
        workload_fingerprint="w:abc",
        plan=Plan(concurrency=[1], isl=[1024, 8192]),
        server=ServerInfo(url="http://h:8000", engine=Engine.VLLM, version="0.32.0", model="m"),
        launches={"L0": None, "L1": 2.0},
        machine=Machine(cpu="x86", cores=16, memory_bytes=1, os="l", kernel="6", python="3.12", hostname_sha256="ab"),
        server_on_this_host=False,
        tool=Tool(version="0.1.0"),
    )


def test_a_header_says_who_what_where_and_how_it_ended(experiment: Experiment) -> None:
    text = "\n".join(header_lines(experiment))
    for said in (
        "20261201T000000Z-sweep-configB-12ab: aborted (interrupted)",
        "config configB",
        "vllm 0.32.0 on another host, model m",
        "launches 2",
        "ISL 1024,8192, OSL 256, seed 7, workload w:abc",
        "client x86, 16 cores, no GPU here; dsv4bench 0.1.0",
    ):
        assert said in text
    assert "lever" not in text


def test_a_header_names_the_lever_and_its_parent(experiment: Experiment) -> None:
    def header(**fields: Any) -> str:
        return "\n".join(header_lines(msgspec.structs.replace(experiment, **fields)))

    assert "lever mtp on baseline" in header(lever="mtp", parent="baseline")
    assert "lever mtp on no parent named" in header(lever="mtp")
    assert header(status=Status.COMPLETE, reason=None).splitlines()[0].endswith("-12ab: complete")


def test_the_selftests_errors_are_in_microseconds() -> None:
    level = SelftestLevel(
        concurrency=16,
        tokens=4800,
        timestamps="kernel",
        icl_error_p50_s=4.2e-6,
        icl_error_p99_s=38.3e-6,
        ttft_error_p50_s=20e-6,
        ttft_error_p99_s=70e-6,
        icl_error_user_p50_s=31e-6,
        icl_error_user_p99_s=0.0021,
        client_lag_p50_s=30e-6,
        client_lag_p99_s=0.0031,
        achieved_frac=0.9987,
        cpu_us_per_token=14.26,
        merged_reads_frac=0.0,
        server_late_p99_s=0.0123,
        server_was_limit=True,
    )
    none = msgspec.structs.replace(level, concurrency=1, achieved_frac=None, cpu_us_per_token=None,
                                   icl_error_p50_s=None, server_was_limit=False)  # fmt: skip
    document = SelftestDocument(ttft_s=0.05, itl_s=0.02, tokens=100, levels=[level, none], notes=[])
    _, first, second = printed(selftest_table(document)).splitlines()
    assert first.split() == [
        *("16", "kernel", "4.2", "38.3", "20.0", "70.0", "31.0", "2100.0", "3100.0", "0.999", "14.3"),
        *("12300.0", "LIMIT"),
    ]
    assert (
        second.split()[:3] == ["1", "kernel", "–"] and "LIMIT" not in second and second.split()[-3:-1] == ["–", "–"]
    )
