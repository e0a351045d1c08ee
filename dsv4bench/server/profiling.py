"""A server's own torch profiler over HTTP: start, stop, and what each engine says when it cannot.

    SGLang, ours   JSON with num_steps and output_dir; after num_steps it stops by itself, and refuses a stop then
    vLLM           no fields needed; the folder is fixed when it is started, and without it there is no endpoint

The client ends the window, so the server is asked for more steps than that: they only bound a profile whose client
was killed. By-stage profiles are not asked for: with speculation older SGLang books a verify step as prefill, and a
decode worker never ends the prefill stage. Only SGLANG_PROFILE_V2, which dies of anything else and cannot be stopped,
gets one, of exactly the steps. Files are not looked for here.

For a capture by nsys the same calls make a server call cudaProfilerStart and cudaProfilerStop, and nothing else
(`capture_range`): it records nothing itself, so no steps bound it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from dsv4bench.errors import BenchError, MeasuredBad, UsageError
from dsv4bench.host.redact import redact_text
from dsv4bench.records.server import Engine, ServerInfo
from dsv4bench.server.calls import Caller, Reply
from dsv4bench.server.profiler_setup import START, STOP, absent
from dsv4bench.server.target import Target

START_S = 120.0  # the first start loads CUPTI into every worker
SAID_CHARS = 200

State = Literal["stopped", "over", "gone", "hung", "failed"]


class ProfilerAsk(msgspec.Struct, frozen=True, kw_only=True):
    """What to record. `folder` is the server's own path, where it takes one with the call."""

    steps: int  # of the window: by_stage the server counts them, else the client does
    bound: int | None  # steps after which the server stops by itself; None: only when it is told to
    capture_range: bool = False  # only cudaProfilerStart and cudaProfilerStop, for nsys
    folder: str | None = None
    prefix: str = ""
    by_stage: bool = False
    gpu_only: bool = False


class Stopped(NamedTuple):
    """How the server took the call to stop. over: it had stopped by itself after its steps."""

    state: State
    line: str

    @property
    def ended(self) -> bool:
        return self.state in ("stopped", "over")


class HttpProfiler:
    """The profiler of one server, for one recording."""

    def __init__(self, target: Target, info: ServerInfo, ask: ProfilerAsk, start_timeout_s: float = START_S) -> None:
        self.target, self.info, self.ask = target, info, ask
        self._start_s = start_timeout_s

    def start(self) -> None:
        """Raises UsageError when the server has no profiler or refuses, MeasuredBad when it does not answer."""
        with Caller(self.target, self._start_s) as caller:
            body = self._body()
            reply = caller.post(START, body)
            if self.info.engine is Engine.VLLM and body is not None and reply.status in (400, 422):
                reply = caller.post(START)  # a version that takes other fields, or none
        if reply.failure:
            raise MeasuredBad(
                f"{self.target.base_url}{START}: {reply.failure}", "see the server's log; it may be stuck or gone"
            )
        if not reply.ok:
            raise _refused(self.target, self.info, reply)

    def stop(self, timeout_s: float) -> Stopped:
        """Tell the server to stop; it may answer only when its trace is written. Never raises."""
        with Caller(self.target, timeout_s) as caller:
            reply = caller.post(STOP)
        if reply.ok and not reply.failure:
            if self.info.engine is Engine.DSV4BENCH and (told := reply.text.partition("\n")[2].strip()):
                return Stopped("over", f"the server's profile was cut short: {told}")
            return Stopped("stopped", "the server was told to stop profiling, and did")
        if reply.timed_out:
            return Stopped("hung", f"the server was told to stop profiling and gave no answer within {timeout_s:g} s")
        if reply.failure or self.gone() is not None:
            why = reply.failure or f"{STOP} answered {reply.status}, {_said(reply)}".rstrip(", ")
            return Stopped("gone", f"the server could not be told to stop profiling, it is gone ({why})")
        by_itself = self.info.engine not in (Engine.VLLM, Engine.DSV4BENCH)  # ours says so with its trace
        if by_itself and (reply.status == 500 or "not in progress" in reply.text):
            after = f" after {self._bound} steps" if self._bound is not None else ""
            return Stopped("over", f"the server had stopped profiling by itself{after}")
        return Stopped("failed", f"{STOP} answered {reply.status}: {_said(reply) or 'nothing more'}")

    def gone(self) -> str | None:
        """Why the server counts as gone now; None while it takes connections and does not call itself dead.

        A vLLM whose engine has died closes its door and waits for the calls inside, and they for the engine. Being
        slow is no sign: a front end may be busy while a trace is written.
        """
        with Caller(self.target, 3.0) as caller:
            reply = caller.ask("/health")
        if reply.failure and not reply.timed_out:
            return reply.failure
        return f"/health answers {reply.status}" if reply.status in (500, 503) else None

    @property
    def _bound(self) -> int | None:
        return self.ask.steps if self.ask.by_stage else self.ask.bound

    def _body(self) -> dict[str, Any] | None:
        ask = self.ask
        if self.info.engine is Engine.VLLM:  # how it profiles was fixed when it was started
            return None if ask.capture_range else {"profile_prefix": ask.prefix, "max_iterations": self._bound}
        if ask.capture_range:
            return {"activities": ["CUDA_PROFILER"], "profile_by_stage": False}
        body: dict[str, Any] = {
            "num_steps": self._bound,
            "activities": ["GPU"] if ask.gpu_only else ["CPU", "GPU"],  # the CPU's part holds the steps' names
            "with_stack": False,
            "record_shapes": False,
            "profile_by_stage": ask.by_stage,
        }
        if ask.by_stage:
            body["profile_stages"] = ["decode"]
        if ask.folder is not None:
            body["output_dir"] = ask.folder
        return body


def _refused(target: Target, info: ServerInfo, reply: Reply) -> BenchError:
    if reply.status == 404:
        return absent(info)
    what = f"{target.base_url}{START} answered {reply.status}" + (f": {_said(reply)}" if _said(reply) else "")
    if reply.status in (401, 403):
        return UsageError(what, "its control calls need a key of their own: set DSV4BENCH_ADMIN_KEY")
    if reply.status >= 500 or "already" in reply.text:
        return UsageError(what, f"is a profile already running there? end it: curl -X POST {target.base_url}{STOP}")
    return UsageError(what, "see the server's log")


def _said(reply: Reply) -> str:
    """The server's own words, in one line."""
    found = reply.json()
    if isinstance(found, dict):
        error = found.get("error")
        found = error.get("message") if isinstance(error, dict) else error or found.get("detail")
    text = found if isinstance(found, str) else "" if found is not None else reply.text
    return redact_text(" ".join(text.split())[:SAID_CHARS])
