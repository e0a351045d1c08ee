"""`dsv4bench serve` as it would run on a GPU under nsys, on a machine that has neither.

Its capture range tells the stand-in for nsys what the CUDA runtime would tell the real one; all else is its own.
The stand-in finds its session through the folder in RANGED_HOME, which the test names once the session is made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dsv4bench.engine import profiler


class Range:
    """In the place of the range that calls cudaProfilerStart and cudaProfilerStop."""

    home = ""
    calls = Path()

    def __init__(self) -> None:
        self._say("start")

    def stop(self) -> None:
        self._say("stop")

    def _say(self, what: str) -> None:
        import nsys_double

        with self.calls.open("a") as file:
            file.write(f"{what}\n")
        nsys_double.in_range(what == "start", json.loads(Path(self.home).read_text()))


class Profiler(profiler.StepProfiler):
    """Takes the activity CUDA_PROFILER, as on a GPU; nothing else of CUDA is asked for."""

    def start(self, request: profiler.ProfileRequest) -> None:
        self._activities = self._activities[:1] * (2 if request.bounds_a_capture else 1)
        super().start(request)


if __name__ == "__main__":
    Range.home, Range.calls = sys.argv[1], Path(sys.argv[2])
    sys.path.insert(0, sys.argv[3])
    profiler._CaptureRange = Range  # type: ignore[assignment, misc]
    from dsv4bench.engine import loop

    loop.StepProfiler = Profiler  # type: ignore[misc]
    from dsv4bench.cli.main import main

    sys.argv = ["dsv4bench", "serve", *sys.argv[4:]]
    sys.exit(main())
