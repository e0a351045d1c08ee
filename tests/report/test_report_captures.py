"""How captures of a running server are shown."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from dsv4bench.records.breakdown import BreakdownDocument, CaptureNote, LiveLabel
from dsv4bench.records.device import DeviceActivity, Share
from dsv4bench.report.breakdown import print_breakdown
from dsv4bench.report.captures import activity_line, capture_lines, live_lines

TABLE = """\
Captures
                                TPOT ms  TPOT ms                  step ms       step ms
label  by     steps  window s  recorded      not  inflation  in the trace  not recorded  difference  running
c16    torch     31      0.93     29.80    27.10      x1.10         60.10         54.20     +10.9 %       16
c1     torch     31      0.93         –    27.10          –         60.10         54.20     +10.9 %       16
"""


def note(**fields: Any) -> CaptureNote:
    known: dict[str, Any] = {"label": "c16", "method": "torch", "concurrency": 16, "steps_asked": 30}
    known |= {"steps_seen": 31, "window_s": 0.93, "tokens_a_step": 2.0, "running": 16.0}
    known |= {"tpot_without_s": 0.0271, "tpot_with_s": 0.0298, "inflation_ratio": 1.0996}
    return CaptureNote(**{**known, "trace_step_s": 0.0601, "step_difference_frac": 0.109, **fields})


def printed(document: BreakdownDocument) -> str:
    out = io.StringIO()
    print_breakdown(document, Console(file=out, width=200))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_the_table() -> None:
    text = printed(BreakdownDocument(captures=[note(), note(label="c1", tpot_with_s=None, inflation_ratio=None)]))
    assert text.startswith(TABLE)


def test_a_difference_is_explained_or_not() -> None:
    assert capture_lines([note()]) == [
        "c16: the trace's step differs by +10.9 % from the one that was not recorded; the recorder's own inflation "
        "is x1.10 and explains it"
    ]
    assert "does not explain it" in capture_lines([note(step_difference_frac=0.6)])[0]
    assert "is not known" in capture_lines([note(inflation_ratio=None)])[0]
    assert capture_lines([note(step_difference_frac=0.099)]) == []


def test_what_is_live() -> None:
    known = LiveLabel(label="c16", moe=["marlin"], attention=["fallback-mh", "flashinfer"])
    unknown = LiveLabel(moe=[], attention=[], notes=["moe: no rule names the implementation of x"])
    assert live_lines([known, unknown]) == [
        "c16: live by its kernels: moe marlin, attention fallback-mh+flashinfer",
        "moe: no rule names the implementation of x",
    ]
    assert "live by its kernels" in printed(BreakdownDocument(live=[known]))


def test_the_gpus_over_a_window() -> None:
    share = Share(metric="sm__pipe_tensor_cycles_active", mean_frac=0.0123, p50_frac=0.01, p99_frac=0.05)
    a = DeviceActivity(
        method="CUPTI PM sampling",
        gpus=[0, 1],
        compute="9.0",
        window="steady",
        window_s=2.0,
        interval_s=2e-4,
        n_samples=10_000,
        n_dropped=0,
        tensor_pipe=share,
    )
    assert activity_line(a) == (
        "GPU 0, 1 over 2.00 s by CUPTI PM sampling, of elapsed cycles: tensor pipe 1.2 % (p50 1.0, p99 5.0); packed "
        "half arithmetic (HFMA2) runs on this GPU's tensor pipe, too"
    )
    assert capture_lines([note(activity=a, step_difference_frac=None)]) == [f"c16: {activity_line(a)}"]
