"""`kernels check`: where it runs, what it stores, and what it must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dsv4bench.errors import MeasuredBad, Unanswerable, UsageError
from dsv4bench.kernels.device import INTERPRETER
from dsv4bench.records.kernels import ParityDocument
from dsv4bench.runs import kernels_check
from dsv4bench.runs.kernels_check import CheckOptions, run_check
from dsv4bench.store import kernels as store

pytest.importorskip("triton")
QUICK = "H8 window20 extra0"  # one small attention case
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")

OWN = """
import torch
from dsv4bench.kernels import reference
from dsv4bench.kernels.calls import MoeCall
from dsv4bench.kernels.peers.external import ExternalPeer

class Own:
    def prepare(self, experts): return experts
    def __call__(self, x, ids, weights, prepared):
        return (reference.moe(MoeCall(x, ids, weights, prepared)) * FACTOR).bfloat16()

PEERS = [ExternalPeer("own", "moe", Own)]
"""


@no_gpu
def test_without_a_gpu_the_interpreter_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    said: list[str] = []
    document = run_check(CheckOptions(names="sparse_decode_per_head", only=QUICK, out=str(tmp_path)), said.append)
    assert document.device.name == INTERPRETER and document.device.arch is None
    assert document.green == ["sparse_decode_per_head"] and document.red == []
    assert [r.outcome for r in document.rows] == ["pass"]
    assert any(line.startswith("pass sparse_decode_per_head, H8 window20 extra0") for line in said)


@no_gpu
def test_a_part_of_the_list_is_stored_nowhere(tmp_path: Path) -> None:
    document = run_check(CheckOptions(names="sparse_decode_per_head", only=QUICK, out=str(tmp_path)), lambda _: None)
    assert document.notes == ["only a part of the list was run: nothing is stored"]
    assert store.read_parity(tmp_path, INTERPRETER) is None


@no_gpu
@pytest.mark.parametrize(("factor", "passed"), [("1", True), ("1.5", False)])
def test_a_users_own_kernel_is_checked_on_the_same_cases(tmp_path: Path, factor: str, passed: bool) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN.replace("FACTOR", factor))
    o = CheckOptions(names="own", peers=str(file), only="E8 top3", out=str(tmp_path))
    document = run_check(o, lambda _: None)
    assert (document.green, document.red) == ((["own"], []) if passed else ([], ["own"]))
    assert len(document.code["own"]) == 12


def fake(document: ParityDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_check, "_apart", lambda o, say: document)


@no_gpu
def test_a_complete_list_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dsv4bench.kernels.device import interpreter_facts

    document = ParityDocument(
        created_utc="2026-11-30T00:00:00Z",
        tool="0",
        device=interpreter_facts(),
        code={"slot_gemv": "abc"},
        green=["slot_gemv"],
        red=[],
        rows=[],
    )
    fake(document, monkeypatch)
    run_check(CheckOptions(out=str(tmp_path)), lambda _: None)
    stored = store.read_parity(tmp_path, INTERPRETER)
    assert stored is not None and stored.green == ["slot_gemv"]
    assert store.not_green(stored, "slot_gemv", "abc") is None


@no_gpu
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"device": "cuda"}, Unanswerable, "no CUDA GPU here"),
        ({"device": "tpu"}, UsageError, "--device tpu: not a device"),
        ({"names": "nothing"}, UsageError, "kernel 'nothing' is unknown"),
        ({"only": "no such case"}, UsageError, "--case no such case: no case has that in its name"),
        ({"peers": "nowhere.py"}, UsageError, "no such file"),
    ],
)
def test_a_wrong_option_is_one_clear_line(tmp_path: Path, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run_check(CheckOptions(out=str(tmp_path), **options), lambda _: None)


@no_gpu
def test_a_process_that_dies_says_what_it_said_last(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    dies = "import os\nif os.environ.get('TRITON_INTERPRET'):\n    print('last words', flush=True)\n    os._exit(7)\n"
    file.write_text(dies + OWN)
    with pytest.raises(MeasuredBad, match="ended with 7: last words"):
        run_check(CheckOptions(names="own", peers=str(file), out=str(tmp_path)), lambda _: None)
