"""Predictions before, measurements after: `dsv4bench predict` writes what a lever shall buy, `compare` fills in.

From kernel shares the prediction is Amdahl's: a component of share s that gets k times faster changes the whole by
1/(1 − s + s/k) at most, so the interval runs from half of that gain to all of it plus 3 %. A configuration that was
already measured at this concurrency gets no prediction, and one measured before its prediction does not fill it.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from dsv4bench.errors import StoreError, Unanswerable, UsageError
from dsv4bench.limits import Share, amdahl
from dsv4bench.metrics import BY_NAME
from dsv4bench.records.codec import decode, encode
from dsv4bench.records.prediction import Measured, Prediction
from dsv4bench.records.shares import SharesDocument
from dsv4bench.records.verdict import CellVerdict, LeverStatus, VerdictDocument
from dsv4bench.store import predictions
from dsv4bench.store.naming import iso, utc_now
from dsv4bench.store.store import Store

ABOVE_BOUND_FRAC = 0.03  # measuring a gain that equals its bound may exceed it by the noise
OF_GAIN = 0.5
LAST_DIGIT_FRAC = 1e-5
BUNDLED = "bundled: of all its levers together"
Ledger = list[tuple[Prediction, Measured | None]]
NO_ANSWER = (LeverStatus.CONTRADICTED, LeverStatus.NOT_LIVE)


class FromShares(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction's basis: which kernels get how much faster. `config` None: the only one in the file."""

    path: Path
    component: str
    kernel_speedup: float
    config: str | None = None


def predict(
    root: str,
    lever: str,
    config: str,
    concurrency: int,
    *,
    low: float | None = None,
    high: float | None = None,
    parent: str | None = None,
    metric: str = "output_tok_s",
    shares: FromShares | None = None,
    note: str = "",
    scenario: str | None = None,
    now: datetime | None = None,
) -> Prediction:
    """Written to the ledger and returned. Raises UsageError, also for what was already measured."""
    if metric not in BY_NAME:
        raise UsageError(f"metric {metric} is not known", "dsv4bench metrics lists them")
    if concurrency < 1:
        raise UsageError(f"--concurrency {concurrency}", "give one level, 1 or more")
    _must_be_unmeasured(root, config, concurrency, scenario)
    share, of, source = _share(shares, concurrency) if shares is not None else (None, None, None)
    if shares is not None and share is not None:
        own_low, own_high = _interval(share, shares.kernel_speedup)
        low, high = own_low if low is None else low, own_high if high is None else high
    if low is None or high is None:
        raise UsageError(
            "a prediction needs an interval", "give --speedup-low and --speedup-high, or --from-shares FILE"
        )
    if not 0 < low <= high < float("inf"):
        raise UsageError(f"--speedup-low {low} --speedup-high {high}", "ratios above 0, low first; 1.45 is +45 %")
    moment = now or utc_now()
    bare = Prediction(
        id="",
        created_utc=iso(moment),
        lever=lever,
        config=config,
        parent=parent,
        metric=metric,
        concurrency=concurrency,
        low_ratio=low,
        high_ratio=high,
        basis="shares" if shares is not None else "stated",
        component=shares.component if shares is not None else None,
        share_frac=share,
        share_of=of,
        share_source=source,
        kernel_speedup=shares.kernel_speedup if shares is not None else None,
        note=note,
        scenario=scenario,
    )
    made = msgspec.structs.replace(bare, id="p" + hashlib.sha256(encode(bare)).hexdigest()[:8])
    predictions.append(root, made)
    return made


def fill(root: str, document: VerdictDocument, now: datetime | None = None) -> list[Measured]:
    """What this stored comparison says of open predictions, appended to the ledger. Raises StoreError.

    What the newest line of a prediction says already, of whatever comparison, is not written again.

    Left open: one lever of a configuration that has several, a contradicted lever, no figure at that level, a
    measurement of which it is not known that it came after. All levers of a configuration together ("a+b") are
    answered by its change against the parent, and the line says so.
    """
    if document.id is None:
        raise StoreError("a comparison without an id fills no prediction", "store it first")
    known = {(m.prediction, m.verdict) for m in predictions.read(root, []) if isinstance(m, Measured)}
    filled = []
    for p, newest in predictions.ledger(root, []):
        measured = _answer(p, document, iso(now or utc_now()))
        if measured is None or (p.id, document.id) in known or (newest is not None and _alike(measured, newest)):
            continue
        predictions.append(root, measured)
        filled.append(measured)
    return filled


def as_shown(ledger: Ledger, documents: Sequence[VerdictDocument]) -> Ledger:
    """The ledger, each measurement under the first of these comparisons that says just the same, if one does."""
    shown = {d.id for d in documents}
    found: Ledger = []
    for p, m in ledger:
        if m is not None and m.verdict not in shown:
            answers = (_answer(p, d, m.filled_utc) for d in documents)
            m = next((a for a in answers if a is not None and _alike(a, m)), m)
        found.append((p, m))
    return found


