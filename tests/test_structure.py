"""The house keeps its lines: who may import whom, how long a module may be, what starts with `--help`.

The imports are read with `ast`, those inside functions too. Each rule is also shown to catch a breach.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dsv4bench"
MODULES = sorted(p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*.py"))

LINES = [
    {"cli", "api"},
    {"runs"},
    {"report", "engine"},
    {"load", "server", "capture", "trace", "kernels", "store"},
    {"host"},
    {"attribution", "compare"},
    {"scenario", "dsv4", "gpus", "limits", "clocks"},
    {"records", "metrics"},
    {"errors"},
]
LINE = {room: i for i, rooms in enumerate(LINES) for room in rooms}
ONE_ROOM = LINES[6]
MEASURING = LINES[3]
BOTTOM = {"records", "metrics", "errors"}
HEAVY = {"torch", "triton", "pandas", "scipy", "nvtx"}
MAX_LINES = 350


def room_of(module: str) -> str:
    """`load/sse.py` is in load, `limits.py` is limits; `__main__.py` belongs to cli, the package itself is a root."""
    first = module.removesuffix(".py").split("/")[0]
    return {"__main__": "cli", "__init__": ""}.get(first, first)


def own_imports(source: str) -> set[str]:
    """Modules of ours that a source imports, anywhere, as dotted names below dsv4bench."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found |= {f"{node.module}.{a.name}" for a in node.names}
    return {name.removeprefix("dsv4bench.") for name in found if name.startswith("dsv4bench.")}


def breaches(module: str, source: str) -> list[str]:
    """What this module imports and must not."""
    room, found = room_of(module), []
    for name in sorted(own_imports(source)):
        other = name.split(".")[0]
        if other == room or other == "__version__":
            continue
        if other not in LINE:
            found.append(f"{module} imports {name}, which is on no line")
        elif room == "":
            found.append(f"{module} imports {name}: the package itself imports nothing")
        elif room == "cli" and other == "engine":
            if module != "cli/serve.py":
                found.append(f"{module} imports {name}: only cli/serve.py imports the engine")
        elif other == "engine":
            found.append(f"{module} imports {name}: only cli/serve.py imports the engine")
        elif LINE[other] <= LINE[room] and not {room, other} <= ONE_ROOM:
            found.append(f"{module} imports {name}: not on a lower line")
        elif room == "report" and other not in ONE_ROOM | BOTTOM:
            found.append(f"{module} imports {name}: report knows only what lies at the bottom")
        elif other in MEASURING and not _may_measure(module, room, other):
            found.append(f"{module} imports {name}: only runs joins the rooms that measure")
    return found


def _may_measure(module: str, room: str, other: str) -> bool:
    return (
        room == "runs" or (room == "engine" and other == "kernels") or (module, other) == ("cli/results.py", "store")
    )


def top_level_imports(source: str) -> set[str]:
    """Names of packages imported when the module is (not in a function, not for type checkers only)."""

    def walk(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                yield from walk(node.orelse)
            elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for field in ("body", "orelse", "finalbody"):
                    yield from walk(getattr(node, field, []) or [])
                for handler in getattr(node, "handlers", []):
                    yield from walk(handler.body)

    names = set()
    for node in walk(ast.parse(source).body):
        found = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        names |= {name.split(".")[0] for name in found}
    return names


def _source(module: str) -> str:
    return (PACKAGE / module).read_text(encoding="utf-8")


def test_a_room_imports_only_rooms_below_it() -> None:
    assert len(MODULES) > 100
    assert [breach for module in MODULES for breach in breaches(module, _source(module))] == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("load/x.py", "from dsv4bench.server.target import Target"),  # a neighbour
        ("load/x.py", "from dsv4bench.runs import sweep"),  # above
        ("load/x.py", "import dsv4bench.report.table"),
        ("host/x.py", "from dsv4bench.store.files import note"),
        ("records/x.py", "from dsv4bench.metrics import METRICS"),  # the bottom's own neighbours
        ("errors.py", "from dsv4bench.records.cell import Cell"),
        ("attribution/x.py", "from dsv4bench.compare.x import y"),
        ("report/x.py", "from dsv4bench.host.redact import redact"),  # below it, and still not for a report
        ("report/x.py", "def f():\n    from dsv4bench.store.store import Store"),  # inside a function, too
        ("runs/x.py", "from dsv4bench.engine.server import run"),
        ("cli/sweep.py", "from dsv4bench.engine.server import run"),
        ("cli/sweep.py", "from dsv4bench.store.store import Store"),
        ("cli/results.py", "from dsv4bench.load.pool import run_level"),
        ("engine/x.py", "from dsv4bench.load.http1 import Response"),
        ("dsv4/x.py", "from dsv4bench.nowhere import x"),
        ("__init__.py", "from dsv4bench.errors import BenchError"),
    ],
)
def test_the_reader_of_imports_sees_a_breach(module: str, line: str) -> None:
    assert len(breaches(module, line)) == 1


