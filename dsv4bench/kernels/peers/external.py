"""A user's own kernel beside the bundled ones: `--peers FILE.py`, a Python file that defines `PEERS`.

    from dsv4bench.kernels.peers.external import ExternalPeer
    PEERS = [ExternalPeer(name="mine", component="moe", runner=make_my_runner)]

`runner()` gives a `MoeRunner` or an `AttentionRunner` (see `calls`), or raises UsageError naming what it lacks. It is
checked against the reference and timed as the registered peers are. The file is run as the user's own code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from dsv4bench.errors import BenchError, UsageError
from dsv4bench.kernels.registry import Component

MODULE = "dsv4bench_external_peers"


@dataclass(frozen=True, slots=True)
class ExternalPeer:
    """`rel_fro_limit`: raise it where the default, made for bf16 activations, does not fit; the row will say so."""

    name: str
    component: Component
    runner: Callable[[], Any]
    summary: str = ""
    rel_fro_limit: float = 1e-2
    min_sm: int = 0
    source: Path | None = field(default=None, compare=False)  # filled in when the file is read
    role: Literal["peer"] = "peer"

    def load(self) -> Any:
        """Its runner. Raises UsageError where a library is missing."""
        return self.runner()

    def supports(self, sm: int) -> bool:
        return sm >= self.min_sm

    def code_hash(self) -> str:
        """Of the file's text; 12 hex digits."""
        return hashlib.sha256(self.source.read_bytes() if self.source else b"").hexdigest()[:12]


def load_peers(path: Path | str, taken: Collection[str] = ()) -> tuple[ExternalPeer, ...]:
    """The peers of a file. Raises UsageError that names the file, and the peer where one is at fault.

    `taken` are names that cannot be used again: those of the registry.
    """
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"--peers {path}: no such file", "a Python file that defines PEERS")
    listed = getattr(_run(file), "PEERS", None)
    if not isinstance(listed, list | tuple) or not listed:
        raise UsageError(f"--peers {path}: defines no PEERS", "PEERS = [ExternalPeer(name=…, component=…, runner=…)]")
    found: dict[str, ExternalPeer] = {}
    for peer in listed:
        _check(file, peer)
        if peer.name in found or peer.name in taken:
            raise UsageError(f"--peers {path}: the name {peer.name!r} is taken", "give it another one")
        found[peer.name] = dataclasses.replace(peer, source=file)
    return tuple(found.values())


def _run(file: Path) -> Any:
    """The file as a module; its folder is importable while it runs, as for a script."""
    spec = importlib.util.spec_from_file_location(MODULE, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"--peers {file}: is no Python file", "its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module  # dataclasses and pickles look their module up
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except BenchError:
        raise
    except (Exception, SystemExit) as error:
        said = str(error).strip().splitlines()
        raise UsageError(
            f"--peers {file}: {type(error).__name__}: {said[0] if said else ''}", "fix the file"
        ) from error
    finally:
        sys.path.remove(str(file.parent))
    return module


def _check(file: Path, peer: object) -> None:
    if not isinstance(peer, ExternalPeer):
        raise UsageError(f"--peers {file}: PEERS holds a {type(peer).__name__}", "it must hold ExternalPeer(…) only")
    if not isinstance(peer.name, str) or not peer.name or not all(c.isalnum() or c in "_.+-" for c in peer.name):
        raise UsageError(f"--peers {file}: {peer.name!r} is no name", "letters, digits and _ . + -")
    if peer.component not in get_args(Component):
        raise UsageError(
            f"--peers {file}: component {peer.component!r} of {peer.name}",
            f"one of: {', '.join(get_args(Component))}",
        )
    if not callable(peer.runner):
        raise UsageError(f"--peers {file}: the runner of {peer.name} cannot be called", "give a function")
    if not isinstance(peer.min_sm, int):
        raise UsageError(f"--peers {file}: min_sm {peer.min_sm!r} of {peer.name}", "90 for sm_90")
    if not isinstance(peer.rel_fro_limit, int | float) or not 0 < peer.rel_fro_limit < 1:
        raise UsageError(f"--peers {file}: rel_fro_limit {peer.rel_fro_limit!r} of {peer.name}", "between 0 and 1")
