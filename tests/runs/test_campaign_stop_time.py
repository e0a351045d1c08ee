"""A campaign's servers get `stop_timeout_s` to end by themselves; messages show the user's own command."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dsv4bench.runs.campaign_launch import planned_launch, serving
from dsv4bench.scenario.launched_reading import read_launched
from dsv4bench.server.group import Group, LaunchFailed

STUB = Path(__file__).parent / "stub_launch.py"
FILE = """
name: slow
server: {{stop_timeout_s: {stop_s}, ready_timeout_s: 60, model: tiny}}
configs:
  - name: baseline
    launch: "{{python}} {script} --port {{port}}"
"""
# takes longer to end than the leash lets others, and says so
SLOW = """
import runpy, signal, sys, time
def told(*_):
    time.sleep(1.5)
    print("ended well", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, told)
sys.argv[0] = {stub!r}
runpy.run_path({stub!r}, run_name="__main__")
"""


def scenario(tmp_path: Path, stop_s: float, script: Path) -> Path:
    file = tmp_path / "slow.yaml"
    file.write_text(FILE.format(stop_s=stop_s, script=script))
    return file


@pytest.mark.parametrize(("stop_s", "ends_well"), [(120, True), (0.5, False)])
def test_a_server_gets_its_time_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_s: float, ends_well: bool
) -> None:
    asked: list[float] = []
    stop = Group.stop

    def watched(self: Group, grace_s: float = 20.0) -> None:
        asked.append(grace_s)
        stop(self, grace_s)

    monkeypatch.setattr(Group, "stop", watched)
    script = tmp_path / "slow.py"
    script.write_text(SLOW.format(stub=str(STUB)))
    spec = read_launched(scenario(tmp_path, stop_s, script))
    planned = planned_launch(spec, spec.configs[0], tmp_path, "block0")
    (part,) = planned.parts
    assert planned.commands["server"] == [sys.executable, str(script), *part.command[-2:]]
    assert part.program == planned.recorded["server"] == ["{python}", str(script), *part.command[-2:]]
    assert part.command[-4:] == planned.commands["server"] and f"{stop_s:g}" in part.command
    with serving(spec, spec.configs[0], planned, lambda _: None):
        pass
    assert asked[0] > stop_s, "whoever ends the leash waits longer than it does"
    assert ("ended well" in part.log_path.read_text()) == ends_well


def test_a_failed_launch_shows_the_users_own_command(tmp_path: Path) -> None:
    spec = read_launched(scenario(tmp_path, 30, Path("/no/such/script.py")))
    planned = planned_launch(spec, spec.configs[0], tmp_path, "block0")
    with pytest.raises(LaunchFailed) as failed, serving(spec, spec.configs[0], planned, lambda _: None):
        pass
    assert "{python} /no/such/script.py" in failed.value.message and sys.executable not in failed.value.message
    assert "leash" not in failed.value.message
