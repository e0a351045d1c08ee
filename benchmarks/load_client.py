"""What a load client costs and how far off it is: ours, aiohttp and httpx against one paced server, in one run.

    python benchmarks/load_client.py [--concurrency 64,256,1024] [--json]

Every stream sends three requests of 100 tokens, 20 ms apart, TTFT 50 ms, one after the other; errors are those of the
later two, on warm connections. The truth is the server's own send stamp in each event, on the clock both share.
"CPU" is the client's user and system time a token on the clock, "+parsing" what ours adds after it (the others
parse as they go). "in flight" is tokens received over what that many unbroken streams would have brought. The server
is compiled from paced.c; its own lateness stands in each row, since it is inside nobody's error but limits the load.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TTFT_S, ITL_S, TOKENS, WAVES = 0.050, 0.020, 100, 3
CLIENTS = ("dsv4bench", "aiohttp", "httpx")
LIMIT_S = 120
BODY = {"model": "paced", "prompt": list(range(1000, 1128)), "max_tokens": TOKENS, "stream": True}
NOT_TOKENS = (b"", b"data: [DONE]")

Stamps = list[tuple[int, int]]  # (received, sent) of each token, monotonic ns
Request = tuple[int, Stamps]  # (send, its tokens)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--concurrency", default="64,256,1024")
    options.add_argument("--json", action="store_true")
    options.add_argument("--server", help="a paced.c that is compiled already")
    options.add_argument("--client", nargs=3, metavar=("NAME", "PORT", "C"), help=argparse.SUPPRESS)
    o = options.parse_args()
    if o.client:
        name, port, c = o.client
        print(json.dumps(run_client(name, int(port), int(c))))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        server = o.server or str(Path(folder) / "paced")
        if o.server is None:
            subprocess.run(["cc", "-O2", "-o", server, str(Path(__file__).with_name("paced.c"))], check=True)
        for c in map(int, o.concurrency.split(",")):
            for name in CLIENTS:
                rows.append(measured(server, name, c))
                if not o.json:
                    print_row(rows[-1], header=len(rows) == 1)
    if o.json:
        print(json.dumps(rows, indent=1))


def measured(server: str, name: str, c: int) -> dict[str, Any]:
    """One client at one concurrency, against a server of its own on the same port-free loopback."""
    command = [server, str(round(TTFT_S * 1e6)), str(round(ITL_S * 1e6)), str(TOKENS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        port = process.stdout.readline().split()[1]
        try:
            done = subprocess.run(
                [sys.executable, __file__, "--client", name, port, str(c)],
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
            row = (
                json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr.strip().splitlines()[-1:]}
            )
        except subprocess.TimeoutExpired:
            row = {"failed": [f"not done after {LIMIT_S} s"]}
        process.stdin.close()
        _, late_p50_us, late_p99_us, _ = process.stdout.readline().split()
    return {"client": name, "concurrency": c, **row, "server_late_us": [int(late_p50_us), int(late_p99_us)]}


def run_client(name: str, port: int, c: int) -> dict[str, Any]:
    """The figures of one client, measured in this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if name == "dsv4bench":
        return ours(port, c)
    load = {"aiohttp": aiohttp_load, "httpx": httpx_load}[name]
    return asyncio.run(clocked(load(f"http://127.0.0.1:{port}/v1/completions", c), c))


def ours(port: int, c: int) -> dict[str, Any]:
    from dsv4bench.load.pool import run_level
    from dsv4bench.runs.selftest import paced_level
    from dsv4bench.server.target import parse_url

    outcome = run_level(paced_level(parse_url(f"http://127.0.0.1:{port}"), c, TOKENS, waves=WAVES))
    failed = [r for r in outcome.records if not r.ok]
    assert not failed, failed[0].error_text
    requests: list[Request] = [
        (r.t_send_ns, list(zip(r.chunk_ns, r.sent_ns or [], strict=True))) for r in outcome.records
    ]
    figures = errors(requests, c, outcome.wall_s, outcome.cpu_s)
    tokens = sum(len(stamps) for _, stamps in requests)
    return {**figures, "parse_us": 1e6 * outcome.parse_cpu_s / tokens, "stamps": outcome.timestamps}


