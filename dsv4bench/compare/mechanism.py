"""Why throughput stops growing, told from what the levels on both sides of that point recorded.

Each mechanism has one rule over the symptoms (TPOT and TTFT ratios, running and waiting gauges, requests in flight,
client lag, KV use, clocks, gaps between chunks), which says yes, no, or cannot tell. The first yes in the order below
wins: whatever is not the server's kernels comes before them, so that neither a cap nor the client is ever called a
kernel ceiling; and per-sequence cost needs the client to be excluded, not merely unsuspected. Where no rule says
yes, the answer is "not determined", with what to record. A host-bound server looks like slow kernels from outside:
only a trace tells them apart (GPU idle in 30 % of the step or more: host-bound; in 10 % or less: not), and without
one the evidence says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from dsv4bench.clocks import CLOCK_FALL
from dsv4bench.compare.mechanism_evidence import by_text, limits, observed
from dsv4bench.compare.symptoms import BURSTY, Pair, pair
from dsv4bench.compare.throughput import Source
from dsv4bench.records.arm import Plain
from dsv4bench.records.cell import Cell, Invalid
from dsv4bench.records.verdict import Mechanism

PER_SEQUENCE = "per-sequence kernel cost"
HOST = "host-bound server"
NOT_DETERMINED = "not determined"
HELD = 0.9  # of C: at or above it the level is taken to have C in flight
LITTLE_HELD = 0.8  # the same by Little's law, with ramp and drain inside
SERVER_SAW = 0.8  # the same by a gauge read once a second, with the gaps between requests inside
WAITING = 0.05  # of C
IN_PROPORTION = 0.75  # exponent of TPOT in C
FLAT = 0.25
CPU_FRAC = 0.90
LAG_FLOOR_S = 0.010
KV_FULL = 0.95
KV_ROOM = 0.90
HITS_RISE = 0.10
IDLE_HOST_BOUND = 0.30  # of the decode step; from here on the host is the limit
IDLE_BUSY = 0.10  # up to here it is not


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule says."""

    name: str
    state: Literal["yes", "no", "unknown"]
    text: str


Rule = Callable[[Pair], Finding]


def find_mechanism(
    cells: Sequence[Cell],
    low: int,
    high: int,
    server: Mapping[str, Plain] | None = None,
    idle: Mapping[int, float] | None = None,
    figures: Source | None = None,
) -> Mechanism:
    """The mechanism that holds throughput from level `low` to `high`, of the cells of one ISL of one configuration.

    `server` are the arguments it told; a limit among them that equals the running gauge is named as evidence, and
    one that leaves room for all C requests excludes that their number was capped. `idle`: by concurrency, the part of
    the decode step in which a trace shows nothing on the GPU. `figures`: the source of throughput and TPOT.
    """
    seen = pair([c for c in cells if c.concurrency is not None], low, high, server, idle, figures)
    findings = [rule(seen) for rule in RULES]
    findings.append(_per_sequence(seen, findings))
    excluded = [f"{f.name}: {f.text}" for f in findings if f.state == "no"]
    cannot_tell = by_text([(f.name, f.text) for f in findings if f.state == "unknown"])
    found = next((f for f in findings if f.state == "yes"), None)
    if found is None:
        return Mechanism(name=NOT_DETERMINED, evidence=[*observed(seen), *cannot_tell], excluded=excluded)
    evidence = [found.text, *observed(seen), *limits(seen, found.name, server)]
    if found.name == PER_SEQUENCE:
        evidence += [f"not excluded: {line}" for line in cannot_tell]
    return Mechanism(name=found.name, evidence=evidence, excluded=excluded)


def _client_cpu(p: Pair) -> Finding:
    name = "client CPU-bound"
    stamp = p.high.stamped(Invalid.CLIENT_SATURATED) or p.low.stamped(Invalid.CLIENT_SATURATED)
    if stamp is not None:
        return _yes(name, stamp)
    cpu, lag, tpot = p.high.mean("worker_cpu_frac"), p.high.mean("client_lag_p99_s"), p.high.mean("tpot_mean_s")
    if cpu is not None and cpu > CPU_FRAC:
        return _yes(name, f"a load worker used {cpu:.0%} of its core at C={p.high.concurrency}")
    limit_s = max(LAG_FLOOR_S, 0.5 * (tpot or 0.0))
    if lag is not None and lag > limit_s:
        return _yes(name, f"client lag p99 {1e3 * lag:.1f} ms is over {1e3 * limit_s:.1f} ms")
    if cpu is None and lag is None:
        return _unknown(name, "record the client's CPU time and its lag")
    parts = [f"worker CPU {cpu:.0%}"] if cpu is not None else []
    parts += [f"lag p99 {1e3 * lag:.1f} ms"] if lag is not None else []
    return _no(name, ", ".join(parts))


