"""Levers looked for on processes of this host: environment of the server and of its workers, and no secret shown."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsv4bench.host.environs import variables_of
from dsv4bench.records.campaign import LeverLive, Live
from dsv4bench.records.server import Engine, ServerInfo
from dsv4bench.runs.campaign_live import check
from dsv4bench.scenario.launched import ConfigSpec, LiveSpec

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")

# listens, and has a worker that was started with one variable more; both end when stdin closes
SERVER = """
import os, socket, subprocess, sys
worker = subprocess.Popen(
    [sys.executable, "-c", "print(flush=True); input()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "ONLY_WORKERS": "w", "BOTH": "worker"},
)
worker.stdout.readline()
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
input()
worker.communicate(b"\\n")
"""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[int, int]]:
    """(port, pid)"""
    env = {**os.environ, "NCCL_PROTO": "LL", "BOTH": "server", "HF_TOKEN": "hf_abcdefghijklmnopqrstuv"}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
    )
    assert process.stdout is not None
    yield int(process.stdout.readline()), process.pid
    process.communicate("\n")


def looked(spec: LiveSpec, args: dict[str, Any] | None = None, **sources: Any) -> LeverLive:
    config = ConfigSpec(name="B", parent="A", lever="mtp", launch="serve", live=spec)
    info = ServerInfo(url="http://127.0.0.1:1", engine=Engine.VLLM, model="m", args=args)
    return check(config, info, **({"port": None, "log_text": None, "kernel_names": None} | sources))


@pytest.mark.parametrize(
    ("name", "value", "state", "seen"),
    [
        ("NCCL_PROTO", "LL", Live.LIVE, "NCCL_PROTO=LL"),
        ("NCCL_PROTO", "Simple", Live.NOT_LIVE, "NCCL_PROTO=LL"),
        ("ONLY_WORKERS", "w", Live.LIVE, "ONLY_WORKERS=w"),
        ("BOTH", "server", Live.LIVE, "BOTH=server"),  # the server's own comes first
        ("SET_NOWHERE", "1", Live.NOT_LIVE, "SET_NOWHERE is not set"),
    ],
)
def test_environment(server: tuple[int, int], name: str, value: str, state: Live, seen: str) -> None:
    found = looked(LiveSpec(env={name: value}), port=server[0])
    assert (found.state, found.checks[0].seen) == (state, seen)


def test_only_what_was_asked_for_is_read(server: tuple[int, int]) -> None:
    assert variables_of(server[1], ["BOTH"]) == {"BOTH": "server"}
    assert variables_of(server[1], []) == {}


def test_secrets_are_not_shown(server: tuple[int, int]) -> None:
    found = looked(LiveSpec(env={"HF_TOKEN": "hf_abcdefghijklmnopqrstuv"}), port=server[0])
    assert found.state is Live.LIVE
    assert "hf_abcdefghijklmnopqrstuv" not in repr(found)
    logged = looked(LiveSpec(log=["ready"]), log_text="ready with Bearer abcdef0123456789")
    assert logged.checks[0].seen == "ready with Bearer ***"


def test_a_process_that_cannot_be_looked_at(server: tuple[int, int], tmp_path: Path) -> None:
    spec = LiveSpec(env={"NCCL_PROTO": "LL"})
    assert looked(spec, port=None).state is Live.UNKNOWN, "it runs elsewhere"
    assert variables_of(server[1], ["NCCL_PROTO"], proc=tmp_path) is None
    for pid, parent, environ in ((5, 1, b"A=1\0"), (6, 5, None), (7, 6, b"B=2\0C=3\0")):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (name (with) brackets) S {parent} 0 0")
        if environ is not None:
            (folder / "environ").write_bytes(environ)
    assert variables_of(5, ["A"], proc=tmp_path) == {"A": "1"}
    assert variables_of(5, ["A", "B", "D"], proc=tmp_path) == {"A": "1", "B": "2", "D": None}


def test_kernels_match_in_any_tools_spelling() -> None:
    spec = LiveSpec(kernels=[r"marlin_moe::Marlin", r"^Marlin<"], kernels_absent=["slot_gemv"])
    names = ["void marlin_moe::Marlin<256, true>(int4 const*, int)", "rmsnorm"]
    assert looked(spec, kernel_names=names).state is Live.LIVE
    assert looked(spec, kernel_names=[*names, "_mxfp4_slot_gemv_kernel"]).state is Live.NOT_LIVE
    unseen = looked(spec, kernels_note="its trace holds no kernel")
    assert (unseen.state, unseen.checks[0].note) == (Live.UNKNOWN, "its trace holds no kernel")


def test_all_sources_together(server: tuple[int, int]) -> None:
    spec = LiveSpec(args={"tp": 2}, env={"NCCL_PROTO": "LL"}, log=["MTP on"], kernels=["marlin"])
    found = looked(
        spec, {"config": {"tp": "2"}}, port=server[0], log_text="INFO MTP on\n", kernel_names=["marlin_gemm"]
    )
    assert (found.config, found.lever, found.state) == ("B", "mtp", Live.LIVE)
    assert [c.where for c in found.checks] == ["args", "env", "log", "kernels"]
    assert looked(LiveSpec(), {"tp": 2}).state is Live.UNKNOWN
