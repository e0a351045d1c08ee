"""Which libcupti a sampling process must load, and what is wrong when there is none that fits.

A GPU host often has several: torch brings an older one, which is found first and fails much later with
INVALID_PARAMETER. The one that fits `cupti-python` is looked up through the packages' own file lists.
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import msgspec

from dsv4bench.capture.pm_frames import Refused

BINDING, LIBRARY = "cupti-python", "nvidia-cuda-cupti"
INSTALL = "pip install 'dsv4bench[gpu]'"
# torch pins a libcupti of its own, so pip may not put a newer one beside it
BESIDE_TORCH = (
    "pip install --target DIR --no-deps 'cupti-python>=13.4' 'nvidia-cuda-cupti>=13.4,<14', and put DIR first into "
    "PYTHONPATH"
)
_NAME = re.compile(r"libcupti\.so\.\d+")


class Cupti(msgspec.Struct, frozen=True):
    """A libcupti that fits the installed binding."""

    path: str
    version: str  # of the package that it lies in
    binding: str


def find_cupti() -> Cupti | Refused:
    """The library to load first, or why there is none."""
    try:
        binding = metadata.version(BINDING)
    except metadata.PackageNotFoundError:
        return Refused(why="missing", message=f"{BINDING} is not installed", hint=INSTALL)
    need = _numbers(binding)[:2]
    found = sorted(_libraries())
    fitting = [f for f in found if f[0][:1] == need[:1] and f[0][:2] >= need]
    wanted = f"'{LIBRARY}>={need[0]}.{need[1]},<{need[0] + 1}'"
    if fitting:
        _, version, path = fitting[0]  # the nearest to the binding
        return Cupti(str(path), version, binding)
    if found:
        return Refused(
            why="library",
            message=f"libcupti {found[-1][1]} ({found[-1][2]}) does not fit {BINDING} {binding}",
            hint=f"pip install -U {wanted}; where torch pins another: {BESIDE_TORCH}",
        )
    return Refused(why="missing", message=f"no libcupti of {LIBRARY} is installed", hint=f"pip install {wanted}")


def _libraries() -> list[tuple[tuple[int, ...], str, Path]]:
    """(version as numbers, version, file) of every installed package that holds one."""
    found = []
    for package in metadata.distributions(name=LIBRARY):
        for file in package.files or []:
            path = Path(str(package.locate_file(file)))
            if _NAME.fullmatch(path.name) and path.is_file():
                found.append((_numbers(package.version), package.version, path))
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return (*(int(n) for n in re.findall(r"\d+", version)[:3]), 0, 0)
