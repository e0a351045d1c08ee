"""A campaign on servers that are really launched: stubs in processes of their own, ended with it in every case."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsv4bench.records.campaign import Campaign, CampaignStatus, LaunchStatus, Live
from dsv4bench.runs.campaign import run_campaign
from dsv4bench.runs.campaign_begin import CampaignOptions
from dsv4bench.store.campaigns import CampaignDir
from dsv4bench.store.store import Store

ROOT = Path(__file__).resolve().parent.parent.parent
STUB = Path(__file__).resolve().parent / "stub_launch.py"
WAIT_S = 60.0

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are looked up in /proc")


def scenario(folder: Path, levels: str = "requests: 4", blocks: int = 1) -> Path:
    """Two configurations, told apart in a process list by the folder's name."""
    launch = f"{{python}} {STUB} --port {{port}} --say {folder}"
    file = folder / "e2e.yaml"
    file.write_text(
        f"""
name: e2e
server: {{ready_timeout_s: 60}}
workload: {{isl: [16], osl: 8, vocab: 1000}}
levels: {{concurrency: [1, 2], {levels}, warmup: false}}
blocks: {blocks}
parity: {{prompts: 1, isl: 8, osl: 4}}
configs:
  - {{name: baseline, launch: "{launch} --itl 0.004"}}
  - name: fast
    parent: baseline
    lever: itl
    launch: "{launch} graphs"
    live: {{log: [graphs]}}
""".replace(f"{folder} graphs", f"'{folder} graphs'")
    )
    return file


def running(folder: Path) -> list[int]:
    """Processes whose command line names the folder, the campaign's own left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(STUB).encode() in words and any(str(folder).encode() in w for w in words):
                found.append(int(entry.name))
    return found


def until(condition: Any, what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def stored(folder: Path) -> Campaign:
    (file,) = (folder / "results").glob("*/campaign.json")
    return CampaignDir.open(file.parent).campaign


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    yield


def test_servers_are_launched_measured_checked_and_ended(tmp_path: Path, patient: None) -> None:
    said: list[str] = []
    o = CampaignOptions(scenario=str(scenario(tmp_path)), out=str(tmp_path / "results"), report=False)
    result = run_campaign(o, lambda _: None, said.append)
    c = result.campaign
    assert c is not None and c.status is CampaignStatus.COMPLETE, (said, c)
    assert running(tmp_path) == []
    assert [(n.config, n.status) for n in c.launches] == [
        ("baseline", LaunchStatus.COMPLETE),
        ("fast", LaunchStatus.COMPLETE),
    ]
    assert all(n.ready_s and n.first_generation_s and n.command[:2] == ["{python}", str(STUB)] for n in c.launches)
    assert [x.state for x in c.live] == [Live.LIVE] and [p.config for p in c.parity] == ["fast"]
    store = Store(o.out)
    for n in c.launches:
        assert n.experiment is not None
        cells, head = store.open(n.experiment).cells(), store.open(n.experiment).experiment
        assert head.command == n.command
        assert {x.block for x in cells} == {0} and {x.concurrency for x in cells} == {1, 2}
    assert result.conclusion is not None and result.conclusion.document is not None
    assert sorted(p.name for p in (tmp_path / "results" / c.id / "logs").iterdir()) == [
        ".gitignore",
        "block0-baseline.log",
        "block0-fast.log",
    ]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 130)])
def test_whatever_ends_us_nothing_is_left_running_and_resume_goes_on(
    tmp_path: Path, patient: None, sent: signal.Signals, code: int
) -> None:
    file = scenario(tmp_path, levels="duration_s: 20")
    command = [sys.executable, "-m", "dsv4bench", "campaign", str(file), "--no-report", "--quiet", "--json"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    )
    try:
        until(lambda: list((tmp_path / "results").glob("*/run.json")), "the first sweep has begun")
        assert running(tmp_path)
        process.send_signal(sent)
        out, _ = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    assert process.returncode == code
    until(lambda: not running(tmp_path), "every server is gone")
    before = stored(tmp_path)
    assert before.status is CampaignStatus.ABORTED
    if sent is signal.SIGTERM:
        assert json.loads(out)["campaign"]["reason"] == "interrupted"
    partial = [e.id for e in Store(tmp_path / "results").list()]

    o = CampaignOptions(
        scenario=str(file), out=str(tmp_path / "results"), report=False, resume=True, stop_after_launches=1
    )
    shorter = file.read_text().replace("duration_s: 20", "duration_s: 1")
    file.write_text(shorter)
    _as_if_made_of(before, tmp_path, shorter)
    result = run_campaign(o, lambda _: None, lambda _: None)
    assert result.campaign is not None and result.campaign.id == before.id
    first = result.campaign.launches[0]
    assert first.status is LaunchStatus.COMPLETE and first.attempt == 2 and first.experiment not in partial
    assert result.campaign.status is CampaignStatus.PAUSED and running(tmp_path) == []


def _as_if_made_of(c: Campaign, folder: Path, text: str) -> None:
    """The levels of the resumed run are short, so the campaign is made to be one of the shorter scenario."""
    from dsv4bench.store.campaigns import sha256_of

    with CampaignDir.resume(folder / "results" / c.id) as opened:
        opened.update(scenario_sha256=sha256_of(text))


def test_a_server_that_crashes_hangs_or_finds_its_port_taken_is_noted(tmp_path: Path, patient: None) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        launch = f"{{python}} {STUB} --port {{port}}"
        text = scenario(tmp_path).read_text().replace("ready_timeout_s: 60", "ready_timeout_s: 30")
        for name, more in (
            ("crashes", f'launch: "{launch} --fault crash"'),
            ("hangs", f'launch: "{launch} --fault hang", ready_timeout_s: 2'),
            ("clash", f'launch: "{launch}", port: {port}'),
            ("dies", f'launch: "{launch} --fault later --after 2"'),
        ):
            text += f"  - {{name: {name}, parent: baseline, lever: {name}, {more}}}\n"
        file = tmp_path / "e2e.yaml"
        file.write_text(text)
        o = CampaignOptions(scenario=str(file), out=str(tmp_path / "results"), report=False)
        result = run_campaign(o, lambda _: None, lambda _: None)
    c = result.campaign
    assert c is not None and c.status is CampaignStatus.PARTIAL and running(tmp_path) == []
    failed = {n.config: n for n in c.launches if n.status is LaunchStatus.FAILED}
    assert set(failed) == {"crashes", "hangs", "clash", "dies"}
    assert failed["crashes"].cause is not None and "GPU memory" in failed["crashes"].cause
    assert "dsv4bench.capture.leash" not in (failed["crashes"].reason or "")
    assert "within 2 s" in (failed["hangs"].reason or "")
    assert f"port {port} of the server is taken" in (failed["clash"].reason or "")
    assert "exited with code 7 while it was measured" in (failed["dies"].reason or "")
    assert "illegal memory access" in (failed["dies"].log_tail or "")
    assert result.conclusion is not None and result.conclusion.document is not None
