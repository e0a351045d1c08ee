"""A target throughput, the plan that shall lead there, and how far the plan can lead at most.

A ceiling is joint Amdahl over the kernel shares at the target's own concurrency; it is an upper bound, no forecast.
"""

from __future__ import annotations

import msgspec


class PlanItem(msgspec.Struct, frozen=True, kw_only=True):
    """One change. `kernel_speedup` None: its components become free, which no kernel does."""

    name: str
    components: list[str]
    kernel_speedup: float | None = None
    effort: str | None = None


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """Where the user wants to arrive, from which configuration."""

    config: str
    concurrency: int
    output_tok_s: float
    plan: list[PlanItem] = msgspec.field(default_factory=list)


class PlanReach(msgspec.Struct, frozen=True, kw_only=True):
    """One item of the plan: its ceiling alone, and with every item before it."""

    name: str
    components: list[str]
    share_frac: float
    kernel_speedup: float | None
    effort: str | None
    alone_ratio: float | None  # None: without bound, everything that was named became free
    alone_tok_s: float | None
    joint_ratio: float | None
    joint_tok_s: float | None


class GoalReport(msgspec.Struct, frozen=True, kw_only=True):
    """How far a plan leads. `reached` None: it cannot be told, and `why` says so."""

    config: str
    concurrency: int
    target_tok_s: float
    measured_tok_s: float | None
    step_s: float | None
    needed_ratio: float | None
    needed_cut_frac: float | None  # of C/X at this concurrency (prefill in it), what must vanish
    unattributed_frac: float | None
    of: str | None  # the shares' denominator
    items: list[PlanReach] = msgspec.field(default_factory=list)
    reached: bool | None = None
    why: str = ""
    roofline_tok_s: float | None = None  # what the GPU would allow there; None: not known
    roofline_note: str = ""  # of which model and GPU it is, or why there is none
