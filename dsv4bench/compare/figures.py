"""The figures that a sentence speaks of: one metric of one configuration at one concurrency, and its change.

An audit needs the printed figure, about-values included, with the interval that its rounding leaves open; what may
enter a verdict is the matter of `samples`. A change is new over base minus one, and always names its base.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, geometric_mean

import msgspec

from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell
from dsv4bench.records.verdict import TableFigure


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """The mean over the valid cells there. `half` is half of the last printed digit, 0 for measured figures."""

    value: float
    half: float
    about: bool
    n: int

    @property
    def text(self) -> str:
        return f"{'~' if self.about else ''}{short(self.value)}"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """From `base` to `config`. Low and high are what rounding leaves open."""

    config: str
    base: str
    concurrency: int
    old: Figure
    new: Figure
    delta_frac: float
    low_frac: float
    high_frac: float

    @property
    def about(self) -> bool:
        return self.old.about or self.new.about

    def text(self, unit: str) -> str:
        """`+46.7 % vs A (10.7 → 15.7 tok/s)`."""
        return f"{percent(self.delta_frac)} vs {self.base} ({self.old.text} → {self.new.text} {unit})"

    @property
    def rounding_text(self) -> str:
        """What the printed digits allow; empty for measured figures."""
        if self.low_frac == self.high_frac:
            return ""
        return f"{percent(self.low_frac)} to {percent(self.high_frac)} by rounding"


def arm_named(arms: Sequence[Arm], name: str | None) -> Arm | None:
    return next((a for a in arms if a.name == name), None)


def figure(arms: Sequence[Arm], config: str, metric: str, concurrency: int) -> Figure | None:
    """None when nothing valid was measured there, or at several prompt lengths."""
    arm = arm_named(arms, config)
    cells = [c for c in arm.cells if c.concurrency == concurrency and c.invalid is None] if arm else []
    return None if len({c.isl for c in cells}) > 1 else _mean(cells, metric)


def centre(values: Sequence[float]) -> float:
    """The geometric mean, of which log-scale effects are ratios; the plain mean where a value is not positive."""
    return geometric_mean(values) if all(v > 0 for v in values) else fmean(values)


def _mean(cells: Iterable[Cell], metric: str) -> Figure | None:
    told: list[tuple[Cell, float]] = [(c, v) for c in cells if (v := getattr(c, metric, None)) is not None]
    if not told:
        return None
    return Figure(
        value=centre([v for _, v in told]),
        half=max(c.rounding.get(metric, 0.0) for c, _ in told),
        about=any(metric in c.approximate for c, _ in told),
        n=len(told),
    )


def table(arms: Iterable[Arm], metrics: Iterable[str]) -> list[TableFigure]:
    """Every figure of these metrics, at every coordinate that was measured and is valid."""
    found, wanted = [], list(metrics)
    for arm in arms:
        places: dict[tuple[int | None, float | None, int], list[Cell]] = {}
        for c in arm.cells:
            if c.invalid is None:
                places.setdefault((c.concurrency, c.rate_req_s, c.isl), []).append(c)
        for (concurrency, rate, isl), cells in places.items():
            for metric in wanted:
                f = _mean(cells, metric)
                if f is not None:
                    found.append(
                        TableFigure(
                            metric=metric,
                            config=arm.name,
                            concurrency=concurrency,
                            rate_req_s=rate,
                            isl=isl,
                            value=f.value,
                            half=f.half,
                            about=f.about,
                            n=f.n,
                        )
                    )
    return found


def change(arms: Sequence[Arm], config: str, base: str | None, metric: str, concurrency: int) -> Change | None:
    """None when either figure is missing, or the base is zero."""
    new = figure(arms, config, metric, concurrency)
    old = figure(arms, base, metric, concurrency) if base is not None else None
    if new is None or old is None or base is None or not old.value - old.half > 0:
        return None
    return Change(
        config=config,
        base=base,
        concurrency=concurrency,
        old=old,
        new=new,
        delta_frac=new.value / old.value - 1,
        low_frac=(new.value - new.half) / (old.value + old.half) - 1,
        high_frac=(new.value + new.half) / (old.value - old.half) - 1,
    )


def levels(arms: Sequence[Arm], metric: str) -> list[int]:
    """Every concurrency at which some arm has the metric."""
    return sorted(
        {
            c.concurrency
            for a in arms
            for c in a.cells
            if c.concurrency is not None and c.invalid is None and getattr(c, metric, None) is not None
        }
    )


def percent(frac: float, digits: int = 1) -> str:
    """`+46.7 %`, `−5.8 %`, `0.0 %`."""
    text = f"{100 * frac:.{digits}f}"
    if float(text) == 0:
        return f"{0:.{digits}f} %"
    return f"{'−' if frac < 0 else '+'}{text.lstrip('-')} %"


def share(frac: float, at_most: bool = False) -> str:
    """`38 %`, `<1 %`."""
    return f"{'<' if at_most else ''}{100 * frac:.3g} %"


def short(value: float) -> str:
    """Three significant digits, no exponent below a million."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
