"""A server that is started through another program (a leash): its own command is shown, and tells where it runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsv4bench.server.group import Group, LaunchFailed, Part, launch_group
from dsv4bench.server.launch import free_port, launch
from dsv4bench.server.readiness import wait_generating

STUB = Path(__file__).parent / "stub_server.py"


def part(tmp_path: Path, mode: str, port: int, program: list[str] | None) -> Part:
    command = [sys.executable, str(STUB), str(port), mode]
    return Part("server", command, {}, f"http://127.0.0.1:{port}", None, tmp_path / "server.log", program)


@contextlib.contextmanager
def answered_by_another(tmp_path: Path, program: list[str]) -> Iterator[Group]:
    """Ours hangs in its start; a process that is no child of ours takes its port, as docker's proxy does."""
    port = free_port()
    stub = [sys.executable, str(STUB), str(port), "ok"]
    with (
        launch_group([part(tmp_path, "hang", port, program)]) as group,
        launch(stub, log_path=tmp_path / "proxy.log") as proxy,
    ):
        proxy.wait_ready(group.front.url, timeout_s=30)
        yield group


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="who listens is read from /proc")
@pytest.mark.parametrize("program", [["/usr/bin/docker", "run", "image"], ["ssh", "gpu", "serve"], ["srun", "serve"]])
def test_a_container_behind_a_leash_may_answer_by_another_process(tmp_path: Path, program: list[str]) -> None:
    with answered_by_another(tmp_path, program) as group:
        group.check_ports()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="who listens is read from /proc")
def test_a_server_of_this_host_may_not(tmp_path: Path) -> None:
    with (
        answered_by_another(tmp_path, ["vllm", "serve", "docker"]) as group,
        pytest.raises(LaunchFailed, match="which this launch did not start"),
    ):
        group.check_ports()


def test_the_users_own_command_is_shown(tmp_path: Path) -> None:
    port = free_port()
    crash = Part(
        "server",
        [sys.executable, "-c", "exit(3)"],
        {},
        f"http://127.0.0.1:{port}",
        None,
        tmp_path / "server.log",
        ["vllm", "serve", "M", "--api-key", "hush"],
    )
    with launch_group([crash]) as group, pytest.raises(LaunchFailed) as failed:
        wait_generating(group, 30)
    assert "vllm serve M" in failed.value.message and "exit(3)" not in failed.value.message
    assert "hush" not in failed.value.message
    assert Part("server", ["x"], {}, "u", None, tmp_path).own == ["x"]
