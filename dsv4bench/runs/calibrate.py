"""`dsv4bench calibrate NAME…`: the noise floor of this rig from relaunches or repeats of one configuration.

Each name is an experiment (or several, with --pool); one value of the server's start time is one launch, also across
experiments. The result goes to results/calibration.json, which `compare` and `gate` read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dsv4bench.compare.calibrate import calibrate
from dsv4bench.errors import UsageError
from dsv4bench.records.calibration import Calibration
from dsv4bench.runs.arms import load_arms
from dsv4bench.store import calibration
from dsv4bench.store.naming import iso, utc_now


def run_calibrate(names: Sequence[str], root: str, *, pool: bool = False) -> tuple[Calibration, Path]:
    """Measure nothing, compute and store. Raises BenchError."""
    if not names:
        raise UsageError("calibrate needs a name", "dsv4bench calibrate NAME --pool, or the ids of relaunches")
    found = calibrate(load_arms(list(dict.fromkeys(names)), root, pool), iso(utc_now()))
    return found, calibration.write(Path(root), found)
