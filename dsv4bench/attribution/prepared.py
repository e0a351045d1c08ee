"""What a breakdown and the steps of one trace both stand on, so that it is found once.

That is the trace with possible durations and the component of every row. Whoever wants both holds it as long as it
takes, and no longer: of a million kernels it is some tens of megabytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dsv4bench.attribution.components import Assignment, assign
from dsv4bench.attribution.repair import repaired
from dsv4bench.records.rules import Rules
from dsv4bench.records.trace import KernelTrace


class Prepared(NamedTuple):
    """A trace with possible durations, which rows were changed for it, and every row's component."""

    trace: KernelTrace
    changed: npt.NDArray[np.bool_]
    assignment: Assignment


def prepared(trace: KernelTrace, rules: Rules) -> Prepared:
    """As `rules` say; the trace itself where nothing had to be repaired."""
    trace, changed = repaired(trace)
    return Prepared(trace, changed, assign(trace, rules))
