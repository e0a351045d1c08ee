"""dsv4bench: why an LLM server decodes as slowly as it does, with evidence.

`dsv4bench.load(name)` reads stored results as pandas DataFrames (`dsv4bench.api`); importing this loads nothing.
"""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`dsv4bench.load` before the room of that name was imported; the room itself is callable."""
    if name == "load":
        from importlib import import_module

        return import_module("dsv4bench.load")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
