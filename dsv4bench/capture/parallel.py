"""How many GPUs a command spreads one model over, by its own arguments: TP × PP × DP, or the launcher's processes.

It decides whether a trace has kernels of every GPU, and that ncu stays away from kernels that wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

_TENSOR = ("--tp", "-tp", "--tp-size", "--tensor-parallel-size", "--tensor_parallel_size")
_PIPELINE = ("--pp", "-pp", "--pp-size", "--pipeline-parallel-size", "--pipeline_parallel_size")
_DATA = ("--dp", "-dp", "--dp-size", "--data-parallel-size", "--data_parallel_size")
_PROCESSES = ("--nproc-per-node", "--nproc_per_node")
_MPI = ("mpirun", "mpiexec", "srun")
_MPI_PROCESSES = ("-n", "-np", "--np", "--ntasks")
_DP_WITHIN_TP = "--enable-dp-attention"  # SGLang: its data-parallel groups share the tensor-parallel GPUs
_ARGS = (
    ("tp_size", "tensor_parallel_size"),
    ("pp_size", "pipeline_parallel_size"),
    ("dp_size", "data_parallel_size"),
)
_SERVING = ("vllm", "sglang", "dsv4bench", "transformers")  # programs with a verb `serve`
_SERVERS = (
    "sglang.launch_server",
    "sglang_router",
    "vllm.entrypoints",
    "trtllm-serve",
    "llama-server",
    "tritonserver",
)


class Ranks(msgspec.Struct, frozen=True):
    """`told_by`: the arguments that say so, empty for one GPU."""

    count: int
    told_by: str = ""


def ranks_of(command: Sequence[str]) -> Ranks:
    """Of a command line; one GPU where nothing says otherwise."""
    launcher = next((Path(w).name for w in command if not w.startswith("-") and "=" not in w), "")
    asked = [_PROCESSES, _MPI_PROCESSES] if launcher in _MPI else [_PROCESSES]
    for names in asked:
        found = _value(command, names)
        if found is not None and found[1] > 1:
            return Ranks(found[1], found[0])
    degrees = [_TENSOR, _PIPELINE] + ([] if _DP_WITHIN_TP in command else [_DATA])
    told = [found for names in degrees if (found := _value(command, names)) is not None and found[1] > 1]
    return _product(told)


def ranks_of_args(args: Mapping[str, Any] | None) -> Ranks:
    """Of what a live server says about itself (`ServerInfo.args`)."""
    args = args or {}
    kinds = _ARGS[:2] if args.get("enable_dp_attention") else _ARGS
    told = []
    for names in kinds:
        for name in names:
            value = args.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 1:
                told.append((f"{name}={value}", value))
                break
    return _product(told)


def is_server(command: Sequence[str]) -> bool:
    """Whether a command line starts a server, which does not end by itself."""
    words = [Path(w).name for w in command]
    serves = any(program in _SERVING and verb == "serve" for program, verb in pairwise(words))
    return serves or any(word.startswith(_SERVERS) for word in words)


def _product(told: Sequence[tuple[str, int]]) -> Ranks:
    count = 1
    for _, value in told:
        count *= value
    return Ranks(count, " ".join(text for text, _ in told))


def _value(command: Sequence[str], names: Sequence[str]) -> tuple[str, int] | None:
    """`--tp 8` or `--tp=8`, as it was written, and its number; the last one counts, as in argparse."""
    found = None
    for i, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name not in names:
            continue
        value = value if equals else (command[i + 1] if i + 1 < len(command) else "")
        if value.isascii() and value.isdigit():
            found = (f"{name} {value}", int(value))
    return found
