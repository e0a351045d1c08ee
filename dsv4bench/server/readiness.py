"""When is a launched server ready? Its health answers and one real generation of a few tokens has completed.

A health path says 200 while kernels still compile, or while the engine behind it hangs; so two short generations are
made, one after the other. The first one far slower than the second is a warm-up or a compile at first use, and is
noted with both figures, as are the phases of warming up that the log tells. Nothing here is a measurement.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from dsv4bench.records.server import Engine
from dsv4bench.records.workload import Endpoint
from dsv4bench.server.calls import Caller, Reply
from dsv4bench.server.group import Group
from dsv4bench.server.models import choose_model, read_models
from dsv4bench.server.target import KEY_VARIABLE, parse_url

TOKENS = 4  # of one generation
GIVE_UP_S = 60.0  # of the same error from a server that calls itself healthy

_POLL_S = 0.1
_BETWEEN_S = 0.5
_FAR_RATIO, _FAR_S = 3.0, 0.5  # the first generation took so much longer: something happened in it
_PASSING = (408, 425, 429, 502, 503, 504)  # a server, or a router whose workers are not registered yet
_TEXT = "The quick brown fox"
_IDS = [1, 2, 3, 4]


def _phase(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.I)


_PHASES = {
    "CUDA graphs were captured": _phase(
        r"captur\w+ (?:the )?(?:piecewise |batches.*)?cuda[ _]?graph|cuda[ _]?graphs? captur|Graph capturing finished"
    ),
    "torch.compile compiled": _phase(
        r"torch\.compile (?:takes|took|start|and initial)|Dynamo bytecode transform|Compiling a graph"
    ),
    "DeepGEMM compiled or warmed up": _phase(r"deep_?gemm.{0,40}\b(?:warm-?up|jit|pre-?compile|compil(?:ed?|ing))\b"),
    "tilelang compiled": _phase(r"tilelang.{0,60}\b(?:compil(?:ed?|es|ing)|jit)\b"),
    "FlashInfer tuned or compiled": _phase(
        r"flashinfer.{0,60}\b(?:autotun\w+|jit|compil(?:ed?|ing))\b|\[AutoTuner\]"
    ),
    "Triton tuned or compiled": _phase(r"triton.{0,60}\b(?:autotun(?:ing|ed)|compil(?:ed|ing)|jit)\b|jit_monitor"),
}


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A server that generates. `ready_s`: from the start of its first process to the end of the first generation."""

    ready_s: float
    first_generation_s: float
    second_generation_s: float
    notes: list[str] = msgspec.field(default_factory=list)


class _Answer(NamedTuple):
    reply: Reply
    took_s: float


def wait_generating(
    group: Group,
    timeout_s: float,
    *,
    model: str | None = None,
    endpoint: Endpoint = "completions",
    headers: Sequence[str] = (),
) -> Ready:
    """Wait until the group's front generates; `timeout_s` counts from the start of its first process.

    `model` None: the first that the server lists. `headers` are "NAME: VALUE". Raises LaunchFailed, with the likely
    cause and the log's end: it ended, was not healthy in time, refused the request, or never generated.
    """
    deadline_s = group.started_s + timeout_s
    for part in group.parts:
        group.wait_healthy(part, deadline_s)
    group.check_ports()
    asking = _Asking(group, model, endpoint, headers, deadline_s)
    before = len(group.log_text())
    first = asking.generate()
    ready_s = time.time() - group.started_s
    during = group.log_text()[before:]
    second = asking.generate()
    group.check()
    notes = list(_first_use(first.took_s, second.took_s, during))
    return Ready(
        ready_s=ready_s,
        first_generation_s=first.took_s,
        second_generation_s=second.took_s,
        notes=notes + phases(group.log_text()),
    )


def phases(log_text: str) -> list[str]:
    """Phases of warming up that a log tells, each with the number of its lines."""
    lines = log_text.splitlines()
    counted = [(what, sum(1 for line in lines if pattern.search(line[:2000]))) for what, pattern in _PHASES.items()]
    return [f"log: {what} ({n} line{'s' if n > 1 else ''})" for what, n in counted if n]


