"""A sweep that was stopped keeps what it measured, and goes on with the levels that are missing."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from openai_server import Behaviour, OpenAIServer, serve
from sweeping import Sweep, sweep

from dsv4bench.errors import UsageError
from dsv4bench.records.cell import Invalid
from dsv4bench.records.experiment import Status
from dsv4bench.runs.telemetry import Telemetry
from dsv4bench.store.store import Store

OPTIONS: dict[str, Any] = {"concurrency": [1, 2, 3], "requests": 6, "osl": 12}
NOTHING = "no unfinished sweep of this name, workload and plan"
LEVELS = ["r0-c1-i16", "r0-c2-i16", "r0-c3-i16"]


def interrupted(server: OpenAIServer, out: Path, running: int, **options: Any) -> Sweep:
    """Ctrl-C as soon as so many requests run at once."""
    pressed = []

    def press(body: dict[str, Any]) -> None:
        if server.running == running and not pressed:
            pressed.append(body)
            os.kill(os.getpid(), signal.SIGINT)

    server.behaviour.on_request = press
    swept = sweep(server.url, out, **{**OPTIONS, **options})
    server.behaviour.on_request = None
    assert pressed
    return swept


def test_ctrl_c_in_a_level_keeps_it_and_it_is_measured_again(tmp_path: Path) -> None:
    with serve(Behaviour(itl_s=0.008)) as server:
        first = interrupted(server, tmp_path, running=2)
        assert first.result.interrupted and first.result.status is Status.ABORTED and first.result.error is None
        assert [(c.cell, c.invalid) for c in first.cells] == [
            (LEVELS[0], None),
            (LEVELS[1], Invalid.INTERRUPTED),
        ]
        part = first.cells[1]
        assert part.n_cancelled > 0 and part.n_err == 0 and part.n_ok + part.n_cancelled == part.n_sent < 6
        assert [c.cell for c in first.stored.cells()] == LEVELS[:2]
        assert first.stored.experiment.reason == "interrupted"
        before = set(server.prompts())
        del server.bodies[:]
        second = sweep(server.url, tmp_path, resume=True, **OPTIONS)
        after = server.prompts()
    assert second.result.id == first.result.id and second.result.status is Status.COMPLETE
    assert [(c.cell, c.n_ok, c.invalid) for c in second.cells] == [(cell, 6, None) for cell in LEVELS]
    assert second.cells[0] == first.stored.cells()[0]  # as it was measured, not again
    assert {p.level for p in second.progress} == {"C=2 ISL 16", "C=3 ISL 16"}
    assert f"resuming {first.result.id}: 1 of 3 levels are done" in second.said
    assert [(c.cell, c.n_ok) for c in second.stored.cells()] == [(cell, 6) for cell in LEVELS]
    assert len(list(second.stored.requests(LEVELS[1]))) == 6
    # the interrupted attempt left its prompts in the server's cache: the next one must bring others
    assert not before & set(after) and len(after) == len(set(after)) == 3 + 6 + 6
    assert [c.prefix_hit_frac for c in second.cells[1:]] == [0.0, 0.0]
    assert second.stored.experiment.workload.seed == first.stored.experiment.workload.seed
    assert second.stored.experiment.extra == {"resumed": 1}


def test_ctrl_c_in_the_warm_up_ends_the_sweep(tmp_path: Path) -> None:
    with serve(Behaviour(itl_s=0.010)) as server:
        # 16 tokens, as only a warm-up asks for; its first wave of two is that of the second level
        swept = interrupted(server, tmp_path, running=2, warmup=True, requests=1, osl=20)
        assert server.bodies[-1]["max_tokens"] == 16
    assert swept.result.interrupted and [c.cell for c in swept.cells] == LEVELS[:1]


def test_ctrl_c_right_behind_a_level_keeps_it_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the server's counters are awaited."""
    asked = []
    settled = Telemetry._settled

    def press(self: Telemetry) -> object:
        asked.append(1)
        if len(asked) == 4:  # two a level: before and after
            raise KeyboardInterrupt
        return settled(self)

    monkeypatch.setattr(Telemetry, "_settled", press)
    with serve() as server:
        swept = sweep(server.url, tmp_path, concurrency=[1, 2, 3])
    assert swept.result.interrupted and swept.result.status is Status.ABORTED
    assert [(c.cell, c.n_ok) for c in swept.stored.cells()] == [(cell, 4) for cell in LEVELS[:2]]
    assert swept.cells[1].invalid is not Invalid.INTERRUPTED and swept.cells[1].server_output_tokens is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_terminals_ctrl_c_does_not_reach_the_load_workers(tmp_path: Path) -> None:
    """It goes to the whole foreground group; a worker that is still starting would die of it with a traceback."""
    groups = []

    def look(body: dict[str, Any]) -> None:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parent, group = stat.read_text().rpartition(")")[2].split()[1:3]
                if int(parent) == os.getpid() and b"load.worker" in (stat.parent / "cmdline").read_bytes():
                    groups.append(int(group))

    with serve(Behaviour(on_request=look)) as server:
        sweep(server.url, tmp_path, concurrency=[1], requests=1)
    assert groups and os.getpgid(0) not in groups


def test_only_the_same_sweep_is_gone_on_with(tmp_path: Path) -> None:
    with serve(Behaviour(models=["a", "b"], itl_s=0.010)) as server:
        options = {"concurrency": [2], "requests": 4, "osl": 10, "model": "a"}
        first = interrupted(server, tmp_path, running=2, **options)
        server.behaviour.itl_s = 0.001
        for change in ({"requests": 2}, {"osl": 6}, {"name": "other"}):
            other = sweep(server.url, tmp_path, resume=True, **{**options, **change})
            assert other.result.id != first.result.id and other.result.status is Status.COMPLETE
            assert f"nothing to resume: {NOTHING}; starting a new one" in other.said
        with pytest.raises(UsageError, match=r"cannot go on: it measured another server \(model 'a' -> 'b'\)"):
            sweep(server.url, tmp_path, resume=True, **{**options, "model": "b"})
    assert first.result.interrupted and first.stored.done() == set()
    assert len(Store(tmp_path).list()) == 4
