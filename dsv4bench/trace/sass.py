"""Instructions of a compiled kernel, counted from its SASS: MMA by kind, double precision, spills; registers beside.

    cuobjdump -sass FILE  →  per function, how often the root of each opcode occurs (HMMA.16816.F32 counts as HMMA)

HFMA2.MMA is no MMA (a packed half multiply-add that some chips run on the tensor pipe): roots are compared, not
fragments. Spill bytes are the widths of the STL and LDL instructions added up. ptxas prints the same sums as "bytes
spill stores" and "bytes spill loads"; Triton allocates nothing else in local memory. NOPs are padding, not counted.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from dsv4bench.errors import Unanswerable

_TOOLS = ("cuobjdump", "nvdisasm")
_TIMEOUT_S = 300.0
_MMA = re.compile(r"[HIBDQO]MMA|[HIQB]GMMA|UTC\w*MMA")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+\{?\s*(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)((?:\.\w+)*)")
_FUNCTION = re.compile(r"\s*Function\s*:\s*(\S+)|\s*\.text\.(\S+):\s*$")
_ARCH = re.compile(r"\bsm_(\d+)|EF_CUDA_SM(\d+)")
_USAGE = re.compile(r"^ Function (\S+):\n\s+REG:(\d+) STACK:(\d+)", re.MULTILINE)
_WRITES = {"ST", "STG", "ATOM", "ATOMG", "RED", "REDG", "UBLKCP", "UBLKRED", "UTMASTG", "UTMAREDG"}
_FP64 = ("DADD", "DFMA", "DMUL", "DMNMX", "DSETP")
_WIDTHS = {"64": 8, "128": 16, "U8": 1, "S8": 1, "U16": 2, "S16": 2}  # bytes; 4 where no modifier says otherwise


@dataclass(slots=True)
class SassFunction:
    """One function of a disassembly. `arch` is sm_90, without the a or f of a feature set; "" where not told."""

    name: str
    arch: str
    roots: Counter[str] = field(default_factory=Counter)
    spill_store_bytes: int = 0  # a thread, each instruction counted once
    spill_load_bytes: int = 0
    registers: int | None = None  # a thread; these two only from cuobjdump's resource usage
    stack_bytes: int | None = None

    @property
    def mma(self) -> dict[str, int]:
        """Tensor-core instructions by kind; empty: this function cannot use the tensor cores."""
        return {root: n for root, n in sorted(self.roots.items()) if _MMA.fullmatch(root)}

    @property
    def instructions(self) -> int:
        return self.roots.total()

    @property
    def fp64(self) -> int:
        """Double-precision arithmetic: in a kernel of bf16 and fp32, a literal that widened by mistake."""
        return sum(self.roots[root] for root in _FP64)

    @property
    def writes(self) -> bool:
        """Whether it can leave a result in global memory; a kernel that cannot was compiled to nothing."""
        return not _WRITES.isdisjoint(self.roots)

    @property
    def calls(self) -> bool:
        """Whether it calls other functions, whose instructions are not among its own."""
        return self.roots["CALL"] > 0

    def _add(self, root: str, modifiers: str) -> None:
        self.roots[root] += 1
        if root in ("STL", "LDL"):
            width = next((_WIDTHS[m] for m in modifiers.split(".") if m in _WIDTHS), 4)
            if root == "STL":
                self.spill_store_bytes += width
            else:
                self.spill_load_bytes += width


def disassembler() -> Path | None:
    """cuobjdump or nvdisasm: on the PATH, else the one that Triton brings."""
    return next((tool for name in _TOOLS for tool in [*_on_path(name), *_of_triton(name)]), None)


def read_cubin(cubin: bytes) -> SassFunction:
    """All of one kernel's cubin: its entry, and the functions that were not inlined into it, added up.

    Triton's own tool is asked first, then those on the PATH, which may know newer chips. Raises Unanswerable without
    any, or when none of them finds code.
    """
    tools = [*_of_triton(_TOOLS[0]), *(tool for name in _TOOLS for tool in _on_path(name)), *_of_triton(_TOOLS[1])]
    if not tools:
        raise Unanswerable("no cuobjdump or nvdisasm found", "`pip install triton` brings one")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        for tool in tools:
            functions = disassemble(file, tool, usage=True)
            if functions:
                return _whole(functions)
    names = " and ".join(dict.fromkeys(tool.name for tool in tools))
    raise Unanswerable(f"{names} found no code in the cubin", "the cuobjdump of a newer CUDA toolkit on the PATH may")


def _on_path(name: str) -> list[Path]:
    found = shutil.which(name)
    return [] if found is None else [Path(found)]


def _of_triton(name: str) -> list[Path]:
    spec = importlib.util.find_spec("triton")
    places = (spec.submodule_search_locations if spec is not None else None) or []
    tools = [Path(place) / "backends" / "nvidia" / "bin" / name for place in places]
    return [tool for tool in tools if tool.is_file()]


def disassemble(file: Path, tool: Path, *, usage: bool = False) -> list[SassFunction]:
    """Functions of a file; none where the tool cannot read all of it. `usage`: registers and stack, where it can."""
    if tool.name == "cuobjdump":
        command = [str(tool), "-sass", *(["-res-usage"] if usage else []), str(file)]
    else:
        command = [str(tool), "-c", str(file)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    if done.returncode != 0:  # cut or damaged: what came out so far proves no absence
        return []
    return parse_sass(done.stdout.decode(errors="replace"))


def _whole(functions: list[SassFunction]) -> SassFunction:
    return SassFunction(
        name=functions[0].name,
        arch=functions[0].arch,
        roots=sum((f.roots for f in functions), Counter()),
        spill_store_bytes=sum(f.spill_store_bytes for f in functions),
        spill_load_bytes=sum(f.spill_load_bytes for f in functions),
        registers=max((f.registers for f in functions if f.registers is not None), default=None),
        stack_bytes=max((f.stack_bytes for f in functions if f.stack_bytes is not None), default=None),
    )


def parse_sass(text: str) -> list[SassFunction]:
    """Functions of a disassembly, as cuobjdump or nvdisasm prints it."""
    functions: list[SassFunction] = []
    arch = ""
    for line in text.splitlines():
        function = _FUNCTION.match(line)
        if function is not None:
            functions.append(SassFunction(function[1] or function[2], arch))
            continue
        code = _INSTRUCTION.search(line)
        if code is not None and functions:
            if code[1] != "NOP":
                functions[-1]._add(code[1], code[2])
        elif code is None:
            told = _ARCH.search(line)
            if told is not None:
                arch = f"sm_{told[1] or told[2]}"
                if functions and not functions[-1].arch:
                    functions[-1].arch = arch
    used = {name: (int(registers), int(stack)) for name, registers, stack in _USAGE.findall(text)}
    for f in functions:
        f.registers, f.stack_bytes = used.get(f.name, (None, None))
    return functions
