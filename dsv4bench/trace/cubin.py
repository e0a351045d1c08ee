"""Which tensor-core instructions a compiled kernel contains: SASS of cubins, or of a Triton cache folder.

    cuobjdump -sass FILE  →  per function, the root of each instruction: HMMA, HGMMA, QMMA, UTCHMMA … or none

HFMA2.MMA is no MMA (a packed half multiply-add that some chips run on the tensor pipe): roots are compared, not
fragments. A kernel with instructions and no MMA among them cannot use the tensor cores: proof. Where no disassembler
is found, PTX and TTGIR of the same cache are read as text; that is weaker, and marked so. A function without MMA that
calls others is left out when its file holds any MMA: the callee may run it.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.records.trace import Disassembly, Sass, SassBuild

_COMPILED = (".cubin", ".fatbin", ".so", ".o")
_IN_FOLDERS = (".cubin", ".fatbin")  # libraries only when named: a wheel's disassembly takes minutes
_TIMEOUT_S = 300.0
_MMA = re.compile(r"[HIBDQO]MMA|[HIQB]GMMA|UTC\w*MMA")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+\{?\s*(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)")
_FUNCTION = re.compile(r"\s*Function\s*:\s*(\S+)|\s*\.text\.(\S+):\s*$")
_ARCH = re.compile(r"\bsm_(\d+)|EF_CUDA_SM(\d+)")
_PTX_MMA = re.compile(r"\b(wgmma\.mma_async|tcgen05\.mma|wmma\.mma|mma\.s[yp][a-z]*)")
_PTX_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_TTGIR_MMA = re.compile(r"\b(ttng\.warp_group_dot|ttng\.tc_gen5_mma\w*|tt\.dot_scaled|tt\.dot)\b")


@dataclass(slots=True)
class _Function:
    name: str
    arch: str
    opcodes: set[str] = field(default_factory=set)
    instructions: int = 0
    calls: bool = False


def read_cubins(source: Path, kernels: Collection[str] | None = None) -> Disassembly:
    """MMA opcodes of every kernel below a folder (or in one file); with `kernels`, of these names in a Triton cache.

    Raises UsageError when there is nothing to read at `source`, Unanswerable when nothing in it could be read.
    """
    files = list(_files(source, kernels))
    if not files:
        raise UsageError(f"--cubins {source}: no cubin, PTX or TTGIR there", "give a folder such as ~/.triton/cache")
    tool = disassembler()
    with ThreadPoolExecutor(max_workers=4) as pool:
        parts = list(pool.map(lambda file: _builds(file, tool), files))
    found: dict[str, list[SassBuild]] = {}
    warnings = [warning for _, part in parts for warning in part]
    for builds, _ in parts:
        for name, build in builds:
            found.setdefault(name, []).append(build)
    if not found:
        raise Unanswerable(
            f"--cubins {source}: no kernel could be disassembled" + (f" ({warnings[0]})" if warnings else ""),
            "install the CUDA toolkit's cuobjdump, or `pip install triton`, which brings one",
        )
    if tool is None:
        warnings.append("no cuobjdump or nvdisasm found: read PTX and TTGIR as text instead, which proves less")
    named = _demangled(found)
    return Disassembly(
        str(source), {n: Sass(n, builds) for n, builds in named.items()}, list(dict.fromkeys(warnings))
    )


def disassembler() -> Path | None:
    """cuobjdump or nvdisasm: on the PATH, else the one that Triton brings."""
    spec = importlib.util.find_spec("triton")
    places = (spec.submodule_search_locations if spec is not None else None) or []
    bundled = [Path(place) / "backends" / "nvidia" / "bin" for place in places]
    for name in ("cuobjdump", "nvdisasm"):
        on_path = shutil.which(name)
        if on_path is not None:
            return Path(on_path)
        for folder in bundled:
            if (folder / name).is_file():
                return folder / name
    return None


def _files(source: Path, kernels: Collection[str] | None) -> Iterator[Path]:
    """One file a build: a cubin where there is one, else its PTX, else its TTGIR."""
    if source.is_file():
        yield source
        return
    stems: dict[Path, dict[str, Path]] = {}
    for path in sorted(source.rglob("*")) if source.is_dir() else []:
        if path.suffix in (*_IN_FOLDERS, ".ptx", ".ttgir") and path.is_file():
            stems.setdefault(path.with_suffix(""), {})[path.suffix] = path
    tool = disassembler()
    for stem, forms in stems.items():
        if kernels is not None and ".ttgir" in forms and stem.name not in kernels:
            continue
        order = (*_IN_FOLDERS, ".ptx", ".ttgir") if tool is not None else (".ptx", ".ttgir", *_IN_FOLDERS)
        yield next(forms[suffix] for suffix in order if suffix in forms)


def _builds(file: Path, tool: Path | None) -> tuple[list[tuple[str, SassBuild]], list[str]]:
    if file.suffix == ".ptx":
        return _text_builds(file, "ptx"), []
    if file.suffix == ".ttgir":
        return _text_builds(file, "ttgir"), []
    if tool is None:
        return [], [f"{file.name}: no disassembler, and no PTX or TTGIR beside it"]
    functions = _disassemble(file, tool)
    if not functions:
        return [], [f"{file.name}: {tool.name} found no code in it"]
    any_mma = any(f.opcodes for f in functions)
    builds, warnings = [], []
    for f in functions:
        if f.calls and any_mma and not f.opcodes:
            warnings.append(f"{f.name}: calls other functions of {file.name}, some with MMA: no proof either way")
        elif f.instructions:
            builds.append((f.name, SassBuild(f.arch, frozenset(f.opcodes), "sass", str(file))))
    return builds, warnings


def _disassemble(file: Path, tool: Path) -> list[_Function]:
    command = [str(tool), "-sass", str(file)] if tool.name == "cuobjdump" else [str(tool), "-c", str(file)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    if done.returncode != 0:  # cut or damaged: what came out so far proves no absence
        return []
    return parse_sass(done.stdout.decode(errors="replace"))


def parse_sass(text: str) -> list[_Function]:
    """Functions of a disassembly, as cuobjdump or nvdisasm prints it."""
    functions: list[_Function] = []
    arch = ""
    for line in text.splitlines():
        function = _FUNCTION.match(line)
        if function is not None:
            functions.append(_Function(function[1] or function[2], arch))
            continue
        code = _INSTRUCTION.search(line)
        if code is not None and functions:
            current = functions[-1]
            current.instructions += 1
            current.calls |= code[1] == "CALL"
            if _MMA.fullmatch(code[1]):
                current.opcodes.add(code[1])
        elif code is None:
            told = _ARCH.search(line)
            if told is not None:
                arch = f"sm_{told[1] or told[2]}"
                if functions and not functions[-1].arch:
                    functions[-1].arch = arch
    return functions


def _text_builds(file: Path, proof: Literal["ptx", "ttgir"]) -> list[tuple[str, SassBuild]]:
    text = file.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("//")]
    if proof == "ptx":
        names = _PTX_ENTRY.findall(text)
        found = {m for line in lines for m in _PTX_MMA.findall(line)}
    else:
        names = [file.stem] if "tt.func" in text else []
        found = {m for line in lines for m in _TTGIR_MMA.findall(line)}
        if "nvidia_mma" not in text and "tc_gen5" not in text:  # a dot in a blocked layout is multiply-adds
            found = set()
    told = _ARCH.search(text) or re.search(r'"cuda:(\d+)"', text)
    arch = f"sm_{next(group for group in told.groups() if group)}" if told is not None else ""
    if len(names) > 1 and found:  # which of the entries has it is not told
        return []
    return [(name, SassBuild(arch, frozenset(found), proof, str(file))) for name in names]


def _demangled(found: dict[str, list[SassBuild]]) -> dict[str, list[SassBuild]]:
    """C++ names as people and traces write them, where c++filt is installed."""
    mangled = [name for name in found if name.startswith("_Z")]
    tool = shutil.which("c++filt")
    if not mangled or tool is None:
        return found
    done = subprocess.run([tool], input="\n".join(mangled), capture_output=True, text=True, timeout=60, check=False)
    plain = dict(zip(mangled, done.stdout.splitlines(), strict=False)) if done.returncode == 0 else {}
    named: dict[str, list[SassBuild]] = {}
    for name, builds in found.items():
        named.setdefault(plain.get(name, name), []).extend(builds)
    return named
