"""`profile --with ncu`: counters of named kernels through a stand-in for ncu, joined to a trace by name and grid."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from profile_traces import write_trace

from dsv4bench.attribution.counters import judge
from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.host.nsight import Nsight
from dsv4bench.runs import profile_ncu
from dsv4bench.runs.profile_captures import captures_of
from dsv4bench.runs.profile_inputs import read_inputs, trace_files
from dsv4bench.runs.profile_ncu import NcuOptions, NcuProfile, run_profile_ncu
from dsv4bench.runs.profile_plan import PlanOptions
from dsv4bench.scenario.rules import load_rules

RECORDED = Path(__file__).parents[1] / "data" / "ncu_h200_hfma2.csv"
GEMV, DOT = 3, 4  # ids there: a reduction on CUDA cores, and a kernel of MMA


def rows(*kernels: int, marked: bool) -> str:
    """Launches as an H200's ncu wrote them, by their ids there; behind markers, as our own process has them."""
    lines = RECORDED.read_text().splitlines()
    found = [next(line for line in lines if line.startswith('"ID"'))]
    spare = next(line for line in lines if line.startswith(f'"{GEMV}"')).replace("gemv_sum_kernel", "_add_up")
    for i, kernel in enumerate(kernels):
        found += [spare.replace(f'"{GEMV}"', f'"{900 + i}"', 1)] if marked else []
        found += [line.replace(f'"{kernel}"', f'"{i}"', 1) for line in lines if line.startswith(f'"{kernel}"')]
    return "\n".join(found) + "\n"


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in's file; `says` fills it."""
    file = tmp_path / "ncu"
    monkeypatch.setattr(profile_ncu, "need_ncu", lambda: Nsight(str(file), (2025, 3, 1)))
    monkeypatch.setattr(profile_ncu, "compute_here", lambda: (9, 0))
    return file


def says(ncu: Path, log: str, answer: dict[str, object] | None = None, code: int = 0) -> None:
    """An `ncu` that writes these rows, and what our process under it would have answered; it keeps its command."""
    ncu.write_text(
        f"#!{sys.executable}\nimport json, sys\nwords = sys.argv[1:]\n"
        f"json.dump(words, open({str(ncu)!r} + '.asked', 'w'))\n"
        f"open(words[words.index('--log-file') + 1], 'w').write({log!r})\n"
        + (f"open(words[-1], 'w').write({json.dumps(answer)!r})\n" if answer is not None else "")
        + f"sys.exit({code})\n"
    )
    ncu.chmod(0o755)


def asked(ncu: Path) -> list[str]:
    found: list[str] = json.loads(Path(f"{ncu}.asked").read_text())
    return found


def run(**options: object) -> NcuProfile:
    return run_profile_ncu(NcuOptions(**options), lambda _: None)  # type: ignore[arg-type]


def begun(*targets: tuple[str, int]) -> list[dict[str, object]]:
    return [{"kernel": name, "batch": batch} for name, batch in targets]


def test_bundled_kernels_are_called_once_at_every_batch(ncu: Path) -> None:
    targets = begun(("slot_gemv", 1), ("slot_gemv", 16), ("grouped_moe", 1))
    missed = [[{"kernel": "grouped_moe", "batch": 16}, "out of memory"]]
    says(ncu, rows(GEMV, GEMV, DOT, marked=True), {"begun": targets, "missed": missed})
    found = run(kernels="grouped_moe,slot_gemv", batches=[1, 16])
    assert [(c.file, c.label) for c in found.counters] == [
        ("ncu of slot_gemv at 1", "c1"),
        ("ncu of slot_gemv at 16", "c16"),
        ("ncu of grouped_moe at 1", "c1"),
    ]
    assert [judge(c.rows[0]).unit for c in found.counters] == ["cuda", "cuda", "tensor"]
    assert found.warnings == ["no counters of grouped_moe at 16: out of memory"]
    words = asked(ncu)
    assert words[words.index("--profile-from-start") + 1] == "off" and "--launch-count" not in words
    metrics = words[words.index("--metrics") + 1]
    assert "_op_hmma_type_hfma2.sum" in metrics and "sustained_active" in metrics and "sustained_elapsed" in metrics


