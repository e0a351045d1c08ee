"""MMA opcodes of compiled kernels: real cubins from Triton where it is installed, disassembly text always."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.records.trace import Disassembly
from dsv4bench.trace import cubin
from dsv4bench.trace.cubin import read_cubins, triton_cache
from dsv4bench.trace.sass import parse_sass

KERNELS = """
import os, sys
os.environ["TRITON_CACHE_DIR"] = sys.argv[1]
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def dot_k(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(a + i[:, None] * N + i[None, :])
    y = tl.load(b + i[:, None] * N + i[None, :])
    tl.store(c + i[:, None] * N + i[None, :], tl.dot(x, y))

@triton.jit
def sum_k(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(a + i[:, None] * N + i[None, :]).to(tl.float32)
    tl.store(c + i, tl.sum(x * tl.load(b + i)[None, :].to(tl.float32), axis=1))

for kernel in (dot_k, sum_k):
    for capability in (90, 120):
        types = {"a": "*bf16", "b": "*bf16", "c": "*fp32", "N": "constexpr"}
        triton.compile(ASTSource(kernel, types, {"N": 64}), target=GPUTarget("cuda", capability, 32))
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    folder = tmp_path_factory.mktemp("cubins")
    script = folder / "kernels_to_compile.py"
    script.write_text(KERNELS)
    done = subprocess.run(
        [sys.executable, str(script), str(folder / "cache")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "cache"


def opcodes(read: Disassembly, name: str) -> dict[str, frozenset[str]]:
    return {build.arch: build.opcodes for build in read.kernels[name].builds}


def test_a_dot_has_mma_and_a_sum_proves_that_it_has_none(cache: Path) -> None:
    read = read_cubins(cache)
    assert opcodes(read, "dot_k") == {"sm_90": frozenset({"HGMMA"}), "sm_120": frozenset({"HMMA"})}
    assert opcodes(read, "sum_k") == {"sm_90": frozenset(), "sm_120": frozenset()}
    assert {b.proof for kernel in read.kernels.values() for b in kernel.builds} == {"sass"}


def test_nvdisasm_says_the_same_of_one_kernel(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = cubin.disassembler()
    assert tool is not None
    nvdisasm = tool.with_name("nvdisasm")
    if not nvdisasm.exists():
        pytest.skip("no nvdisasm beside cuobjdump")
    monkeypatch.setattr(cubin, "disassembler", lambda: nvdisasm)
    read = read_cubins(cache, {"dot_k"})
    assert opcodes(read, "dot_k") == {"sm_90": frozenset({"HGMMA"}), "sm_120": frozenset({"HMMA"})}


def test_only_kernels_that_are_asked_for_are_disassembled(cache: Path) -> None:
    assert set(read_cubins(cache, {"sum_k"}).kernels) == {"sum_k"}


def test_without_a_disassembler_text_is_read_and_marked_weaker(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubin, "disassembler", lambda: None)
    read = read_cubins(cache)
    builds = {(n, b.arch): (b.proof, set(b.opcodes)) for n, kernel in read.kernels.items() for b in kernel.builds}
    assert builds == {
        ("dot_k", "sm_90"): ("ptx", {"wgmma.mma_async"}),
        ("dot_k", "sm_120"): ("ptx", {"mma.sync"}),
        ("sum_k", "sm_90"): ("ptx", set()),
        ("sum_k", "sm_120"): ("ptx", set()),
    }
    assert "proves less" in read.warnings[-1]


def test_a_cut_cubin_proves_nothing(cache: Path, tmp_path: Path) -> None:
    whole = next(cache.rglob("sum_k.cubin")).read_bytes()
    for cut in (10, len(whole) // 2):
        (tmp_path / "sum_k.cubin").write_bytes(whole[:cut])
        with pytest.raises(Unanswerable, match="no kernel could be disassembled"):
            read_cubins(tmp_path)


LISTING = """
	code for sm_100a
		Function : first
        /*0000*/                   CALL.REL.NOINC 0x40 ;        /* 0x00000 */
        /*0010*/                   EXIT ;
		Function : second
        /*0000*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
"""


def test_a_caller_in_a_file_with_mma_is_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.cubin").write_bytes(b"x")
    monkeypatch.setattr(cubin, "disassembler", lambda: Path("cuobjdump"))
    monkeypatch.setattr(cubin, "disassemble", lambda file, tool: parse_sass(LISTING))
    read = read_cubins(tmp_path)
    assert set(read.kernels) == {"second"}
    assert "first: calls other functions" in read.warnings[0]


def test_ttgir_with_a_dot_of_multiply_adds_is_no_mma(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubin, "disassembler", lambda: None)
    head = 'module attributes {ttg.target = "cuda:90"} {\n tt.func public @k() {\n'
    (tmp_path / "plain.ttgir").write_text(head + "%4 = tt.dot %x, %y : tensor<#blocked>\n")
    (tmp_path / "mma.ttgir").write_text("#mma = #ttg.nvidia_mma<{}>\n" + head + "%4 = tt.dot %x, %y : tensor<#mma>\n")
    kernels = read_cubins(tmp_path).kernels
    assert kernels["plain"].builds[0].opcodes == frozenset()
    assert kernels["mma"].builds[0].opcodes == {"tt.dot"} and kernels["mma"].builds[0].arch == "sm_90"
    assert kernels["mma"].builds[0].proof == "ttgir"


def test_nothing_to_read_is_the_users_error(tmp_path: Path) -> None:
    for source in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match="no cubin"):
            read_cubins(source)


PTX = {"mma_k": "mma.sync.aligned.m16n8k16", "plain_k": "fma.rn.f32"}


def write_builds(folder: Path, counts: dict[str, int]) -> None:
    """A Triton cache of PTX alone, as it is read where no disassembler is found."""
    for name, n in counts.items():
        for i in range(n):
            entry = folder / f"{name}{i}"
            entry.mkdir(parents=True)
            (entry / f"{name}.ptx").write_text(
                f".target sm_90a\n.visible .entry {name}(\n{PTX.get(name, 'add.f32')} ;\n"
            )
            (entry / f"{name}.ttgir").write_text("tt.func")


def test_only_so_many_builds_are_read_and_of_a_name_all_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cubin, "disassembler", lambda: None)
    write_builds(tmp_path, {"mma_k": 2, "plain_k": 5, "third_k": 1, "of_another_trace": 9})
    read = read_cubins(tmp_path, ["mma_k", "plain_k", "third_k", "not_there"], most=3)
    assert {name: len(kernel.builds) for name, kernel in read.kernels.items()} == {"mma_k": 2, "third_k": 1}
    assert read.warnings[0] == "plain_k: its 5 builds were not read, 3 builds are read at most"
    assert read_cubins(tmp_path, ["plain_k"], most=3).kernels == {}
    assert len(read_cubins(tmp_path, ["plain_k"], most=5).kernels["plain_k"].builds) == 5
    with pytest.raises(UsageError):
        read_cubins(tmp_path, ["not_there"], most=3)


def test_a_name_with_an_unreadable_build_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newer of two builds is cut: the older one alone would say that the kernel has no MMA."""
    listing = "\tcode for sm_90\n\t\tFunction : {}\n        /*0000*/  EXIT ;\n"
    for name in ("a/k", "b/k", "c/other"):
        (file := tmp_path / f"{name}.cubin").parent.mkdir()
        file.write_bytes(b"cut" if name == "b/k" else b"whole")
    monkeypatch.setattr(cubin, "disassembler", lambda: Path("cuobjdump"))
    monkeypatch.setattr(
        cubin,
        "disassemble",
        lambda file, tool: parse_sass(listing.format(file.stem)) if file.read_bytes() == b"whole" else [],
    )
    read = read_cubins(tmp_path, ["k", "other"], most=9)
    assert set(read.kernels) == {"other"}
    assert read.warnings == ["k: no proof, 1 of its 2 builds told nothing: k.cubin: cuobjdump found no code in it"]
    only = read_cubins(tmp_path, ["k"], most=9)
    assert only.kernels == {} and only.warnings == read.warnings


def test_of_a_cache_two_folders_are_looked_into_past_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubin, "disassembler", lambda: None)
    cache, other = tmp_path / "cache", tmp_path / "other"
    write_builds(cache, {"mma_k": 1})
    write_builds(cache / "deep" / "deeper", {"plain_k": 1})
    write_builds(other, {"third_k": 1})
    (cache / "link").symlink_to(other / "third_k0")
    (cache / "links").mkdir()
    for file in (other / "third_k0").iterdir():
        (cache / "links" / file.name).symlink_to(file)
    names = ["mma_k", "plain_k", "third_k"]
    assert set(read_cubins(cache, names, most=9).kernels) == {"mma_k"}
    assert set(read_cubins(cache, names).kernels) == set(names), "a folder that was named is read to its ground"


def test_a_cache_of_too_many_files_is_no_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubin, "disassembler", lambda: None)
    monkeypatch.setattr(cubin, "MOST_ENTRIES", 6)
    write_builds(tmp_path, {"mma_k": 2})  # two folders of two files
    assert set(read_cubins(tmp_path, ["mma_k"], most=9).kernels) == {"mma_k"}
    (tmp_path / "one_more").mkdir()
    read = read_cubins(tmp_path, ["mma_k"], most=9)
    assert (read.kernels, read.warnings) == ({}, ["more than 6 files in the cache: not looked through"])


def test_what_vanished_or_is_closed_loses_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubin, "disassembler", lambda: None)
    write_builds(tmp_path, {"mma_k": 1, "plain_k": 2, "third_k": 1})
    scandir, read_text = os.scandir, Path.read_text

    def listed(folder: str) -> Any:
        if folder.endswith("third_k0"):
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    def text(path: Path, **options: Any) -> str:
        if path.parent.name == "plain_k1":
            raise FileNotFoundError(2, "No such file or directory")
        return read_text(path, **options)

    monkeypatch.setattr(os, "scandir", listed)
    monkeypatch.setattr(Path, "read_text", text)
    read = read_cubins(tmp_path, ["mma_k", "plain_k", "third_k"], most=9)
    assert set(read.kernels) == {"mma_k"}
    assert read.warnings[:2] == [
        "folders that could not be listed: 1 (Permission denied)",
        "plain_k: no proof, 1 of its 2 builds told nothing: plain_k.ptx: No such file or directory",
    ]


def test_builds_for_other_block_sizes_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubin, "disassembler", lambda: None)
    write_builds(tmp_path, {"plain_k": 3})
    for i, metadata in enumerate(('{"num_warps": 4, "shared": 0}', '{"num_warps": 8}', "cut")):
        (tmp_path / f"plain_k{i}" / "plain_k.json").write_text(metadata)

    def builds(blocks: dict[str, set[int]]) -> list[str]:
        read = read_cubins(tmp_path, ["plain_k"], most=9, blocks=blocks)
        return sorted(Path(b.file).parent.name for b in read.kernels["plain_k"].builds)

    assert builds({"plain_k": {128}}) == ["plain_k0", "plain_k2"], "one tells no number of warps"
    assert builds({"plain_k": {128, 256}}) == builds({"other": {64}}) == ["plain_k0", "plain_k1", "plain_k2"]
    (tmp_path / "plain_k2" / "plain_k.json").write_text('{"num_warps": 1}')
    none = read_cubins(tmp_path, ["plain_k"], most=9, blocks={"plain_k": {64}})
    assert none.kernels == {}
    assert none.warnings == ["plain_k: none of its 3 builds has the block size of the trace"]


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"TRITON_CACHE_DIR": "/c", "TRITON_HOME": "/t", "HOME": "/h"}, "/c"),
        ({"TRITON_CACHE_DIR": "", "TRITON_HOME": "/t", "HOME": "/h"}, "/t/.triton/cache"),
        ({"HOME": "/h"}, "/h/.triton/cache"),
        ({}, None),
    ],
)
def test_where_triton_keeps_its_builds(environment: dict[str, str], folder: str | None) -> None:
    assert triton_cache(environment) == folder
