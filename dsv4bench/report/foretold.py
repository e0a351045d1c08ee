"""What a prediction from the law of the base is set against: decoding by its own TPOT, or measured throughput.

A law of TPOT foretells C · tokens ÷ step, so it is set against the same of the new configuration. That is no measured
throughput: ramps, a request's own prefill and the drain are not in it. A law of throughput foretells throughput.
"""

from __future__ import annotations

from dsv4bench.records.verdict import ScalingReport, SpecPrediction

BY_TPOT, MEASURED = "by its own TPOT", "measured"
_OF_THROUGHPUT = "step time from throughput"


def against(scaling: ScalingReport | None, p: SpecPrediction) -> str:
    """What `measured_tok_s` of the prediction is: `by its own TPOT` or `measured`."""
    laws = [law for law in scaling.laws if law.config == p.base] if scaling is not None else []
    return MEASURED if any(n.startswith(_OF_THROUGHPUT) for law in laws for n in law.notes) else BY_TPOT


def beside(scaling: ScalingReport | None, p: SpecPrediction, shown: str) -> str:
    """`281 by its own TPOT`, `measured 281`; `shown` is the figure."""
    word = against(scaling, p)
    return f"{word} {shown}" if word == MEASURED else f"{shown} {word}"
