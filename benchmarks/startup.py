"""How long does `dsv4bench --help` take, against a bare typer application with as many verbs?

    python benchmarks/startup.py [--runs 20]

The bare application is written to a temporary folder: the same verbs, an empty function each, nothing imported but
typer. Both start in turns, so that a busy machine slows both. Prints the medians and their ratio, and exits with 1
when the ratio is above 1.5: then something heavy is imported before a verb is known.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.5
ROOT = Path(__file__).resolve().parent.parent


def bare_application(verbs: list[str]) -> str:
    lines = ["import typer", "", "app = typer.Typer(add_completion=False, rich_markup_mode=None)", ""]
    for i, verb in enumerate(verbs):
        lines += ["", f'@app.command("{verb}")', f"def verb_{i}() -> None:", f'    """Does {verb}."""', ""]
    return "\n".join([*lines, "", "app()", ""])


def seconds(command: list[str], cwd: Path) -> float:
    start = time.perf_counter()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description="startup of dsv4bench --help against a bare typer application")
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    sys.path.insert(0, str(ROOT))
    from dsv4bench.cli.main import app

    verbs = [command.name or "" for command in app.registered_commands]
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(bare_application(verbs), encoding="utf-8")
        commands = {
            "bare typer": [sys.executable, str(bare), "--help"],
            "dsv4bench": [sys.executable, "-m", "dsv4bench", "--help"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for run in range(runs + 1):
            for name, command in commands.items():
                taken = seconds(command, Path(folder))
                if run:  # the first one fills the caches
                    times[name].append(taken)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:<12} --help  median {1e3 * median:6.1f} ms  fastest {1e3 * min(times[name]):6.1f} ms")
    ratio = medians["dsv4bench"] / medians["bare typer"]
    print(f"ratio of medians {ratio:.2f} over {runs} runs each, {len(verbs)} verbs (limit {LIMIT})")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
