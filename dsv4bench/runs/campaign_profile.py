"""A configuration's profile within a campaign: recorded after a sweep, on the server that was just measured.

nsys records only a server that it starts, so it gets a launch of its own. The breakdown is stored with the
configuration's newest complete experiment, where `compare` looks for bounds. A profile that fails is noted; the
campaign goes on.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping

import msgspec

from dsv4bench.errors import BenchError, StoreError
from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.records.campaign import ProfileNote
from dsv4bench.records.progress import MessageCallback
from dsv4bench.records.server import ServerInfo
from dsv4bench.runs.campaign_launch import Planned
from dsv4bench.runs.campaign_sweep import base_options
from dsv4bench.runs.live_options import LiveOptions
from dsv4bench.runs.profile import ProfileOptions
from dsv4bench.runs.profile_live import run_profile_live
from dsv4bench.scenario.launched import ConfigSpec, LaunchedCampaign

FLASH_NAME = "deepseek-v4-flash"


class Profiled(msgspec.Struct, frozen=True, kw_only=True):
    """What is noted, what was found (None: nothing), and whether Ctrl-C ended it."""

    note: ProfileNote
    document: BreakdownDocument | None = None
    interrupted: bool = False


def profile_running(
    spec: LaunchedCampaign,
    config: ConfigSpec,
    info: ServerInfo,
    *,
    url: str,
    env: Mapping[str, str],
    workers: Mapping[str, str],
    out: str,
    experiment: str,
    seed: int,
    say: MessageCallback,
) -> Profiled:
    """Of a server that runs, started with `env`.

    Raises StoreError when it cannot be stored, KeyboardInterrupt with nothing captured.
    """
    live = _live(spec, config, out, seed)
    o = msgspec.structs.replace(live, url=url, roles=dict(workers), started_with=dict(env))
    return _profiled(o, _base(spec, config, info, out), config, experiment, say)


def profile_launched(
    spec: LaunchedCampaign,
    config: ConfigSpec,
    planned: Planned,
    *,
    out: str,
    experiment: str,
    seed: int,
    say: MessageCallback,
) -> Profiled:
    """Of a server that is started for it, under nsys where the scenario says so."""
    method = spec.profile.method if spec.profile is not None else "torch"
    if len(planned.parts) > 1:
        why = "a configuration of several processes is recorded while it runs, with torch or pm"
        return Profiled(note=ProfileNote(config=config.name, experiment=experiment, method=method, error=why))
    part = planned.parts[0]
    assignments = [f"{name}={shlex.quote(value)}" for name, value in part.env.items()]
    launch = " ".join([*assignments, shlex.join(planned.commands[part.role])])
    o = msgspec.structs.replace(
        _live(spec, config, out, seed),
        url=part.url,
        launch=launch,
        ready_timeout_s=config.ready_timeout_s or spec.server.ready_timeout_s,
    )
    return _profiled(o, _base(spec, config, None, out), config, experiment, say)


def _profiled(
    o: LiveOptions, base: ProfileOptions, config: ConfigSpec, experiment: str, say: MessageCallback
) -> Profiled:
    note = ProfileNote(config=config.name, experiment=experiment, method=o.method)
    try:
        found = run_profile_live(o, base, say)
    except StoreError:
        raise
    except BenchError as e:
        return Profiled(note=msgspec.structs.replace(note, error=_placeless(e)))
    document = found.profile.document
    note = msgspec.structs.replace(
        note,
        live_label=_live_label(document),
        error=_placeless(found.error) if found.error is not None else None,
    )
    return Profiled(note=note, document=document, interrupted=found.interrupted)


def _placeless(e: BenchError) -> str:
    """What went wrong, which may show the command, with `{python}` as it is recorded elsewhere."""
    return e.message.replace(sys.executable, "{python}") if sys.executable else e.message


def _live_label(document: BreakdownDocument) -> str | None:
    """Which implementations ran, at the last label that tells."""
    told = [one.text for one in document.live if one.moe or one.attention]
    return told[-1] if told else None


def _live(spec: LaunchedCampaign, config: ConfigSpec, out: str, seed: int) -> LiveOptions:
    assert spec.profile is not None, "asked for"
    swept, p = base_options(spec), spec.profile
    return LiveOptions(
        method=p.method,
        concurrency=list(p.concurrency),
        steps=p.steps,
        gpu_only=p.gpu_only,
        cache=p.cubins is None,
        isl=swept.isl[0],
        model=swept.model,
        endpoint=swept.endpoint,
        dataset=swept.dataset,
        vocab=swept.vocab,
        timeout_s=swept.timeout_s,
        seed=seed,
        root=out,
        name=config.name,
    )


def _base(spec: LaunchedCampaign, config: ConfigSpec, info: ServerInfo | None, out: str) -> ProfileOptions:
    """What stands beside the traces: GPU and model for the roofline, the target where it is profiled."""
    assert spec.profile is not None, "asked for"
    target = spec.target
    aimed = target is not None and target.concurrency == max(spec.profile.concurrency)
    model, layers = _model(info)
    return ProfileOptions(
        traces=[],
        cache=spec.profile.cubins if isinstance(spec.profile.cubins, str) else None,
        root=out,
        gpu=spec.gpu,
        tp=spec.tp,
        model=model,
        layers=layers,
        target_tok_s=target.output_tok_s if target is not None and aimed else None,
    )


def _model(info: ServerInfo | None) -> tuple[str | None, int | None]:
    """The preset whose bytes give the roofline: our own server's, or the published model by its name."""
    if info is None:
        return None, None
    args = info.args or {}
    if info.engine == "dsv4bench" and isinstance(preset := args.get("preset"), str):
        layers = args.get("layers")
        return preset, layers if preset == "flash-layers" and isinstance(layers, int) else None
    last = info.model.rstrip("/").rsplit("/", 1)[-1].lower()
    return ("flash", None) if last == FLASH_NAME else (None, None)
