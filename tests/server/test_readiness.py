"""A server is ready when it generates; everything else is one clear error, with the log's end and likely cause."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dsv4bench.records.workload import Endpoint
from dsv4bench.server import readiness
from dsv4bench.server.group import LaunchFailed, Part, launch_group
from dsv4bench.server.launch import free_port
from dsv4bench.server.readiness import Ready, phases, wait_generating

STUB = Path(__file__).parent / "stub_server.py"


def wait(
    folder: Path,
    mode: str,
    *,
    slow: float = 1.0,
    timeout_s: float = 60.0,
    model: str | None = None,
    endpoint: Endpoint = "completions",
) -> Ready:
    port = free_port()
    url, log = f"http://127.0.0.1:{port}", folder / "server.log"
    part = Part("server", [sys.executable, str(STUB), str(port), mode, str(slow)], {}, url, None, log)
    with launch_group([part]) as group:
        return wait_generating(group, timeout_s, model=model, endpoint=endpoint)


def failure(folder: Path, mode: str, timeout_s: float = 60.0) -> LaunchFailed:
    with pytest.raises(LaunchFailed) as failed:
        wait(folder, mode, timeout_s=timeout_s)
    error = failed.value
    assert "\n" not in error.message and "hush-hush" not in error.hint
    return error


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_ready_is_two_generations(tmp_path: Path, endpoint: Endpoint) -> None:
    ready = wait(tmp_path, "ok", endpoint=endpoint)
    assert ready.ready_s >= ready.first_generation_s > 0 and ready.second_generation_s > 0
    assert ready.notes == []


def test_a_slow_first_generation_is_a_compile_at_first_use(tmp_path: Path) -> None:
    ready = wait(tmp_path, "slow-first", slow=2.0)
    assert ready.ready_s > ready.first_generation_s > 2.0
    said = f"the first generation took {ready.first_generation_s:.2f} s, the second {ready.second_generation_s:.2f} s"
    assert said in ready.notes[0] and "in between: DeepGEMM" in ready.notes[0]
    assert ready.notes[1] == "log: DeepGEMM compiled or warmed up (1 line)"


def test_a_server_that_says_503_for_a_while_is_waited_for(tmp_path: Path) -> None:
    assert wait(tmp_path, "loading", slow=1.5).ready_s > 1.5


def test_a_prompt_of_token_ids_where_text_is_refused(tmp_path: Path) -> None:
    assert wait(tmp_path, "refusing", model="stub").first_generation_s > 0


def test_a_server_that_dies(tmp_path: Path) -> None:
    error = failure(tmp_path, "die")
    assert error.reason.startswith("the server exited with code 3 before it was ready: ")
    assert error.cause is not None and "sees no GPU" in error.cause
    assert "No CUDA GPUs are available" in error.log_tail and str(tmp_path / "server.log") in error.hint


def test_a_server_that_hangs_in_its_start(tmp_path: Path) -> None:
    error = failure(tmp_path, "hang", timeout_s=1.0)
    assert "the server was not healthy at http://127.0.0.1:" in error.reason and "/health: " in error.reason
    assert error.cause is None and "loading weights" in error.log_tail


def test_a_server_on_another_port(tmp_path: Path) -> None:
    error = failure(tmp_path, "elsewhere", timeout_s=1.5)
    assert "its log speaks of port 4242: does its command use {port}?" in error.reason


def test_a_server_that_is_healthy_and_never_generates(tmp_path: Path) -> None:
    error = failure(tmp_path, "mute", timeout_s=5.0)
    assert "is healthy and has not generated a token within" in error.reason and "no answer within" in error.reason


def test_a_server_that_dies_in_the_first_generation(tmp_path: Path) -> None:
    error = failure(tmp_path, "forgetful")
    assert "the server exited with code 1" in error.reason
    assert error.cause is not None and "GPU memory ran out" in error.cause


def test_a_server_that_answers_errors_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "GIVE_UP_S", 0.6)
    error = failure(tmp_path, "broken")
    assert "cannot generate: /v1/completions answered 500 (EngineDeadError), again and again" in error.reason


def test_an_error_with_status_200_is_no_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "GIVE_UP_S", 0.6)
    error = failure(tmp_path, "error-200")
    assert "answered 200 with an error: Token id 4 is out of vocabulary" in error.reason


def test_a_server_that_wants_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSV4BENCH_API_KEY", raising=False)
    assert "answers 401 to a request: no key was sent (DSV4BENCH_API_KEY)" in failure(tmp_path, "keyed").reason


def test_a_server_without_the_endpoint(tmp_path: Path) -> None:
    error = failure(tmp_path, "chat-only")
    assert "does not serve /v1/completions for the model 'stub'" in error.reason and "endpoint: chat" in error.reason
    assert wait(tmp_path, "chat-only", endpoint="chat").first_generation_s > 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|##| 67/67", "CUDA graphs were captured"),
        ("[2026-06-01 TP0] Capture cuda graph begin. This can take up to several minutes.", "CUDA graphs"),
        ("INFO [monitor.py:34] torch.compile takes 31.10 s in total", "torch.compile compiled"),
        ("INFO [backends.py:559] Dynamo bytecode transform time: 8.2 s", "torch.compile compiled"),
        ("Entering DeepGEMM JIT Pre-Compile session. It may take a long time", "DeepGEMM"),
        ("DeepGEMM warmup:  40%|####", "DeepGEMM"),
        ("[TileLang] INFO: TileLang begins to compile kernel `mhc_pre_big_fuse`", "tilelang compiled"),
        ("[AutoTuner]: Autotuning process starts ...", "FlashInfer"),
        ("flashinfer.jit: Loading JIT ops: sparse_mla_sm120", "FlashInfer"),
        ("Triton autotuning for function _w8a8_block_fp8_matmul finished", "Triton"),
    ],
)
def test_phases_of_warming_up_are_told_by_the_log(line: str, said: str) -> None:
    found = phases(f"loading\n{line}\nready\n")
    assert any(said in note for note in found), found


def test_harmless_lines_are_no_warm_up() -> None:
    config = (
        "config: backend='triton', compilation_config={'mode': 0, 'cudagraph_mode': 'NONE'}, flashinfer_jit_dir=None"
    )
    log = f"loading\n{config}\nUsing Triton attention backend\nTriton is not installed or not compatible\nready\n"
    assert phases(log) == []
