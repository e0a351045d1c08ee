"""Importing a peer's library, or saying in one line what is missing."""

from __future__ import annotations

import importlib
from typing import Any

from dsv4bench.errors import UsageError


def need(module: str, peer: str, package: str) -> Any:
    """The module of that dotted name. Raises UsageError naming it, why it does not import, and what to install.

    A library that is there and fails inside (another torch, a missing symbol) is as absent as one that is not.
    """
    try:
        return importlib.import_module(module)
    except Exception as error:  # a compiled library raises whatever it likes: OSError, RuntimeError, AttributeError
        raise UsageError(f"{peer}: {module} cannot be imported ({_first_line(error)})", f"needs {package}") from error


def take(module: Any, name: str, peer: str, package: str) -> Any:
    """An attribute of a module that has come and gone over its versions. Raises UsageError naming it."""
    found = getattr(module, name, None)
    if found is None:
        raise UsageError(f"{peer}: {module.__name__} has no {name}", f"needs {package}")
    return found


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:120]}" if lines else type(error).__name__
