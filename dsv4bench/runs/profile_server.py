"""The server of a live profile: found, or started for it; and which one of several is the one to record.

A front end has no decode step to record: the load goes to its URL, the profile to the worker that --role names. A
server that was started here is ended here; under nsys it is started by its session.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from dsv4bench.capture.nsys import NsysSession
from dsv4bench.errors import UsageError
from dsv4bench.host.listening import PROC, Listening, environment_of, listening
from dsv4bench.host.redact import redact_text, secret_values
from dsv4bench.records.progress import MessageCallback
from dsv4bench.records.server import ServerInfo
from dsv4bench.runs.campaign_launch import clean_logs
from dsv4bench.runs.live_options import LiveOptions, address_of, command_of
from dsv4bench.server.detect import detect
from dsv4bench.server.launch import Launched, launch
from dsv4bench.server.profiler_setup import CUDA_VARIABLE, STAGED_VARIABLE, ask_for_workers
from dsv4bench.server.target import Target, find_target, parse_url
from dsv4bench.store.files import failing_as
from dsv4bench.trace.cubin import triton_cache

LOG = "server.log"
CACHE_VARIABLES = ("TRITON_CACHE_DIR", "TRITON_HOME", "HOME")
VARIABLES = (
    *("VLLM_TORCH_PROFILER_DIR", CUDA_VARIABLE, STAGED_VARIABLE, "SGLANG_TORCH_PROFILER_DIR"),
    *CACHE_VARIABLES,
)


class Profiled(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is recorded: itself, what it said, and its process where that is on this host."""

    target: Target
    info: ServerInfo
    process: Listening | None


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """Who gets the load, and who is recorded, by role; `launched` and `session` where it was started for this.

    `cache`: the Triton cache of the one that decodes, where we started it and the folder is there.
    """

    target: Target
    info: ServerInfo
    by_role: dict[str, Profiled]
    launched: Launched | None = None
    session: NsysSession | None = None
    cache: str | None = None

    def ended(self) -> str | None:
        """How a server of ours ended, with the end of its log; None while it runs, or when it is not ours."""
        if self.launched is None or self.launched.exit_code is None:
            return None
        tail = self.launched.log_tail(5)
        return f"exit code {self.launched.exit_code}" + (f": {tail}" if tail else "")


@contextlib.contextmanager
def served(o: LiveOptions, folder: Path, say: MessageCallback) -> Iterator[Served]:
    """The server, ready. Raises UsageError when it cannot be reached, started, or told apart."""
    if o.launch is None:
        target = find_target(o.url, o.headers, o.insecure)
        found = _known(o, target, say)
        cache = _cache(o.started_with, found, say) if o.cache and o.started_with is not None else None
        yield msgspec.structs.replace(found, cache=cache)
        return
    command, variables = command_of(o.launch)
    started_with = variables
    url = o.url or address_of(command)
    with contextlib.ExitStack() as stack:
        session = None
        if o.method == "nsys":
            keep = _kept_in(o.keep_trace)
            session = stack.enter_context(NsysSession(command, variables=variables, say=say, keep=keep))
            command, variables = session.command, session.env
        with failing_as("make", folder):
            folder.mkdir(parents=True, exist_ok=True)
        log = folder / LOG
        stack.callback(_without_words, log)
        stack.callback(clean_logs, [log], secret_values(command, variables), say)
        say(f"starting the server: {redact_text(o.launch)}")
        server = stack.enter_context(launch(command, log_path=log, env=variables))
        stack.callback(_ending, server, say)
        took = server.wait_ready(url, o.ready_timeout_s, o.headers, o.insecure)
        say(f"it answers after {took:.0f} s")
        found = _known(o, parse_url(url, o.headers, o.insecure), say)
        cache = _cache(started_with, found, say) if o.cache else None
        yield msgspec.structs.replace(found, launched=server, session=session, cache=cache)


def _cache(started_with: Mapping[str, str], found: Served, say: MessageCallback) -> str | None:
    """By its process's own environment alone; where that cannot be read, by what we gave it beside our own."""
    process = found.by_role["decode"].process if "decode" in found.by_role else None
    environment = {**os.environ, **started_with}
    if process is not None and (process.environment or environment_of(PROC / str(process.pid), ()) is not None):
        environment = process.environment
    told = triton_cache(environment)
    if told is None:
        return None
    path = process.path(told) if process is not None else Path(told)
    try:
        if not path.is_dir():
            return None
    except OSError:  # another user's
        return None
    say(f"compiled kernels: those of {path}")
    return str(path)


def _kept_in(folder: str | None) -> Path | None:
    """Made before anything is recorded, since what cannot be kept is gone with the session."""
    if folder is None:
        return None
    path = Path(folder)
    with failing_as("make", path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def _without_words(log: Path) -> None:
    """A log that stayed empty is none."""
    with contextlib.suppress(OSError):
        if log.stat().st_size == 0:
            log.unlink()


def _ending(server: Launched, say: MessageCallback) -> None:
    if server.exit_code is None:
        say("ending the server, which may take 20 s")


def _known(o: LiveOptions, target: Target, say: MessageCallback) -> Served:
    info = detect(target, o.model)
    say(f"{info.engine} {info.version or '(version not told)'} at {info.url}, model {info.model}")
    for note in info.notes:
        say(note)
    if o.roles:
        return Served(target=target, info=info, by_role={r: _worker(o, r, url) for r, url in o.roles.items()})
    if info.front_end is not None and o.method in ("torch", "nsys"):
        raise UsageError(f"{info.url} is {info.front_end}: it has no decode step to record", ask_for_workers(info))
    return Served(target=target, info=info, by_role={"decode": _profiled(target, info)})


def _worker(o: LiveOptions, role: str, url: str) -> Profiled:
    target = parse_url(url, o.headers, o.insecure)
    info = detect(target, None)
    if info.front_end is not None:
        raise UsageError(f"--role {role}={url}: that is {info.front_end}", ask_for_workers(info))
    told = (info.args or {}).get("disaggregation_mode")
    if told in ("prefill", "decode") and told != role:
        raise UsageError(f"--role {role}={url}: it says that it is the {told} worker", f"--role {told}={url}")
    return _profiled(target, info)


def _profiled(target: Target, info: ServerInfo) -> Profiled:
    process = listening(target.port, VARIABLES) if target.on_this_host else None
    return Profiled(target=target, info=info, process=process)
