"""What is checked of a launch beside its speed: its lever, its outputs, and whether it is still the same server.

A check that cannot be made says so and stops nothing.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from dsv4bench.errors import BenchError, StoreError, UsageError
from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.records.campaign import (
    MAY_DIFFER,
    Campaign,
    LaunchNote,
    LaunchStatus,
    LeverLive,
    Live,
    OutputParity,
)
from dsv4bench.records.codec import encode
from dsv4bench.records.outputs import Outputs
from dsv4bench.records.progress import MessageCallback
from dsv4bench.records.server import ServerInfo
from dsv4bench.runs import campaign_live, campaign_outputs
from dsv4bench.runs.campaign_arms import DIFFERENT, parity_line
from dsv4bench.runs.campaign_launch import Serving
from dsv4bench.runs.same_server import changed_settings
from dsv4bench.scenario.launched import ConfigSpec, LaunchedCampaign, LiveSpec
from dsv4bench.server.detect import detect
from dsv4bench.server.target import Target, parse_url
from dsv4bench.store.campaigns import CampaignDir
from dsv4bench.store.store import Store

KERNELS = "kernels"

Told = TypeVar("Told", LeverLive, OutputParity)


def worker_info(serving: Serving, info: ServerInfo, model: str | None) -> ServerInfo:
    """The server that decodes: behind a front end the decode worker, else the one that gets the load."""
    url = serving.workers.get("decode")
    if url is None:
        return info
    try:
        return detect(parse_url(url), model)
    except UsageError:  # it speaks to its router alone
        return info


def check_live(
    opened: CampaignDir,
    config: ConfigSpec,
    order: int,
    serving: Serving,
    info: ServerInfo,
    say: MessageCallback,
    document: BreakdownDocument | None = None,
) -> None:
    """Look at a launch's lever, at the kernels of its profile too; stored with the launch and over all launches."""
    if not _is_asked(config):
        return
    kernels = kernel_names(document)
    url = serving.workers.get("decode", serving.url)
    seen = campaign_live.check(
        config,
        info,
        port=parse_url(url).port,
        log_text=serving.group.log_text(),
        kernel_names=kernels or None,
        kernels_note="" if document is None else "its trace holds no kernel",
    )
    _keep_live(opened, order, seen, say)


def check_live_kernels(
    opened: CampaignDir,
    config: ConfigSpec,
    order: int,
    info: ServerInfo,
    say: MessageCallback,
    document: BreakdownDocument,
) -> None:
    """The kernels of a profile that had a launch of its own, beside what else was seen at launch `order`."""
    kernels = kernel_names(document)
    if not _is_asked(config) or not kernels:
        return
    seen = campaign_live.check(config, info, port=None, log_text=None, kernel_names=kernels)
    before = next((n.live for n in opened.campaign.launches if n.order == order), None)
    if before is not None:
        kept = [c for c in before.checks if c.where != KERNELS]
        seen = campaign_live.merge(
            [msgspec.structs.replace(seen, checks=[*kept, *(c for c in seen.checks if c.where == KERNELS)])]
        )
    _keep_live(opened, order, seen, say)


def _is_asked(config: ConfigSpec) -> bool:
    """A baseline has no lever, and may be another one than it is named for all the same."""
    return config.lever is not None or config.live != LiveSpec()


def kernel_names(document: BreakdownDocument | None) -> list[str]:
    """Every kernel of a profile, each once."""
    rows = [row.name for device in document.devices for row in device.rows] if document is not None else []
    return list(dict.fromkeys(rows))


def _keep_live(opened: CampaignDir, order: int, seen: LeverLive, say: MessageCallback) -> None:
    known = next((x for x in opened.campaign.live if x.config == seen.config), None)
    opened.change_launch(order, live=seen)
    looked = [(f"block {n.block + 1}", n.live) for n in opened.campaign.launches if n.config == seen.config]
    found = [(name, live) for name, live in looked if live is not None]
    now = campaign_live.merge([live for _, live in found], [name for name, _ in found])
    others = [x for x in opened.campaign.live if x.config != seen.config]
    opened.update(live=_in_order(opened, [*others, now]))
    if now.state is Live.NOT_LIVE and (known is None or known.state is not Live.NOT_LIVE):
        lever = f"its lever {now.lever}" if now.lever else "what it stands for"
        say(f"{now.config}: {lever} is NOT LIVE, and gets no verdict: {campaign_live.why_not(now)}")


def check_outputs(
    opened: CampaignDir,
    spec: LaunchedCampaign,
    config: ConfigSpec,
    target: Target,
    info: ServerInfo,
    say: MessageCallback,
) -> None:
    """Greedy outputs of a configuration, once; against the baseline's as soon as both are there."""
    campaign = opened.campaign
    if not spec.parity.prompts or opened.read_outputs(config.name) is not None:
        return
    is_base = config.name == campaign.baseline
    if not is_base and not config.same_output:
        _keep(opened, OutputParity(config=config.name, base=campaign.baseline, same=None, why=MAY_DIFFER))
        return
    try:
        endpoint = spec.server.endpoint or "completions"
        outputs = campaign_outputs.outputs_of(target, info, spec.parity, campaign.seed, say, endpoint=endpoint)
        opened.write_outputs(config.name, encode(outputs, indent=True) + b"\n")
        if is_base:
            return
        raw = opened.read_outputs(campaign.baseline)
        if raw is None:
            why = f"{campaign.baseline} has given no outputs"
            found = OutputParity(config=config.name, base=campaign.baseline, same=None, why=why)
        else:
            base = msgspec.json.decode(raw, type=Outputs)
            found = campaign_outputs.parity_of(base, outputs, config.name, campaign.baseline, spec.parity)
    except StoreError:
        raise
    except (BenchError, msgspec.MsgspecError) as e:
        if is_base:
            opened.add_notes(f"no outputs of {config.name}: {e}")
            return
        found = OutputParity(config=config.name, base=campaign.baseline, same=None, why=str(e))
    _keep(opened, found)
    if line := parity_line(found):
        say(line)


def other_than_first(opened: CampaignDir, config: str, info: ServerInfo, root: str) -> str | None:
    """What differs from the server of the configuration's first complete launch, for a note."""
    first = first_complete(opened.campaign, config)
    if first is None or first.experiment is None:
        return None
    changed = changed_settings(Store(root).open(first.experiment).experiment.server, info)
    return f"{DIFFERENT} ({changed})" if changed else None


def first_complete(campaign: Campaign, config: str) -> LaunchNote | None:
    """Its first complete launch."""
    done = [n for n in campaign.launches if n.config == config and n.status is LaunchStatus.COMPLETE]
    return min(done, key=lambda n: n.order, default=None)


def _keep(opened: CampaignDir, found: OutputParity) -> None:
    others = [p for p in opened.campaign.parity if p.config != found.config]
    opened.update(parity=_in_order(opened, [*others, found]))


def _in_order(opened: CampaignDir, found: list[Told]) -> list[Told]:
    """As the scenario names the configurations; every second block runs the other way round."""
    configs = opened.campaign.configs
    return sorted(found, key=lambda x: configs.index(x.config) if x.config in configs else len(configs))