def test_counters_join_a_trace_by_name_and_grid_and_leave_its_times(ncu: Path, tmp_path: Path) -> None:
    says(ncu, rows(DOT, marked=True), {"begun": begun(("grouped_moe", 16)), "missed": []})
    counters = run(kernels="grouped_moe", batches=[16]).counters
    (row,) = counters[0].rows
    trace = write_trace(tmp_path / "c16.json", kernels_us={"dot_kernel": 40.0}, grid=row.grid)
    other = write_trace(tmp_path / "other.json", kernels_us={"dot_kernel": 40.0}, grid=(1, 2, 3))
    inputs = read_inputs(trace_files([f"c16={trace}", f"other={other}"]))
    inputs.counters += counters
    captures, _ = captures_of(inputs, load_rules([]), {}, PlanOptions())
    with_counters, without = (c.devices[0].rows[0] for c in captures)
    assert (with_counters.runs_on, with_counters.evidence) == ("tensor", "counter")
    assert with_counters.time_ns == 14 * 40_000, "of the trace, not of ncu"
    assert without.evidence != "counter"


def test_a_program_of_the_users(ncu: Path) -> None:
    says(ncu, rows(GEMV, DOT, marked=False))
    found = run(launch="python bench.py --m 16", kernels="gemv, dot_.*", launch_count=2, launch_skip=5)
    assert [(c.file, c.label, len(c.rows)) for c in found.counters] == [("ncu of python", None, 2)]
    assert found.warnings == ["the first 2 launches only: raise --launch-count, or name --kernels"]
    words = asked(ncu)
    assert words[words.index("--kernel-name") + 1] == "regex:gemv|dot_.*"
    assert words[words.index("--launch-count") + 1] == "2" and words[words.index("--launch-skip") + 1] == "5"
    assert "--profile-from-start" not in words and words[-4:] == ["python", "bench.py", "--m", "16"]


def test_a_program_that_fails_keeps_what_was_counted(ncu: Path) -> None:
    says(ncu, rows(GEMV, marked=False), code=9)
    found = run(launch="./bench")
    assert len(found.counters) == 1 and found.warnings == ["ncu ended with 9: launches may be missing"]


@pytest.mark.parametrize("launch", [None, "./bench"])
def test_no_permission_gives_the_remedy(ncu: Path, launch: str | None) -> None:
    answer: dict[str, object] | None = {"begun": [], "missed": []} if launch is None else None
    says(ncu, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access\n", answer)
    with pytest.raises(Unanswerable, match="ERR_NVGPUCTRPERM") as caught:
        run(kernels="slot_gemv", launch=launch)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in caught.value.message + caught.value.hint


def test_an_ncu_that_writes_nothing(ncu: Path) -> None:
    ncu.write_text("#!/bin/sh\necho '==ERROR== broken'\nexit 1\n")
    ncu.chmod(0o755)
    with pytest.raises(Unanswerable, match="ncu wrote nothing: ncu ended with 1: ==ERROR== broken"):
        run(launch="./bench")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "--with ncu without kernels"),
        ({"kernels": "slot_gemv", "batches": []}, "without a batch"),
        ({"kernels": "slot_gemv", "batches": [0]}, "without a batch"),
        ({"kernels": "no_such"}, "'no_such' is unknown"),
        ({"launch": " "}, "--launch is empty"),
        ({"launch": "vllm serve m --tp 8"}, "on 8 GPUs"),
        ({"launch": "vllm serve m"}, "on a server"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_ncu_runs(ncu: Path, options: dict[str, object], message: str) -> None:
    says(ncu, "")
    with pytest.raises(UsageError, match=message):
        run(**options)
    assert not Path(f"{ncu}.asked").exists()
