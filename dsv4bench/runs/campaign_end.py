"""What is made of a campaign's launches: the comparison, its verdict, the findings, the report.

Made at the end of every run that ends cleanly, from what is complete by then. Nothing here may lose a campaign: what
fails becomes a warning.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from dsv4bench.errors import BenchError, StoreError
from dsv4bench.records.arm import Arm
from dsv4bench.records.campaign import Campaign
from dsv4bench.records.progress import MessageCallback
from dsv4bench.records.verdict import VerdictDocument
from dsv4bench.runs import report
from dsv4bench.runs.campaign_arms import load_campaign_run
from dsv4bench.runs.campaign_begin import DEFAULT_OUT, CampaignOptions
from dsv4bench.runs.compare import CompareOptions, run_compare
from dsv4bench.runs.findings import FILE, write_findings
from dsv4bench.store.campaigns import CampaignDir, now_utc


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """`document` None: nothing could be compared yet."""

    arms: list[Arm] = []
    document: VerdictDocument | None = None
    findings: str | None = None
    report: str | None = None
    warnings: list[str] = []


def end_of(before: Campaign, now: Campaign) -> str:
    """When measuring ended: now where this run launched something; one that only compares anew changes no end."""
    if (_attempts(before), before.profiles) != (_attempts(now), now.profiles):
        return now_utc()
    return before.ended_utc or max((n.ended_utc for n in now.launches if n.ended_utc), default=now_utc())


def _attempts(c: Campaign) -> int:
    return sum(n.attempt for n in c.launches)


def conclude(o: CampaignOptions, opened: CampaignDir, say: MessageCallback) -> Conclusion:
    """Raises StoreError when the verdict cannot be stored."""
    warnings: list[str] = []
    data = load_campaign_run(opened.path)
    opened.update(goal=data.goal)
    found = Conclusion(arms=data.arms)
    if len(data.arms) < 2:
        missing = [c for c in opened.campaign.configs if c not in {a.name for a in data.arms}]
        warnings.append(f"nothing to compare yet: no complete launch of {', '.join(missing) or 'a second one'}")
    else:
        try:
            compared = run_compare(CompareOptions(names=[str(opened.path)], root=o.out))
        except StoreError:
            raise
        except BenchError as e:
            warnings.append(f"not compared: {e.message}")
        else:
            opened.update(verdict=compared.document.id)
            if compared.again:
                say(f"the comparison is the same as {compared.document.id}: no other was stored")
            found = msgspec.structs.replace(found, arms=compared.arms, document=compared.document)
            findings = _findings(o, warnings)
            found = msgspec.structs.replace(found, findings=findings)
    if o.report:
        found = msgspec.structs.replace(found, report=_report(o, opened.id, warnings))
    for warning in warnings:
        say(f"warning: {warning}")
    return msgspec.structs.replace(found, warnings=warnings)


def findings_path(o: CampaignOptions) -> str:
    """As asked; else beside `results` in the working folder, and inside any other results folder."""
    if o.findings is not None:
        return o.findings
    out = Path(o.out)
    return str((out.parent if out.resolve() == Path(DEFAULT_OUT).resolve() else out) / FILE)


def _findings(o: CampaignOptions, warnings: list[str]) -> str | None:
    try:
        outcome = write_findings(o.out, findings_path(o))
    except BenchError as e:
        warnings.append(f"{findings_path(o)} was not written: {e.message}")
        return None
    warnings += outcome.warnings
    return outcome.path


def _report(o: CampaignOptions, campaign: str, warnings: list[str]) -> str | None:
    try:
        written = report.build_report(o.out, campaign)
    except Exception as e:  # whatever is wrong with a drawing, the campaign is done
        warnings.append(f"no report: {e or type(e).__name__}")
        return None
    warnings += written.warnings
    return str(written.html or written.markdown)
