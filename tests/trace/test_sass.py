"""Instructions counted: a listing of every kind, and real cubins, whose spills ptxas itself is asked for."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dsv4bench.errors import Unanswerable
from dsv4bench.trace import sass
from dsv4bench.trace.sass import SassFunction, parse_sass, read_cubin

LISTING = """
Resource usage:
 Common:
  GLOBAL:0
 Function first:
  REG:40 STACK:16 SHARED:1024 LOCAL:0 CONSTANT[0]:936 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function second:
  REG:255 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:936 TEXTURE:0 SURFACE:0 SAMPLER:0

	code for sm_100a
		Function : first
        /*0000*/                   LDC R1, c[0x0][0x37c] ;      /* 0x00000 */
                                                                /* 0x00000 */
        /*0010*/             @!P0  HFMA2.MMA R1, R2, R3, R4 ;   /* 0x00000 */
        /*0020*/                   CALL.REL.NOINC 0x40 ;        /* 0x00000 */
        /*0030*/                   STL [R1], R2 ;
        /*0040*/             @P1   STL.64 [R1+0x4], R2 ;
        /*0050*/                   STL.128 [R1+0x10], R4 ;
        /*0060*/                   STL.S16 [R1+0x20], R4 ;
        /*0070*/                   STL.U8 [R1+0x22], R4 ;
        /*0080*/                   LDL.LU.64 R2, [R1+0x4] ;
        /*0090*/                   LDL R2, [R1] ;
        /*00a0*/                   DFMA R2, R4, R6, R8 ;
        /*00b0*/                   DMUL R2, R4, R6 ;
        /*00c0*/                   EXIT ;
        /*00d0*/                   NOP;
		Function : second
        /*0000*/             @UP0  UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8] ;
        /*0010*/                   QMMA.16832.F32.E4M3.E4M3 R4, R8, R12, R4 ;
        /*0020*/                   QMMA.16832.F32.E4M3.E4M3 R4, R8, R12, R4 ;
        /*0030*/                   OMMA.SF.16864.F32.E2M1 R4, R8, R12, R4 ;
        /*0040*/                   DMMA.884 R4, R8, R12, R4 ;
        /*0050*/              {    STG.E desc[UR4][R2.64], R4 ;
		Function : empty
"""

KERNELS = """
import json, os, sys
from pathlib import Path
folder = Path(sys.argv[1])
os.environ["TRITON_CACHE_DIR"] = str(folder / "cache")
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def square(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))

