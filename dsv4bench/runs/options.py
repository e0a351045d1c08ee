"""What `sweep` was asked for, checked before anything is measured."""

from __future__ import annotations

import math

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.load.prompt_files import read_prompt_file
from dsv4bench.records.workload import Endpoint, Plan, Slo

MAX_RATE = 1e5
MAX_DURATION_S = 30 * 86400.0
MAX_VOCAB = 1 << 22  # no tokenizer comes near; a slip of the keyboard would fill the memory


class SweepOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one sweep, from the command line or a scenario file. None: decide by what the server is."""

    url: str | None = None
    concurrency: list[int] = msgspec.field(default_factory=lambda: [1, 8, 16])
    isl: list[int] = msgspec.field(default_factory=lambda: [1024])
    osl: int | None = 256
    dataset: str | None = None
    endpoint: Endpoint = "completions"
    model: str | None = None
    requests: int | None = None
    duration_s: float | None = None
    repeat: int = 1
    rates_req_s: list[float] = msgspec.field(default_factory=list)
    arrivals: str = "poisson"
    slo: Slo | None = None
    scenario: str = "sweep"
    name: str = "default"
    parent: str | None = None
    lever: str | None = None
    lever_keys: list[str] = msgspec.field(default_factory=list)
    touches: list[str] = msgspec.field(default_factory=list)
    seed: int | None = None
    vocab: int | None = None
    prefix_share: float = 0.0
    timeout_s: float = 300.0
    headers: list[str] = msgspec.field(default_factory=list)
    insecure: bool = False
    out: str = "results"
    resume: bool = False
    dry_run: bool = False
    warmup: bool = True
    temperature: float = 0.0
    ignore_eos: bool = True
    tensor_pipe: bool = False
    tensor_pipe_gpus: list[int] | None = None  # NVML's indices; None: those with a compute process
    block: int | None = None  # of a campaign: launches of one block are pairs
    campaign: str | None = None  # its id
    command: list[str] = msgspec.field(default_factory=list)

    def plan(self) -> Plan:
        """The levels. Raises UsageError for values that no level can have."""
        for name, values in (("concurrency", self.concurrency), ("isl", self.isl)):
            if not values or any(v < 1 for v in values):
                raise UsageError(f"--{name} {_joined(values)}: every value must be at least 1")
            if len(set(values)) != len(values):
                raise UsageError(f"--{name} {_joined(values)}: a value stands twice", "use --repeat to measure again")
        gpus = self.tensor_pipe_gpus
        if gpus is not None and (not gpus or any(g < 0 for g in gpus)):
            raise UsageError(
                f"--tensor-pipe-gpus {_joined(gpus)}: not a list of GPUs", "nvidia-smi's numbers, for instance 0,1"
            )
        for name, value, most in (("repeat", self.repeat, 10_000), ("requests", self.requests, 10_000_000)):
            if value is not None and value > most:
                raise UsageError(f"--{name} {value}: more than {most}", "no measurement needs that many")
        if not self.name.strip() or any(ord(ch) < 32 for ch in self.name):
            raise UsageError(f"--name {self.name!r}: not a name", "compare finds it by this: letters and digits")
        if any(not (rate > 0 and math.isfinite(rate)) for rate in self.rates_req_s):
            raise UsageError(f"--rate {_joined(self.rates_req_s)}: a rate must be above 0 requests a second")
        if any(rate > MAX_RATE for rate in self.rates_req_s) or (self.duration_s or 0) > MAX_DURATION_S:
            raise UsageError(
                f"--rate and --duration go up to {MAX_RATE:g} requests/s and {MAX_DURATION_S / 86400:g} days"
            )
        if self.osl is not None and self.osl < 1:
            raise UsageError(f"--osl {self.osl}: at least one token must be asked for")
        if self.requests is not None and self.duration_s is not None:
            raise UsageError("--requests and --duration were both given", "choose one: they both end a level")
        if self.requests is not None and self.requests < 1:
            raise UsageError(f"--requests {self.requests}: at least one request must be sent")
        if self.vocab is not None and not 2 <= self.vocab <= MAX_VOCAB:
            raise UsageError(f"--vocab {self.vocab}: not a vocabulary's size", "DeepSeek-V4 has 129280 tokens")
        if self.repeat < 1:
            raise UsageError(f"--repeat {self.repeat}: at least one")
        if self.timeout_s <= 0 or (self.duration_s is not None and self.duration_s <= 0):
            raise UsageError("--timeout and --duration must be above 0 seconds")
        if self.arrivals not in ("poisson", "constant"):
            raise UsageError(f"--arrivals {self.arrivals}: poisson or constant")
        return Plan(
            concurrency=[] if self.rates_req_s else self.concurrency,
            isl=self.isl,
            repeat=self.repeat,
            rates_req_s=self.rates_req_s,
            arrivals="constant" if self.arrivals == "constant" else "poisson",
            requests=self.requests,
            duration_s=self.duration_s,
            timeout_s=self.timeout_s,
            warmup=self.warmup,
            slo=self.slo,
        )


def default_osl(dataset: str | None, endpoint: Endpoint) -> int | None:
    """Tokens to ask for when the user names none: 256, or None (each record's own) for a file that tells them all."""
    if dataset in (None, "random", "chat"):
        return 256
    assert dataset is not None
    return None if all(p.osl is not None for p in read_prompt_file(dataset, endpoint).prompts) else 256


class Coordinates(msgspec.Struct, frozen=True, kw_only=True):
    """Where a level stands in the sweep."""

    repeat: int
    concurrency: int | None
    rate_req_s: float | None
    isl: int

    @property
    def cell(self) -> str:
        where = f"c{self.concurrency}" if self.concurrency is not None else f"q{self.rate_req_s:g}"
        return f"r{self.repeat}-{where}-i{self.isl}"

    @property
    def label(self) -> str:
        where = f"C={self.concurrency}" if self.concurrency is not None else f"{self.rate_req_s:g} req/s"
        return f"{where} ISL {self.isl}" + (f" repeat {self.repeat + 1}" if self.repeat else "")


def levels(plan: Plan) -> list[Coordinates]:
    """Every level in the order of measurement: repeats outermost, so that drift spreads over all of them."""
    loads: list[tuple[int | None, float | None]] = (
        [(None, rate) for rate in plan.rates_req_s] if plan.rates_req_s else [(c, None) for c in plan.concurrency]
    )
    return [
        Coordinates(repeat=r, concurrency=c, rate_req_s=rate, isl=isl)
        for r in range(plan.repeat)
        for isl in plan.isl
        for c, rate in loads
    ]


def _joined(values: list[int] | list[float]) -> str:
    return ",".join(f"{v:g}" for v in values)