def _answer(p: Prediction, document: VerdictDocument, filled_utc: str) -> Measured | None:
    """What a stored comparison measured of a prediction; None where it may not answer it, or has no figure."""
    found = _cell(p, document)
    if found is None or found.delta_frac is None or document.id is None:
        return None
    ratio = 1 + found.delta_frac
    return Measured(
        prediction=p.id,
        filled_utc=filled_utc,
        verdict=document.id,
        versus=found.versus_name,
        ratio=ratio,
        ci_ratio=(1 + found.ci_frac[0], 1 + found.ci_frac[1]) if found.ci_frac is not None else None,
        grade=str(found.grade) if found.grade is not None else None,
        hit=p.low_ratio <= ratio <= p.high_ratio,
        note=BUNDLED if len(_parts(p.lever)) > 1 else "",
    )


def _alike(one: Measured, other: Measured) -> bool:
    """The same but for when, by which comparison, and the last digit, which a file rounds."""
    if (one.ci_ratio is None) is not (other.ci_ratio is None):
        return False
    figures = [(m.ratio, *(m.ci_ratio or ())) for m in (one, other)]
    named = [(m.prediction, m.versus, m.grade, m.hit, m.note) for m in (one, other)]
    return named[0] == named[1] and all(
        math.isclose(a, b, rel_tol=LAST_DIGIT_FRAC) for a, b in zip(*figures, strict=True)
    )


def read_ledger(root: str) -> tuple[Ledger, list[str]]:
    """Every prediction beside its newest measurement, and what reading had to drop."""
    warnings: list[str] = []
    return predictions.ledger(root, warnings), warnings


def _must_be_unmeasured(root: str, config: str, concurrency: int, scenario: str | None) -> None:
    store = Store(root)
    for entry in store.list():
        if scenario is not None and entry.scenario != scenario:
            continue  # a configuration of that name in another campaign is another one
        if entry.config == config and any(c.concurrency == concurrency for c in store.open(entry.id).cells()):
            raise UsageError(
                f"{config} was measured at C={concurrency} already ({entry.id})",
                "a prediction comes before its measurement; name the configuration that is still to be run",
            )


def _share(wanted: FromShares, concurrency: int) -> tuple[float, str, str]:
    """Share, denominator and source of a component at this concurrency."""
    try:
        raw = wanted.path.read_bytes()
    except OSError as e:
        raise UsageError(f"--from-shares {wanted.path}: {e.strerror}", "give a kernels.json") from e
    document = decode(raw, SharesDocument, str(wanted.path))
    configs = sorted({s.config for s in document.shares})
    if wanted.config is None and len(configs) > 1:
        raise UsageError(f"{wanted.path} has shares of {', '.join(configs)}", "name one with --parent")
    config = wanted.config or (configs[0] if configs else "")
    there = [s for s in document.shares if (s.config, s.concurrency) == (config, concurrency)]
    own = [s for s in there if s.component == wanted.component]
    if not own:
        given = ", ".join(
            sorted({f"{s.component} at C={s.concurrency}" for s in document.shares if s.config == config})
        )
        raise Unanswerable(
            f"{wanted.path}: no share of {wanted.component} for {config or 'any config'} at C={concurrency}",
            f"profile it there; the file has {given or 'nothing of that configuration'}",
        )
    return sum(s.share_frac for s in own), own[0].of, document.source


def _interval(share: float, kernel_speedup: float) -> tuple[float, float]:
    if not kernel_speedup > 0:
        raise UsageError(f"--kernel-speedup {kernel_speedup}", "above 0; 5 means five times faster")
    bound = amdahl([Share(name="component", share_frac=share, of="span", speedup=kernel_speedup)])
    if bound < 1:  # a slower kernel: the loss may be smaller than computed, not larger
        return bound * (1 - ABOVE_BOUND_FRAC), 1 - (1 - bound) * OF_GAIN
    return 1 + (bound - 1) * OF_GAIN, bound * (1 + ABOVE_BOUND_FRAC)


def _cell(p: Prediction, document: VerdictDocument) -> CellVerdict | None:
    """The verdict that answers a prediction, if this comparison may answer it."""
    if not _is_after(p, document) or p.scenario not in (None, document.campaign):
        return None
    for lever in document.levers:
        if lever.config == p.config and (_parts(p.lever) != set(lever.levers) or lever.status in NO_ANSWER):
            return None
    if not any(lever.config == p.config for lever in document.levers):
        return None
    cells = [v for v in document.cells if (v.metric, v.config, v.concurrency) == (p.metric, p.config, p.concurrency)]
    if p.parent is not None:
        return next((v for v in cells if v.versus_name == p.parent), None)
    return next((v for v in cells if v.versus == "parent"), None)


def _parts(lever: str) -> set[str]:
    """The levers that a name such as "a + b" joins."""
    return {part.strip() for part in lever.split("+") if part.strip()}


def _is_after(p: Prediction, document: VerdictDocument) -> bool:
    """Whether every experiment of the configuration began after the prediction; ids carry their start."""
    ids = [i for note in document.inputs if note.name == p.config for i in note.ids]
    starts = [_start(i) for i in ids]
    written = datetime.fromisoformat(p.created_utc).replace(microsecond=0)
    return bool(starts) and all(s is not None and s >= written for s in starts)


def _start(experiment_id: str) -> datetime | None:
    found = re.match(r"(\d{8}T\d{6})Z-", experiment_id)
    return datetime.strptime(found.group(1), "%Y%m%dT%H%M%S").replace(tzinfo=UTC) if found else None
