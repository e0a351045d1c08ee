"""nsys and ncu: on the PATH, else the newest where NVIDIA installs; and whether an importer starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4bench.host.nsight import Nsight, find_ncu, find_nsys, importer_lacks, importer_of, missing_library

NSYS_SAYS = "NVIDIA Nsight Systems version {}-234433681190v0"
NCU_SAYS = "NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion {} (build 33998838) (public-release)"
NO_LIBDW = "QdstrmImporter: error while loading shared libraries: libdw.so.1: cannot open shared object file: No such"


@pytest.fixture(autouse=True)
def nothing_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))


def program(path: Path, says: str = "", code: int = 0, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nprintf '{says}\\n'\nexit {code}\n")
    path.chmod(mode)
    return path


def test_the_path_comes_first(tmp_path: Path) -> None:
    mine = program(tmp_path / "path" / "nsys", NSYS_SAYS.format("2022.1.3.3"))
    program(tmp_path / "opt/nvidia/nsight-systems/2025.5.1/bin/nsys", NSYS_SAYS.format("2025.5.1.1"))
    assert find_nsys(str(tmp_path)) == Nsight(str(mine), (2022, 1, 3))


@pytest.mark.parametrize(
    "place",
    [
        "opt/nvidia/nsight-systems/2025.3.1/bin/nsys",
        "opt/nvidia/nsight-systems-cli/2025.3.1/target-linux-x64/nsys",
        "opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys",
        "usr/local/cuda-13.0/bin/nsys",
        "usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64/nsys",
    ],
)
def test_each_place_is_looked_into(tmp_path: Path, place: str) -> None:
    found = program(tmp_path / place, NSYS_SAYS.format("2025.3.1.90"))
    assert find_nsys(str(tmp_path)) == Nsight(str(found), (2025, 3, 1))


def test_the_newest_of_several_and_one_program_once(tmp_path: Path) -> None:
    """By its own word, not by its folder's name; what cannot be executed is none."""
    program(tmp_path / "opt/nvidia/nsight-systems/2025.9.1/bin/nsys", NSYS_SAYS.format("2024.2.1.1"))
    newest = program(
        tmp_path / "opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys", NSYS_SAYS.format("2025.10.1")
    )
    program(tmp_path / "usr/local/cuda/bin/nsys", NSYS_SAYS.format("2025.3.1"))
    program(tmp_path / "usr/lib/nsight-systems/bin/nsys", NSYS_SAYS.format("2027.1.1"), mode=0o644)
    found = find_nsys(str(tmp_path))
    assert found == Nsight(str(newest), (2025, 10, 1))
    assert found.shown == f"nsys 2025.10.1 ({newest})"


def test_ncu_and_none(tmp_path: Path) -> None:
    assert find_ncu(str(tmp_path)) is None and find_nsys(str(tmp_path)) is None
    found = program(tmp_path / "opt/nvidia/nsight-compute/2025.3.1/ncu", NCU_SAYS.format("2025.3.1.0"))
    assert find_ncu(str(tmp_path)) == Nsight(str(found), (2025, 3, 1))


def test_a_program_that_does_not_say_its_version(tmp_path: Path) -> None:
    found = program(tmp_path / "path" / "ncu", "a wrapper", 1)
    assert find_ncu(str(tmp_path)) == Nsight(str(found)) and Nsight(str(found)).shown == str(found)


@pytest.mark.parametrize(
    ("nsys", "importer"),
    [
        ("x/target-linux-x64/nsys", "x/host-linux-x64/QdstrmImporter"),
        ("x/host/target-linux-x64/nsys", "x/host/linux-desktop-glibc_2_11_3-x64/QdstrmImporter"),
        ("x/bin/nsys", "x/host-linux-x64/QdstrmImporter"),
    ],
)
def test_the_importer_is_found_beside_it(tmp_path: Path, nsys: str, importer: str) -> None:
    path = str(program(tmp_path / nsys))
    assert importer_of(path) is None and importer_lacks(path) is None
    found = program(tmp_path / importer, "2025.3.1")
    assert importer_of(path) == str(found) and importer_lacks(path) is None
    program(tmp_path / importer, NO_LIBDW, 127)
    assert importer_lacks(path) == "libdw.so.1"


def test_a_link_on_the_path_leads_to_the_importer(tmp_path: Path) -> None:
    nsys = program(tmp_path / "x/target-linux-x64/nsys")
    program(tmp_path / "x/host-linux-x64/QdstrmImporter", NO_LIBDW, 127)
    (tmp_path / "path" / "nsys").symlink_to(nsys)
    assert importer_lacks(str(tmp_path / "path" / "nsys")) == "libdw.so.1"


def test_the_library_in_other_words() -> None:
    assert missing_library("x: libelf-0.188.so: cannot open shared object file") == "libelf-0.188.so"
    assert missing_library("cannot open file") is None
