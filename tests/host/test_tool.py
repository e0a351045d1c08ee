"""The tool's own provenance: version, commit, libraries, and an environment without secrets."""

from __future__ import annotations

import subprocess
from pathlib import Path

import dsv4bench
from dsv4bench.host.tool import _git_state, environment, tool


def test_version_and_libraries() -> None:
    found = tool()
    assert found.version == dsv4bench.__version__
    assert found.packages["msgspec"].count(".") >= 1
    assert "no-such-package" not in found.packages


def _git(folder: Path, *args: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(folder), *who, *args], check=True, capture_output=True)


def test_commit_and_dirtiness_of_a_checkout(tmp_path: Path) -> None:
    assert _git_state(tmp_path) == (None, None)
    _git(tmp_path, "init")
    assert _git_state(tmp_path) == (None, None)  # no commit yet
    (tmp_path / "f").write_text("1")
    _git(tmp_path, "add", "f")
    _git(tmp_path, "commit", "-m", "c")
    commit, dirty = _git_state(tmp_path)
    assert commit is not None and len(commit) == 40
    assert dirty is False
    (tmp_path / "f").write_text("2")
    assert _git_state(tmp_path) == (commit, True)


def test_the_environment_is_an_allow_list_without_secrets() -> None:
    env = {
        "NCCL_P2P_LEVEL": "NVL",
        "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK": "128",
        "VLLM_API_KEY": "hush",
        "SGLANG_ADMIN_TOKEN": "hush",
        "DSV4BENCH_API_KEY": "hush",
        "DSV4BENCH_URL": "http://u:hush@h:1",
        "HOME": "/home/hush",
        "AWS_SECRET_ACCESS_KEY": "hush",
    }
    kept = environment(env)
    assert "hush" not in str(kept)
    assert kept["NCCL_P2P_LEVEL"] == "NVL"
    assert kept["SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"] == "128"
    assert kept["VLLM_API_KEY"] == "***"
    assert "DSV4BENCH_API_KEY" not in kept
    assert "HOME" not in kept


def test_home_folders_are_not_told() -> None:
    root = "/" + "root"
    env = {
        "HOME": "/data/ann/",
        "TRITON_CACHE_DIR": "/data/ann/.triton/cache",
        "TRITON_HOME": "/data/ann",
        "VLLM_CACHE_ROOT": f"/home/bob/cache:{root}/x:/Users/eve:/data/annex",
        "CUDA_HOME": "/usr/local/cuda",
        "NCCL_TOPO_FILE": f"file://{root}/topo.xml",
        "TORCH_HOME": f"/srv{root}/torch",
    }
    assert environment(env) == {
        "TRITON_CACHE_DIR": "~/.triton/cache",
        "TRITON_HOME": "~",
        "VLLM_CACHE_ROOT": "~/cache:~/x:~:/data/annex",
        "CUDA_HOME": "/usr/local/cuda",
        "NCCL_TOPO_FILE": "file://~/topo.xml",
        "TORCH_HOME": f"/srv{root}/torch",
    }
    assert environment({"HOME": "/", "TRITON_HOME": "/x"}) == {"TRITON_HOME": "/x"}
