"""The sweep of one launch of a campaign: its options, from the scenario and the launch.

One seed for the campaign; each launch gets its own of it, so that its prompts are others of the same kind, and a
launch that is repeated never meets a cache that knows its prompts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from dsv4bench.host.process import need_files
from dsv4bench.runs.options import SweepOptions, default_osl
from dsv4bench.scenario.durations import slo_of
from dsv4bench.scenario.launched import ConfigSpec, LaunchedCampaign

RATE_FILES = 64  # sockets that request rates need at least, as `sweep` has it


def base_options(spec: LaunchedCampaign) -> SweepOptions:
    """What every launch shares."""
    w, at, server = spec.workload, spec.levels, spec.server
    endpoint = server.endpoint or "completions"
    given: dict[str, Any] = {
        "model": server.model,
        "timeout_s": server.timeout_s,
        "isl": w.isl,
        "dataset": w.dataset,
        "prefix_share": w.prefix_share,
        "vocab": w.vocab,
        "temperature": w.temperature,
        "concurrency": at.concurrency,
        "rates_req_s": at.rates_req_s,
        "arrivals": at.arrivals,
        "requests": at.requests,
        "duration_s": at.duration_s,
        "repeat": at.repeat,
        "slo": slo_of(msgspec.structs.asdict(at.slo), "levels.slo") if at.slo is not None else None,
        "warmup": at.warmup,
    }
    return SweepOptions(
        scenario=spec.name,
        endpoint=endpoint,
        osl=w.osl if w.osl is not None else default_osl(w.dataset, endpoint),
        tensor_pipe=spec.tensor_pipe,
        tensor_pipe_gpus=spec.tensor_pipe_gpus,
        **{k: v for k, v in given.items() if v is not None},
    )


def check_measurable(spec: LaunchedCampaign) -> None:
    """What a sweep would refuse, before a server is started for it. Raises UsageError."""
    plan = base_options(spec).plan()
    profiled = spec.profile.concurrency if spec.profile is not None else []
    need_files(max([*plan.concurrency, *profiled], default=RATE_FILES))


def launch_options(
    spec: LaunchedCampaign,
    config: ConfigSpec,
    *,
    url: str,
    out: str,
    campaign: str,
    block: int,
    seed: int,
    command: Sequence[str],
) -> SweepOptions:
    """The sweep of one launch; `seed` is the launch's own."""
    return msgspec.structs.replace(
        base_options(spec),
        url=url,
        out=out,
        name=config.name,
        parent=config.parent,
        lever=config.lever,
        lever_keys=list(config.lever_keys),
        touches=list(config.touches),
        seed=seed,
        campaign=campaign,
        block=block,
        command=list(command),
    )


def seed_of(seed: int, block: int, config: str, attempt: int) -> int:
    """The seed of one launch, 31 bits of a hash of the campaign's own and of which launch it is."""
    digest = hashlib.sha256(f"{seed}/{block}/{config}/{attempt}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
