"""SIGKILL at any moment leaves a store that reads, with every acknowledged line, and that can be resumed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsv4bench.records.experiment import Status
from dsv4bench.store.store import Store

WRITER = """
import sys, pathlib
from store_samples import *
root = pathlib.Path(sys.argv[1])
found = Store(root).find_resumable("baseline", "c16", WORKLOAD.fingerprint(), PLAN)
e = Store(root).resume(found.id) if found else make_experiment(root)
n = len(e.done())
while True:
    cell = f"r{n}"
    e.append_telemetry([make_sample(n, cell=cell)])
    e.append_requests(cell, [make_request(i, n=200) for i in range(5)])
    e.append_cell(make_cell(cell))
    e.update(extra={"n": n})
    print(n, flush=True)
    n += 1
"""


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_writer_can_be_read_and_resumed(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    acknowledged = -1
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], env=env, stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        first = int(writer.stdout.readline())
        assert first > acknowledged or acknowledged == -1  # it goes on, and does not begin anew
        time.sleep(rng.uniform(0.0, 0.15))
        writer.kill()
        acknowledged = int((writer.stdout.read().splitlines() or [str(first)])[-1])
        writer.wait()

        (entry,) = Store(tmp_path).list()
        assert entry.status is Status.ABORTED
        reader = Store(tmp_path).open(entry.id)
        names = [c.cell for c in reader.cells()]
        assert names == [f"r{i}" for i in range(len(names))]
        assert len(names) - 1 in (acknowledged, acknowledged + 1)
        counts = dict.fromkeys(names, 0)
        for r in reader.requests():
            counts[r.cell] = counts.get(r.cell, 0) + 1
        assert all(counts[name] == 5 for name in names)

    with Store(tmp_path).resume(entry.id) as e:
        assert not list(e.path.glob(".*.tmp"))
        e.finish()
    done = Store(tmp_path).open(entry.id)
    series = done.series()
    assert done.experiment.status is Status.COMPLETE and done.warnings == []
    assert series is not None and [c.n_requests for c in series.cells] == [5] * len(done.cells())