@triton.jit
def rows(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(a + i[:, None] * N + i[None, :]).to(tl.float32)
    tl.store(c + i[:, None] * N + i[None, :], tl.exp(x - tl.sum(x, axis=0)[None, :]) - tl.sum(x, axis=1)[:, None])

@triton.jit
def nothing(a, b, c, N: tl.constexpr):
    tl.load(a + tl.arange(0, N))

little = {"maxnreg": 32, "num_warps": 1}
for name, function, capability, options in (
    ("roomy", square, 90, {}), ("tight", rows, 90, little), ("tight", rows, 120, little), ("none", nothing, 90, {}),
):
    types = {"a": "*bf16", "b": "*bf16", "c": "*fp32", "N": "constexpr"}
    source = ASTSource(function, types, {"N": 64})
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    (folder / f"{name}_{capability}.cubin").write_bytes(made.asm["cubin"])
    (folder / f"{name}_{capability}.ptx").write_text(made.asm["ptx"])
print(json.dumps({"90": triton.knobs.nvidia.ptxas.path, "120": triton.knobs.nvidia.ptxas_blackwell.path}))
"""


@pytest.fixture(scope="module")
def cubins(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder of cubins beside their PTX, and Triton's assemblers by architecture."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    folder = tmp_path_factory.mktemp("sass")
    (folder / "compile_them.py").write_text(KERNELS)
    command = [sys.executable, str(folder / "compile_them.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


def test_a_listing_of_every_kind_of_opcode() -> None:
    first, second, empty = parse_sass(LISTING)
    assert (first.name, first.arch, first.calls, first.writes) == ("first", "sm_100", True, False)
    assert first.mma == {} and first.instructions == 13  # HFMA2.MMA is none, and a NOP is padding
    assert first.roots["HFMA2"] == 1 and first.fp64 == 2
    assert (first.spill_store_bytes, first.spill_load_bytes) == (4 + 8 + 16 + 2 + 1, 8 + 4)
    assert (first.registers, first.stack_bytes) == (40, 16)
    assert second.mma == {"DMMA": 1, "OMMA": 1, "QMMA": 2, "UTCHMMA": 1}
    assert (second.writes, second.calls, second.fp64, second.registers) == (True, False, 0, 255)
    assert empty.instructions == 0 and empty.registers is None


@pytest.mark.parametrize("arch", ["90", "120"])
def test_spills_and_registers_are_those_that_ptxas_reports(cubins: tuple[Path, dict[str, str]], arch: str) -> None:
    folder, assemblers = cubins
    read = read_cubin((folder / f"tight_{arch}.cubin").read_bytes())
    told = _ptxas(assemblers[arch], folder / f"tight_{arch}.ptx", arch)
    assert read.spill_store_bytes > 0
    assert (read.stack_bytes, read.spill_store_bytes, read.spill_load_bytes, read.registers) == told


def test_a_kernel_with_room_spills_nothing(cubins: tuple[Path, dict[str, str]]) -> None:
    read = read_cubin((cubins[0] / "roomy_90.cubin").read_bytes())
    assert (read.spill_store_bytes, read.spill_load_bytes, read.stack_bytes) == (0, 0, 0)
    assert read.mma == {"HGMMA": 4} and read.writes and read.arch == "sm_90"  # 64 deep, 16 each


def test_a_kernel_that_was_compiled_to_nothing_writes_nothing(cubins: tuple[Path, dict[str, str]]) -> None:
    read = read_cubin((cubins[0] / "none_90.cubin").read_bytes())
    assert not read.writes and 0 < read.instructions < 10


def test_a_damaged_cubin_is_no_answer(cubins: tuple[Path, dict[str, str]]) -> None:
    whole = (cubins[0] / "roomy_90.cubin").read_bytes()
    with pytest.raises(Unanswerable, match="found no code"):
        read_cubin(whole[: len(whole) // 2])


def test_without_a_disassembler_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "_of_triton", lambda name: [])
    monkeypatch.setattr(sass, "_on_path", lambda name: [])
    assert sass.disassembler() is None
    with pytest.raises(Unanswerable, match="no cuobjdump or nvdisasm"):
        read_cubin(b"")


def test_a_chip_that_tritons_tool_does_not_know_is_read_by_the_one_on_the_path(
    cubins: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (able,) = sass._of_triton("cuobjdump")
    monkeypatch.setattr(sass, "_of_triton", lambda name: [Path("/bin/false")])
    monkeypatch.setattr(sass, "_on_path", lambda name: [able] if name == "cuobjdump" else [])
    assert read_cubin((cubins[0] / "roomy_90.cubin").read_bytes()).mma == {"HGMMA": 4}


def test_functions_that_were_not_inlined_count_too() -> None:
    entry, callee, _ = parse_sass(LISTING)
    whole = sass._whole([entry, callee])
    assert isinstance(whole, SassFunction) and whole.name == "first"
    assert whole.mma == callee.mma and whole.instructions == entry.instructions + callee.instructions
    assert (whole.registers, whole.writes, whole.spill_store_bytes) == (255, True, 31)


def test_the_disassembler_of_the_path_goes_before_that_of_triton(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "cuobjdump"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sass.disassembler() == tool


def _ptxas(tool: str, ptx: Path, arch: str) -> tuple[int, ...]:
    """(stack, spill stores, spill loads, registers), as the assembler says them."""
    command = [tool, "-v", "-lineinfo", f"--gpu-name=sm_{arch}a", str(ptx), "-o", str(ptx.with_suffix(".out"))]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    found = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said)
    registers = re.search(r"Used (\d+) registers", said)
    assert found is not None and registers is not None, said
    return (*map(int, found.groups()), int(registers[1]))
