"""Runs the application on uvicorn: binds first, says where it listens, drains when asked to stop.

SIGTERM and SIGINT end it in the same way: no new request is taken, those inside finish, exit code 0. A second
signal does not wait for them.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from collections.abc import Iterator
from types import FrameType

import torch
import uvicorn

from dsv4bench.engine.app import Service, create_app
from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.cuda.device import require
from dsv4bench.engine.executor import Live
from dsv4bench.engine.loop import EngineLoop
from dsv4bench.errors import UsageError


def run(config: EngineConfig, host: str, port: int) -> None:
    """Serves until a signal. Raises UsageError when the address cannot be bound or the GPU cannot take the model."""
    if config.device == "cuda":
        require(config)
    listener = bind(host, port)  # before the weights are drawn: a taken port shows at once
    with contextlib.closing(listener):
        torch.set_num_threads(config.threads)
        where = f"{config.kernels_label} kernels, {config.device}"
        say(f"random weights: preset {config.preset}, {where}; text is noise")
        if config.speculation:
            say("speculation is synthetic: acceptance is drawn, not measured, and drafting costs nothing")
        engine = EngineLoop(config)
        if config.device == "cuda":
            say(_on_gpu(engine.live))
        app = create_app(engine)
        options = uvicorn.Config(app, log_level="warning", access_log=False, ws="none", timeout_keep_alive=75)
        server = _Server(options, app.state.service, address(listener, host))
        server.run(sockets=[listener])
    say("stopped")


def _on_gpu(live: Live) -> str:
    graphs = (
        f"CUDA graphs for batches of {', '.join(map(str, live.cuda_graphs))}" if live.cuda_graphs else "no graphs"
    )
    return f"{live.device}: {live.moe}, {live.attention}; {graphs}"


def bind(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 picks a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)  # bound without listening, a second server could bind the same port
    except OSError as error:
        listener.close()
        hint = "choose another --port, or --port 0 for a free one"
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}", hint) from None
    return listener


def address(listener: socket.socket, host: str) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


def say(text: str) -> None:
    print(f"dsv4bench serve: {text}", file=sys.stderr, flush=True)


class _Server(uvicorn.Server):
    """uvicorn, less its habit of dying by the signal it has handled."""

    def __init__(self, config: uvicorn.Config, service: Service, url: str) -> None:
        super().__init__(config)
        self._service = service
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            say(f"listening on {self._url}")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
            return
        self.should_exit = True
        self._service.draining = True
        say(f"{signal.Signals(sig).name}: finishing {len(self._service.mailboxes)} requests")
