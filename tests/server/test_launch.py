"""Real child processes: ready, crashed, silent, stubborn, and the group's rest."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.server.launch import free_port, launch

_SERVER = """
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == sys.argv[2] else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()
print("serving with --api-key hush", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
"""


def _python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-u", "-c", code, *args]


@pytest.mark.parametrize("answers", ["/health", "/v1/models"])
def test_a_server_is_ready_and_stopped(tmp_path: Path, answers: str) -> None:
    port = free_port()
    with launch(_python(_SERVER, str(port), answers), log_path=tmp_path / "logs" / "server.log") as server:
        assert server.wait_ready(f"http://127.0.0.1:{port}", timeout_s=30) > 0
        assert server.exit_code is None
        assert abs(server.started_s - time.time()) < 60
        assert os.getpgid(server.pid) == server.pid
    assert server.exit_code == -15
    assert "***" in server.log_tail() and "hush" not in server.log_tail()


def test_a_crash_shows_the_end_of_the_log(tmp_path: Path) -> None:
    code = "import sys; [print('line', i) for i in range(100)]; print('CUDA out of memory'); sys.exit(3)"
    with (
        launch(_python(code), log_path=tmp_path / "log") as server,
        pytest.raises(UsageError) as refused,
    ):
        server.wait_ready(f"http://127.0.0.1:{free_port()}", timeout_s=30)
    assert "exited with code 3" in refused.value.message
    assert "CUDA out of memory" in refused.value.hint
    assert "line 99" in refused.value.hint
    assert "line 50" not in refused.value.hint


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with (
        launch(_python("import time; time.sleep(60)"), log_path=tmp_path / "log") as server,
        pytest.raises(UsageError) as refused,
    ):
        server.wait_ready(f"http://127.0.0.1:{free_port()}", timeout_s=0.3)
    assert "did not answer" in refused.value.message
    assert refused.value.hint == "it wrote nothing to its log"


def test_a_stubborn_server_and_its_worker_are_killed(tmp_path: Path) -> None:
    code = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
inner = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
worker = subprocess.Popen([sys.executable, "-c", inner])
print("worker", worker.pid, flush=True)
time.sleep(60)
"""
    server = launch(_python(code), log_path=tmp_path / "log")
    for _ in range(500):
        if "worker" in server.log_tail() and "up" in server.log_tail():
            break
        time.sleep(0.02)
    worker = int(server.log_tail().split("worker")[1].split()[0])
    assert server.stop(grace_s=0.2) == -9
    assert server.stop() == -9  # twice is fine
    assert _ended(worker)


def test_the_environment_is_added_to_ours(tmp_path: Path) -> None:
    code = "import os; print(os.environ['DSV4BENCH_TEST_VALUE'], 'PATH' in os.environ)"
    with launch(_python(code), log_path=tmp_path / "log", env={"DSV4BENCH_TEST_VALUE": "given"}) as server:
        for _ in range(500):
            if server.exit_code is not None:
                break
            time.sleep(0.02)
    assert server.log_tail() == "given True"


@pytest.mark.parametrize("command", [[], ["/no/such/program"], ["/"]])
def test_what_cannot_be_started_is_refused(tmp_path: Path, command: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        launch(command, log_path=tmp_path / "log")
    assert refused.value.hint


def _ended(pid: int) -> bool:
    for _ in range(200):
        try:
            os.kill(pid, 0)
            if sys.platform.startswith("linux"):
                stat = Path(f"/proc/{pid}/stat").read_text()
                if stat.rpartition(")")[2].split()[0] == "Z":
                    return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False
