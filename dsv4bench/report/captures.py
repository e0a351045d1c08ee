"""How the labels of a live profile were captured: steps, TPOT with and without the recorder, the trace's own step.

The difference says whether the trace can speak for the server: its decode step against TPOT that was measured without
a recorder, in percent of the latter.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from dsv4bench.records.breakdown import CaptureNote, LiveLabel
from dsv4bench.records.device import DeviceActivity, Share
from dsv4bench.report.activity import HFMA2_ON_TENSOR_PIPE
from dsv4bench.report.breakdown_values import DASH, number, text_table

SOUND_FRAC = 0.10


def captures_table(captures: Sequence[CaptureNote]) -> Table:
    """One row a label."""
    table = text_table(
        "Captures",
        ["label", "by"],
        [
            "\nsteps",
            "\nwindow s",
            "TPOT ms\nrecorded",
            "TPOT ms\nnot",
            "\ninflation",
            "step ms\nin the trace",
            "step ms\nnot recorded",
            "\ndifference",
            "\nrunning",
        ],
        [],
    )
    for c in captures:
        without = None if c.tokens_a_step is None else _times(c.tpot_without_s, c.tokens_a_step)
        table.add_row(
            Text(c.label),
            Text(c.method),
            Text(number(c.steps_seen)),
            Text(DASH if c.window_s is None else f"{c.window_s:.2f}"),
            Text(_ms(c.tpot_with_s)),
            Text(_ms(c.tpot_without_s)),
            Text(DASH if c.inflation_ratio is None else f"x{c.inflation_ratio:.2f}"),
            Text(_ms(c.trace_step_s)),
            Text(_ms(without)),
            Text(DASH if c.step_difference_frac is None else f"{100 * c.step_difference_frac:+.1f} %"),
            Text(number(c.running)),
        )
    return table


def capture_lines(captures: Sequence[CaptureNote]) -> list[str]:
    """What the table does not say: a difference that the recorder explains or does not, and the captures' notes."""
    found = []
    for c in captures:
        if c.step_difference_frac is not None and abs(c.step_difference_frac) > SOUND_FRAC:
            found.append(f"{c.label}: {_difference(c, c.step_difference_frac)}")
        if c.activity is not None:
            found.append(f"{c.label}: {activity_line(c.activity)}")
        found += [f"{c.label}: {note}" for note in c.notes]
    return found


def live_lines(live: Sequence[LiveLabel]) -> list[str]:
    """Which implementations ran, by the names of the kernels."""
    found = []
    for one in live:
        where = f"{one.label}: " if one.label else ""
        if one.moe or one.attention:
            found.append(f"{where}live by its kernels: {one.text}")
        found += [f"{where}{note}" for note in one.notes]
    return found


def activity_line(a: DeviceActivity) -> str:
    """Shares of elapsed cycles over the window, each mean, p50 and p99."""
    shares = (("tensor pipe", a.tensor_pipe), ("matrix instructions", a.tensor_mma), ("SMs", a.sm), ("DRAM", a.dram))
    told = ", ".join(f"{name} {_share(share)}" for name, share in shares if share is not None)
    gpus = ", ".join(map(str, a.gpus))
    line = f"GPU {gpus} over {a.window_s:.2f} s by {a.method}, of elapsed cycles: {told or 'nothing told'}"
    if a.tensor_mma is None and a.compute in HFMA2_ON_TENSOR_PIPE:
        line += "; packed half arithmetic (HFMA2) runs on this GPU's tensor pipe, too"
    return line


def _difference(c: CaptureNote, difference: float) -> str:
    text = f"the trace's step differs by {100 * difference:+.1f} % from the one that was not recorded"
    if c.inflation_ratio is None:
        return f"{text}, and the recorder's inflation is not known"
    known = f"the recorder's own inflation is x{c.inflation_ratio:.2f}"
    explained = abs(c.inflation_ratio - 1 - difference) <= SOUND_FRAC
    return f"{text}; {known} and {'explains it' if explained else 'does not explain it'}"


def _share(s: Share) -> str:
    return f"{100 * s.mean_frac:.1f} % (p50 {100 * s.p50_frac:.1f}, p99 {100 * s.p99_frac:.1f})"


def _times(a: float | None, b: float) -> float | None:
    return None if a is None else a * b


def _ms(seconds: float | None) -> str:
    return DASH if seconds is None else f"{1e3 * seconds:.2f}"
