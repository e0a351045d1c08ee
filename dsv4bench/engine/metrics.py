"""The server's Prometheus metrics: vLLM's names under the prefix `dsv4bench:`, in a registry of its own.

There is no prefix cache, so its counters are left out: a missing metric is better than a zero that looks
measured. The speculation counters exist only with speculation, and their help text says that it is synthetic.
"""

from __future__ import annotations

import time
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from dsv4bench.engine.executor import Live
from dsv4bench.engine.sequence import Sequence
from dsv4bench.engine.speculation import NOTICE
from dsv4bench.engine.stepper import StepResult

_LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10, 30)
_PREFIX = "dsv4bench:"


class EngineMetrics:
    """Written by the engine's thread, read by the HTTP side."""

    def __init__(self, model: str, *, speculation: bool) -> None:
        self.registry = CollectorRegistry()
        self._model = model
        self.running = self._gauge("num_requests_running", "Requests that hold a slot.")
        self.waiting = self._gauge("num_requests_waiting", "Requests that wait for a slot or for pages.")
        self.kv_usage = self._gauge("kv_cache_usage_perc", "Reserved share of the KV pages, 0 to 1.")
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens computed.")
        self.generation_tokens = self._counter("generation_tokens", "Tokens generated.")
        self._success = Counter(
            f"{_PREFIX}request_success",
            "Finished requests.",
            ["model_name", "finished_reason"],
            registry=self.registry,
        )
        self._ttft = self._histogram("time_to_first_token_seconds", "Arrival to first token.")
        self._itl = self._histogram("inter_token_latency_seconds", "Gap between the steps that delivered tokens.")
        self._tpot = self._histogram("request_time_per_output_token_seconds", "(last - first) / (tokens - first).")
        self._e2e = self._histogram("e2e_request_latency_seconds", "Arrival to last token.")
        self._drafts = self._draft_tokens = self._accepted = None
        if speculation:
            self._drafts = self._counter("spec_decode_num_drafts", f"Verifications. {NOTICE}")
            self._draft_tokens = self._counter("spec_decode_num_draft_tokens", f"Tokens drafted. {NOTICE}")
            self._accepted = self._counter("spec_decode_num_accepted_tokens", f"Drafts accepted. {NOTICE}")
        if Path("/proc/self/stat").exists():
            ProcessCollector(registry=self.registry)
        else:
            started = Gauge("process_start_time_seconds", "Start of the server.", registry=self.registry)
            started.set(time.time())

    def tell(self, live: Live) -> None:
        """Which kernels run, as the labels of a gauge that is always 1."""
        labels = {
            "model_name": self._model,
            "moe_kernel": live.moe,
            "attention_kernel": live.attention,
            "device": live.device,
            "cuda_graphs": str(bool(live.cuda_graphs)).lower(),
        }
        told = Gauge(f"{_PREFIX}kernels_info", "Decode kernels in use.", list(labels), registry=self.registry)
        told.labels(**labels).set(1)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def observe_step(self, result: StepResult) -> None:
        """Counts one step and what it delivered."""
        self.prompt_tokens.inc(result.prompt_tokens)
        if self._drafts and self._draft_tokens and self._accepted:
            self._drafts.inc(result.drafts)
            self._draft_tokens.inc(result.draft_tokens)
            self._accepted.inc(result.accepted_tokens)
        for emission in result.emissions:
            seq, delivery = emission.sequence, emission.delivery
            self.generation_tokens.inc(len(delivery.tokens))
            if emission.gap_s is not None:
                self._itl.observe(emission.gap_s)
            elif seq.first_token_s is not None:
                self._ttft.observe(seq.first_token_s - seq.arrived_s)
            if delivery.finish:
                self._finished(seq, delivery.finish)

    def _finished(self, seq: Sequence, reason: str) -> None:
        self._success.labels(self._model, reason).inc()
        if seq.last_token_s is not None:
            self._e2e.observe(seq.last_token_s - seq.arrived_s)
        if seq.tpot_s is not None:
            self._tpot.observe(seq.tpot_s)

    def aborted(self) -> None:
        self._success.labels(self._model, "abort").inc()

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(_PREFIX + name, text, ["model_name"], registry=self.registry).labels(self._model)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(_PREFIX + name, text, ["model_name"], registry=self.registry).labels(self._model)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(_PREFIX + name, text, ["model_name"], buckets=_LATENCY_S, registry=self.registry).labels(
            self._model
        )
