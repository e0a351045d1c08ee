"""`profile URL` against servers with a profiler: captured, broken down, stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_profiles import Said, capture, quick_windows
from profiled_server import ProfiledServer, profiled

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.store import breakdowns


@pytest.fixture(autouse=True)
def quick(tmp_path: Path) -> Iterator[None]:
    with quick_windows(tmp_path):
        yield


@pytest.fixture
def sglang(tmp_path: Path) -> Iterator[ProfiledServer]:
    with profiled(tmp_path, "sglang") as fake:
        yield fake


def test_each_concurrency_is_captured_and_broken_down(sglang: ProfiledServer, tmp_path: Path) -> None:
    said = Said()
    found = capture(sglang.url, tmp_path / "out", said, name="base")
    assert found.error is None and not found.interrupted
    assert sglang.calls == ["start", "stop"] * 2 and not sglang.recording
    document = found.profile.document
    assert [(n.label, n.concurrency, n.method) for n in document.captures] == [("c1", 1, "torch"), ("c4", 4, "torch")]
    for n in document.captures:
        assert n.steps_asked == 12 and (n.steps_seen or 0) >= 12 and n.replaced == 0
        assert n.tpot_without_s is not None and n.tpot_without_s > 0
        assert n.inflation_ratio == pytest.approx((n.tpot_with_s or 0) / n.tpot_without_s)
        assert n.trace_step_s == pytest.approx(4e-3, rel=0.01) and n.tokens_a_step == 1.0
        assert n.step_difference_frac == pytest.approx(4e-3 / n.tpot_without_s - 1, abs=0.01)
        assert n.output_tok_s == pytest.approx(n.concurrency / n.tpot_without_s)
    assert [s.label for s in document.steps_by_label] == ["c1", "c4"]
    assert {(s.base_label, s.new_label) for s in document.shifts} == {("c1", "c4")}
    assert [one.text for one in document.live] == ["moe fallback-slot-gemv, attention fallback-perhead"] * 2
    first, second = document.captures
    assert [p.measured_tok_s for p in document.plans] == [second.output_tok_s, first.output_tok_s]
    stored = [b for path in found.profile.stored for b in breakdowns.read(path)]
    assert {(b.concurrency, b.isl, b.live[0].text) for b in stored} >= {(1, 16, document.live[0].text)}
    assert said.has("ms recorded by torch") and said.has("not recorded")


def test_the_profiler_is_asked_as_the_engine_wants_it(sglang: ProfiledServer, tmp_path: Path) -> None:
    capture(sglang.url, tmp_path / "out", concurrency=[2])
    (body,) = sglang.bodies
    assert body["activities"] == ["CPU", "GPU"] and body["with_stack"] is False and body["record_shapes"] is False
    assert body["profile_by_stage"] is False and "profile_stages" not in body
    assert body["num_steps"] >= 12  # a bound for a client that was killed; the client ends the window
    assert Path(body["output_dir"]).is_absolute() and not Path(body["output_dir"]).exists()  # moved away, and removed
    (trace,) = (tmp_path / "out" / "traces").rglob("*.trace.json.gz")
    assert trace.parent.name == "c2"


def test_the_measured_run_is_not_the_profiled_one(sglang: ProfiledServer, tmp_path: Path) -> None:
    prompts: dict[bool, set[str]] = {True: set(), False: set()}

    def note(body: dict[str, Any]) -> None:
        prompts[sglang.recording or bool(sglang.calls)].add(str(body["prompt"]))

    sglang.server.behaviour.on_request = note
    capture(sglang.url, tmp_path / "out", concurrency=[3])
    assert len(prompts[True] | prompts[False]) == len(prompts[True]) + len(prompts[False])


def test_a_server_that_stops_by_itself_is_no_failure(sglang: ProfiledServer, tmp_path: Path) -> None:
    sglang.stops_by_itself = True
    found = capture(sglang.url, tmp_path / "out", concurrency=[2])
    assert found.error is None
    assert any("stopped profiling by itself" in note for note in found.profile.document.captures[0].notes)


def test_a_vllm_writes_where_it_was_started_to(tmp_path: Path) -> None:
    folder = tmp_path / "prof"
    folder.mkdir()
    with profiled(folder, "vllm", ranks=2) as fake:
        (folder / "old_rank0.1.pt.trace.json.gz").write_bytes(b"of an earlier profile")
        found = capture(fake.url, tmp_path / "out", concurrency=[2], trace_dir=str(folder))
    assert found.error is None
    assert [Path(d.file).name for d in found.profile.document.devices] == [
        "p_rank0.9.pt.trace.json.gz",
        "p_rank1.9.pt.trace.json.gz",
    ]
    assert fake.bodies[0]["max_iterations"] >= 12


def test_a_vllm_that_takes_no_fields_is_asked_without(tmp_path: Path) -> None:
    with profiled(tmp_path, "vllm") as fake:

        def start(body: dict[str, Any]) -> tuple[int, Any] | None:
            return (422, {"detail": "extra fields"}) if body else fake.start(body)

        fake.server.behaviour.routes["POST /start_profile"] = start
        assert capture(fake.url, tmp_path / "out", concurrency=[1], trace_dir=str(tmp_path)).error is None
    assert fake.calls == ["start", "stop"]


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("0.14.0", "--profiler-config"),
        ("0.10.2", "VLLM_TORCH_PROFILER_DIR="),
        ("0.1.dev1+g1234", "before 0.13"),
    ],
)
def test_a_vllm_without_a_profiler_gives_the_line_to_add(tmp_path: Path, version: str, line: str) -> None:
    with profiled(tmp_path, "vllm", configured=False) as fake:
        fake.server.behaviour.routes |= {
            "GET /version": lambda _: (200, {"version": version}),
            "GET /openapi.json": lambda _: (200, {"paths": {"/v1/completions": {}}}),
        }
        with pytest.raises(UsageError, match="started without a profiler") as caught:
            capture(fake.url, tmp_path / "out")
        assert line in caught.value.hint
        assert not fake.server.bodies  # said before any load was sent


def test_the_absence_shows_at_the_call_where_no_page_tells(tmp_path: Path) -> None:
    with (
        profiled(tmp_path, "vllm", configured=False) as fake,
        pytest.raises(UsageError, match="started without a profiler"),
    ):
        capture(fake.url, tmp_path / "out", concurrency=[1], trace_dir=str(tmp_path))


def test_where_a_vllm_writes_must_be_known_first(tmp_path: Path) -> None:
    with profiled(tmp_path, "vllm") as fake, pytest.raises(UsageError, match="where it writes") as caught:
        capture(fake.url, tmp_path / "out")
    assert "--trace-dir" in caught.value.hint and not fake.server.bodies


def test_a_trace_without_kernels_is_diagnosed_and_the_capture_is_kept(sglang: ProfiledServer, tmp_path: Path) -> None:
    sglang.gpu = False
    found = capture(sglang.url, tmp_path / "out", concurrency=[2])
    assert isinstance(found.error, Unanswerable) and "saw no GPU" in found.error.message
    assert [n.label for n in found.profile.document.captures] == ["c2"]


def test_traces_of_another_host_are_named(
    sglang: ProfiledServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsv4bench.server.target.Target.on_this_host", property(lambda _: False))
    sglang.status["stop"] = (200, "Stop profiling.")  # it writes on its own disk
    found = capture(sglang.url, tmp_path / "out", concurrency=[1, 2])
    assert isinstance(found.error, Unanswerable)
    for label, body in zip(("c1", "c2"), sglang.bodies, strict=True):
        assert f"{label} in {body['output_dir']}" in found.error.message
        assert f"--trace {label}=FILE" in found.error.hint
    assert [n.label for n in found.profile.document.captures] == ["c1", "c2"]


# front ends


def test_a_router_is_recognised_and_its_worker_asked_for(sglang: ProfiledServer, tmp_path: Path) -> None:
    workers = [
        {"url": "http://10.0.0.1:30000", "worker_type": "prefill"},
        {"url": "http://10.0.0.2:30001", "worker_type": "decode"},
    ]
    sglang.server.behaviour.routes["GET /workers"] = lambda _: (200, {"workers": workers})
    with pytest.raises(UsageError, match="router over 2 workers") as caught:
        capture(sglang.url, tmp_path / "out")
    assert "--role decode=http://10.0.0.2:30001" in caught.value.hint
    assert "http://10.0.0.1:30000 (prefill)" in caught.value.hint


def test_the_load_goes_to_the_router_and_the_profile_to_its_workers(tmp_path: Path) -> None:
    with (
        profiled(tmp_path, "sglang") as router,
        profiled(tmp_path, "sglang", info={"disaggregation_mode": "decode"}) as decode,
        profiled(tmp_path, "sglang") as prefill,
    ):
        router.server.behaviour.routes["GET /workers"] = lambda _: (200, {"workers": [{}, {}]})
        roles = {"decode": decode.url, "prefill": prefill.url}
        found = capture(router.url, tmp_path / "out", concurrency=[2], roles=roles, name="pd")
        with pytest.raises(UsageError, match="it says that it is the decode worker"):
            capture(router.url, tmp_path / "out", roles={"prefill": decode.url})
    assert found.error is None
    assert router.calls == [] and decode.calls == prefill.calls == ["start", "stop"]
    assert router.server.bodies and not decode.server.bodies
    labels = [(n.label, n.role) for n in found.profile.document.captures]
    assert labels == [("c2", None), ("prefill-c2", "prefill")]
    assert len(found.profile.stored) == 1  # a prefill worker's is no decode step
