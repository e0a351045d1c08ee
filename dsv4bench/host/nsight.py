"""Where are nsys and ncu on this machine, and can they work? On the PATH, else where NVIDIA installs them.

nsys comes by itself, with the CUDA toolkit, and inside Nsight Compute; on a machine with several, the PATH's is
taken, else the newest. nsys writes a raw stream and lets a second program, the importer, make a report of it: without
libdw.so.1 and libelf.so.1 that program does not start, nsys says nothing useful, and its exit code is 0. So the
importer is asked before a server is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import msgspec

LIBRARIES_REMEDY = (
    "install libdw1 and libelf1 (apt-get install libdw1 libelf1), or put the folder that holds them into "
    "LD_LIBRARY_PATH"
)
_NSYS_PLACES = (
    "opt/nvidia/nsight-systems*/*/bin/nsys",
    "opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "opt/nvidia/nsight-systems*/bin/nsys",
    "opt/nvidia/nsight-compute*/*/host/target-linux-*/nsys",
    "usr/local/cuda*/nsight-systems*/bin/nsys",
    "usr/local/cuda*/nsight-systems*/target-linux-*/nsys",
    "usr/local/cuda*/bin/nsys",
    "usr/lib/nsight-systems/bin/nsys",
    "usr/lib/*/nsight-systems/target-linux-*/nsys",
)
_NCU_PLACES = (
    "opt/nvidia/nsight-compute*/*/ncu",
    "usr/local/cuda*/nsight-compute*/ncu",
    "usr/local/cuda*/bin/ncu",
    "usr/lib/nsight-compute/ncu",
    "usr/lib/*/nsight-compute/target/*/ncu",
)
_IMPORTERS = ("../host-linux-*", "../../host-linux-*", "../linux-desktop-*", "../../host/linux-desktop-*")
_VERSION = re.compile(r"(?i)version:?\s+(\d{4}(?:\.\d+)+)")
_NO_LIBRARY = re.compile(r"([\w.+-]+\.so[\w.]*): cannot open shared object file")
_ASK_S = 20.0


class Nsight(msgspec.Struct, frozen=True):
    """One of the two programs. `version` is (2025, 3, 1); empty where it does not say."""

    path: str
    version: tuple[int, ...] = ()

    @property
    def shown(self) -> str:
        """`nsys 2025.3.1 (/opt/…/nsys)`."""
        number = ".".join(map(str, self.version))
        return f"{Path(self.path).name} {number} ({self.path})" if number else self.path


def find_nsys(root: str = "/") -> Nsight | None:
    """The nsys of the PATH, else the newest of the known folders below `root`; None where there is none."""
    return _find("nsys", _NSYS_PLACES, root)


def find_ncu(root: str = "/") -> Nsight | None:
    """The ncu of the PATH, else the newest of the known folders below `root`; None where there is none."""
    return _find("ncu", _NCU_PLACES, root)


def importer_of(nsys: str) -> str | None:
    """The program that makes reports for this nsys; None where it does not lie where it is known to."""
    home = Path(nsys).resolve().parent
    for pattern in _IMPORTERS:
        base, _, last = pattern.rpartition("/")
        folder = (home / base).resolve()
        for found in sorted(folder.glob(f"{last}/QdstrmImporter")):
            if os.access(found, os.X_OK):
                return str(found)
    return None


def importer_lacks(nsys: str) -> str | None:
    """The library without which the importer of this nsys does not start; None when it starts, or is not found."""
    importer = importer_of(nsys)
    return None if importer is None else missing_library(_said([importer, "--version"]))


def missing_library(text: str) -> str | None:
    """The library that a program said it cannot be started without."""
    found = _NO_LIBRARY.search(text)
    return None if found is None else found.group(1)


def _find(name: str, places: tuple[str, ...], root: str) -> Nsight | None:
    on_path = shutil.which(name)
    if on_path is not None:
        return Nsight(on_path, _version(on_path))
    found = {
        str(p.resolve()): str(p) for pattern in places for p in Path(root).glob(pattern) if os.access(p, os.X_OK)
    }
    known = [Nsight(path, _version(path)) for path in found.values()]
    return max(known, key=lambda n: n.version, default=None)


def _version(path: str) -> tuple[int, ...]:
    """nsys says 'NVIDIA Nsight Systems version 2025.3.1.90-…', ncu 'Version 2025.3.1.0 (build …)'."""
    found = _VERSION.search(_said([path, "--version"]))
    return tuple(int(n) for n in found.group(1).split(".")[:3]) if found is not None else ()


def _said(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr
