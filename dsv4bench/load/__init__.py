"""How does a server behave under load? Target and workload in, `RequestRecord`s and `Cell`s out.

The Python API is `dsv4bench.load(name)`, and importing anything of this room binds that same name to the room. So the
room can be called, and hands the call to `dsv4bench.api.load`, which it knows by name only: this room measures.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallableRoom(ModuleType):
    def __call__(self, name_or_path: Any, root: Any = "results") -> Any:
        """Stored results as DataFrames; see `dsv4bench.api.load`."""
        return import_module("dsv4bench.api").load(name_or_path, root)


sys.modules[__name__].__class__ = _CallableRoom
