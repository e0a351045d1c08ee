"""A profile within a campaign: recorded of the server that runs, stored where the comparison finds its bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from campaign_lab import SCENARIO, Lab
from live_profiles import quick_windows
from profiled_server import ProfiledServer, profiled
from store_samples import make_server

from dsv4bench.errors import UsageError
from dsv4bench.records.campaign import Live
from dsv4bench.runs import campaign_measure, campaign_profile
from dsv4bench.runs.campaign_launch import planned_launch
from dsv4bench.runs.live_options import LiveOptions
from dsv4bench.runs.profile import ProfileOptions
from dsv4bench.scenario.launched_reading import read_launched

ENDING = "profile: {concurrency: [8], steps: 12}\ntarget: {output_tok_s: 1000, concurrency: 8}\n"
KERNELS = "touches: [moe], live: {kernels: [slot_gemv], kernels_absent: [grouped]}"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[ProfiledServer]:
    with quick_windows(tmp_path), profiled(tmp_path, "sglang") as server:
        yield server


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: ProfiledServer) -> Lab:
    """Profiles are recorded of the fake server, whatever the played launch."""
    made = Lab(tmp_path, monkeypatch, SCENARIO.replace("isl: [1024]", "isl: [1024], vocab: 1000") + ENDING)

    def real(spec: Any, config: Any, info: Any, **known: Any) -> Any:
        return campaign_profile.profile_running(spec, config, info, **{**known, "url": fake.url})

    monkeypatch.setattr(campaign_measure, "profile_running", real)
    return made


def test_shares_bound_the_verdict_and_make_the_plan(lab: Lab, fake: ProfiledServer) -> None:
    result = lab.run(blocks=1)
    assert result.campaign is not None and fake.calls == ["start", "stop"] * 2
    assert [(p.config, p.error) for p in result.campaign.profiles] == [("baseline", None), ("both", None)]
    assert all(p.live_label and p.live_label.startswith("moe fallback-slot-gemv") for p in result.campaign.profiles)
    document = result.conclusion.document if result.conclusion else None
    assert document is not None and document.shares is not None
    assert {s.config for s in document.shares.shares} == {"baseline", "both"}
    cell = next(v for v in document.cells if v.metric == "output_tok_s")
    assert cell.bound_frac is not None and cell.bound_note is not None and "at C=8" in cell.bound_note
    assert document.goal is not None and document.goal.items and document.goal.why == ""
    assert {i.components[0] for i in document.goal.items} >= {"moe", "attention"}
    first = next(e for e in lab.experiments() if e.experiment.config == "baseline")
    assert (first.path / "kernels.json").is_file()


def test_the_kernels_that_ran_say_whether_the_lever_is_live(lab: Lab) -> None:
    text = lab.scenario.read_text()
    lab.scenario.write_text(text.replace("touches: [moe]", KERNELS))
    result = lab.run(blocks=1)
    assert result.campaign is not None
    (live,) = result.campaign.live
    assert live.state is Live.LIVE and {c.where for c in live.checks} == {"kernels"}
    lab.scenario.write_text(text.replace("touches: [moe]", KERNELS.replace("[grouped]", "[slot_gemv]")))
    result = lab.run(blocks=1)
    assert result.campaign is not None and result.campaign.live[0].state is Live.NOT_LIVE


def test_a_server_without_a_profiler_is_a_note(lab: Lab, fake: ProfiledServer) -> None:
    fake.status["start"] = (404, {"detail": "Not Found"})
    result = lab.run(blocks=1)
    assert result.campaign is not None and result.error is None and result.campaign.status == "complete"
    assert all(p.error for p in result.campaign.profiles)


@pytest.mark.parametrize(
    ("cubins", "cache", "own"), [("", None, True), (", cubins: false", None, False), (", cubins: /c", "/c", False)]
)
def test_compiled_kernels_are_looked_for_where_the_scenario_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cubins: str, cache: str | None, own: bool
) -> None:
    """Of the server that runs, with the variables that it was given, as of one that is started for it."""
    asked: list[tuple[LiveOptions, ProfileOptions]] = []

    def stop(o: LiveOptions, base: ProfileOptions, say: object) -> None:
        asked.append((o, base))
        raise UsageError("enough")

    monkeypatch.setattr(campaign_profile, "run_profile_live", stop)
    (file := tmp_path / "c.yaml").write_text(
        'name: c\nprofile: {with: nsysCUBINS}\nconfigs:\n  - {name: a, launch: "s --port {port}", '
        'env: {TRITON_CACHE_DIR: "/t/{port}"}, port: 8123}\n'.replace("CUBINS", cubins)
    )
    spec = read_launched(file)
    planned = planned_launch(spec, spec.configs[0], tmp_path, "a")
    known: dict[str, Any] = {"out": str(tmp_path), "experiment": "e", "seed": 1, "say": print}
    info, env = make_server(), planned.decodes.env
    campaign_profile.profile_running(spec, spec.configs[0], info, url="http://u", env=env, workers={}, **known)
    campaign_profile.profile_launched(spec, spec.configs[0], planned, **known)
    assert [(o.cache, base.cache) for o, base in asked] == [(own, cache)] * 2
    assert asked[0][0].started_with == {"TRITON_CACHE_DIR": "/t/8123"}
    assert (asked[1][0].launch or "").startswith("TRITON_CACHE_DIR=/t/8123 s ")


def test_a_launch_is_filled_in_and_leashed(tmp_path: Path) -> None:
    file = tmp_path / "pd.yaml"
    file.write_text(
        """
name: pd
env: {SHARED: all}
configs:
  - name: baseline
    launch: "serve --port {port} --json '{\\"a\\": 1}'"
    env: {OWN: "{url}"}
    port: 8123
  - name: pd
    parent: baseline
    lever: pd
    roles:
      prefill: {launch: "p --port {port}", env: {ROLE: p}}
      decode: {launch: "d --port {port} --peer {prefill_url}"}
      router: {launch: "r --port {port} {prefill_url} {decode_url}"}
"""
    )
    spec = read_launched(file)
    single = planned_launch(spec, spec.configs[0], tmp_path, "block0-baseline")
    (part,) = single.parts
    assert single.commands["server"] == ["serve", "--port", "8123", "--json", '{"a": 1}']
    assert part.command[-5:] == single.commands["server"] and "dsv4bench.capture.leash" in part.command
    assert part.env == {"SHARED": "all", "OWN": "http://127.0.0.1:8123"} and part.url == single.urls["server"]
    assert part.log_path == tmp_path / "block0-baseline.log"
    several = planned_launch(spec, spec.configs[1], tmp_path, "block0-pd")
    assert several.front == "router" and several.decodes.role == "decode" and len(set(several.urls.values())) == 3
    assert several.commands["router"][3:] == [several.urls["prefill"], several.urls["decode"]]
    assert several.commands["decode"][-1] == several.urls["prefill"]
    assert {p.role: p.env for p in several.parts}["prefill"] == {"SHARED": "all", "ROLE": "p"}
    assert [p.log_path.name for p in several.parts] == [
        "block0-pd-prefill.log",
        "block0-pd-decode.log",
        "block0-pd-router.log",
    ]
