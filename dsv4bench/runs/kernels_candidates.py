"""Which kernels may be timed here, and why the others may not: parity first, then the GPU, then what can be imported.

A bundled kernel is timed only where its parity is recorded green for exactly its text on this GPU. A peer has no such
record; it is checked in the run itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, get_args

from dsv4bench.errors import BenchError, UsageError
from dsv4bench.kernels.device import sm_of
from dsv4bench.kernels.peers.external import ExternalPeer, load_peers
from dsv4bench.kernels.registry import KERNELS, Component, Role
from dsv4bench.records.kernels import DeviceFacts, ParityDocument
from dsv4bench.store import kernels as store

CHECK_FIRST = "run `dsv4bench kernels check` first"
COMPONENTS: tuple[Component, ...] = get_args(Component)
ROLES: tuple[Role, ...] = get_args(Role)


class Candidate(Protocol):
    """A kernel of the registry, or a user's own."""

    @property
    def name(self) -> str: ...
    @property
    def component(self) -> Component: ...
    @property
    def role(self) -> Role: ...
    @property
    def rel_fro_limit(self) -> float: ...
    def load(self) -> Any: ...
    def supports(self, sm: int) -> bool: ...
    def code_hash(self) -> str: ...


class Entrant(NamedTuple):
    """`runner` is there, or `why_not` is."""

    kernel: Candidate
    runner: Any
    why_not: str | None


def candidates(
    names: str | None, component: str | None, peers: str | None, registry: Sequence[Candidate] = KERNELS
) -> list[Candidate]:
    """By component and role, fallbacks first, a user's own last. Raises UsageError for a name that nothing has.

    Without names: all, but for those that are timed on demand only.
    """
    if component is not None and component not in COMPONENTS:
        raise UsageError(f"component {component!r} is unknown", f"one of: {', '.join(COMPONENTS)}")
    known: list[Candidate] = [*registry]
    known += load_peers(peers, [k.name for k in known]) if peers is not None else ()
    if names is None:
        found = [k for k in known if getattr(k, "default", True)]
    else:
        by_name = {k.name: k for k in known}
        found = [_named(name, by_name) for name in dict.fromkeys(n.strip() for n in names.split(",")) if name]
        if not found:
            raise UsageError("no kernel is named", f"any of: {', '.join(by_name)}")
    found = [k for k in found if component in (None, k.component)]
    if not found:
        raise UsageError(f"none of {names} is a kernel of {component}", "name others, or leave --component out")
    return sorted(found, key=lambda k: (COMPONENTS.index(k.component), ROLES.index(k.role)))


def entrants(found: Sequence[Candidate], device: DeviceFacts, parity: ParityDocument | None) -> list[Entrant]:
    """Every candidate with its runner, or with the reason why it has none.

    A user's own are loaded last, so that what they import changes nothing for the others.
    """
    loaded = {k.name: _entrant(k, device, parity) for k in sorted(found, key=lambda k: isinstance(k, ExternalPeer))}
    return [loaded[k.name] for k in found]


def _named(name: str, by_name: dict[str, Candidate]) -> Candidate:
    if name not in by_name:
        raise UsageError(f"kernel {name!r} is unknown", f"one of: {', '.join(by_name)}")
    return by_name[name]


def _entrant(kernel: Candidate, device: DeviceFacts, parity: ParityDocument | None) -> Entrant:
    if not kernel.supports(sm_of(device)):
        return Entrant(kernel, None, f"it does not run on {device.arch}")
    if kernel.role != "peer":
        why = store.not_green(parity, kernel.name, kernel.code_hash())
        if why is not None:
            return Entrant(kernel, None, f"{why}: {CHECK_FIRST}")
    try:
        return Entrant(kernel, kernel.load(), None)
    except BenchError as error:
        said = error.message.removeprefix(f"{kernel.name}: ")
        return Entrant(kernel, None, f"{said}; {error.hint}" if error.hint else said)
    except Exception as error:  # a user's own runner, or a library that breaks on this machine
        lines = str(error).strip().splitlines()
        return Entrant(kernel, None, f"{type(error).__name__}: {lines[0] if lines else 'no message'}")
