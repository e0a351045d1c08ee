"""Fake servers with a profiler, each dialect with its faults; what they "record" is a trace of known times.

    with profiled(tmp_path, dialect="sglang") as fake:
        ... fake.url, fake.calls == ["start", "stop"], fake.recording

A trace is written when the profile stops, for each of `ranks`. Faults are knobs that may be turned while it runs.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from openai_server import Behaviour, OpenAIServer, serve
from profile_traces import KERNELS_US, write_cpu_only, write_trace

Dialect = Literal["sglang", "vllm"]


@dataclass
class ProfiledServer:
    """A server and its profiler's state."""

    folder: Path  # where a vLLM writes; an SGLang is told
    dialect: Dialect
    server: OpenAIServer
    ranks: int = 1
    step_us: float = 4000.0  # of the trace; the client sees Behaviour.itl_s
    configured: bool = True  # a vLLM without a profiler has no endpoints
    stops_by_itself: bool = False
    hangs: set[str] = field(default_factory=set)  # start, stop
    status: dict[str, tuple[int, Any]] = field(default_factory=dict)  # instead of the usual answer
    torn: bool = False  # its disk is full: the file is cut
    gpu: bool = True
    recording: bool = False
    calls: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    flush_s: float = 0.0
    crawls: bool = False  # from the start of a recording on: a window that does not end by itself
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.server.url

    def metrics(self) -> str:
        rows = {"num_running_reqs": self.server.running, "generation_tokens_total": self.server.counters["output"]}
        return "".join(f"sglang:{name} {value}\n" for name, value in rows.items())

    def start(self, body: dict[str, Any]) -> tuple[int, Any] | None:
        self.calls.append("start")
        self.bodies.append(body)
        if "start" in self.status:
            return self.status["start"]
        self.recording = True
        if self.crawls:
            self.server.behaviour.itl_s = 0.5
        if "start" in self.hangs:
            return None
        return (200, "Start profiling.\n") if self.dialect == "sglang" else (200, "")

    def stop(self, _: dict[str, Any]) -> tuple[int, Any] | None:
        self.calls.append("stop")
        if "stop" in self.hangs:
            return None
        if "stop" in self.status:
            return self.status["stop"]
        if not self.recording:
            return (500, "Internal Server Error") if self.dialect == "sglang" else (200, "")
        self.server.stopping.wait(self.flush_s)
        self.recording = False
        self._write(self.bodies[-1])
        if self.stops_by_itself:
            return 500, "Internal Server Error"
        return 200, "Stop profiling.\n" if self.dialect == "sglang" else ""

    def _write(self, body: dict[str, Any]) -> None:
        folder = Path(body.get("output_dir", self.folder))
        for rank in range(self.ranks):
            plain = folder / f"plain-{rank}"
            batch = max(self.server.running, 1)
            scale = self.step_us / (sum(KERNELS_US.values()) + 20.0)
            kernels = {name: us * scale for name, us in KERNELS_US.items()}
            write_trace(plain, batch=batch, kernels_us=kernels, gap_us=20.0 * scale, rank=rank, world_size=self.ranks)
            if not self.gpu:
                write_cpu_only(plain)
            name = f"17-TP-{rank}.trace.json.gz" if self.dialect == "sglang" else f"p_rank{rank}.9.pt.trace.json.gz"
            data = gzip.compress(plain.read_bytes())
            (folder / name).write_bytes(data[: len(data) // 2] if self.torn else data)
            plain.unlink()
        if self.dialect == "vllm":
            (folder / "p_host_1.async_llm.9.pt.trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}'))


@contextmanager
def profiled(folder: Path, dialect: Dialect = "sglang", **knobs: Any) -> Iterator[ProfiledServer]:
    """Serve until the context ends; `itl_s` and other knobs of `Behaviour` may be given, too."""
    served = {k: knobs.pop(k) for k in list(knobs) if k in Behaviour.__dataclass_fields__}
    behaviour = Behaviour(engine=dialect, **served)
    with serve(behaviour) as server:
        fake = ProfiledServer(folder, dialect, server, **knobs)
        if fake.configured:
            behaviour.routes |= {"POST /start_profile": fake.start, "POST /stop_profile": fake.stop}
        if dialect == "sglang":
            told = {"version": "0.5.14", "model_path": "m", "tp_size": fake.ranks, "internal_states": [], **fake.info}
            behaviour.routes["GET /server_info"] = lambda _: (200, told)
            listed = {"data": [{"id": "tiny", "owned_by": "sglang", "max_model_len": None}]}
            behaviour.routes["GET /v1/models"] = lambda _: (200, listed)
            behaviour.routes["GET /metrics"] = lambda _: (200, fake.metrics())
        yield fake


def until(reached: Any, what: str, seconds: float = 20.0) -> None:
    """Wait for a condition that another thread brings about."""
    event = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if reached():
            return
        event.wait(0.01)
    raise AssertionError(f"{what}: not within {seconds:g} s")