def test_the_reader_of_imports_allows_what_the_design_allows() -> None:
    assert breaches("limits.py", "from dsv4bench.gpus import Gpu\nfrom dsv4bench.dsv4.dims import Dims") == []
    assert breaches("runs/x.py", "from dsv4bench.load import a\nfrom dsv4bench.store import b") == []
    assert breaches("cli/results.py", "from dsv4bench.store import b\nfrom dsv4bench.report import c") == []
    assert breaches("cli/serve.py", "from dsv4bench.engine.server import run") == []
    assert breaches("records/x.py", "from dsv4bench.errors import BenchError") == []
    assert breaches("cli/x.py", "from dsv4bench import __version__") == []


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    light = [m for m in MODULES if room_of(m) not in ("engine", "kernels")]
    assert {m: found for m in light if (found := top_level_imports(_source(m)) & HEAVY)} == {}


def test_the_reader_of_heavy_imports_sees_one() -> None:
    assert top_level_imports("try:\n    import torch.nn\nexcept ImportError:\n    from scipy import stats\n") == {
        "torch",
        "scipy",
    }
    assert top_level_imports("if TYPE_CHECKING:\n    import pandas\ndef f():\n    import torch\n") == set()
    assert top_level_imports("class A:\n    import nvtx\n") == {"nvtx"}


def test_no_module_is_long() -> None:
    lengths = {m: len(_source(m).splitlines()) for m in MODULES}
    assert {m: n for m, n in lengths.items() if n > MAX_LINES} == {}


def mapped() -> set[str]:
    """Modules that docs/structure.md names: a `- `file.py`:` line under its room's `## room/` (or `## Top level`)."""
    found, room = set(), None
    for line in (ROOT / "docs" / "structure.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            room = line.removeprefix("## ").strip("`/ ")
        named = re.match(r"- `([\w/]+\.py)`: \S", line)
        if named is not None and room is not None:
            found.add(named.group(1) if room == "Top level" else f"{room}/{named.group(1)}")
    return found


def test_the_map_names_every_module_and_no_other() -> None:
    known = {m for m in MODULES if not m.endswith("/__init__.py")}
    named = {m for m in mapped() if not m.endswith("/__init__.py")}
    assert sorted(known - named) == [], "not in docs/structure.md"
    assert sorted(named - known) == [], "in docs/structure.md, and gone"


def test_the_command_line_starts_light() -> None:
    script = "import json, sys, dsv4bench.cli.main; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert "typer" in loaded
    assert loaded & {"torch", "triton", "pandas", "scipy", "httpx", "msgspec", "prometheus_client", "yaml"} == set()


def test_no_file_names_a_machine() -> None:
    """Absolute paths of the machine something was made on have no place in a repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    machine = re.compile(rb"(?<![\w.$}~-])/(?:wor" + rb"k|roo" + rb"t)/")
    assert machine.search(b'"/wor' + b'k/main"') and not machine.search(b"a/wor" + b"k/b")
    names = [name for name in listed.stdout.decode().split("\0") if name]
    assert names
    found = [n for n in names if (ROOT / n).is_file() and machine.search((ROOT / n).read_bytes())]
    assert found == []
