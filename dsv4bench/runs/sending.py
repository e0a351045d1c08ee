"""The one place where prompts become requests on a server: target, model and accepted fields in, level out."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from dsv4bench.load.http1 import encode_request
from dsv4bench.load.pool import Level
from dsv4bench.load.prompts import Prompt
from dsv4bench.load.requests import api_path, body
from dsv4bench.records.workload import Endpoint
from dsv4bench.server.target import Target

OPEN_AHEAD = 64


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """How this sweep talks to this server. `extra` are the request fields that the probe found accepted."""

    target: Target
    model: str
    endpoint: Endpoint
    extra: dict[str, Any]
    temperature: float
    timeout_s: float
    reuse: bool = True
    exact_osl: bool = True  # a shorter output is short, even where the server does not take ignore_eos

    def level(
        self,
        prompts: list[Prompt],
        slots: int,
        *,
        max_tokens: int | None = None,
        schedule_ns: list[int] | None = None,
        duration_s: float | None = None,
    ) -> Level:
        """A level of these prompts; every byte that will be sent is encoded here."""
        target = self.target
        path = api_path(target.prefix, self.endpoint)
        host = f"[{target.host}]" if ":" in target.host else target.host
        requests = [
            encode_request(
                path,
                f"{host}:{target.port}",
                target.headers,
                body(p, self.model, self.extra, temperature=self.temperature, max_tokens=max_tokens),
            )
            for p in prompts
        ]
        return Level(
            host=target.host,
            port=target.port,
            tls=target.scheme == "https",
            verify=target.verify,
            requests=requests,
            requested=[(max_tokens or p.osl) if self.exact_osl else None for p in prompts],
            slots=slots if schedule_ns is None else min(len(prompts), OPEN_AHEAD),
            schedule_ns=schedule_ns,
            duration_s=duration_s,
            timeout_s=self.timeout_s,
            reuse=self.reuse,
        )


def arrivals_ns(n: int, rate_req_s: float, kind: str, seed: str, duration_s: float | None = None) -> list[int]:
    """Absolute send times of an open loop, from the start: no drift whatever the server does.

    `n` of them, or as many as fall into `duration_s`: then their number is random, too, and the mean rate is right.
    """
    rng = random.Random(seed)
    t = 0.0
    times: list[int] = []
    while (len(times) < n) if duration_s is None else (t < duration_s):
        times.append(round(t * 1e9))
        t = len(times) / rate_req_s if kind == "constant" else t + rng.expovariate(rate_req_s)
    return times
