"""Each cause of a capture without kernels: one line of cause, one of remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from nsys_made import Made, kernel, process, thread

from dsv4bench.errors import EXIT_UNANSWERABLE, Unanswerable
from dsv4bench.trace.nsys import read_nsys_sqlite

CALL = {"start": 10, "end": 20, "globalTid": thread(), "correlationId": 1}
MOVE = {"start": 3000, "end": 3100, "streamId": 7, "globalPid": process()}
GRAPH = {"start": 5000, "end": 6000, "streamId": 7, "globalPid": process(), "correlationId": 1, "graphId": 4}
DRIVER = (
    "Installed CUDA driver version (13.3) is not supported by this build of Nsight Systems. CUDA trace will be "
    "collected using libraries for driver version 12.9"
)


def refusal(made: Made) -> Unanswerable:
    with pytest.raises(Unanswerable) as caught:
        read_nsys_sqlite(made.done())
    error = caught.value
    assert error.exit_code == EXIT_UNANSWERABLE
    for line in (error.message, error.hint):
        assert line and "\n" not in line
    return error


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "x.sqlite")


def test_a_driver_newer_than_nsys(made: Made) -> None:
    made.diagnostics("CUDA injection initialized successfully.", DRIVER)
    made.calls(CALL | {"nameId": 13})
    error = refusal(made)
    assert "driver (13.3) is newer than this nsys, which knows drivers up to CUDA 12.9" in error.message
    assert "nsys at least as new as the driver" in error.hint


def test_cuda_was_not_traced(made: Made) -> None:
    made.capture(("CAPTURE_EVENT_TYPE", "NvtxEvents"), ("CAPTURE_EVENT_TYPE", "OSRuntime"))
    error = refusal(made)
    assert "CUDA was not among the traced events" in error.message
    assert "-t cuda,nvtx" in error.hint


def test_launches_on_the_host_only(made: Made) -> None:
    made.calls(CALL | {"nameId": 10}, CALL | {"nameId": 11}, CALL | {"nameId": 12})
    error = refusal(made)
    assert "2 kernel launches were recorded on the host and no kernel" in error.message
    assert "flushed" in error.hint


def test_the_client_started_the_profiler(made: Made) -> None:
    made.calls(CALL | {"nameId": 14}, CALL | {"nameId": 13})
    error = refusal(made)
    assert "called cudaProfilerStart launched nothing" in error.message
    assert "/start_profile" in error.hint


def test_calls_but_no_launch(made: Made) -> None:
    made.calls(CALL | {"nameId": 13})
    assert "1 CUDA calls were recorded and none of them launches" in refusal(made).message


def test_profiling_never_started(made: Made) -> None:
    made.diagnostics(
        "CUDA profiling might have not been started correctly.",
        "No CUDA events collected. Does the process use CUDA?",
    )
    assert "never started" in refusal(made).message


def test_the_wrong_process(made: Made) -> None:
    made.diagnostics("No CUDA events collected. Does the process use CUDA?")
    error = refusal(made)
    assert "made no CUDA call" in error.message
    assert "--trace-fork-before-exec=true" in error.hint


def test_an_old_export_that_explains_nothing(made: Made) -> None:
    made.rows("ThreadNames", "nameId priority globalTid", {"nameId": 1, "globalTid": thread()})
    assert "made no CUDA call" in refusal(made).message


def test_old_exports_create_their_tables_empty(made: Made) -> None:
    made.kernels()
    made.calls()
    made.graphs()
    assert "holds no event at all" in refusal(made).message


def test_copies_and_memsets_only_are_given_with_the_cause(made: Made) -> None:
    made.memsets(MOVE)
    (trace,) = read_nsys_sqlite(made.done())
    assert len(trace) == 1
    assert trace.warnings[0].startswith("the only device activity is 1 copies or memsets")


def test_graph_level_tracing_beside_kernels(made: Made) -> None:
    made.kernels(kernel(1000, 1500))
    made.graphs(GRAPH, GRAPH | {"start": 7000, "end": 7500}, GRAPH | {"start": 0, "end": 0})
    made.calls(CALL | {"nameId": 11})
    (trace,) = read_nsys_sqlite(made.done())
    assert trace.graph_runs.start_ns.tolist() == [5000, 7000]
    assert trace.graph_runs.graph_id.tolist() == [4, 4]
    assert trace.graph_runs.device.tolist() == [0, 0]
    assert "3 CUDA-graph launches are opaque" in trace.warnings[0]
    assert "--cuda-graph-trace=node" in trace.warnings[0]
    assert trace.warnings[1].startswith("1 graph launches have no time")
    assert len(trace.warnings) == 2


def test_opaque_graphs_alone_are_an_answer(made: Made) -> None:
    made.graphs(GRAPH)
    (trace,) = read_nsys_sqlite(made.done())
    assert (len(trace), len(trace.graph_runs.start_ns)) == (0, 1)
    assert "--cuda-graph-trace=node" in trace.warnings[0]
    assert set(trace.devices) == {0}


def test_a_new_driver_and_lost_buffers_beside_kernels(made: Made) -> None:
    made.kernels(kernel(1000, 1500))
    made.diagnostics(DRIVER, "CUPTI buffers: 49 of 50. Some CUPTI events might be missing.")
    (trace,) = read_nsys_sqlite(made.done())
    assert "kernels may be missing" in trace.warnings[0]
    assert "CUPTI buffers were not all returned" in trace.warnings[1]
