"""A configuration's processes as one: order, exits, ports that are not ours, and nothing left running."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsv4bench.host.listening import listening
from dsv4bench.server.group import Group, LaunchFailed, Part, launch_group, port_taken
from dsv4bench.server.launch import Launched, free_port, launch
from dsv4bench.server.ports import answered_by_another
from dsv4bench.server.readiness import wait_generating

STUB = Path(__file__).parent / "stub_server.py"


def part(folder: Path, mode: str = "ok", role: str = "server", port: int = 0) -> Part:
    port = port or free_port()
    return Part(
        role=role,
        command=[sys.executable, str(STUB), str(port), mode],
        env={},
        url=f"http://127.0.0.1:{port}",
        health=None,
        log_path=folder / f"{role}.log",
    )


def running(pid: int) -> bool:
    """Whether a process lives (a zombie does not)."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    for _ in range(250):
        if not running(pid):
            return True
        time.sleep(0.02)
    return False


def started_at(log: str) -> float:
    return float(re.findall(r"serving at ([\d.]+)", log)[0])


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[tuple[Launched, int]]:
    """A server that somebody else started, answering on its port."""
    port = free_port()
    with launch([sys.executable, str(STUB), str(port), "ok"], log_path=tmp_path / "stranger.log") as server:
        server.wait_ready(f"http://127.0.0.1:{port}", timeout_s=30)
        yield server, port


def test_a_single_server_is_the_common_case(tmp_path: Path) -> None:
    with launch_group([part(tmp_path)]) as group:
        assert group.front.role == "server" and list(group.pids) == ["server"]
        group.wait_healthy(group.front, time.time() + 30)
        assert group.exited() is None and group.exit_code() is None
        group.check_ports()
        assert "stub ok" in group.log_text() and "==" not in group.log_text()
    assert group.exited() == "the server was ended by SIGTERM" and group.exit_code() == -15
    group.stop()  # twice is fine


def test_the_router_starts_when_its_workers_are_healthy(tmp_path: Path) -> None:
    decode = part(tmp_path, "loading", "decode")
    parts = [part(tmp_path, role="router"), decode, part(tmp_path, role="prefill")]
    with launch_group(parts, timeout_s=60) as group:
        assert [p.role for p in group.parts] == ["prefill", "decode", "router"]
        assert group.front.role == "router" and group.part("decode") is decode and group.part("server") is None
        group.wait_healthy(group.front, time.time() + 30)
        begun = {role: started_at((tmp_path / f"{role}.log").read_text()) for role in group.pids}
        assert begun["router"] > begun["decode"] + 1.0  # it said 503 for a second
        text = group.log_text()
        assert text.index("== prefill ==") < text.index("== decode ==") < text.index("== router ==")
        pids = list(group.pids.values())
    assert all(gone(pid) for pid in pids)


def test_a_worker_that_dies_keeps_the_router_from_starting(tmp_path: Path) -> None:
    parts = [part(tmp_path, "ok", "prefill"), part(tmp_path, "die", "decode"), part(tmp_path, role="router")]
    with pytest.raises(LaunchFailed) as failed:
        launch_group(parts, timeout_s=60)
    error = failed.value
    assert error.reason.startswith("the decode server exited with code 3 before it was ready: ")
    assert error.cause is not None and "sees no GPU" in error.cause and error.cause in error.message
    assert "RuntimeError: No CUDA GPUs" in error.log_tail and "hush-hush" not in error.log_tail
    assert str(tmp_path / "decode.log") in error.hint
    assert not (tmp_path / "router.log").exists()
    assert port_taken(int(parts[0].url.rpartition(":")[2])) is None


def test_a_worker_that_never_gets_healthy_is_given_up(tmp_path: Path) -> None:
    parts = [part(tmp_path, "hang", "prefill"), part(tmp_path, "ok", "decode"), part(tmp_path, role="router")]
    with pytest.raises(LaunchFailed, match=r"the prefill server was not healthy at http\S+ within \d+ s \(/health: "):
        launch_group(parts, timeout_s=1.0)


def test_what_cannot_start_ends_what_has(tmp_path: Path) -> None:
    first = part(tmp_path, "worker", "prefill")
    second = Part("decode", ["/no/such/program"], {}, f"http://127.0.0.1:{free_port()}", None, tmp_path / "d.log")
    with pytest.raises(Exception, match="cannot start '/no/such/program'"):
        launch_group([first, second])
    assert port_taken(int(first.url.rpartition(":")[2])) is None


def test_one_of_several_that_ends_is_named(tmp_path: Path) -> None:
    with launch_group([part(tmp_path, "ok", "prefill"), part(tmp_path, "die", "decode")]) as group:
        for _ in range(500):
            if group.exited():
                break
            time.sleep(0.02)
        assert group.exited() == "the decode server exited with code 3" and group.exit_code() == 3


