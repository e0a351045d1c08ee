"""`dsv4bench selftest`: the load client against a server of known pace; how far is the measurement off, at each C?

The truth is the paced server's own send stamp in each event, on the clock that client and server share. Each level
runs twice, with kernel stamps and with user stamps, so that the difference shows what the kernel's stamps are worth.
"""

from __future__ import annotations

import itertools

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.host.process import need_files
from dsv4bench.load.http1 import encode_request
from dsv4bench.load.paced import PacedServer
from dsv4bench.load.pool import Level, Outcome, run_level
from dsv4bench.load.summary import percentile, summarise
from dsv4bench.records.progress import MessageCallback
from dsv4bench.records.request import RequestRecord
from dsv4bench.records.selftest import SelftestDocument, SelftestLevel
from dsv4bench.server.target import Target, parse_url

WAVES = 3
LATE_LIMIT_FRAC = 0.5  # a server later than half an interval no longer keeps the pace it promises


def run_selftest(
    concurrency: list[int], ttft_s: float, itl_s: float, tokens: int, say: MessageCallback
) -> SelftestDocument:
    """Measure every level. Raises UsageError for values that cannot be run."""
    if not concurrency or min(concurrency) < 1 or tokens < 2 or itl_s <= 0 or ttft_s < 0:
        raise UsageError("selftest needs concurrencies of at least 1, two tokens or more, and an interval above 0")
    need_files(max(concurrency))
    levels, notes = [], []
    with PacedServer(ttft_s=ttft_s, itl_s=itl_s) as server:
        target = parse_url(server.url)
        for c in concurrency:
            say(f"C={c}: {WAVES * c} requests of {tokens} tokens, {1e3 * itl_s:g} ms apart, twice")
            user = _run(paced_level(target, c, tokens, kernel_stamps=False))
            server.stats(reset=True)
            kernel = _run(paced_level(target, c, tokens, kernel_stamps=True))
            late_us = server.stats().late_p99_us
            level = _errors(c, kernel, user, None if late_us is None else late_us / 1e6, itl_s)
            levels.append(level)
            if level.server_was_limit:
                notes.append(
                    f"C={c}: the paced server itself was late (p99 {late_us or 0:.0f} us): read only its errors"
                )
    return SelftestDocument(ttft_s=ttft_s, itl_s=itl_s, tokens=tokens, levels=levels, notes=notes)


def paced_request(target: Target, tokens: int) -> bytes:
    """A completion of `tokens` tokens from a prompt of 128 ids."""
    body = {
        "model": "paced",
        "prompt": list(range(1000, 1128)),
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return encode_request("/v1/completions", f"{target.host}:{target.port}", {}, msgspec.json.encode(body))


def icl_errors_s(records: list[RequestRecord]) -> list[float]:
    """|measured gap − gap of the sends| of every chunk after the first."""
    errors = []
    for r in records:
        sent = r.sent_ns or []
        for (t0, t1), (s0, s1) in zip(itertools.pairwise(r.chunk_ns), itertools.pairwise(sent), strict=True):
            errors.append(abs((t1 - t0) - (s1 - s0)) / 1e9)
    return errors


def ttft_errors_s(records: list[RequestRecord]) -> list[float]:
    """First token's stamp − its send, of every request."""
    return [(r.t_first_ns - r.sent_ns[0]) / 1e9 for r in records if r.t_first_ns is not None and r.sent_ns]


def paced_level(target: Target, c: int, tokens: int, *, waves: int = WAVES, kernel_stamps: bool = True) -> Level:
    """`waves` requests a stream, C streams."""
    n = waves * c
    return Level(
        host=target.host,
        port=target.port,
        tls=False,
        verify=True,
        requests=[paced_request(target, tokens)] * n,
        requested=[tokens] * n,
        slots=c,
        kernel_stamps=kernel_stamps,
    )


def _run(level: Level) -> Outcome:
    outcome = run_level(level)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome


def _errors(c: int, kernel: Outcome, user: Outcome, late_s: float | None, itl_s: float) -> SelftestLevel:
    numbers = summarise(kernel.records, c)
    icl, ttft = icl_errors_s(kernel.records), ttft_errors_s(kernel.records)
    icl_user = icl_errors_s(user.records)
    lag = [x / 1e9 for x in kernel.lag_ns]
    tokens = numbers.output_tokens or 0
    return SelftestLevel(
        concurrency=c,
        tokens=tokens,
        timestamps=kernel.timestamps,
        icl_error_p50_s=percentile(icl, 0.5),
        icl_error_p99_s=percentile(icl, 0.99),
        ttft_error_p50_s=percentile(ttft, 0.5),
        ttft_error_p99_s=percentile(ttft, 0.99),
        icl_error_user_p50_s=percentile(icl_user, 0.5),
        icl_error_user_p99_s=percentile(icl_user, 0.99),
        client_lag_p50_s=percentile(lag, 0.5) if kernel.timestamps == "kernel" else None,
        client_lag_p99_s=percentile(lag, 0.99) if kernel.timestamps == "kernel" else None,
        achieved_frac=None if numbers.achieved_batch is None else numbers.achieved_batch / c,
        cpu_us_per_token=1e6 * kernel.cpu_s / tokens if tokens else None,
        merged_reads_frac=numbers.merged_reads_frac,
        server_late_p99_s=late_s,
        server_was_limit=late_s is not None and late_s > LATE_LIMIT_FRAC * itl_s,
    )
