"""Cells of a server that is known: a closed loop of C clients before a batch of at most `cap` sequences.

n = min(C, client cap, cap)   TPOT = t(n) = a + b·n   service = prefill + OSL·TPOT   X = n·OSL/service
E2E = requests at the server · service / n  (Little)   TTFT = E2E − OSL·TPOT   waiting = requests there − n
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from dsv4bench.records.arm import Arm, Plain
from dsv4bench.records.cell import Cell
from dsv4bench.records.request import TokenSource

BLANK: dict[str, Any] = {f.name: None for f in msgspec.structs.fields(Cell) if f.required} | {
    "cell": "x",
    "launch": "L0",
    "repeat": 0,
    "concurrency": 1,
    "isl": 1024,
    "started_utc": "2026-01-01T00:00:00Z",
    "n_sent": 64,
    "n_ok": 1024,
    "n_err": 0,
    "token_source": TokenSource.USAGE,
    "peak_in_flight": 1,
    "timestamps": "kernel",
    "n_workers": 1,
}


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """The server, and the client before it."""

    a_s: float = 0.0475
    b_s: float = 0.0398
    cap: int = 10_000
    client_cap: int = 10_000
    prefill_s: float = 0.2
    osl: int = 256
    accept_length: float | None = None

    def cell(self, concurrency: int, *, launch: str = "L0", noise: float = 1.0, **fields: Any) -> Cell:
        """One level, as our own client and the server's gauges would record it."""
        accept = self.accept_length or 1.0
        at_server = min(concurrency, self.client_cap)
        n = min(at_server, self.cap)
        tpot_s = (self.a_s + self.b_s * n) * noise / accept
        service_s = self.prefill_s + self.osl * tpot_s
        e2e_s = at_server * service_s / n
        known: dict[str, Any] = {
            "cell": f"r0-c{concurrency}",
            "launch": launch,
            "concurrency": concurrency,
            "osl": self.osl,
            "isl_mean": 1024.0,
            "osl_mean": float(self.osl),
            "output_tok_s": n * self.osl / service_s,
            "request_s": n / service_s,
            "tpot_mean_s": tpot_s,
            "ttft_mean_s": e2e_s - self.osl * tpot_s,
            "e2e_mean_s": e2e_s,
            "icl_p50_s": tpot_s * accept,
            "icl_p99_s": 1.5 * tpot_s * accept,
            "achieved_batch": float(at_server),
            "decode_batch": n * self.osl * tpot_s / service_s,
            "peak_in_flight": at_server,
            "server_running_mean": float(n),
            "server_waiting_mean": float(at_server - n),
            "kv_usage_max_frac": 0.3,
            "accept_length": self.accept_length,
            "prefix_hit_frac": 0.0,
            "client_lag_p99_s": 0.001,
            "worker_cpu_frac": 0.2,
            "gpu_sm_clock_mean_mhz": 2400.0,
        }
        return Cell(**{**BLANK, **known, **fields})

    def cells(
        self, levels: Sequence[int] = (1, 2, 4, 8, 16, 32), *, launches: int = 1, sd: float = 0.0, seed: int = 7
    ) -> list[Cell]:
        """Every level of every launch; a launch has an effect of its own as large as a level's."""
        rng = random.Random(seed)
        found = []
        for i in range(launches):
            common = rng.gauss(0, sd)
            for c in levels:
                noise = 1 + common + rng.gauss(0, sd)
                found.append(self.cell(c, launch=f"L{i}", noise=noise))
        return found


def published(tok_s: dict[int, float], **fields: Any) -> list[Cell]:
    """Cells of a printed table: throughput and nothing else."""
    return [Cell(**{**BLANK, "concurrency": c, "output_tok_s": x, **fields}) for c, x in tok_s.items()]


def arm(cells: Sequence[Cell], name: str = "base", **fields: Any) -> Arm:
    known: dict[str, Any] = {"ids": [f"id-{name}"], "source": "dsv4bench"}
    return Arm(**{**known, "name": name, "cells": list(cells), **fields})


def changed(cells: Sequence[Cell], concurrency: int, **fields: Any) -> list[Cell]:
    """The same cells with other values at one level."""
    return [msgspec.structs.replace(c, **fields) if c.concurrency == concurrency else c for c in cells]


def without(cells: Sequence[Cell], *fields: str) -> list[Cell]:
    """The same cells as a tool would have left them that does not record these."""
    return [msgspec.structs.replace(c, **dict.fromkeys(fields)) for c in cells]


GAUGES = ("server_running_mean", "server_waiting_mean", "kv_usage_max_frac")
FLASH_ON: dict[str, Plain] = {"model": "deepseek-ai/DeepSeek-V4-Flash"}
