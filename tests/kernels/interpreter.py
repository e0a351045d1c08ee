"""Runs code under Triton's interpreter, in a Python of its own: Triton chooses it when it is first imported.

run("answer = [1, 2]") == [1, 2]      # what the code leaves in `answer`, through JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_MARK = "answer: "  # kernels may print


def run(code: str, timeout_s: float = 240) -> Any:
    """The value of `answer` after `code`, which must be JSON. Fails with what the code printed where it raised.

    One thread: the arrays are small, and a test run may share its cores.
    """
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join((str(_ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))),
    }
    whole = f"{code}\nimport json\nprint({_MARK!r} + json.dumps(answer))\n"
    done = subprocess.run(
        [sys.executable, "-c", whole],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode or not said:
        raise AssertionError(f"the interpreted code failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return json.loads(said[-1].removeprefix(_MARK))
