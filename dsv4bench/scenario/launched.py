"""A campaign that this tool runs itself: configurations with the commands that start them, checked before one starts.

    name: flash-layers-h200
    workload: {isl: [256], osl: 48}
    levels: {concurrency: [1, 4, 16, 32], duration_s: 10}
    blocks: 4
    configs:
      - {name: baseline, launch: "{python} -m dsv4bench serve --kernels fallback --port {port}"}
      - name: both
        parent: baseline
        lever: kernels
        launch: "{python} -m dsv4bench serve --kernels optimized --port {port}"
        live: {args: {moe_kernel: optimized}}

`{python}`, `{port}` and `{url}` are filled in; other braces stay as they are. A block launches every configuration
once, every second block in reverse order. `launched_reading` reads a file and checks it; how it is run stands in
`runs.campaign`; a campaign that was measured elsewhere is `scenario.campaign`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dsv4bench.records.workload import Endpoint
from dsv4bench.scenario.file import Component, Count, LevelsPart, Seconds, WorkloadPart

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]
Text = Annotated[str, Meta(min_length=1)]
Positive = Annotated[float, Meta(gt=0, lt=1e12)]
Frac = Annotated[float, Meta(gt=0, lt=1)]
Plain = str | int | float | bool | None
Role = Literal["server", "prefill", "decode", "router"]


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds for every configuration unless it says otherwise. `port` 0: a free one for each launch."""

    endpoint: Endpoint | None = None
    model: str | None = None
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    health: str | None = None  # a path; None: /health, else /v1/models
    timeout_s: Seconds | None = None  # of a request
    ready_timeout_s: Seconds = 1800.0
    stop_timeout_s: Seconds = 30.0


class LiveSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must be seen of a running server for its lever to be live. Nothing asked: unknown."""

    args: dict[str, Plain] = msgspec.field(default_factory=dict)  # server argument -> value, as the server tells it
    env: dict[str, str] = msgspec.field(default_factory=dict)  # of the server's process, where it is on this host
    log: list[Text] = msgspec.field(default_factory=list)  # regular expressions, each found in the server's log
    log_absent: list[Text] = msgspec.field(default_factory=list)  # regular expressions that must not be found
    kernels: list[Text] = msgspec.field(
        default_factory=list
    )  # regular expressions, each a kernel's name in the trace
    kernels_absent: list[Text] = msgspec.field(default_factory=list)


class RoleSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One process of a configuration of several. `{port}` is its own, `{prefill_port}` … are the others'."""

    launch: Text
    env: dict[str, str] = msgspec.field(default_factory=dict)
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    health: str | None = None


class ConfigSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One configuration: one command, or one a role: load to the router, profile of the decode worker."""

    name: Name
    about: str | None = None
    parent: Name | None = None
    lever: Text | None = None  # several, joined by "+", are bundled
    lever_keys: list[Text] = msgspec.field(default_factory=list)  # server arguments that the lever sets
    touches: list[Component] = msgspec.field(default_factory=list)  # components that the lever can change
    launch: Text | None = None
    roles: dict[Role, RoleSpec] = msgspec.field(default_factory=dict)
    env: dict[str, str] = msgspec.field(default_factory=dict)
    port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    health: str | None = None
    ready_timeout_s: Seconds | None = None
    live: LiveSpec = LiveSpec()
    profile: bool = True  # whether `profile` of the campaign records it
    same_output: bool = True  # False: its text may differ from the baseline's (other weights, other precision)


class ProfileSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Recording, after the sweep of a configuration's first launch. Measured and profiled runs are never the same.

    `cubins`: a folder of compiled kernels, which prove what they run on. None: the server's own Triton cache.
    """

    method: Literal["torch", "nsys", "pm"] = msgspec.field(name="with", default="torch")
    concurrency: Annotated[list[Count], Meta(min_length=1)] = msgspec.field(default_factory=lambda: [1, 16])
    steps: Annotated[int, Meta(ge=12, le=2000)] = 30
    gpu_only: bool = False
    cubins: Text | bool | None = None


class ParitySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Greedy outputs on the same prompts, against the baseline's. A near-tie: both tokens were this close."""

    prompts: Annotated[int, Meta(ge=0, le=256)] = 4
    isl: Count = 64
    osl: Count = 32
    near_tie: Annotated[float, Meta(ge=0)] = 0.25  # difference of log-probabilities


class TargetSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    output_tok_s: Positive
    concurrency: Count
    config: Name | None = None  # None: the baseline


class PredictionSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a configuration shall buy against its parent; in the ledger before its first launch. 1.45: +45 %."""

    config: Name
    concurrency: Count
    low_ratio: Positive
    high_ratio: Positive
    metric: str = "output_tok_s"
    why: Text


class LaunchedCampaign(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file. The first configuration without a parent is the baseline."""

    name: Name
    about: str | None = None
    server: ServerSpec = ServerSpec()
    workload: WorkloadPart = WorkloadPart()
    levels: LevelsPart = LevelsPart()
    blocks: Annotated[int, Meta(ge=1, le=1000)] = 4
    delta: dict[str, Frac] = msgspec.field(default_factory=dict)  # metric -> δ
    tensor_pipe: bool = False
    tensor_pipe_gpus: list[Annotated[int, Meta(ge=0)]] | None = None  # nvidia-smi's numbers; None: those in use
    env: dict[str, str] = msgspec.field(default_factory=dict)  # of every configuration
    configs: Annotated[list[ConfigSpec], Meta(min_length=1)]
    profile: ProfileSpec | None = None
    parity: ParitySpec = ParitySpec()
    target: TargetSpec | None = None
    predictions: list[PredictionSpec] = msgspec.field(default_factory=list)
    gpu: str | None = None  # whose roofline; None: the one that was found
    tp: Count | None = None
    notes: list[Text] = msgspec.field(default_factory=list)

    def processes(self, config: ConfigSpec) -> dict[str, RoleSpec]:
        """What a configuration starts, by role (`server`: a single command), each with its whole environment."""
        roles: dict[str, RoleSpec] = {str(role): r for role, r in config.roles.items()}
        if config.launch is not None:
            port = self.server.port if config.port is None else config.port
            roles["server"] = RoleSpec(launch=config.launch, port=port, health=config.health)
        return {
            role: msgspec.structs.replace(r, env={**self.env, **config.env, **r.env}) for role, r in roles.items()
        }

    @property
    def baseline(self) -> ConfigSpec:
        return next((c for c in self.configs if c.parent is None), self.configs[0])
