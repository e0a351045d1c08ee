"""What `profile URL` was asked for, checked before a server is started or a request is sent."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from typing import Literal

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.records.capture import METHODS
from dsv4bench.records.workload import Endpoint
from dsv4bench.runs.options import SweepOptions
from dsv4bench.server.profiler_setup import refuse_range

LEAST_STEPS, MOST_STEPS = 12, 2000  # a median wants ten; the first and the last of a window are dropped
ROLES = ("decode", "prefill")
MOST_CONCURRENCY = 4096
CaptureRange = Literal["outside", "server"]


class LiveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a capture. `roles`: which worker is profiled, where the URL is a front end's.

    `capture_range`: who bounds a window of nsys: its own `start` and `stop`, or the server's cudaProfilerStart and
    cudaProfilerStop. `cache`: look into the Triton cache of a server that we start, or that we started at `url` with
    the variables `started_with`.
    """

    url: str | None = None
    launch: str | None = None
    started_with: dict[str, str] | None = None
    cache: bool = True
    method: str = "torch"
    capture_range: CaptureRange = "outside"
    concurrency: list[int] = msgspec.field(default_factory=lambda: [1, 16])
    steps: int = 30
    isl: int = 1024
    roles: dict[str, str] = msgspec.field(default_factory=dict)
    trace_dir: str | None = None
    keep_trace: str | None = None
    gpu_only: bool = False
    model: str | None = None
    endpoint: Endpoint = "completions"
    dataset: str | None = None
    vocab: int | None = None
    seed: int | None = None
    headers: list[str] = msgspec.field(default_factory=list)
    insecure: bool = False
    timeout_s: float = 300.0
    flush_timeout_s: float = 1800.0
    ready_timeout_s: float = 1800.0
    root: str = "results"
    name: str | None = None

    def check(self) -> None:
        """Raises UsageError, naming the option and what it takes."""
        if self.method not in METHODS:
            raise UsageError(f"--with {self.method}: not a way to record", f"one of: {', '.join(METHODS)}")
        for option, values in (("--concurrency", self.concurrency), ("--isl", [self.isl])):
            if not values or any(not v >= 1 for v in values):
                raise UsageError(f"{option} {_joined(values)}: every value must be at least 1")
        if len(set(self.concurrency)) < len(self.concurrency):
            raise UsageError(f"--concurrency {_joined(self.concurrency)}: a value stands twice", "once is a capture")
        if max(self.concurrency) > MOST_CONCURRENCY:
            raise UsageError(f"--concurrency {max(self.concurrency)}: more than {MOST_CONCURRENCY}")
        if not LEAST_STEPS <= self.steps <= MOST_STEPS:
            raise UsageError(
                f"--steps {self.steps}: from {LEAST_STEPS} to {MOST_STEPS} decode steps",
                "a median wants ten, and a trace grows with every step",
            )
        for option, seconds in (
            ("--timeout", self.timeout_s),
            ("--flush-timeout", self.flush_timeout_s),
            ("--ready-timeout", self.ready_timeout_s),
        ):
            if not 0 < seconds < float("inf"):
                raise UsageError(f"{option} {seconds:g}: not a time above 0 s")
        if self.method == "nsys" and self.launch is None:
            raise UsageError(
                "--with nsys records a server that it started: attaching to a process was removed from nsys",
                "give the server's command: --launch 'vllm serve …' or --launch 'python -m sglang.launch_server …'",
            )
        self._check_range()
        if self.keep_trace is not None and self.method != "nsys":
            raise UsageError(
                f"--keep-trace {self.keep_trace} with --with {self.method}",
                "it keeps nsys' reports, which hold secrets; torch's traces stay in results/traces, pm writes none",
            )
        if self.roles and self.launch is not None:
            raise UsageError("--role beside --launch", "roles name workers that run already")

    def _check_range(self) -> None:
        if self.capture_range == "outside":
            return
        if self.method != "nsys" or self.launch is None:
            raise UsageError(
                f"--range {self.capture_range} with --with {self.method}",
                "it says who bounds a window of nsys: give --with nsys, or leave it out",
            )
        command, variables = command_of(self.launch)
        refuse_range(command, {**os.environ, **variables})

    def probe_options(self) -> SweepOptions:
        """What the probe of a sweep needs to know; every value is checked there, too."""
        options = SweepOptions(
            url=self.url,
            concurrency=self.concurrency,
            isl=[self.isl],
            dataset=self.dataset,
            endpoint=self.endpoint,
            model=self.model,
            seed=self.seed,
            vocab=self.vocab,
            timeout_s=self.timeout_s,
            headers=self.headers,
            insecure=self.insecure,
            name=self.name or "default",
            out=self.root,
        )
        options.plan()
        return options


def roles_of(text: str | None) -> dict[str, str]:
    """`decode=URL,prefill=URL`. Raises UsageError."""
    found: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        role, equals, url = part.partition("=")
        if not equals or role.strip() not in ROLES or not url.strip():
            raise UsageError(f"--role {part.strip()}: not a role", "for instance --role decode=http://10.0.0.2:30001")
        if role.strip() in found:
            raise UsageError(f"--role {role.strip()} stands twice", "one worker of each role is profiled")
        found[role.strip()] = url.strip()
    return found


def command_of(text: str) -> tuple[list[str], dict[str, str]]:
    """--launch as (command, variables before it): `NAME=VALUE vllm serve …`. Raises UsageError."""
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise UsageError(
            f"--launch: {e}", "quote it as for a shell: --launch 'vllm serve MODEL --port 8000'"
        ) from None
    variables = {}
    while words and (found := re.match(r"([A-Za-z_]\w*)=(.*)", words[0], re.S)):
        variables[found.group(1)] = found.group(2)
        words = words[1:]
    if not words:
        raise UsageError("--launch names no command", "give the server's command line")
    return words, variables


def address_of(command: Sequence[str]) -> str:
    """Where a launched server will listen, by its own --port. Raises UsageError when it does not say."""
    for i, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name == "--port":
            value = value if equals else "".join(command[i + 1 : i + 2])
            if value.isdigit() and int(value) > 0:
                return f"http://127.0.0.1:{int(value)}"
    text = " ".join(command)
    if "vllm" in text or "dsv4bench" in text:
        return "http://127.0.0.1:8000"
    if "sglang" in text:
        return "http://127.0.0.1:30000"
    raise UsageError("--launch: the command names no --port", "give the server's URL beside it")


def _joined(values: Sequence[int]) -> str:
    return ",".join(map(str, values))
