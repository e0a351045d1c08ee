"""Kernels of every GPU, or what is said about the others; and how many GPUs a command asks for."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dsv4bench.capture.nsys_gpus import gpus_with_kernels, missing_gpus
from dsv4bench.capture.parallel import Ranks, is_server, ranks_of, ranks_of_args

PID = 1 << 24  # in a globalPid


def export(
    path: Path,
    kernels: list[tuple[int, int]],
    graphs: tuple[tuple[int, int], ...] = (),
    gpus: tuple[tuple[int, int, int], ...] = (),
) -> Path:
    """(pid, CUDA ordinal) of kernels and graph launches; (GPU, CUDA ordinal, pid) of the map."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, deviceId INTEGER, globalPid INTEGER)")
        db.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, ?, ?)", [(d, p * PID | (7 << 48)) for p, d in kernels]
        )
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (deviceId INTEGER, globalPid INTEGER)")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (9, 1)")
        if graphs:
            db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (deviceId INTEGER, globalPid INTEGER)")
            db.executemany(
                "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?)", [(d, p * PID) for p, d in graphs]
            )
        if gpus:
            db.execute("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER)")
            db.executemany("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, ?, ?)", gpus)
        db.commit()
    return path


def test_kernels_and_graphs_count_and_copies_do_not(tmp_path: Path) -> None:
    assert gpus_with_kernels(export(tmp_path / "x", [(5, 0), (5, 0), (5, 2)], ((5, 4),))) == {0, 2, 4}


def test_the_ordinal_is_a_process_own(tmp_path: Path) -> None:
    """Two workers that each see one GPU, as number 0."""
    file = export(tmp_path / "x", [(5, 0), (6, 0)], gpus=((2, 0, 5), (3, 0, 6)))
    assert gpus_with_kernels(file) == {2, 3} and missing_gpus(file, Ranks(2, "--tp 2")) is None


def test_a_gpu_without_kernels_is_said(tmp_path: Path) -> None:
    said = missing_gpus(export(tmp_path / "x", [(5, 0), (6, 1)]), Ranks(4, "--tp 4"))
    assert said is not None and said.startswith("kernels of 2 of 4 GPUs only (GPU 0, 1; --tp 4)")
    assert "VLLM_WORKER_MULTIPROC_METHOD=spawn" in said


def test_what_is_not_judged_here(tmp_path: Path) -> None:
    """One GPU; no kernel at all, whose cause the reader finds; and what is no export."""
    assert missing_gpus(export(tmp_path / "one", [(5, 3)]), Ranks(1)) is None
    assert missing_gpus(export(tmp_path / "none", []), Ranks(4, "--tp 4")) is None
    (tmp_path / "text").write_text("text")
    assert gpus_with_kernels(tmp_path / "text") == gpus_with_kernels(tmp_path / "nowhere") == set()
    with closing(sqlite3.connect(tmp_path / "old")) as db:
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (deviceId INTEGER)")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1)")
        db.commit()
    assert gpus_with_kernels(tmp_path / "old") == {1}


@pytest.mark.parametrize(
    ("command", "count", "told_by"),
    [
        ("vllm serve m", 1, ""),
        ("vllm serve m --tensor-parallel-size 8", 8, "--tensor-parallel-size 8"),
        ("vllm serve m -tp=4 --pipeline-parallel-size 2", 8, "-tp 4 --pipeline-parallel-size 2"),
        ("vllm serve m --data-parallel-size 2 --tp 1", 2, "--data-parallel-size 2"),
        ("python -m sglang.launch_server --tp 4 --dp 4 --enable-dp-attention", 4, "--tp 4"),
        ("python -m sglang.launch_server --tp 2 --tp-size 4", 4, "--tp-size 4"),
        ("torchrun --nproc-per-node=2 bench.py", 2, "--nproc-per-node 2"),
        ("mpirun -np 8 ./bench", 8, "-np 8"),
        ("mpirun ./bench --tp 2", 2, "--tp 2"),
        ("./bench -n 8", 1, ""),  # whatever it means there
        ("NCCL_DEBUG=INFO srun --ntasks=4 x", 4, "--ntasks 4"),
        ("vllm serve m --tp auto", 1, ""),
        ("vllm serve m --tp", 1, ""),
    ],
)
def test_ranks_by_the_arguments(command: str, count: int, told_by: str) -> None:
    assert ranks_of(command.split()) == Ranks(count, told_by)


@pytest.mark.parametrize(
    ("args", "count"),
    [
        (None, 1),
        ({"tp_size": 8}, 8),
        ({"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, 4),
        ({"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}, 4),
        ({"tp_size": 4, "dp_size": 2, "enable_dp_attention": False}, 8),
        ({"tp_size": "4", "dp_size": None, "pp_size": True}, 1),
    ],
)
def test_ranks_by_what_a_server_says(args: dict[str, object] | None, count: int) -> None:
    assert ranks_of_args(args).count == count


@pytest.mark.parametrize(
    ("command", "serves"),
    [
        ("vllm serve m", True),
        ("/usr/bin/vllm serve m", True),
        ("python -m dsv4bench serve --device cuda", True),
        ("python -m sglang.launch_server --model m", True),
        ("python -m vllm.entrypoints.openai.api_server", True),
        ("trtllm-serve m", True),
        ("vllm bench latency", False),
        ("python bench.py serve", False),
        ("python -m dsv4bench.runs.kernels_once slot_gemv", False),
    ],
)
def test_a_server_is_known_by_its_command(command: str, serves: bool) -> None:
    assert is_server(command.split()) == serves