def test_children_and_stubborn_servers_go_too(tmp_path: Path) -> None:
    with launch_group([part(tmp_path, "worker", "prefill"), part(tmp_path, "stubborn", "decode")]) as group:
        for p in group.parts:
            group.wait_healthy(p, time.time() + 30)
        child = int(re.findall(r"child (\d+)", group.log_text())[0])
        assert running(child)
        group.stop(grace_s=0.3)
        assert group.exited() == "the prefill server was ended by SIGTERM, the decode server was ended by SIGKILL"
    assert gone(child)


def test_health_may_have_a_path_of_its_own(tmp_path: Path) -> None:
    own = part(tmp_path)
    own = Part(own.role, own.command, own.env, own.url, "/ready", own.log_path)
    with launch_group([own]) as group:
        group.wait_healthy(own, time.time() + 30)
        wrong = Part(own.role, own.command, own.env, own.url, "/nowhere", own.log_path)
        assert group.health(wrong).status == 404


def test_a_log_that_goes_on_is_read_from_this_launch(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("torch.OutOfMemoryError: CUDA out of memory\n")
    with launch_group([part(tmp_path, "die")]) as group:
        for _ in range(500):
            if group.exited():
                break
            time.sleep(0.02)
        assert "out of memory" not in group.log_text() and "No CUDA GPUs" in group.log_text()


def test_the_environment_is_not_shown(tmp_path: Path) -> None:
    secret = Part("server", ["x"], {"HF_TOKEN": "hush"}, "http://127.0.0.1:1", None, tmp_path / "l")
    assert "hush" not in repr(secret)


def test_a_taken_port_is_refused_before_anything_starts(tmp_path: Path, stranger: tuple[Launched, int]) -> None:
    server, port = stranger
    held = port_taken(port)
    assert held is not None
    if sys.platform.startswith("linux"):
        assert f"process {server.pid} (" in held and "stub_server.py" in held
    with pytest.raises(LaunchFailed) as failed:
        launch_group([part(tmp_path, port=port)])
    assert f"port {port} of the server is taken by {held}" in failed.value.message
    assert "another port" in failed.value.hint and not (tmp_path / "server.log").exists()
    assert port_taken(free_port()) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="who listens is read from /proc")
def test_a_port_that_another_process_answers_is_noticed(tmp_path: Path) -> None:
    """Ours hangs in its start, and a server that took the port after our look answers in its place."""
    port = free_port()
    with launch_group([part(tmp_path, "hang", port=port)]) as group:
        with launch([sys.executable, str(STUB), str(port), "ok"], log_path=tmp_path / "stranger.log") as other:
            other.wait_ready(group.front.url, timeout_s=30)
            said = (
                rf"port {port} of the server is answered by process {other.pid} \(.*which this launch did not start"
            )
            with pytest.raises(LaunchFailed, match=said):
                wait_generating(group, 60)
            mine = group.pids["server"]
            assert answered_by_another(port, other.pid, ["python"], 0.0) is None
            # a container's port belongs to a process that is no child of ours, unless it was there before
            assert answered_by_another(port, mine, ["/usr/bin/docker", "run"], 0.0) is None
            assert answered_by_another(port, mine, ["docker", "run"], time.time() + 60) is not None
        assert answered_by_another(port, mine, ["python"], 0.0) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="who listens is read from /proc")
def test_a_child_that_listens_is_ours(tmp_path: Path) -> None:
    """A wrapper in a session of its own, as profilers and leashes make them."""
    port = free_port()
    stub = [sys.executable, str(STUB), str(port), "ok"]
    code = f"import subprocess; subprocess.run({stub!r}, start_new_session=True)"
    wrapped = Part("server", [sys.executable, "-c", code], {}, f"http://127.0.0.1:{port}", None, tmp_path / "s.log")
    with launch_group([wrapped]) as group:
        group.wait_healthy(wrapped, time.time() + 30)
        group.check_ports()
        found = listening(port)
        assert found is not None and found.pid != group.pids["server"]
        os.kill(found.pid, signal.SIGKILL)  # in another session: the group's signal does not reach it


def test_a_group_needs_a_process() -> None:
    with pytest.raises(Exception, match="without a process"):
        launch_group([])
    assert Group([]).exited() is None


def test_what_a_launch_was_given_in_secret_is_hidden_wherever_its_log_repeats_it(tmp_path: Path) -> None:
    says = "print('args', sys.argv[1:]); print('bad key', sys.argv[2], os.environ['MY_TOKEN'])"
    code = f"import os, sys; {says}; sys.exit(3)"
    command = [sys.executable, "-c", code, "--api-key", "flagkey-GGGG7777"]
    env = {"MY_TOKEN": "token-HHHH8888"}
    given = Part("server", command, env, f"http://127.0.0.1:{free_port()}", None, tmp_path / "server.log")
    with launch_group([given]) as group:
        for _ in range(500):
            if group.exited():
                break
            time.sleep(0.02)
        error = group.failure("the key flagkey-GGGG7777 was refused")
        texts = (error.reason, error.message, error.hint or "", error.log_tail, group.log_text())
    assert "bad key *** ***" in error.log_tail and error.reason == "the key *** was refused"
    assert not any(secret in text for text in texts for secret in ("flagkey-GGGG7777", "token-HHHH8888"))