def _warm_cache(p: Pair) -> Finding:
    name = "warm prefix cache"
    stamp = p.high.stamped(Invalid.CACHE_CONTAMINATED) or p.low.stamped(Invalid.CACHE_CONTAMINATED)
    if stamp is not None:
        return _yes(name, stamp)
    first, last = p.first.mean("prefix_hit_frac"), p.high.mean("prefix_hit_frac")
    if first is None or last is None:
        return _unknown(name, "record the prefix-cache hits of each level")
    text = f"prefix hits {first:.0%} at C={p.first.concurrency}, {last:.0%} at C={p.high.concurrency}"
    if last - first >= HITS_RISE:
        return _yes(name, f"{text}: they rise along the ladder, so its levels are not one workload")
    return _no(name, text)


def _client_cap(p: Pair) -> Finding:
    name, c = "client cap", p.high.concurrency
    stamp = p.high.stamped(Invalid.CONCURRENCY_NOT_HELD)
    if stamp is not None:
        return _yes(name, stamp)
    held, little = p.high.in_flight_frac, p.high.littles_frac
    if held is not None and held < HELD:
        return _yes(name, f"the client had {held * c:.1f} of {c} requests in flight")
    if held is None and little is not None and little < LITTLE_HELD:
        return _yes(name, f"Little's law gives {little * c:.1f} of {c} requests in flight (requests/s · E2E)")
    running, waiting = p.high.mean("server_running_mean"), p.high.mean("server_waiting_mean")
    if running is not None and running >= HELD * c:
        return _no(name, f"the server ran {running:.1f} of {c}")
    if running is not None and waiting is not None:
        at_server = running + waiting
        text = f"the server saw {at_server:.1f} of {c} requests ({running:.1f} running, {waiting:.1f} waiting)"
        return _yes(name, text) if at_server < SERVER_SAW * c else _no(name, text)
    return _without_gauges(name, p)


def _admission_cap(p: Pair) -> Finding:
    name, c = "admission cap", p.high.concurrency
    running, waiting = p.high.mean("server_running_mean"), p.high.mean("server_waiting_mean")
    if running is None:
        return _without_gauges(name, p)
    if running >= HELD * c:
        return _no(name, f"the server ran {running:.1f} of {c}")
    if waiting is None:
        return _yes("admission or client cap", f"the server ran {running:.1f} of {c}; its waiting gauge tells which")
    text = f"the server ran {running:.1f} of {c} and {waiting:.1f} waited"
    if waiting < WAITING * c:
        return _no(name, text)
    kv = p.high.mean("kv_usage_max_frac")
    if kv is not None and kv >= KV_FULL:
        return _yes(name, f"{text}; its KV pool was {kv:.0%} full")
    if not p.may_run_all:
        return _yes(name, text)
    if kv is None:
        return _unknown(name, f"{text}, though {p.room}; record the server's KV use")
    text += f", though {p.room} and its KV pool was at most {kv:.0%} full"
    if (p.high.burstiness or 0) < BURSTY:
        return _unknown(name, f"{text}: why they waited is not told")
    return _no(name, text)


def _queued_with_room(p: Pair) -> bool:
    """Requests waited, and neither their number nor the KV pool held them back: prefill before them did."""
    running, waiting = p.high.frac("server_running_mean"), p.high.frac("server_waiting_mean")
    kv = p.high.mean("kv_usage_max_frac")
    if running is None or waiting is None or kv is None:
        return False
    return running < HELD and waiting >= WAITING and kv < KV_FULL and p.may_run_all


def _without_gauges(name: str, p: Pair) -> Finding:
    """A cap leaves TPOT flat; and where C sequences were seen to decode at once there is none."""
    c, decoding, exponent = p.high.concurrency, p.high.frac("decode_batch"), p.tpot_exponent
    if decoding is not None and decoding >= HELD:
        return _no(name, f"{decoding * c:.1f} of {c} requests decoded at once, as seen from outside")
    if exponent is not None and exponent >= IN_PROPORTION:
        return _no(name, f"TPOT x{p.tpot_ratio:.2f}, which a cap would leave flat")
    if exponent is not None and abs(exponent) <= FLAT and (p.ttft_ratio or 1) >= 1.5:
        return _unknown(
            name,
            f"TPOT x{p.tpot_ratio:.2f} with TTFT x{p.ttft_ratio:.2f}: requests queue before their first token; "
            "record the server's running and waiting gauges",
        )
    return _unknown(name, "record TPOT, TTFT and the server's running and waiting gauges")


def _preemption(p: Pair) -> Finding:
    name, c = "KV preemption", p.high.concurrency
    count, kv = p.high.preemptions, p.high.mean("kv_usage_max_frac")
    if count:
        return _yes(name, f"{count} preemptions at C={c}" + ("" if kv is None else f", KV pool up to {kv:.0%} full"))
    if count == 0:
        return _no(name, "none was counted")
    if kv is not None and kv < KV_ROOM:
        return _no(name, f"the KV pool was at most {kv:.0%} full")
    running, waiting = p.high.frac("server_running_mean"), p.high.mean("server_waiting_mean")
    if running is not None and running >= HELD and waiting is not None and waiting < WAITING * c:
        return _no(name, f"the server ran {running * c:.1f} of {c} and {waiting:.1f} waited")
    return _unknown(name, "record the server's preemption counter and KV use")


