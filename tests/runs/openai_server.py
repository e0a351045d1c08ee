"""A small OpenAI-compatible server in threads of the test's own process, with the faults of real ones as knobs.

    with serve(Behaviour(max_output=3)) as server:
        ... server.url, server.bodies, server.behaviour.start_time = 2.0

Knobs may be turned while it runs. It plays vLLM (`/version`, `vllm:` metrics) unless `engine` is generic. Its prefix
cache remembers whole prompts, so that a prompt which is sent twice shows in the hit counters.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Behaviour:
    engine: str = "vllm"  # or generic
    models: list[str] = field(default_factory=lambda: ["tiny"])
    itl_s: float = 0.004
    ttft_s: float = 0.008
    tokens_per_chunk: int = 1
    metrics: bool = True
    start_time: float = 1_700_000_000.0
    refused_fields: set[str] = field(default_factory=set)  # 422 when a body holds one of them
    takes_ids: bool = True
    vocab: int | None = None  # ids from here on are refused
    key: str | None = None
    endpoints: set[str] = field(default_factory=lambda: {"completions", "chat/completions"})
    prompt_factor: int = 1  # what usage says of a prompt's length
    max_output: int | None = None  # stops early, whatever ignore_eos says
    hit_frac: float = 0.0  # of each new prompt's tokens, served from a prefix cache
    drafts: int = 0  # accepted draft tokens a step; counted when above 0
    error_status: int | None = None  # every request after the probe's, from `fail_from` on
    fail_from: int = 0
    error_text: str = "out of memory"
    hang_models: bool = False
    hang_posts: bool = False
    die_at: int | None = None  # the request with this number closes the server
    max_model_len: int | None = None
    usage: bool = True
    on_request: Callable[[dict[str, Any]], None] | None = None  # called as soon as a body has arrived
    routes: dict[str, Callable[[dict[str, Any]], tuple[int, Any] | None]] = field(default_factory=dict)
    """More endpoints, by "POST /path" or "GET /path": the body's JSON to an answer; None hangs until the end."""


