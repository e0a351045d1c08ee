"""What is known of one capture: recorded beside not recorded, and how many tokens a decode step brings.

The recorder's inflation is TPOT with it over TPOT without it, each from a run of its own under the same load.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4bench.attribution.activity import activity
from dsv4bench.capture.nsys_gpus import missing_gpus
from dsv4bench.capture.parallel import ranks_of, ranks_of_args
from dsv4bench.errors import Unanswerable
from dsv4bench.host.nvml import compute_capability
from dsv4bench.records.breakdown import CaptureNote
from dsv4bench.records.capture import Captured
from dsv4bench.records.device import DeviceActivity
from dsv4bench.records.server import Gauges, ServerInfo
from dsv4bench.runs.live_options import command_of
from dsv4bench.runs.steady import Window
from dsv4bench.server.gauges import delta

ONE_TOKEN = 1.02  # tokens a chunk up to which a server that tells nothing is taken not to speculate
MUCH = 1.15  # the plan is refused beyond


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """C requests held and not recorded."""

    tpot_s: float | None
    tokens_a_step: float | None
    output_tok_s: float | None


def reference_of(concurrency: int, window: Window, tokens_a_step: float | None) -> Reference:
    tpot = window.tpot_s
    return Reference(tpot_s=tpot, tokens_a_step=tokens_a_step, output_tok_s=None if not tpot else concurrency / tpot)


def tokens_a_step(before: Gauges | None, after: Gauges | None, window: Window) -> float | None:
    """Tokens that a decode step brings a request: 1, or the acceptance length; None where nothing tells.

    Counters of drafts tell; a server with metrics and without such counters does not speculate; else one token a
    chunk says as much.
    """
    drafts = delta(before, after, "spec_drafts_total")
    accepted = delta(before, after, "spec_accepted_total")
    if drafts and accepted is not None:
        return 1 + accepted / drafts
    if after is not None and after.spec_accept_length:
        return after.spec_accept_length
    if after is not None and after.output_tokens_total is not None:
        return 1.0
    return 1.0 if window.tokens_per_chunk is not None and window.tokens_per_chunk <= ONE_TOKEN else None


def note_of(
    *,
    label: str,
    role: str,
    concurrency: int,
    isl: int,
    window: Window,
    reference: Reference | None,
    files: Sequence[str],
    more: Sequence[str] = (),
) -> CaptureNote:
    """What the document keeps. `reference` None: a role whose TPOT means nothing. `more` are further notes."""
    captured = window.captured
    assert captured is not None, "a window that was recorded"
    known = reference or Reference(tpot_s=None, tokens_a_step=None, output_tok_s=None)
    inflation = window.tpot_s / known.tpot_s if window.tpot_s and known.tpot_s else None
    notes = [*window.notes, *more]
    if reference is not None and known.tokens_a_step is None:
        notes.append("tokens a step are not known, so a step is not compared with TPOT: give --accept-length")
    return CaptureNote(
        label=label,
        method=captured.method,
        concurrency=concurrency,
        role=None if role == "decode" else role,
        isl=isl,
        steps_asked=captured.steps_asked or 0,
        steps_seen=captured.steps_seen,
        window_s=captured.seconds,
        tokens_a_step=known.tokens_a_step,
        tpot_without_s=known.tpot_s,
        tpot_with_s=window.tpot_s,
        inflation_ratio=inflation,
        output_tok_s=known.output_tok_s,
        replaced=window.replaced,
        running=window.running,
        activity=_activity(captured),
        files=[Path(f).name for f in files],
        notes=list(dict.fromkeys(notes)),
    )


def note_line(n: CaptureNote) -> str:
    """`c16: 31 decode steps in 0.93 s; TPOT 29.8 ms recorded by torch, 27.1 ms not: x1.10`."""
    what = "requests" if n.role == "prefill" else "decode steps"
    line = f"{n.label}: {n.steps_seen or 0} {what} in {n.window_s or 0:.2f} s"
    if n.tpot_with_s is None or n.tpot_without_s is None or n.inflation_ratio is None:
        return line
    line += f"; TPOT {1e3 * n.tpot_with_s:.2f} ms recorded by {n.method}, {1e3 * n.tpot_without_s:.2f} ms not"
    line += f": x{n.inflation_ratio:.2f}"
    if n.inflation_ratio > MUCH and n.method == "torch":
        line += "; --gpu-only records less, --with nsys --launch too"
    return line


def unseen_gpus(files: Sequence[str], launch: str | None, info: ServerInfo) -> list[str]:
    """What an nsys export lacks of a server that spreads over several GPUs."""
    ranks = ranks_of(command_of(launch)[0]) if launch is not None else ranks_of_args(info.args)
    return [text for file in files if (text := missing_gpus(Path(file), ranks)) is not None]


def elsewhere(captures: Sequence[tuple[Captured, CaptureNote]], host: str) -> Unanswerable:
    """The traces were written, and cannot be seen from here: where they are, and what to do with them."""
    places = "; ".join(f"{n.label} in {c.server_path or 'its torch_profiler_dir'}" for c, n in captures)
    options = [f"--trace {n.label}=FILE" for _, n in captures]
    worst = max((n.inflation_ratio or 0.0 for _, n in captures), default=0.0)
    inflation = f" --inflation {worst:.2f}" if worst else ""
    return Unanswerable(
        f"the traces are not on this host: {places} (on {host}, or in its container)",
        f"copy them here, then: dsv4bench profile {' '.join(options)}{inflation} --kernel-breakdown; "
        "--trace-dir DIR names a folder that both see",
    )


def _activity(captured: Captured) -> DeviceActivity | None:
    if not captured.samples:
        return None
    method = captured.notes[0].partition(":")[0] if captured.notes else captured.method
    window_ns = (captured.opened.epoch_ns, captured.closed.epoch_ns)
    return activity(captured.samples, window_ns, method, compute=compute_capability(captured.samples[0].device))
