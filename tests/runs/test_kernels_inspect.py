"""`kernels inspect` on toys whose instructions are known, and what is no answer; the document of `kernels list`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsv4bench.dsv4 import FLASH, attention_call, moe_call
from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.kernels.attempts import Attempt
from dsv4bench.kernels.registry import KERNELS, Kernel
from dsv4bench.records.codec import encode
from dsv4bench.records.kernels import InspectDocument, InspectRow
from dsv4bench.runs import kernels_inspect, kernels_list
from dsv4bench.runs.kernels_inspect import inspect_kernels, run_inspect
from dsv4bench.runs.kernels_list import run_list

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kernels"))


def rows_of(names: list[str], *archs: str) -> dict[tuple[str, str, str], InspectRow]:
    pytest.importorskip("triton")
    from toy_kernels import Toy

    toys: list[Any] = [Toy(name) for name in names]
    return {(r.kernel, r.label, r.arch): r for r in inspect_kernels(toys, archs, "3.6.0").rows}


def test_a_row_a_build_and_architecture() -> None:
    rows = rows_of(["dots", "sums"], "sm_90", "sm_120")
    assert len(rows) == 5
    assert rows["dots", "", "sm_90"].mma == {"HGMMA": 4} and set(rows["dots", "", "sm_120"].mma or {}) == {"HMMA"}
    plain = rows["sums", "plain", "sm_90"]
    assert plain.mma == {} and plain.why_null is None and plain.cannot_run is None
    assert (plain.function, plain.role, plain.triton) == ("toy_sum", "fallback", "3.6.0")
    assert (plain.spill_bytes, plain.fp64) == (0, 0)
    assert plain.registers and plain.instructions and plain.smem_bytes
    assert ("sums", "tuned", "sm_90") in rows and ("sums", "tuned", "sm_120") not in rows  # it is for sm_90


def test_code_that_does_nothing_proves_nothing() -> None:
    rows = rows_of(["empty"], "sm_100")
    nothing, wide = rows["empty", "no store", "sm_100"], rows["empty", "wide", "sm_100"]
    assert nothing.mma is None and "instructions that write nothing" in str(nothing.why_null)
    assert wide.mma is None and "columns of tensor memory, sm_100 has 512" in str(wide.why_null)  # it is a trap


def test_what_cannot_be_disassembled_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(cubin: bytes) -> None:
        raise Unanswerable("cuobjdump found no code in the cubin")

    monkeypatch.setattr(kernels_inspect, "read_cubin", refuse)
    (row,) = rows_of(["dots"], "sm_90").values()
    assert row.mma is None and row.why_null == "cannot be disassembled: cuobjdump found no code in the cubin"


@pytest.fixture
def nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")

    def fail(chosen: Any, archs: Any) -> list[Attempt]:
        return [Attempt(k.name, "f", "", arch, why="ptxas is missing") for k in chosen for arch in archs]

    monkeypatch.setattr(kernels_inspect, "compile_all", fail)


@pytest.mark.usefixtures("nothing_compiles")
def test_when_no_kernel_can_be_compiled_there_is_no_answer() -> None:
    with pytest.raises(Unanswerable, match="no kernel could be compiled: ptxas is missing"):
        run_inspect("slot_gemv", "sm_90", lambda text: None)


@pytest.mark.usefixtures("nothing_compiles")
def test_a_peer_is_a_row_only_when_it_is_named() -> None:
    peer = next(k.name for k in KERNELS if k.role == "peer")
    document = run_inspect(peer, "sm_90,sm_120", lambda text: None)
    assert [(r.kernel, r.arch, r.mma) for r in document.rows] == [(peer, "sm_90", None), (peer, "sm_120", None)]
    assert all("a peer" in str(r.why_null) for r in document.rows)


@pytest.mark.parametrize(("names", "archs"), [("nosuch", "sm_90"), (None, "sm_12")])
def test_what_is_unknown_is_refused_before_anything_is_compiled(names: str | None, archs: str) -> None:
    with pytest.raises(UsageError, match=r"nosuch|sm_12"):
        run_inspect(names, archs, pytest.fail)


def test_the_document_reads_as_the_issue_of_it_says() -> None:
    row = InspectRow(kernel="k", function="f", role="fallback", arch="sm_120", mma={"OMMA": 4}, triton="3.6.0")
    text = encode(InspectDocument(rows=[row])).decode()
    assert text.startswith('{"schema":"dsv4bench.inspect/1","rows":[{"kernel":"k"')
    assert '"arch":"sm_120","mma":{"OMMA":4}' in text and '"why_null":null' in text


def test_the_list_is_the_registry_with_the_costs_of_one_call() -> None:
    document = run_list("slot_gemv,sparse_decode_per_head")
    moe, attention = document.kernels
    assert (moe.name, attention.name, document.batch) == ("slot_gemv", "sparse_decode_per_head", 16)
    assert moe.floor_bytes == round(moe_call(FLASH, 16).bytes_memory) and moe.flops == moe_call(FLASH, 16).flops
    entries = attention_call(FLASH, 16, extra=FLASH.index_topk)
    assert attention.floor_bytes == entries.bytes_memory and attention.flops == 4 * 16 * 64 * 512 * (128 + 512)
    assert [i.name for i in moe.inputs][:3] == ["x", "ids", "weights"] and moe.inputs[0].dtype == "bfloat16"
    assert {k.name for k in run_list().kernels} == {k.name for k in KERNELS}


def _missing() -> None:
    raise UsageError("kernel k needs vllm", "pip install vllm")


def _broken() -> None:
    raise OSError("libcudart.so.12:\n cannot open shared object file")


@pytest.mark.parametrize(
    ("load", "why"),
    [
        (_missing, "kernel k needs vllm (pip install vllm)"),
        (_broken, "OSError: libcudart.so.12: cannot open shared object file"),
        (lambda: print("welcome to this library"), None),
    ],
)
def test_what_loads_here(
    load: Callable[[], None], why: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Kernel, "load", lambda self: load())
    (found,) = run_list("slot_gemv").kernels
    assert (found.loads, found.why_not) == (why is None, why)
    assert capsys.readouterr().out == ""  # stdout is the document's alone


@pytest.mark.parametrize(("gpu", "fits"), [(None, None), (("NVIDIA H200", 90), True), (("Tesla T4", 75), False)])
def test_whether_it_fits_the_gpu_that_is_here(
    gpu: tuple[str, int] | None, fits: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels_list, "_gpu", lambda: gpu)
    document = run_list("slot_gemv")
    assert document.kernels[0].fits_gpu is fits
    assert document.gpu == (None if gpu is None else f"{gpu[0]} (sm_{gpu[1]})")
