"""Compiled kernels as evidence: of the Triton cache of a server that we started, or of a folder that was named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from live_profiles import capture, quick_windows
from profile_traces import ATTENTION, COMM, MOE, UNNAMED, write_trace
from profiled_server import ProfiledServer, profiled

from dsv4bench.host.listening import Listening
from dsv4bench.runs import profile_cubins, profile_server
from dsv4bench.runs.profile import Profile, ProfileOptions, run_profile
from dsv4bench.trace import cubin

MMA, PLAIN = "mma.sync.aligned.m16n8k16 {%r1}, {%r2} ;", "fma.rn.f32 %f1, %f2, %f3, %f4 ;"
KERNELS = {MOE: [PLAIN] * 4, ATTENTION: [MMA, PLAIN], "gate_up_kernel": [MMA]}


@pytest.fixture(autouse=True)
def text_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """PTX is read where no disassembler is found, so that no CUDA tool is needed here."""
    monkeypatch.setattr(cubin, "disassembler", lambda: None)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """As Triton writes it: a folder a build. The split attention has builds of both kinds."""
    folder = tmp_path / "cache"
    for name, codes in KERNELS.items():
        for i, code in enumerate(codes):
            (entry := folder / f"{name}-{i}").mkdir(parents=True)
            (entry / f"{name}.ptx").write_text(f".target sm_120a\n.visible .entry {name}(\n{code}\n")
            (entry / f"{name}.ttgir").write_text("tt.func")
    return folder


@pytest.fixture
def sglang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProfiledServer]:
    """It runs in our own process, whose environment is none of its own."""
    monkeypatch.setattr(profile_server, "listening", lambda port, variables: None)
    with quick_windows(tmp_path), profiled(tmp_path, "sglang") as fake:
        yield fake


def units(found: Profile) -> dict[str, tuple[str, str]]:
    return {row.name: (row.runs_on, row.evidence) for d in found.document.devices for row in d.rows}


def offline(tmp_path: Path, **options: Any) -> Profile:
    trace = write_trace(tmp_path / "t.json", kernels_us={MOE: 40.0, ATTENTION: 30.0, UNNAMED: 10.0})
    return run_profile(ProfileOptions(traces=[str(trace)], **options))


def test_the_cache_of_a_server_that_we_launched_proves_what_kernels_run_on(
    sglang: ProfiledServer, cache: Path, tmp_path: Path
) -> None:
    launch = f"TRITON_CACHE_DIR={cache} sleep 60"
    found = units(capture(sglang.url, tmp_path / "out", concurrency=[2], launch=launch).profile)
    assert found[MOE] == ("cuda", "sass")
    assert found[ATTENTION] == ("unknown", "none"), "one build has MMA, one has none: which one ran is not told"
    assert "gate_up_kernel" not in found and COMM in found
    unasked = capture(sglang.url, tmp_path / "out", concurrency=[2], launch=launch, cache=False)
    assert units(unasked.profile)[MOE] == ("unknown", "none")


def test_a_server_that_a_campaign_started_counts_as_launched(
    sglang: ProfiledServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))  # what is not given is inherited
    named = {"TRITON_CACHE_DIR": str(tmp_path / "other")}
    for started_with, told in (({}, "cuda"), (named, "unknown"), (None, "unknown")):
        live = capture(sglang.url, tmp_path / "out", concurrency=[2], started_with=started_with)
        assert units(live.profile)[MOE][0] == told
        assert not any("compiled" in line for line in live.profile.document.warnings) or told == "cuda"


def test_what_the_process_was_started_with_wins_over_what_we_gave(
    sglang: ProfiledServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`env TRITON_CACHE_DIR=… server` and its like set it behind our back, perhaps as a path of its own folder."""
    process = Listening(pid=1, environment={"TRITON_CACHE_DIR": cache.name}, folder=str(cache.parent))
    monkeypatch.setattr(profile_server, "listening", lambda port, variables: process)
    started_with = {"TRITON_CACHE_DIR": str(tmp_path)}
    live = capture(sglang.url, tmp_path / "out", concurrency=[2], started_with=started_with)
    assert units(live.profile)[MOE] == ("cuda", "sass")