def _throttle(p: Pair) -> Finding:
    name = "power or thermal throttle"
    low, high = p.low.mean("gpu_sm_clock_mean_mhz"), p.high.mean("gpu_sm_clock_mean_mhz")
    words = ", ".join(sorted(p.high.throttle))
    if not low or not high:
        return _unknown(name, f"record the SM clock ({words})" if words else "record the SM clock of each level")
    text = f"SM clock {low:.0f} -> {high:.0f} MHz" + (f" ({words})" if words else "")
    if high <= (1 - CLOCK_FALL) * low and _explains(math.log(low / high), p):
        return _yes(name, text)
    first = p.first.mean("gpu_sm_clock_mean_mhz")
    if first and max(low, high) < (1 - CLOCK_FALL) * first:
        text += f"; {first:.0f} at C={p.first.concurrency}"
        since = msgspec.structs.replace(p, low=p.first)
        if _explains(math.log(first / high), since):
            return _yes(name, text)
        return _unknown(name, f"{text}: both levels are below it, and how much that costs is not told")
    if high > (1 - CLOCK_FALL) * low:
        return _no(name, text)
    return _no(name, f"{text}: too little to explain TPOT x{p.tpot_ratio or 1:.2f}")


def _explains(slower: float, p: Pair) -> bool:
    """Whether a clock that fell by this, as a logarithm, is half of what throughput or TPOT lost."""
    lost = -math.log(p.throughput_ratio) if p.throughput_ratio else 0.0
    stretched = math.log(p.tpot_ratio) if p.tpot_ratio else 0.0
    return any(loss > CLOCK_FALL and slower >= 0.5 * loss for loss in (lost, stretched))


def _prefill(p: Pair) -> Finding:
    name = "prefill interference"
    bursty, exponent = p.high.burstiness, p.exponent("icl_p50_s")
    if bursty is not None and bursty >= BURSTY and _queued_with_room(p):
        waiting = p.high.mean("server_waiting_mean") or 0.0
        text = f"{waiting:.1f} of {p.high.concurrency} requests waited, though {p.room}"
        return _yes("prefill cannot keep up", f"{text}; ICL p99/p50 = {bursty:.1f}: prefills interrupt decode steps")
    if bursty is None or exponent is None:
        return _unknown(name, "record the gaps between chunks (ICL p50 and p99)")
    text = f"ICL p99/p50 = {bursty:.1f} at C={p.high.concurrency}, its median grows as C^{exponent:.2f}"
    if bursty < BURSTY or exponent >= IN_PROPORTION:
        return _no(name, text)
    if (p.ttft_ratio or 1) >= 1.5 and exponent <= FLAT:
        return _yes(name, f"{text}: decode steps are not slower, they are interrupted")
    return _unknown(name, text)


def _host(p: Pair) -> Finding:
    name = HOST
    if p.idle is None:
        return _unknown(
            name, "not determinable without a trace (profile: the part of the step in which the GPU idles)"
        )
    text = f"the GPU idles {p.idle[1]:.1%} of the decode step at C={p.idle[0]}"
    if p.idle[1] >= IDLE_HOST_BOUND:
        return _yes(name, text)
    return _no(name, text) if p.idle[1] <= IDLE_BUSY else _unknown(name, text)


def _per_sequence(p: Pair, others: Sequence[Finding]) -> Finding:
    exponent, ratio = p.tpot_exponent, p.tpot_ratio
    if exponent is None or ratio is None:
        return _unknown(PER_SEQUENCE, "record TPOT; throughput alone cannot tell a slow kernel from a cap")
    text = f"TPOT x{ratio:.2f} from C={p.low.concurrency} to C={p.high.concurrency} (as C^{exponent:.2f})"
    if exponent < IN_PROPORTION:
        return _no(PER_SEQUENCE, text) if exponent <= FLAT else _unknown(PER_SEQUENCE, text)
    must_be_out = {"client CPU-bound", "client cap", "admission cap"}
    suspects = [f for f in others if f.name in must_be_out and f.state != "no"]
    if suspects:
        return _unknown(PER_SEQUENCE, f"{text}; first exclude: {', '.join(f.name for f in suspects)}")
    return _yes(PER_SEQUENCE, text)


RULES: tuple[Rule, ...] = (
    _client_cpu,
    _warm_cache,
    _client_cap,
    _admission_cap,
    _preemption,
    _throttle,
    _prefill,
    _host,
)


def _yes(name: str, text: str) -> Finding:
    return Finding(name=name, state="yes", text=text)


def _no(name: str, text: str) -> Finding:
    return Finding(name=name, state="no", text=text)


def _unknown(name: str, text: str) -> Finding:
    return Finding(name=name, state="unknown", text=text)
