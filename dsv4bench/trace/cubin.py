"""Which tensor-core instructions a compiled kernel contains: SASS of cubins, or of a Triton cache folder.

A kernel with instructions and no MMA among them (`sass` counts them) cannot use the tensor cores: proof. Where no
disassembler is found, PTX and TTGIR of the same cache are read as text; that is weaker, and marked so. A function
without MMA that calls others is no proof when its file holds any MMA: the callee may run it. A name of which one
build is no proof or cannot be read is left out whole: that build may be the one that ran.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.records.trace import Disassembly, Sass, SassBuild
from dsv4bench.trace.sass import disassemble, disassembler

MOST_ENTRIES = 50_000  # of a cache, files and folders: some 6000 builds
_CACHE_DEPTH = 2  # <hash>/<name>.cubin
_WARP = 32  # threads
_IN_FOLDERS = (".cubin", ".fatbin")  # libraries only when named: a wheel's disassembly takes minutes
_ARCH = re.compile(r"\bsm_(\d+)|EF_CUDA_SM(\d+)")
_PTX_MMA = re.compile(r"\b(wgmma\.mma_async|tcgen05\.mma|wmma\.mma|mma\.s[yp][a-z]*)")
_PTX_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_TTGIR_MMA = re.compile(r"\b(ttng\.warp_group_dot|ttng\.tc_gen5_mma\w*|tt\.dot_scaled|tt\.dot)\b")


class _Read(NamedTuple):
    """Of one file: its builds, and why it is no proof for names of which it is a build, too."""

    builds: list[tuple[str, SassBuild]]
    unread: dict[str, str]


class _Metadata(msgspec.Struct):
    """What is used of `<name>.json`, which Triton writes beside a build."""

    num_warps: int | None = None


def triton_cache(environment: Mapping[str, str]) -> str | None:
    """Where Triton keeps the builds of a process with this environment; None where that does not tell.

    As Triton has it: `TRITON_CACHE_DIR`, else `.triton/cache` below `TRITON_HOME`, else below `HOME`.
    """
    if told := environment.get("TRITON_CACHE_DIR"):
        return told
    home = environment.get("TRITON_HOME") or environment.get("HOME")
    return str(Path(home) / ".triton" / "cache") if home else None


def read_cubins(
    source: Path,
    kernels: Sequence[str] | None = None,
    most: int | None = None,
    blocks: Mapping[str, Collection[int]] | None = None,
) -> Disassembly:
    """MMA opcodes of every kernel below a folder (or in one file); with `kernels`, of these names in a Triton cache.

    `most`: the folder is a Triton cache that nobody named: it is looked into two folders deep, past no link, and how
    many builds are read at most, in the order of `kernels`. A name whose builds are more than what is left of that is
    left out whole, for a part of them proves nothing, and a warning says so. `blocks`: by name, the threads a block
    that it ran with; builds that Triton made for other numbers are left out.
    Raises UsageError when there is nothing to read at `source`, Unanswerable when nothing in it could be read.
    """
    files, warnings = _files(source, kernels, unasked=most is not None)
    if blocks:
        files = _with_blocks(files, blocks, warnings)
    if kernels is not None and most is not None:
        files = _at_most(files, kernels, most, warnings)
    if warnings and not files:
        return Disassembly(str(source), {}, warnings)
    if not files:
        raise UsageError(f"--cubins {source}: no cubin, PTX or TTGIR there", "give a folder such as ~/.triton/cache")
    tool = disassembler()
    with ThreadPoolExecutor(max_workers=4) as pool:
        parts = list(pool.map(lambda file: _builds(file, tool), files))
    found: dict[str, list[SassBuild]] = {}
    for name, build in (pair for part in parts for pair in part.builds):
        found.setdefault(name, []).append(build)
    if not found:
        why = [line for part in parts for line in part.unread.values()]
        raise Unanswerable(
            f"--cubins {source}: no kernel could be disassembled" + (f" ({why[0]})" if why else ""),
            "install the CUDA toolkit's cuobjdump, or `pip install triton`, which brings one",
        )
    _without_unread(found, parts, warnings)
    if tool is None:
        warnings.append("no cuobjdump or nvdisasm found: read PTX and TTGIR as text instead, which proves less")
    named = _demangled(found)
    return Disassembly(
        str(source), {n: Sass(n, builds) for n, builds in named.items()}, list(dict.fromkeys(warnings))
    )


def _files(source: Path, kernels: Collection[str] | None, *, unasked: bool) -> tuple[list[Path], list[str]]:
    """One file a build: a cubin where there is one, else its PTX, else its TTGIR; and what could not be listed."""
    if not source.is_dir():
        return [source] if source.is_file() else [], []
    suffixes = (*_IN_FOLDERS, ".ptx", ".ttgir")
    stems: dict[Path, dict[str, Path]] = {}
    closed: list[str] = []
    for i, entry in enumerate(_entries(str(source), closed, unasked=unasked)):
        if unasked and i == MOST_ENTRIES:  # what was not seen may be a build of any name
            return [], [f"more than {MOST_ENTRIES} files in the cache: not looked through"]
        path = Path(entry.path)
        if path.suffix in suffixes and _is_file(entry, unasked=unasked):
            stems.setdefault(path.with_suffix(""), {})[path.suffix] = path
    order = suffixes if disassembler() is not None else (".ptx", ".ttgir", *_IN_FOLDERS)
    wanted = None if kernels is None else set(kernels)
    files = [
        next(forms[suffix] for suffix in order if suffix in forms)
        for stem, forms in sorted(stems.items())
        if wanted is None or ".ttgir" not in forms or stem.name in wanted
    ]
    told = closed and (files or unasked)
    return files, [f"folders that could not be listed: {len(closed)} ({closed[0]})"] if told else []


def _entries(source: str, closed: list[str], *, unasked: bool) -> Iterator[os.DirEntry[str]]:
    """Everything below a folder, past no link to a folder; why folders could not be listed goes to `closed`."""
    pending = [(source, 1)]
    while pending:
        folder, depth = pending.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    yield entry
                    if entry.is_dir(follow_symlinks=False) and not (unasked and depth == _CACHE_DEPTH):
                        pending.append((entry.path, depth + 1))
        except OSError as e:  # another user's, or gone meanwhile
            closed.append(e.strerror or type(e).__name__)


def _is_file(entry: os.DirEntry[str], *, unasked: bool) -> bool:
    try:
        return entry.is_file(follow_symlinks=not unasked)
    except OSError:
        return False


def _with_blocks(files: Sequence[Path], blocks: Mapping[str, Collection[int]], warnings: list[str]) -> list[Path]:
    """Without builds for other block sizes than the name ran with; those that tell no number of warps stay."""
    kept: list[Path] = []
    others: dict[str, int] = {}
    for file in files:
        warps = _warps(file.with_suffix(".json")) if file.stem in blocks else None
        if warps is None or warps * _WARP in blocks[file.stem]:
            kept.append(file)
        else:
            others[file.stem] = others.get(file.stem, 0) + 1
    for name in others.keys() - {file.stem for file in kept}:
        warnings.append(f"{name}: none of its {others[name]} builds has the block size of the trace")
    return kept


def _warps(metadata: Path) -> int | None:
    try:
        return msgspec.json.decode(metadata.read_bytes(), type=_Metadata).num_warps
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _at_most(files: Sequence[Path], kernels: Sequence[str], most: int, warnings: list[str]) -> list[Path]:
    """Files of these names and no others, the first named first; names that do not fit go to `warnings`."""
    named: dict[str, list[Path]] = {name: [] for name in kernels}
    for file in files:
        if file.stem in named:
            named[file.stem].append(file)
    kept: list[Path] = []
    for name, own in named.items():
        if len(kept) + len(own) <= most:
            kept += own
        else:
            warnings.append(f"{name}: its {len(own)} builds were not read, {most} builds are read at most")
    return kept


def _without_unread(found: dict[str, list[SassBuild]], parts: Sequence[_Read], warnings: list[str]) -> None:
    """Takes names of which a build was not read out of `found`, with a line each; other failures get their own."""
    unread: dict[str, list[str]] = {}
    for name, line in (pair for part in parts for pair in part.unread.items()):
        unread.setdefault(name, []).append(line)
    for name, why in unread.items():
        read = found.pop(name, [])
        if read:
            warnings.append(
                f"{name}: no proof, {len(why)} of its {len(read) + len(why)} builds told nothing: {why[0]}"
            )
        else:
            warnings += why


def _builds(file: Path, tool: Path | None) -> _Read:
    if file.suffix in (".ptx", ".ttgir"):
        try:
            return _text_builds(file, "ptx" if file.suffix == ".ptx" else "ttgir")
        except OSError as e:
            return _Read([], {file.stem: f"{file.name}: {e.strerror}"})
    if tool is None:
        return _Read([], {file.stem: f"{file.name}: no disassembler, and no PTX or TTGIR beside it"})
    functions = disassemble(file, tool)
    if not functions:
        return _Read([], {file.stem: f"{file.name}: {tool.name} found no code in it"})
    any_mma = any(f.mma for f in functions)
    builds, unread = [], {}
    for f in functions:
        if f.calls and any_mma and not f.mma:
            unread[f.name] = f"{f.name}: calls other functions of {file.name}, some with MMA: no proof either way"
        elif f.instructions:
            builds.append((f.name, SassBuild(f.arch, frozenset(f.mma), "sass", str(file))))
    return _Read(builds, unread)


def _text_builds(file: Path, proof: Literal["ptx", "ttgir"]) -> _Read:
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
    if not names:
        return _Read([], {file.stem: f"{file.name}: no kernel in it"})
    if len(names) > 1 and found:
        return _Read([], dict.fromkeys(names, f"{file.name}: which of its {len(names)} kernels has MMA is not told"))
    return _Read([(name, SassBuild(arch, frozenset(found), proof, str(file))) for name in names], {})


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