class _Asking:
    """Short generations on one server, each until it completes, is refused, or the deadline has passed."""

    def __init__(
        self, group: Group, model: str | None, endpoint: Endpoint, headers: Sequence[str], deadline_s: float
    ) -> None:
        self.group, self.endpoint, self.deadline_s = group, endpoint, deadline_s
        self.target = parse_url(group.front.url, headers)
        self.path = "/v1/chat/completions" if endpoint == "chat" else "/v1/completions"
        self.model = model or self._listed()
        self.prompts: list[Any] = [_TEXT] if endpoint == "chat" else [_TEXT, _IDS]

    def generate(self) -> _Answer:
        """One generation that completed."""
        same_since, same = time.time(), ""
        while True:
            answer = self._post()
            wrong = _wrong(answer.reply)
            if wrong is None:
                return answer
            self.group.check()
            if wrong != same:
                same_since, same = time.time(), wrong
            self._judge(answer, wrong, time.time() - same_since)
            time.sleep(_BETWEEN_S)

    def _judge(self, answer: _Answer, wrong: str, since_s: float) -> None:
        """Raise when asking again is of no use; a prompt of token ids is tried where text was refused."""
        status, url = answer.reply.status, self.target.base_url
        if status in (400, 422) and len(self.prompts) > 1:
            self.prompts.pop(0)
        elif status in (401, 403):
            sent = "the key that was sent is not accepted" if self.target.has_key else "no key was sent"
            raise self.group.failure(f"{url} is healthy and answers {status} to a request: {sent} ({KEY_VARIABLE})")
        elif status == 404:
            other = "chat" if self.endpoint == "completions" else "completions"
            raise self.group.failure(
                f"{url} is healthy and does not serve {self.path} for the model {self.model!r} ({wrong}); "
                f"is `server: endpoint: {other}` or another model meant?"
            )
        elif 400 <= status < 500 and status not in _PASSING:
            raise self.group.failure(f"{url} is healthy and refuses a request of {TOKENS} tokens: {wrong}")
        elif time.time() > self.deadline_s:
            waited = time.time() - self.group.started_s
            raise self.group.failure(f"{url} is healthy and has not generated a token within {waited:.0f} s: {wrong}")
        elif since_s > GIVE_UP_S and status not in (0, *_PASSING):
            raise self.group.failure(f"{url} is healthy and cannot generate: {wrong}, again and again")

    def _post(self) -> _Answer:
        """One request, watching the processes while it waits: a dead engine leaves it hanging."""
        body = {"model": self.model, "max_tokens": TOKENS, "temperature": 0, "stream": False}
        prompt = self.prompts[0]
        body |= {"messages": [{"role": "user", "content": prompt}]} if self.endpoint == "chat" else {"prompt": prompt}
        left_s = max(1.0, self.deadline_s - time.time())
        answered: list[_Answer] = []

        def ask() -> None:
            with Caller(self.target, timeout_s=left_s) as caller:
                begun = time.monotonic()
                reply = caller.post(self.path, body)
                answered.append(_Answer(reply, time.monotonic() - begun))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        while asking.is_alive():
            asking.join(_POLL_S)
            if asking.is_alive():
                self.group.check()
                if time.time() > self.deadline_s + 1.0:
                    break
        late = Reply(path=self.path, failure=f"no answer within {left_s:.0f} s", timed_out=True)
        return answered[0] if answered else _Answer(late, left_s)

    def _listed(self) -> str:
        """The model's name that the server lists; waits while it lists none. Raises LaunchFailed."""
        while True:
            with Caller(self.target, timeout_s=5.0) as caller:
                listed = read_models(caller.ask("/v1/models"))
            if listed.cards:
                return choose_model(None, listed, None, Engine.GENERIC)[0]
            self.group.check()
            if time.time() > self.deadline_s:
                raise self.group.failure(
                    f"{self.target.base_url} is healthy and tells no model ({listed.why_none}); name it: "
                    "`server: model:` in the campaign file"
                )
            time.sleep(_BETWEEN_S)


def _wrong(reply: Reply) -> str | None:
    """Why a reply is no completed generation; None when it is one."""
    found = reply.json() if reply.body else None
    told = _error_in(found)
    if not reply.ok or reply.failure:
        return f"{reply.why_not()}{f' ({told})' if told else ''}"
    if told:
        return f"{reply.path} answered 200 with an error: {told}"
    choices = found.get("choices") if isinstance(found, dict) else None
    if not isinstance(choices, list) or not choices:
        return reply.why_not()
    return None


def _error_in(found: Any) -> str | None:
    """The message of an error object, wherever the engine puts it, shortened."""
    if not isinstance(found, dict):
        return None
    error = found.get("error", found.get("detail", found if found.get("object") == "error" else None))
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(message).split())[:300] if message else None


def _first_use(first_s: float, second_s: float, during: str) -> Iterator[str]:
    if first_s > max(_FAR_RATIO * second_s, second_s + _FAR_S):
        told = "; ".join(p.removeprefix("log: ") for p in phases(during))
        yield (
            f"the first generation took {first_s:.2f} s, the second {second_s:.2f} s: a warm-up or a compile at "
            f"first use{f' (in between: {told})' if told else ''}"
        )
