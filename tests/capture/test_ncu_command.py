"""ncu's command line, what it is refused for, and one run of a stand-in for it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from dsv4bench.capture import ncu as room
from dsv4bench.capture.ncu import (
    NcuAsk,
    compute_here,
    metrics_for,
    ncu_command,
    need_ncu,
    refuse_serving,
    refuse_url,
    run_ncu,
)
from dsv4bench.errors import UsageError
from dsv4bench.host.nsight import Nsight
from dsv4bench.host.profiling import CounterRights


def test_the_command_for_named_kernels_of_a_program() -> None:
    ask = NcuAsk(metrics=["a.sum", "b.avg"], kernels="slot_gemv|moe", skip=3, count=20)
    assert ncu_command("/bin/ncu", ask, Path("x.csv"), ["prog", "--csv"]) == [
        *("/bin/ncu", "--clock-control", "none", "--print-units", "base", "--print-fp", "--csv", "--page", "raw"),
        *("--target-processes", "all", "--graph-profiling", "node"),
        *("--kernel-name", "regex:slot_gemv|moe", "--launch-skip", "3", "--launch-count", "20"),
        *("--metrics", "a.sum,b.avg", "--log-file", "x.csv", "prog", "--csv"),
    ]


def test_a_program_that_bounds_its_own_range() -> None:
    command = ncu_command("ncu", NcuAsk(metrics=["a"], by_program=True), Path("x.csv"), ["prog"])
    at = command.index("--profile-from-start")
    assert command[at + 1] == "off"
    assert not {"--kernel-name", "--launch-count", "--launch-skip"} & set(command)


@pytest.mark.parametrize("compute", [(9, 0), (8, 0), (12, 0), None])
def test_elapsed_and_active_and_hfma2_apart(compute: tuple[int, int] | None) -> None:
    metrics = metrics_for(compute)
    assert len(metrics) == len(set(metrics))
    stem = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_"
    assert {stem + "elapsed", stem + "active", "gpu__time_duration.sum"} <= set(metrics)
    assert "dram__throughput.avg.pct_of_peak_sustained_elapsed" in metrics
    assert any("hfma2" in name for name in metrics) == (compute in {(9, 0), (8, 0)})
    assert sum("hgmma_qgmma_cycles_active" in name for name in metrics) == (2 if compute == (9, 0) else 0)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("vllm serve m --tensor-parallel-size 8", r"on 8 GPUs \(--tensor-parallel-size 8\)"),
        ("torchrun --nproc-per-node 2 bench.py", r"on 2 GPUs \(--nproc-per-node 2\)"),
        ("python -m sglang.launch_server --model-path m", "on a server"),
    ],
)
def test_serving_is_refused_with_the_reason(command: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        refuse_serving(command.split())
    assert "--kernels" in caught.value.hint
    assert ("wait for the other ranks" in caught.value.message) == ("GPUs" in caught.value.message)


def test_a_microbenchmark_is_not_refused() -> None:
    refuse_serving(["python", "-m", "dsv4bench.runs.kernels_once", "slot_gemv", "--batch", "16"])
    refuse_serving([])


def test_a_running_server_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot attach to a running server"):
        refuse_url("http://127.0.0.1:30000")


def test_no_ncu_and_no_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "find_ncu", lambda: None)
    with pytest.raises(UsageError, match="ncu is neither on the PATH"):
        need_ncu()
    monkeypatch.setattr(room, "find_ncu", lambda: Nsight("/bin/ncu"))
    monkeypatch.setattr(room, "counter_rights", lambda: CounterRights(restricted=True, admin=False))
    with pytest.raises(UsageError, match="ERR_NVGPUCTRPERM") as caught:
        need_ncu()
    assert "NVreg_RestrictProfilingToAdminUsers=0" in caught.value.hint and "SYS_ADMIN" in caught.value.hint
    monkeypatch.setattr(room, "counter_rights", lambda: CounterRights(restricted=None, admin=False))
    assert need_ncu().path == "/bin/ncu", "what the driver does not say, ncu will"


def ncu(tmp_path: Path, body: str) -> str:
    file = tmp_path / "ncu"
    file.write_text(f"#!{sys.executable}\nimport os, sys, subprocess, time\nwords = sys.argv[1:]\n{body}")
    file.chmod(0o755)
    return str(file)


def test_a_run_says_how_it_ended(tmp_path: Path) -> None:
    body = "open(words[words.index('--log-file') + 1], 'w').write(os.environ['LC_ALL'])\nprint('no GPU')\nsys.exit(3)"
    log = tmp_path / "x.csv"
    ended = run_ncu(ncu(tmp_path, body), NcuAsk(metrics=["a"]), log, ["prog"], 20)
    assert (ended.code, ended.why) == (3, "ncu ended with 3: no GPU")
    assert log.read_text() == "C"


def test_a_run_that_takes_too_long_is_ended_with_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is in a session of its own, as a launcher may put it."""
    monkeypatch.setattr(room, "_SAY_EVERY_S", 0.3)
    pid = tmp_path / "pid"
    sleeper = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    started = f"p = subprocess.Popen({sleeper!r}, start_new_session=True)\n"
    body = f"{started}with open({str(pid)!r}, 'w') as f: f.write(str(p.pid))\np.wait()"
    said: list[str] = []
    begun = time.monotonic()
    ended = run_ncu(ncu(tmp_path, body), NcuAsk(metrics=["a"]), tmp_path / "x.csv", ["prog"], 1.0, said.append)
    assert (ended.code, ended.why) == (None, "ncu was ended after 1 s")
    assert said and time.monotonic() - begun < 15
    stat = Path(f"/proc/{pid.read_text()}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize(("says", "compute"), [("9.0\n9.0", (9, 0)), ("12.0", (12, 0)), ("[N/A]", None), ("", None)])
def test_the_compute_capability_is_asked_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, compute: tuple[int, int] | None
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\nprintf '{says}'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert compute_here() == compute
