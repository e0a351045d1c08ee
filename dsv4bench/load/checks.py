"""What the tool says of its own measurement: the level's stamp of validity and its notes; pure.

A level is invalid, and shown so, when the client was the bottleneck, the outputs were short, a prefix cache served
the prompts, the prompts had another length, or C was not held. Limits and their reasons:
- lag p99 over max(10 ms, TPOT/2): beyond half an interval reads begin to merge tokens, and stamps with them;
- worker CPU over 90 % of its core: the loop has no reserve, lag follows;
- in flight under 0.9·C in the steady window: the label C would be wrong;
- more than 2 % of the server's tokens generated for someone else;
- more than 1 % short outputs, more than 10 % prefix hits (beyond the share asked for), ISL more than 2 % off.
"""

from __future__ import annotations

import msgspec

from dsv4bench.load.summary import Numbers
from dsv4bench.records.cell import Invalid
from dsv4bench.records.request import TokenSource

LAG_FLOOR_S = 0.010
CPU_FRAC = 0.90
HELD_FRAC = 0.90
SHORT_FRAC = 0.01
HIT_FRAC = 0.10
ISL_FRAC = 0.02
SERVER_TPOT_FRAC = 0.10
FOREIGN_FRAC = 0.02
EDGES_FRAC = 0.03  # the level's throughput against that under full load


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the verdict needs beside the numbers."""

    concurrency: int | None
    isl: int
    osl: int | None
    exact_isl: bool  # prompts went as token ids
    lag_p99_s: float | None
    kernel_stamps: bool
    worker_cpu_frac: float | None
    prefix_hit_frac: float | None = None
    prefix_share: float = 0.0
    interrupted: bool = False
    server_gone: bool = False
    server_running_mean: float | None = None
    server_tpot_mean_s: float | None = None
    server_output_tokens: float | None = None


def check(n: Numbers, e: Evidence) -> tuple[Invalid | None, str | None]:
    """(stamp, why), the most damaging reason first; (None, None) for a sound level."""
    if e.interrupted or e.server_gone:
        return Invalid.INTERRUPTED, "the server went away" if e.server_gone else "stopped before its end"
    if not n.n_ok:
        return Invalid.ALL_FAILED, "no request completed"
    saturated = _saturated(n, e)
    if saturated is not None:
        return Invalid.CLIENT_SATURATED, saturated
    if e.concurrency and n.steady_s and n.achieved_batch is not None and n.achieved_batch < HELD_FRAC * e.concurrency:
        return Invalid.CONCURRENCY_NOT_HELD, f"{n.achieved_batch:.1f} of {e.concurrency} in flight on the average"
    foreign = _foreign(n, e)
    if foreign is not None:
        return Invalid.OTHER_TRAFFIC, foreign
    if n.n_short > SHORT_FRAC * n.n_ok:
        return (
            Invalid.SHORT_OUTPUT,
            f"{n.n_short} of {n.n_ok} outputs are shorter than OSL {e.osl}: the server does not honour ignore_eos",
        )
    if e.prefix_hit_frac is not None and e.prefix_hit_frac > HIT_FRAC + e.prefix_share:
        return Invalid.CACHE_CONTAMINATED, f"{e.prefix_hit_frac:.0%} of prompt tokens came from the prefix cache"
    if e.exact_isl and n.isl_mean is not None and abs(n.isl_mean - e.isl) > max(ISL_FRAC * e.isl, 2):
        return Invalid.PROMPT_LENGTH, f"the server counted {n.isl_mean:.0f} prompt tokens for ISL {e.isl}"
    return None, None


def notes(n: Numbers, e: Evidence) -> list[str]:
    """What a reader should know of a level that may still be valid."""
    found = []
    if n.token_source is TokenSource.CHUNKS:
        found.append("tokens counted by chunks: a lower bound")
    elif n.token_source is TokenSource.MIXED:
        found.append("some requests without usage: their tokens are a lower bound")
    if not e.exact_isl and n.isl_mean is not None and abs(n.isl_mean - e.isl) > 0.05 * e.isl:
        found.append(f"realised ISL {n.isl_mean:.0f}")
    if n.n_retried:
        found.append(f"{n.n_retried} resent after a stale connection")
    if n.n_short and n.n_short <= SHORT_FRAC * n.n_ok:
        found.append(f"{n.n_short} short outputs")
    if not e.kernel_stamps:
        found.append("user stamps: the client's lag is inside every time")
    if n.n_late:
        found.append(f"{n.n_late} sent late")
    if n.merged_reads_frac and n.merged_reads_frac > 0.01:
        found.append(f"{n.merged_reads_frac:.0%} of reads held more than one chunk")
    if e.server_running_mean is not None and e.concurrency and e.server_running_mean < 0.8 * e.concurrency:
        found.append(f"server ran {e.server_running_mean:.1f} of {e.concurrency} at once")
    if n.full_load_tok_s and n.output_tok_s and abs(n.output_tok_s / n.full_load_tok_s - 1) > EDGES_FRAC:
        found.append(f"ramp and drain bend it: {n.full_load_tok_s:.4g} tok/s with C in flight; run longer levels")
    if e.server_tpot_mean_s and n.tpot_mean_s:
        off = n.tpot_mean_s / e.server_tpot_mean_s - 1
        if abs(off) > SERVER_TPOT_FRAC:
            found.append(f"TPOT {off:+.0%} against the server's own histogram")
    if e.server_output_tokens is not None and not n.n_err and not n.n_cancelled and n.output_tokens is not None:
        extra = e.server_output_tokens - n.output_tokens
        if extra and n.token_source is TokenSource.USAGE:
            found.append(f"server counted {extra:+.0f} output tokens against usage")
    return found


def _foreign(n: Numbers, e: Evidence) -> str | None:
    """The server's own counter shows tokens that are not ours, where nothing of ours failed or was stopped."""
    if e.server_output_tokens is None or not n.output_tokens or n.n_err or n.n_cancelled or n.n_retried:
        return None
    extra = e.server_output_tokens - n.output_tokens
    if n.token_source is not TokenSource.USAGE or extra <= FOREIGN_FRAC * n.output_tokens:
        return None
    return f"the server generated {e.server_output_tokens:.0f} tokens, {n.output_tokens} of them for this level"


def _saturated(n: Numbers, e: Evidence) -> str | None:
    limit = max(LAG_FLOOR_S, 0.5 * (n.tpot_p50_s or 0.0))
    if e.lag_p99_s is not None and e.lag_p99_s > limit:
        return f"client lag p99 {1e3 * e.lag_p99_s:.1f} ms is over {1e3 * limit:.1f} ms"
    if e.worker_cpu_frac is not None and e.worker_cpu_frac > CPU_FRAC:
        return f"a load worker used {e.worker_cpu_frac:.0%} of its core"
    return None
