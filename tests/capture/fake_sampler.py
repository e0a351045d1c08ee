"""`pm_process` on a fake binding, a process for the tests of its parent; the first argument says what it does."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fake_cupti import FakeCupti, Result

from dsv4bench.capture import pm_process

COMMAND = (sys.executable, str(Path(__file__).resolve()))


def main(kind: str, rest: list[str]) -> int:
    binding = FakeCupti()
    if kind == "forbidden":
        binding = FakeCupti(fails={"pm_sampling_enable": Result.ERROR_INSUFFICIENT_PRIVILEGES})
    if kind == "old-library":
        binding = FakeCupti(fails={"profiler_host_initialize": Result.ERROR_INVALID_PARAMETER})
    if kind == "crash":
        print("a library died", file=sys.stderr)
        os._exit(9)
    if kind == "dies-while-recording":
        binding.clock_ns = dying(time.time())
    if kind == "mute":
        time.sleep(60)
    if kind == "overflowing":
        binding.room = 400  # samples: fewer than come while the first decode is made to wait
        pm_process.MOST_BETWEEN_S = 0.6
    if kind == "drowning":
        binding.room = 1
    if kind == "other-clock":
        binding.offset_ns = -3600 * 10**9
    pm_process.load_binding = lambda path: greeting(binding)  # type: ignore[assignment]
    return pm_process.main(rest)


def greeting(binding: FakeCupti) -> FakeCupti:
    os.write(1, b"a library greets on stdout\n")
    return binding


def dying(began: float):  # type: ignore[no-untyped-def]
    def clock() -> int:
        if time.time() > began + 2.0:
            os._exit(7)
        return time.time_ns()

    return clock


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
