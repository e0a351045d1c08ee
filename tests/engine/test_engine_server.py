"""The real process: a socket, streams, disconnects, the queue limit, and a drain on SIGTERM."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

_RUN = "from dsv4bench.cli.main import main; main()"
_DEADLINE_S = 60.0


class Running:
    """A `dsv4bench serve` process and what it has said on stderr."""

    def __init__(self, log: Path, *options: str) -> None:
        self._log = log
        with log.open("w") as stderr:
            command = [sys.executable, "-c", _RUN, "serve", "--port", "0", "--threads", "1", *options]
            self.process = subprocess.Popen(command, stderr=stderr, stdout=subprocess.DEVNULL)
        _until(lambda: "listening on" in self.said() or self.process.poll() is not None)
        match = re.search(r"listening on (http://127\.0\.0\.1:(\d+))", self.said())
        assert match, self.said()
        self.url, self.port = match[1], int(match[2])

    def said(self) -> str:
        return self._log.read_text()

    def gauge(self, name: str) -> float:
        match = re.search(rf"^dsv4bench:{name}{{.*}} (\S+)$", httpx.get(f"{self.url}/metrics").text, re.M)
        assert match, name
        return float(match[1])


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.02)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(*options: str) -> Running:
        started.append(Running(tmp_path / f"server{len(started)}.log", *options))
        return started[-1]

    yield begin
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


def _body(**options: Any) -> dict[str, Any]:
    return {"prompt": [1, 2, 3], "stream": True, "ignore_eos": True, "temperature": 0, **options}


def _open_stream(port: int, **options: Any) -> socket.socket:
    """Sends a request and returns once its first token has come."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=_DEADLINE_S)
    payload = json.dumps(_body(**options)).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(payload)}\r\n\r\n"
    connection.sendall(head.encode() + payload)
    received = b""
    while b"data: " not in received:
        received += connection.recv(65536)
    assert received.startswith(b"HTTP/1.1 200")
    return connection


def test_streams_disconnects_limits_and_drains(start: Callable[..., Running]) -> None:
    server = start("--kernels", "optimized", "--max-running", "1", "--queue-limit", "1")
    assert "random weights" in server.said()

    # A client that goes away frees its slot, in the queue as well.
    running = _open_stream(server.port, max_tokens=8000)
    queued = socket.create_connection(("127.0.0.1", server.port), timeout=_DEADLINE_S)
    payload = json.dumps(_body(max_tokens=8000, stream=False)).encode()
    queued.sendall(
        f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(payload)}\r\n\r\n".encode() + payload
    )
    _until(lambda: server.gauge("num_requests_waiting") == 1)
    refused = httpx.post(f"{server.url}/v1/completions", json=_body(max_tokens=4), timeout=_DEADLINE_S)
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "RateLimitError")
    queued.close()
    _until(lambda: server.gauge("num_requests_waiting") == 0)
    running.close()
    _until(lambda: server.gauge("num_requests_running") == 0)
    assert server.gauge("kv_cache_usage_perc") == 0

    # SIGTERM: the running stream is completed, nobody else gets in, exit code 0.
    with httpx.stream(
        "POST", f"{server.url}/v1/completions", json=_body(max_tokens=60), timeout=_DEADLINE_S
    ) as response:
        lines = response.iter_lines()
        first = next(line for line in lines if line.startswith("data: "))
        server.process.send_signal(signal.SIGTERM)
        events = [first, *[line for line in lines if line.startswith("data: ")]]
    assert len(events) == 61
    assert events[-1] == "data: [DONE]"
    assert server.process.wait(timeout=_DEADLINE_S) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")
    assert "SIGTERM: finishing 1 requests" in server.said()


def test_a_taken_port_is_one_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-c", _RUN, "serve", "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: cannot listen on 127.0.0.1:{port}")
    assert "--port 0" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_torch_it_says_what_to_install() -> None:
    run = f"import sys; sys.modules['torch'] = None; {_RUN}"
    done = subprocess.run([sys.executable, "-c", run, "serve"], capture_output=True, text=True, timeout=_DEADLINE_S)
    assert done.returncode == 2
    assert done.stderr == "error: serve needs torch\nhint: pip install 'dsv4bench[serve]'\n"


def test_cuda_is_refused_clearly() -> None:
    command = [sys.executable, "-c", _RUN, "serve", "--device", "cuda"]
    for options, says in (
        ([], "error: --device cuda with --preset tiny: its kernels need heads of 512 lanes, this has 64\n"),
        (["--preset", "flash-layers"], "error: --device cuda: "),  # of torch without CUDA, or without a GPU
    ):
        # No GPU is visible, even where there is one.
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=_DEADLINE_S, env=environment
        )
        assert done.returncode == 2
        assert done.stderr.startswith(says), done.stderr
        assert "\nhint: " in done.stderr and "Traceback" not in done.stderr


def test_the_verb_itself_imports_nothing_heavy() -> None:
    check = (
        "import sys, dsv4bench.cli.serve, dsv4bench.kernels.sets; "
        "print([m for m in ('torch', 'starlette', 'uvicorn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=_DEADLINE_S)
    assert done.stdout.strip() == "[]"
