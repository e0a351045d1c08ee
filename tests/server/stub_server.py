"""A small OpenAI-like server for launch tests, run as a program: `stub_server.py PORT MODE`.

Modes: ok, slow-first (the first generation takes SLOW seconds), loading (503 for a while, then ok), mute (health 200,
a generation never ends), broken (health 200, every generation 500), refusing (400 to text, ok to token ids), keyed
(401), chat-only (404), error-200 (an error object with status 200), hang (listens on nothing), die (exits 3), worker
(as ok, and it starts a child), forgetful (dies within the first generation), elsewhere (listens on another port).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, MODE = int(sys.argv[1]), sys.argv[2]
SLOW = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
BEGUN = time.monotonic()
generations = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if MODE == "loading" and time.monotonic() - BEGUN < SLOW:
            self.answer(503, {"error": {"message": "Loading model", "code": 503}})
        elif self.path == "/v1/models":
            self.answer(200, {"data": [{"id": "stub", "owned_by": "stub"}]})
        else:
            self.answer(200 if self.path in ("/health", "/ready") else 404, {})

    def do_POST(self) -> None:
        global generations
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        generations += 1
        if MODE == "mute":
            time.sleep(600)
        if MODE == "forgetful":
            print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", flush=True)
            os._exit(1)
        if MODE == "slow-first" and generations == 1:
            print("[rank0] DeepGEMM JIT compiling a kernel for M=4", flush=True)
            time.sleep(SLOW)
        wrong: dict[str, tuple[int, dict[str, object]]] = {
            "broken": (500, {"error": {"message": "EngineDeadError"}}),
            "keyed": (401, {"error": "invalid key"}),
            "error-200": (200, {"error": {"message": "Token id 4 is out of vocabulary"}}),
        }
        if MODE in wrong:
            self.answer(*wrong[MODE])
        elif MODE == "chat-only" and "chat" not in self.path:
            self.answer(404, {"detail": "Not Found"})
        elif MODE == "refusing" and isinstance(body.get("prompt"), str):
            self.answer(400, {"error": {"message": "no tokenizer"}})
        else:
            self.answer(200, {"choices": [{"text": "a b", "finish_reason": "length"}], "model": body["model"]})

    def answer(self, status: int, body: dict[str, object]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    print(f"stub {MODE} with --api-key hush-hush", flush=True)
    if MODE == "die":
        print("RuntimeError: No CUDA GPUs are available", flush=True)
        sys.exit(3)
    if MODE == "hang":
        print("loading weights", flush=True)
        time.sleep(600)
    if MODE == "elsewhere":
        print("Uvicorn running on http://127.0.0.1:4242 (Press CTRL+C to quit)", flush=True)
        time.sleep(600)
    if MODE == "worker":
        child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, 1); time.sleep(600)"])
        print(f"child {child.pid}", flush=True)
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(f"serving at {time.time():.6f}", flush=True)
    ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()


main()
