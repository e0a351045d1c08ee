"""Runs functions of this folder under Triton's interpreter, in a Python of their own, and tells how each ended.

    results = outcomes("cuda_fused_checks")        {"check_x": "", "check_y": "Traceback ..."}

The interpreter is chosen when Triton is first imported, and takes seconds to start: one process a module of checks.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

_HERE = Path(__file__).parent
_MARK = "outcomes: "


def names(module: str) -> list[str]:
    """The checks of a module, read from its text: importing it here would choose how Triton runs."""
    lines = (_HERE / f"{module}.py").read_text().splitlines()
    return [line.removeprefix("def ").split("(")[0] for line in lines if line.startswith("def check_")]


def outcomes(module: str, timeout_s: float = 300) -> dict[str, str]:
    """Check -> its traceback, empty where it passed."""
    root = _HERE.parents[1]
    path = os.pathsep.join((str(root), str(_HERE), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, __file__, module],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    assert said, f"the checks did not run:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    found: dict[str, str] = json.loads(said[-1].removeprefix(_MARK))
    return found


def _main(module: str) -> None:
    checks = importlib.import_module(module)
    found = {}
    for name in names(module):
        begun = time.monotonic()
        try:
            getattr(checks, name)()
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
        print(f"{name}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
    print(_MARK + json.dumps(found))


if __name__ == "__main__":
    _main(sys.argv[1])
