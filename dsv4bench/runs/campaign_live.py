"""Looks at a running server for what a lever should have changed: arguments, environment, log, kernels.

The environment is read of the process that listens on the port and of its children, the asked-for names only; what
was seen is shown without secrets.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dsv4bench.compare.live import lever_live, merge, why_not
from dsv4bench.host.environs import variables_of
from dsv4bench.host.listening import listening
from dsv4bench.host.redact import HIDDEN, is_secret_name, redact_text
from dsv4bench.records.campaign import LeverLive, LiveCheck
from dsv4bench.records.server import ServerInfo
from dsv4bench.scenario.launched import ConfigSpec
from dsv4bench.trace.names import normalise, spellings

__all__ = ["check", "merge", "why_not"]


def check(
    config: ConfigSpec,
    info: ServerInfo,
    *,
    port: int | None,
    log_text: str | None,
    kernel_names: list[str] | None,
    kernels_note: str = "",
) -> LeverLive:
    """One launch. `port` None: the server runs elsewhere; `kernel_names` None: nothing was recorded of it."""
    spec = config.live
    env = _environment(list(spec.env), port) if spec.env and port is not None else None
    found = lever_live(
        config.name,
        config.lever or "",
        spec,
        args=info.args,
        env=env,
        log=log_text,
        kernels=None if kernel_names is None else _spelled(kernel_names),
        kernels_note=kernels_note,
    )
    return msgspec.structs.replace(found, checks=[_clean(c) for c in found.checks])


def _environment(names: Sequence[str], port: int) -> dict[str, str | None] | None:
    process = listening(port)
    return None if process is None else variables_of(process.pid, names)


def _spelled(names: Sequence[str]) -> list[str]:
    """Each kernel in its one spelling and in the readable one with its namespaces, on one line."""
    return [" | ".join(dict.fromkeys((normalise(name), spellings(name)[1]))) for name in dict.fromkeys(names)]


def _clean(c: LiveCheck) -> LiveCheck:
    if c.where == "env" and is_secret_name(c.wanted.partition("=")[0]):
        name = c.wanted.partition("=")[0]
        seen = None if c.seen is None else f"{name}={HIDDEN}"
        return msgspec.structs.replace(c, wanted=f"{name}={HIDDEN}", seen=seen)
    seen = None if c.seen is None else redact_text(c.seen)
    return msgspec.structs.replace(c, wanted=redact_text(c.wanted), seen=seen)
