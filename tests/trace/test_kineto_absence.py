"""Traces without kernels: one line of cause, one of remedy, exit code 4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kineto_made import document, event, kernel, write

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.trace.kineto import read_kineto

HOST = event("cpu_op", "aten::mm", 1, 1)
LAUNCH = event("cuda_runtime", "cudaLaunchKernel", 1, 1, correlation=1)
META = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}

CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "an empty rank": ([], {}, "its rank ran nothing"),
    "names of rows only": ([META], {}, "its rank ran nothing"),
    "a process without a GPU": ([HOST], {"deviceProperties": []}, "saw no GPU"),
    "a capture of the host": ([HOST], {}, "recorded no GPU activity"),
    "launches without kernels": ([HOST, LAUNCH], {}, "1 launches and not one kernel"),
    "a graph capture": ([LAUNCH, event("cuda_runtime", "cudaStreamEndCapture", 2, 1)], {}, "graph capture"),
    "counters": ([event("cuda_profiler_range", "k", 1, 1), LAUNCH], {}, "CUPTI counters"),
    "another accelerator": ([event("mtia_ccp_events", "k", 1, 1)], {}, "another accelerator (category mtia_ccp"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_told(tmp_path: Path, case: str) -> None:
    events, head, cause = CASES[case]
    with pytest.raises(Unanswerable) as refused:
        read_kineto(write(tmp_path, document(events, **head)))
    assert cause in refused.value.message
    assert "\n" not in refused.value.message + refused.value.hint
    assert refused.value.hint
    assert refused.value.exit_code == 4


def test_json_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(Unanswerable, match="no traceEvents"):
        read_kineto(write(tmp_path, '{"a": 1}'))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing\.json"):
        read_kineto(tmp_path / "nothing.json")


def test_a_capture_in_which_two_kernels_ran_is_read_with_a_warning(tmp_path: Path) -> None:
    events = [LAUNCH] * 40 + [event("cuda_runtime", "cudaStreamEndCapture", 2, 1), kernel("k", 3, 1)]
    trace = read_kineto(write(tmp_path, document(events)))
    assert len(trace) == 1
    assert any("captured here, not replayed" in line for line in trace.warnings)


def test_copies_alone_are_read_with_a_warning(tmp_path: Path) -> None:
    trace = read_kineto(write(tmp_path, document([event("gpu_memcpy", "Memcpy", 1, 1, 0, 7)])))
    assert len(trace) == 1
    assert any("no kernel" in line for line in trace.warnings)