def test_a_server_that_has_only_a_home_does_not_get_our_cache(
    sglang: ProfiledServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    process = Listening(pid=1, environment={"HOME": str(tmp_path / "home")}, folder="/")
    monkeypatch.setattr(profile_server, "listening", lambda port, variables: process)

    def moe() -> tuple[str, str]:
        live = capture(sglang.url, tmp_path / "out", concurrency=[2], started_with={})
        return units(live.profile)[MOE]

    assert moe() == ("unknown", "none")
    (home := tmp_path / "home" / ".triton").mkdir(parents=True)
    cache.rename(home / "cache")
    assert moe() == ("cuda", "sass")


@pytest.mark.parametrize(("readable", "told"), [(True, None), (False, "ours")])
def test_an_environment_that_is_empty_is_not_one_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readable: bool, told: str | None
) -> None:
    (tmp_path / "ours").mkdir()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "ours"))
    monkeypatch.setattr(profile_server, "environment_of", lambda folder, names: {} if readable else None)
    process = Listening(pid=1, folder="/")
    decode = msgspec.defstruct("Decode", [("process", Listening)])(process)
    found = msgspec.defstruct("Found", [("by_role", dict)])({"decode": decode})
    said: list[str] = []
    cache = profile_server._cache({}, cast("profile_server.Served", found), said.append)
    assert cache == (str(tmp_path / told) if told else None)
    assert said == ([f"compiled kernels: those of {tmp_path / told}"] if told else [])


def test_builds_of_another_program_under_the_same_name_are_no_evidence(tmp_path: Path, cache: Path) -> None:
    """The kernels of the trace have 128 threads a block: of the split attention only the build with MMA fits."""
    for i, warps in enumerate((4, 8)):
        (cache / f"{ATTENTION}-{i}" / f"{ATTENTION}.json").write_text(f'{{"num_warps": {warps}}}')
    for i in range(4):
        (cache / f"{MOE}-{i}" / f"{MOE}.json").write_text('{"num_warps": 8}')
    found = offline(tmp_path, cache=str(cache))
    assert units(found)[ATTENTION] == ("tensor", "sass")
    assert units(found)[MOE] == ("unknown", "none")
    assert found.document.warnings[0].startswith(
        f"compiled kernels: {MOE}: none of its 4 builds has the block size of the trace"
    )


def test_a_cache_that_tells_nothing_is_one_note(tmp_path: Path, cache: Path) -> None:
    (empty := tmp_path / "empty").mkdir()
    found = offline(tmp_path, cache=str(empty))
    (said,) = found.document.warnings
    assert said == "no proof from compiled kernels: no cubin, PTX or TTGIR there"
    assert units(found)[MOE] == ("unknown", "none")
    for text in cache.rglob("*.ptx"):
        text.unlink()
    for text in cache.rglob("*.ttgir"):
        text.with_suffix(".cubin").write_bytes(b"\x7fELF")
        text.unlink()
    (said,) = offline(tmp_path, cache=str(cache)).document.warnings
    assert said.startswith("no proof from compiled kernels: no kernel could be disassembled")
    assert str(tmp_path) not in said


def test_a_folder_that_is_named_wins_over_the_cache(tmp_path: Path, cache: Path) -> None:
    (empty := tmp_path / "empty").mkdir()
    assert units(offline(tmp_path, cubins=[str(cache)], cache=str(empty)))[MOE] == ("cuda", "sass")


def test_the_kernels_with_the_most_time_are_read_first(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_cubins, "MOST_BUILDS", 4)
    found = offline(tmp_path, cache=str(cache))
    assert units(found)[MOE] == ("cuda", "sass")
    (said,) = found.document.warnings
    assert said.startswith(f"compiled kernels: {ATTENTION}: its 2 builds were not read")