class OpenAIServer:
    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.bodies: list[dict[str, Any]] = []  # of every request that generates
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.running = self.peak = 0
        self.counters = dict.fromkeys(("prompt", "output", "hits", "drafts", "draft_tokens", "accepted", "ttfts"), 0)
        self.ttft_sum_s = 0.0
        self.cache: set[str] = set()
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self._http: ThreadingHTTPServer | None = None
        self._open: set[socket.socket] = set()

    def prompts(self, min_tokens: int = 0) -> list[str]:
        """What was asked, one text a request, in the order of arrival."""
        return [json.dumps(b.get("prompt", b.get("messages"))) for b in self.bodies if b["max_tokens"] >= min_tokens]

    def start(self, port: int = 0) -> None:
        server = self

        class Handler(_Handler):
            fake = server

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def die(self) -> None:
        """As a killed process: no listener any more, every connection reset."""
        self.stopping.set()
        http, self._http = self._http, None
        if http is not None:
            http.shutdown()
            http.server_close()
        for s in list(self._open):
            with suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: OpenAIServer

    def setup(self) -> None:
        super().setup()
        self.fake._open.add(self.connection)

    def finish(self) -> None:
        self.fake._open.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        b = self.fake.behaviour
        if self._routed({}):
            return
        if self.path == "/v1/models":
            if b.hang_models:
                self.fake.stopping.wait()
                return
            if b.key is not None and self.headers.get("Authorization") != f"Bearer {b.key}":
                self._json(
                    401, {"error": {"message": f"Incorrect API key provided: {self.headers.get('Authorization')}"}}
                )
                return
            owner = "vllm" if b.engine == "vllm" else "someone"
            cards = [
                {"id": m, "object": "model", "owned_by": owner, "max_model_len": b.max_model_len} for m in b.models
            ]
            self._json(200, {"object": "list", "data": cards})
        elif self.path == "/version" and b.engine == "vllm":
            self._json(200, {"version": "0.32.0"})
        elif self.path == "/health":
            self._json(200, {})
        elif self.path == "/metrics" and b.metrics:
            self._reply(200, "text/plain; version=0.0.4", self._metrics().encode())
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        b, fake = self.fake.behaviour, self.fake
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self._routed(body):
            return
        refusal = self._refusal(body)
        if refusal is not None:
            self._json(*refusal)
            return
        with fake.lock:
            number = len(fake.bodies)
            fake.bodies.append(body)
            fake.headers.append(dict(self.headers))
            fake.running += 1
            fake.peak = max(fake.peak, fake.running)
        try:
            if b.on_request is not None:
                b.on_request(body)
            if b.hang_posts:
                fake.stopping.wait()
                return
            if b.die_at is not None and number >= b.die_at:
                threading.Thread(target=fake.die).start()
                fake.stopping.wait()
                return
            if b.error_status is not None and number >= b.fail_from:
                time.sleep(0.002)
                self._json(b.error_status, {"error": {"message": b.error_text}})
                return
            self._generate(body)
        finally:
            with fake.lock:
                fake.running -= 1

    def _routed(self, body: dict[str, Any]) -> bool:
        route = self.fake.behaviour.routes.get(f"{self.command} {self.path}")
        if route is None:
            return False
        answer = route(body)
        if answer is None:
            self.fake.stopping.wait()
        elif isinstance(answer[1], str):
            self._reply(answer[0], "text/plain", answer[1].encode())
        else:
            self._json(*answer)
        return True

    def _refusal(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        b = self.fake.behaviour
        if self.path.removeprefix("/v1/") not in b.endpoints:
            return 404, {"detail": "Not Found"}
        if b.refused_fields & set(body):
            return 422, {"detail": f"unexpected fields: {sorted(b.refused_fields & set(body))}"}
        prompt = body.get("prompt")
        if isinstance(prompt, list):
            if not b.takes_ids:
                return 400, {"error": {"message": "prompt must be a string"}}
            if b.vocab is not None and max(prompt) >= b.vocab:
                return 400, {"error": {"message": f"Token id {max(prompt)} is out of vocabulary"}}
        return None

    def _generate(self, body: dict[str, Any]) -> None:
        b, fake = self.fake.behaviour, self.fake
        chat = "messages" in body
        key = json.dumps(body.get("prompt", body.get("messages")))
        n_prompt = len(body["prompt"]) if isinstance(body.get("prompt"), list) else max(len(key) // 4, 1)
        n = min(body["max_tokens"], b.max_output or body["max_tokens"])
        with fake.lock:
            fake.counters["prompt"] += n_prompt
            fake.counters["hits"] += n_prompt if key in fake.cache else round(b.hit_frac * n_prompt)
            fake.cache.add(key)
            fake.counters["ttfts"] += 1
            fake.ttft_sum_s += b.ttft_s
        if not body.get("stream"):
            with fake.lock:
                fake.counters["output"] += n
            self._json(
                200, {"choices": [{"text": "x", "finish_reason": "length"}], "usage": {"completion_tokens": n}}
            )
            return
        options = body.get("stream_options") or {}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        usage = {"prompt_tokens": n_prompt * b.prompt_factor, "completion_tokens": 0}
        sent = 0
        due = time.monotonic() + b.ttft_s
        while sent < n:
            if fake.stopping.wait(max(due - time.monotonic(), 0)):
                return
            due += b.itl_s * b.tokens_per_chunk
            new = min(b.tokens_per_chunk, n - sent)
            sent += new
            finish = None if sent < n else ("stop" if b.max_output is not None else "length")
            usage["completion_tokens"] = sent
            choice = {"delta": {"content": " w" * new}} if chat else {"text": " w" * new}
            event: dict[str, Any] = {"choices": [{"index": 0, **choice, "finish_reason": finish}]}
            if b.usage and options.get("continuous_usage_stats"):
                event["usage"] = usage
            with fake.lock:
                fake.counters["output"] += new
                if b.drafts:
                    fake.counters["drafts"] += 1
                    fake.counters["draft_tokens"] += b.drafts + 1
                    fake.counters["accepted"] += b.drafts
            self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
        if b.usage and options.get("include_usage"):
            self._chunk(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    def _metrics(self) -> str:
        fake, b = self.fake, self.fake.behaviour
        c = fake.counters
        rows = {
            "num_requests_running": fake.running,
            "num_requests_waiting": 0,
            "kv_cache_usage_perc": 0.25,
            "prompt_tokens_total": c["prompt"],
            "generation_tokens_total": c["output"],
            "prefix_cache_queries_total": c["prompt"],
            "prefix_cache_hits_total": c["hits"],
            "time_to_first_token_seconds_sum": fake.ttft_sum_s,
            "time_to_first_token_seconds_count": c["ttfts"],
        }
        if b.drafts:
            rows |= {
                "spec_decode_num_drafts_total": c["drafts"],
                "spec_decode_num_draft_tokens_total": c["draft_tokens"],
                "spec_decode_num_accepted_tokens_total": c["accepted"],
            }
        lines = [f'vllm:{name}{{engine="0"}} {value}' for name, value in rows.items()]
        return "\n".join([*lines, f"process_start_time_seconds {b.start_time}"]) + "\n"

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _json(self, status: int, value: Any) -> None:
        self._reply(status, "application/json", json.dumps(value).encode())

    def _reply(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve(behaviour: Behaviour | None = None) -> Iterator[OpenAIServer]:
    server = OpenAIServer(behaviour or Behaviour())
    server.start()
    try:
        yield server
    finally:
        server.die()
