"""`dsv4bench kernels`: the list, the proof of the unit, and that each verb passes on what was typed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command import ROOT, Call, environment

from dsv4bench.errors import UsageError
from dsv4bench.kernels.registry import KERNELS
from dsv4bench.records.kernels import DeviceFacts, InspectDocument, KernelListDocument, ParityDocument
from dsv4bench.runs.kernels_ab import AbOptions
from dsv4bench.runs.kernels_bench import BenchOptions
from dsv4bench.runs.kernels_check import CheckOptions

VERBS = ("list", "check", "bench", "ab", "inspect")
FALLBACKS = "slot_gemv,sparse_decode_per_head"
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


def test_help_names_every_verb(call: Call) -> None:
    done = call("kernels", "--help")
    assert done.code == 0
    for verb in VERBS:
        assert [line for line in done.out.splitlines() if line.split()[:1] == [verb]]
        assert "Usage: dsv4bench kernels" in call("kernels", verb, "--help").out


def test_the_list(call: Call) -> None:
    done = call("kernels", "list")
    assert done.code == 0
    for k in KERNELS:
        (line,) = [x for x in done.out.splitlines() if x.split()[:2] == [k.name, k.component]]
        assert "sm_" in line
    document = msgspec.convert(json.loads(call("kernels", "list", "--json").out), KernelListDocument)
    assert [k.name for k in document.kernels] == [k.name for k in KERNELS]
    assert all(k.why_not for k in document.kernels if not k.loads)


@needs_triton
def test_no_fallback_has_an_mma_on_hopper_or_on_consumer_blackwell(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    done = call("kernels", "inspect", "--arch", "sm_90,sm_120", "--kernels", FALLBACKS, "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["schema"] == "dsv4bench.inspect/1"
    rows = msgspec.convert(document, InspectDocument).rows
    assert {(r.kernel, r.arch) for r in rows} == {(k, a) for k in FALLBACKS.split(",") for a in ("sm_90", "sm_120")}
    assert [r for r in rows if r.mma is None or r.mma] == []
    assert all(r.role == "fallback" and r.instructions and r.instructions > 100 and r.fp64 == 0 for r in rows)
    assert all(r.triton and r.smem_bytes is not None and r.spill_bytes is not None for r in rows)
    lines = call("kernels", "inspect", "--arch", "sm_90", "--kernels", "slot_gemv").out.splitlines()
    builds = sum((r.kernel, r.arch) == ("slot_gemv", "sm_90") for r in rows)
    assert sum("CUDA cores: no MMA in " in line for line in lines) == builds
    assert lines[-1] == f"slot_gemv: sm_90 CUDA cores, no MMA in {builds} builds"


@pytest.mark.parametrize("verb", ["list", "inspect", "check", "bench"])
def test_an_unknown_kernel(verb: str, call: Call) -> None:
    done = call("kernels", verb, "--kernels", "slot_gemv,marlins")
    assert done.code == 2 and done.out == "" and "marlins" in done.error and "slot_gemv" in done.err


def test_what_is_no_architecture(call: Call) -> None:
    done = call("kernels", "inspect", "--arch", "sm_90,ampere", "--json")
    assert done.code == 2 and "--arch ampere" in done.error and "sm_120" in done.err
    assert json.loads(done.out)["schema"] == "dsv4bench.error/1"


@pytest.mark.parametrize("verb", ["check", "bench", "inspect", "ab slot_gemv"])
def test_without_torch_and_triton_one_line_says_what_to_install(
    verb: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = call("kernels", *verb.split())
    assert done.code == 2 and done.error == f"kernels {verb.split()[0]} needs torch and triton"
    assert "hint: pip install 'dsv4bench[kernels]'\n" in done.err and done.out == ""


def test_the_list_works_without_torch_and_triton(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['torch'] = sys.modules['triton'] = None\n"
        "from dsv4bench.cli.main import main; sys.argv = ['dsv4bench', 'kernels', 'list']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "slot_gemv is not here: kernel slot_gemv needs torch (pip install 'dsv4bench[kernels]')" in done.stdout
    assert str(ROOT) not in done.stdout


def parity(green: list[str], red: list[str]) -> ParityDocument:
    return ParityDocument(
        created_utc="2026-12-01T00:00:00Z",
        tool="0",
        device=DeviceFacts(name="cpu (Triton interpreter)", torch="2.13.0"),
        code=dict.fromkeys([*green, *red], "0123456789ab"),
        green=green,
        red=red,
        rows=[],
    )


@needs_triton
@pytest.mark.parametrize(
    ("green", "red", "code", "told"),
    [
        (["a"], [], 0, None),
        (["a"], ["b", "c"], 1, "parity is red: b, c"),
        ([], [], 4, "no kernel was checked"),
    ],
)
def test_check_ends_as_parity_is(
    green: list[str], red: list[str], code: int, told: str | None, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsv4bench.runs.kernels_check.run_check", lambda options, say: parity(green, red))
    done = call("kernels", "check", "--json")
    document = msgspec.convert(json.loads(done.out), ParityDocument)
    assert (done.code, document.green, document.red) == (code, green, red)
    if told is None:
        assert document.error is None and done.err == ""
    else:
        assert document.error is not None and told in document.error.message and told in done.error
        assert document.error.exit_code == code
    plain = call("kernels", "check")
    assert plain.code == code and all(name in plain.out for name in [*green, *red])


@needs_triton
@pytest.mark.parametrize(
    ("typed", "run", "options"),
    [
        (
            "check --kernels a,b --device cpu --small --case sink --seed 3 --out r",
            "dsv4bench.runs.kernels_check.run_check",
            CheckOptions(names="a,b", device="cpu", small=True, only="sink", seed=3, out="r"),
        ),
        (
            "bench --batch 1,8 --kernels a --component moe --peers mine.py --counters --seed 3 --out r",
            "dsv4bench.runs.kernels_bench.run_bench",
            BenchOptions(names="a", batch=[1, 8], component="moe", peers="mine.py", counters=True, seed=3, out="r"),
        ),
        ("bench", "dsv4bench.runs.kernels_bench.run_bench", BenchOptions()),
        (
            "ab a --against b --batch 2 --pairs 9 --peers mine.py --seed 3 --out r",
            "dsv4bench.runs.kernels_ab.run_ab",
            AbOptions(name="a", against="b", batch=[2], pairs=9, peers="mine.py", seed=3, out="r"),
        ),
        ("ab a", "dsv4bench.runs.kernels_ab.run_ab", AbOptions(name="a")),
        ("check", "dsv4bench.runs.kernels_check.run_check", CheckOptions()),
    ],
)
def test_a_verb_passes_on_what_was_typed(
    typed: str, run: str, options: Any, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def refuse(given: Any, say: Any) -> None:
        seen.append(given)
        raise UsageError("refused here")

    monkeypatch.setattr(run, refuse)
    done = call("kernels", *typed.split())
    assert (done.code, done.error, seen) == (2, "refused here", [options])


@needs_triton
def test_what_is_no_batch(call: Call) -> None:
    done = call("kernels", "bench", "--batch", "1,x")
    assert done.code == 2 and "--batch 1,x" in done.error
