"""Which libcupti fits the binding: the nearest that is not older, whatever order the packages lie in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dsv4bench.capture.pm_frames import Refused
from dsv4bench.capture.pm_library import Cupti, find_cupti


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Packages of this test only: (name, version, file or None), each in a folder of its own, in this order."""

    def put(*packages: tuple[str, str, str | None]) -> list[Path]:
        folders = []
        for i, (name, version, file) in enumerate(packages):
            folder = tmp_path / f"site{i}"
            info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            (info / "RECORD").write_text(f"{file},,\n" if file else "")
            if file:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_bytes(b"")
            folders.append(folder)
        monkeypatch.setattr(sys, "path", [str(f) for f in folders])
        return folders

    return put


LIB = "nvidia/cu13/lib/libcupti.so.13"


def test_torchs_older_one_is_passed_over(install) -> None:
    folders = install(
        ("nvidia-cuda-cupti", "13.0.85", LIB), ("cupti-python", "13.4.0", None), ("nvidia-cuda-cupti", "13.4.92", LIB)
    )
    assert find_cupti() == Cupti(str(folders[2] / LIB), "13.4.92", "13.4.0")


def test_the_nearest_newer_one_serves(install) -> None:
    folders = install(
        ("nvidia-cuda-cupti", "13.6.1", LIB), ("nvidia-cuda-cupti", "13.5.25", LIB), ("cupti-python", "13.4.0", None)
    )
    found = find_cupti()
    assert isinstance(found, Cupti) and found.path == str(folders[1] / LIB)


@pytest.mark.parametrize(
    ("packages", "why", "said", "hint"),
    [
        ([("nvidia-cuda-cupti", "13.4.92", LIB)], "missing", "cupti-python is not installed", "dsv4bench[gpu]"),
        ([("cupti-python", "13.4.0", None)], "missing", "no libcupti", "'nvidia-cuda-cupti>=13.4,<14'"),
        (
            [("cupti-python", "13.4.0", None), ("nvidia-cuda-cupti", "13.0.85", LIB)],
            "library",
            "does not fit cupti-python 13.4.0",
            "pip install -U 'nvidia-cuda-cupti>=13.4,<14'",
        ),
        (
            [("cupti-python", "13.4.0", None), ("nvidia-cuda-cupti", "14.0.1", "nvidia/cu14/lib/libcupti.so.14")],
            "library",
            "14.0.1",
            "<14",
        ),
    ],
)
def test_what_is_missing_is_named_with_its_remedy(install, packages, why: str, said: str, hint: str) -> None:
    install(*packages)
    found = find_cupti()
    assert isinstance(found, Refused)
    assert found.why == why and said in found.message and hint in found.hint


def test_a_listed_file_that_is_gone_is_no_library(install) -> None:
    folders = install(("cupti-python", "13.4.0", None), ("nvidia-cuda-cupti", "13.4.92", LIB))
    (folders[1] / LIB).unlink()
    found = find_cupti()
    assert isinstance(found, Refused) and found.why == "missing"
