"""Which tensor-core instructions a compiled kernel contains: SASS of cubins, or of a Triton cache folder.

A kernel with instructions and no MMA among them (`sass` counts them) cannot use the tensor cores: proof. Where no
disassembler is found, PTX and TTGIR of the same cache are read as text; that is weaker, and marked so. A function
without MMA that calls others is left out when its file holds any MMA: the callee may run it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.records.trace import Disassembly, Sass, SassBuild
from dsv4bench.trace.sass import disassemble, disassembler

_COMPILED = (".cubin", ".fatbin", ".so", ".o")
_IN_FOLDERS = (".cubin", ".fatbin")  # libraries only when named: a wheel's disassembly takes minutes
_ARCH = re.compile(r"\bsm_(\d+)|EF_CUDA_SM(\d+)")
_PTX_MMA = re.compile(r"\b(wgmma\.mma_async|tcgen05\.mma|wmma\.mma|mma\.s[yp][a-z]*)")
_PTX_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_TTGIR_MMA = re.compile(r"\b(ttng\.warp_group_dot|ttng\.tc_gen5_mma\w*|tt\.dot_scaled|tt\.dot)\b")


def triton_cache(environment: Mapping[str, str]) -> str | None:
    """Where Triton keeps the builds of a process with this environment; None where that does not tell.

    As Triton has it: `TRITON_CACHE_DIR`, else `.triton/cache` below `TRITON_HOME`, else below `HOME`.
    """
    if told := environment.get("TRITON_CACHE_DIR"):
        return told
    home = environment.get("TRITON_HOME") or environment.get("HOME")
    return str(Path(home) / ".triton" / "cache") if home else None


def read_cubins(source: Path, kernels: Sequence[str] | None = None, most: int | None = None) -> Disassembly:
    """MMA opcodes of every kernel below a folder (or in one file); with `kernels`, of these names in a Triton cache.

    `most`: of a Triton cache, how many builds are read at most, in the order of `kernels`. A name whose builds are
    more than what is left of that is left out whole, for a part of them proves nothing, and a warning says so.
    Raises UsageError when there is nothing to read at `source`, Unanswerable when nothing in it could be read.
    """
    files = _files(source, kernels)
    left_out: list[str] = []
    if kernels is not None and most is not None:
        files, left_out = _at_most(files, kernels, most)
    if left_out and not files:
        return Disassembly(str(source), {}, left_out)
    if not files:
        raise UsageError(f"--cubins {source}: no cubin, PTX or TTGIR there", "give a folder such as ~/.triton/cache")
    tool = disassembler()
    with ThreadPoolExecutor(max_workers=4) as pool:
        parts = list(pool.map(lambda file: _builds(file, tool), files))
    found: dict[str, list[SassBuild]] = {}
    warnings = [*left_out, *(warning for _, part in parts for warning in part)]
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


def _files(source: Path, kernels: Collection[str] | None) -> list[Path]:
    """One file a build: a cubin where there is one, else its PTX, else its TTGIR."""
    if source.is_file():
        return [source]
    stems: dict[Path, dict[str, Path]] = {}
    for path in sorted(source.rglob("*")) if source.is_dir() else []:
        if path.suffix in (*_IN_FOLDERS, ".ptx", ".ttgir") and path.is_file():
            stems.setdefault(path.with_suffix(""), {})[path.suffix] = path
    order = (*_IN_FOLDERS, ".ptx", ".ttgir") if disassembler() is not None else (".ptx", ".ttgir", *_IN_FOLDERS)
    wanted = None if kernels is None else set(kernels)
    return [
        next(forms[suffix] for suffix in order if suffix in forms)
        for stem, forms in stems.items()
        if wanted is None or ".ttgir" not in forms or stem.name in wanted
    ]


def _at_most(files: Sequence[Path], kernels: Sequence[str], most: int) -> tuple[list[Path], list[str]]:
    """Files of these names and no others, the first named first, and what must be said of names that do not fit."""
    named: dict[str, list[Path]] = {name: [] for name in kernels}
    for file in files:
        if file.stem in named:
            named[file.stem].append(file)
    kept: list[Path] = []
    left_out = []
    for name, own in named.items():
        if len(kept) + len(own) <= most:
            kept += own
        else:
            left_out.append(f"{name}: its {len(own)} builds were not read, {most} builds are read at most")
    return kept, left_out


def _builds(file: Path, tool: Path | None) -> tuple[list[tuple[str, SassBuild]], list[str]]:
    if file.suffix == ".ptx":
        return _text_builds(file, "ptx"), []
    if file.suffix == ".ttgir":
        return _text_builds(file, "ttgir"), []
    if tool is None:
        return [], [f"{file.name}: no disassembler, and no PTX or TTGIR beside it"]
    functions = disassemble(file, tool)
    if not functions:
        return [], [f"{file.name}: {tool.name} found no code in it"]
    any_mma = any(f.mma for f in functions)
    builds, warnings = [], []
    for f in functions:
        if f.calls and any_mma and not f.mma:
            warnings.append(f"{f.name}: calls other functions of {file.name}, some with MMA: no proof either way")
        elif f.instructions:
            builds.append((f.name, SassBuild(f.arch, frozenset(f.mma), "sass", str(file))))
    return builds, warnings


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
