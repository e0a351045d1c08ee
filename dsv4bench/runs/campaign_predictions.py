"""The scenario's predictions into the ledger, before their configurations are launched; `compare` fills them in.

A prediction that stands there already is not written again. One whose configuration was measured in this scenario
before is none any more: that is said, and it is left out.
"""

from __future__ import annotations

from dsv4bench.errors import StoreError, UsageError
from dsv4bench.records.prediction import Prediction
from dsv4bench.records.progress import MessageCallback
from dsv4bench.runs.predictions import predict, read_ledger
from dsv4bench.scenario.launched import LaunchedCampaign, PredictionSpec
from dsv4bench.store.campaigns import CampaignDir


def write_predictions(root: str, spec: LaunchedCampaign, opened: CampaignDir, say: MessageCallback) -> None:
    """Raises StoreError when the ledger cannot be written."""
    c = opened.campaign
    known = {_key(p) for p, _ in read_ledger(root)[0] if p.scenario == spec.name}
    for p in spec.predictions:
        if p.config not in c.configs or _of_spec(p) in known:
            continue
        parent = c.parents.get(p.config, c.baseline)
        try:
            made = predict(
                root,
                c.levers.get(p.config, p.config),
                p.config,
                p.concurrency,
                low=p.low_ratio,
                high=p.high_ratio,
                parent=parent,
                metric=p.metric,
                note=p.why,
                scenario=spec.name,
            )
        except UsageError as e:
            opened.add_notes(f"the prediction for {p.config} at C={p.concurrency} is not in the ledger: {e.message}")
            say(f"no prediction: {e.message}")
        except StoreError:
            raise
        else:
            interval = f"x{p.low_ratio:g} to x{p.high_ratio:g}"
            say(f"predicted ({made.id}): {p.config} at C={p.concurrency}, {p.metric} {interval}")


def _key(p: Prediction) -> tuple[str, int, str, float, float]:
    return p.config, p.concurrency, p.metric, p.low_ratio, p.high_ratio


def _of_spec(p: PredictionSpec) -> tuple[str, int, str, float, float]:
    return p.config, p.concurrency, p.metric, p.low_ratio, p.high_ratio
