"""A small HTTP server that plays an engine's control endpoints: a path maps to a status and a body.

A body is JSON (dict or list), text, bytes, or a function of the request's handler. Requests are kept in `seen`.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]] | Callable[[BaseHTTPRequestHandler], None]


class FakeServer:
    def __init__(self, url: str, port: int) -> None:
        self.url, self.port = url, port
        self.seen: list[tuple[str, str, dict[str, str]]] = []

    @property
    def paths(self) -> list[str]:
        return [f"{method} {path}" for method, path, _ in self.seen]


@contextmanager
def serve(
    routes: dict[str, Answer], software: str = "fake", tls: ssl.SSLContext | None = None
) -> Iterator[FakeServer]:
    """Serve `routes` on a free port of 127.0.0.1; a route is "/path" (any method) or "POST /path"."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            fake.seen.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
            answer = routes.get(f"{self.command} {self.path}", routes.get(self.path, (404, {"detail": "Not Found"})))
            if callable(answer):
                answer(self)
                return
            status, body, extra = (*answer, {})[:3]
            raw, kind = _encode(body)
            self.send_response(status)
            for name, value in {"Content-Type": kind, **extra}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_POST = do_GET

        def version_string(self) -> str:
            return software

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    fake = FakeServer(f"http://127.0.0.1:{server.server_port}", server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()


def _encode(body: Any) -> tuple[bytes, str]:
    if isinstance(body, bytes):
        return body, "application/octet-stream"
    if isinstance(body, str):
        return body.encode(), "text/html" if body.startswith("<") else "text/plain"
    return json.dumps(body).encode(), "application/json"