async def clocked(load: Any, c: int) -> dict[str, Any]:
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    requests = await load
    wall_s, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return errors(requests, c, wall_s, cpu_s)


async def aiohttp_load(url: str, c: int) -> list[Request]:
    """As the usual benchmark clients do it: one session, no connection limit, json in the loop."""
    import aiohttp

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
    ) as session:

        async def request() -> Request:
            sent, stamps = time.monotonic_ns(), []
            async with session.post(url, json=BODY) as reply:
                async for raw in reply.content:
                    take(raw.strip(), stamps)
            return sent, stamps

        return await streams(request, c)


async def httpx_load(url: str, c: int) -> list[Request]:
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None) as client:

        async def request() -> Request:
            sent, stamps = time.monotonic_ns(), []
            async with client.stream("POST", url, json=BODY) as reply:
                async for line in reply.aiter_lines():
                    take(line.encode(), stamps)
            return sent, stamps

        return await streams(request, c)


def take(line: bytes, stamps: Stamps) -> None:
    """The receive stamp is taken before the line is parsed."""
    received = time.monotonic_ns()
    if line in NOT_TOKENS:
        return
    event = json.loads(line[6:])
    if event["choices"]:
        stamps.append((received, event["ts"]))


async def streams(request: Any, c: int) -> list[Request]:
    async def stream() -> list[Request]:
        return [await request() for _ in range(WAVES)]

    return [r for of_one in await asyncio.gather(*(stream() for _ in range(c))) for r in of_one]


def errors(requests: list[Request], c: int, wall_s: float, cpu_s: float) -> dict[str, Any]:
    """Errors in microseconds, over all requests but the first `c` to be sent."""
    warm = sorted(requests)[c:]
    icl = [
        abs((r1 - r0) - (s1 - s0)) / 1e3 for _, stamps in warm for (r0, s0), (r1, s1) in itertools.pairwise(stamps)
    ]
    ttft = [(stamps[0][0] - sent) / 1e3 - TTFT_S * 1e6 for sent, stamps in warm]
    tokens = sum(len(stamps) for _, stamps in requests)
    unbroken_s = WAVES * (TTFT_S + (TOKENS - 1) * ITL_S)
    return {
        "tokens": tokens,
        "cpu_us": 1e6 * cpu_s / tokens,
        "icl_error_us": [rank(icl, 0.5), rank(icl, 0.99)],
        "ttft_error_us": [rank(ttft, 0.5), rank(ttft, 0.99)],
        "held": unbroken_s / wall_s,
    }


def rank(values: list[float], p: float) -> float:
    ordered = sorted(values)
    return ordered[max(-(-int(p * 1000) * len(ordered) // 1000) - 1, 0)]


def print_row(row: dict[str, Any], header: bool) -> None:
    if header:
        print(
            f"{'client':10} {'C':>5} {'CPU us/tok':>10} {'+parsing':>8} {'ICL error us p50':>16} {'p99':>9} "
            f"{'TTFT error us p50':>17} {'p99':>9} {'in flight/C':>11} {'server late us p99':>18}"
        )
    start = f"{row['client']:10} {row['concurrency']:>5} "
    if "failed" in row:
        print(start + "failed: " + " ".join(row["failed"]))
        return
    parsing = f"{row['parse_us']:.1f}" if "parse_us" in row else "inside"
    (i50, i99), (t50, t99) = row["icl_error_us"], row["ttft_error_us"]
    print(
        start + f"{row['cpu_us']:>10.1f} {parsing:>8} {i50:>16.1f} {i99:>9.1f} {t50:>17.1f} {t99:>9.1f} "
        f"{row['held']:>11.3f} {row['server_late_us'][1]:>18}",
        flush=True,
    )


if __name__ == "__main__":
    main()
