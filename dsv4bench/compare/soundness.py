"""Is one cell fit to be gated by? It was measured, all of it, and its own numbers agree with each other.

A gate that passed because nothing was measured is the commonest failure of gates, so every rule is positive: a
cell is sound when something recorded says so, not when nothing says otherwise. Little's law is checked over the
whole level: completed requests a second times their mean E2E is the mean number in flight, which may not exceed
C, and may fall below it by no more than the drain of the last requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from dsv4bench.compare.gate import GATING
from dsv4bench.records.cell import Cell
from dsv4bench.records.request import TokenSource

LITTLE_FRAC = 0.03
ARITHMETIC_FRAC = 0.02
OSL_FRAC = 0.01


class Breach(msgspec.Struct, frozen=True):
    """One reason why nothing may be concluded; `code` is for machines."""

    code: str
    text: str

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


def breaches_of(c: Cell, where: str, max_error_frac: float, ignore_eos: bool) -> Iterator[Breach]:
    """What is wrong with one cell; `where` names arm, level, launch and repeat."""
    if not c.n_ok > 0:
        yield Breach("no_requests", f"{where}: no request succeeded ({c.n_sent} sent)")
        return
    if not c.n_err <= max_error_frac * c.n_sent:
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(c.errors.items())) or f"{c.n_err} errors"
        yield Breach("errors", f"{where}: {kinds} of {c.n_sent} requests")
    if c.invalid is not None:
        yield Breach("invalid", f"{where}: {c.invalid}: {c.invalid_why or 'no reason recorded'}")
    if c.token_source is not TokenSource.USAGE:
        yield Breach("token_source", f"{where}: tokens come from {c.token_source}, a gate needs the server's usage")
    yield from _numbers(c, where)
    yield from _lengths(c, where, ignore_eos)
    yield from arithmetic(c, where)
    yield from _littles_law(c, where)


def _numbers(c: Cell, where: str) -> Iterator[Breach]:
    for name in GATING:
        value = getattr(c, name)
        if value is None:
            if name == "output_tok_s":
                yield Breach("missing_value", f"{where}: no {name} ({c.why_null.get(name, 'no reason recorded')})")
        elif not math.isfinite(value):
            yield Breach("not_finite", f"{where}: {name} is {value}")
        elif not value > 0:
            yield Breach("not_positive", f"{where}: {name} is {value:g}")
        if name in c.approximate:
            yield Breach("approximate", f"{where}: {name} is only given as about {value}")
    if c.duration_s is not None and not c.duration_s > 0:
        yield Breach("duration", f"{where}: it lasted {c.duration_s:g} s")


def _lengths(c: Cell, where: str, ignore_eos: bool) -> Iterator[Breach]:
    if ignore_eos and c.osl is not None and c.osl_mean is not None and not _near(c.osl_mean, c.osl, OSL_FRAC):
        yield Breach("token_parity", f"{where}: {c.osl_mean:g} output tokens a request, {c.osl} were asked for")


def arithmetic(c: Cell, where: str) -> Iterator[Breach]:
    """Tokens over time is the throughput; a file in which it is not holds another quantity under that name."""
    if c.output_tokens is None or not c.duration_s or c.output_tok_s is None:
        return
    derived = c.output_tokens / c.duration_s
    if not _near(c.output_tok_s, derived, ARITHMETIC_FRAC):
        yield Breach(
            "arithmetic",
            f"{where}: output_tok_s {c.output_tok_s:.4g}, but {c.output_tokens} tokens in {c.duration_s:.4g} s "
            f"are {derived:.4g}",
        )


def _littles_law(c: Cell, where: str) -> Iterator[Breach]:
    in_flight = in_flight_of(c)
    if c.concurrency is None or in_flight is None:
        return
    longest = c.e2e_p99_s if c.e2e_p99_s is not None else c.e2e_mean_s
    drain = min(1.0, (longest or 0.0) / c.duration_s) if c.duration_s else 1.0
    low, high = c.concurrency * (1 - drain) * (1 - LITTLE_FRAC), c.concurrency * (1 + LITTLE_FRAC)
    if not low <= in_flight <= high:
        yield Breach(
            "littles_law",
            f"{where}: {c.request_s:.4g} requests/s × {c.e2e_mean_s:.4g} s are {in_flight:.3g} in flight, "
            f"C={c.concurrency} allows {low:.3g} to {high:.3g}",
        )
    held = c.achieved_batch if c.steady_s else None
    if held is not None and not _near(held, c.concurrency, LITTLE_FRAC):
        yield Breach(
            "littles_law", f"{where}: {held:.3g} in flight in the steady window, C={c.concurrency} was asked"
        )


def in_flight_of(c: Cell) -> float | None:
    """By Little's law, over the whole level."""
    return None if c.request_s is None or c.e2e_mean_s is None else c.request_s * c.e2e_mean_s


def _near(value: float, wanted: float, tolerance_frac: float) -> bool:
    return abs(value - wanted) <= tolerance_frac * abs(wanted)
