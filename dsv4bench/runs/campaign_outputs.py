"""Greedy outputs of a running server on a campaign's own few prompts, and two of them side by side.

Random token ids where the size of the vocabulary is known, else text of the packaged corpus. The first prompt is
asked twice: a server that does not repeat itself cannot be held to another one's text. Nothing here ends a campaign:
what could not be asked is a note, and the parity cannot be told.
"""

from __future__ import annotations

import hashlib
from collections import Counter

import msgspec

from dsv4bench.compare import outputs as pure
from dsv4bench.load.prompts import Prompt, make_source
from dsv4bench.records.campaign import OutputParity
from dsv4bench.records.outputs import Output, Outputs
from dsv4bench.records.progress import MessageCallback
from dsv4bench.records.server import ServerInfo
from dsv4bench.records.workload import Endpoint
from dsv4bench.runs.vocabulary import find_vocab
from dsv4bench.scenario.launched import ParitySpec
from dsv4bench.server.calls import Caller
from dsv4bench.server.outputs import Answer, Asked, ask_outputs
from dsv4bench.server.target import Target

_STREAM = "parity"
TIMEOUT_S = 300.0  # of one request


def outputs_of(
    target: Target,
    info: ServerInfo,
    spec: ParitySpec,
    seed: int,
    say: MessageCallback,
    *,
    endpoint: Endpoint = "completions",
    timeout_s: float = TIMEOUT_S,
) -> Outputs:
    """Ask the server. Endpoint, seed and lengths must be the same for every configuration of a campaign."""
    prompts, kind = _prompts(target, info, spec, seed, endpoint)
    say(f"greedy outputs: {spec.prompts} prompts of {spec.isl} tokens, {spec.osl} tokens each")
    fields = [p.fields for p in prompts]
    with Caller(target, timeout_s) as caller:
        asked = ask_outputs(caller, info.model, [*fields, *fields[:1]], spec.osl, endpoint)
    *answers, again = asked.answers or [Answer([], "words", None, "no prompt was asked for")]
    good = [(i, a) for i, a in enumerate(answers) if a.failure is None]
    unit = Counter(a.unit for _, a in good).most_common(1)[0][0] if good else "words"
    repeats = None
    if good and good[0][0] == 0 and again.failure is None:
        repeats = answers[0].tokens == again.tokens
    found = Outputs(
        unit=unit,
        endpoint=endpoint,
        prompt_kind=kind,
        prompts_sha256=hashlib.sha256(msgspec.json.encode(fields)).hexdigest(),
        seed=seed,
        isl=spec.isl,
        osl=spec.osl,
        outputs=[Output(prompt=i, tokens=a.tokens, best=a.best) for i, a in good if a.unit == unit],
        repeats=repeats,
        notes=_notes(asked, answers),
    )
    for note in found.notes:
        say(f"greedy outputs: {note}")
    return found


def parity_of(base: Outputs, new: Outputs, config: str, base_name: str, spec: ParitySpec) -> OutputParity:
    """The outputs of `config` beside the baseline's."""
    return pure.parity_of(base, new, config, base_name, spec.near_tie)


def _prompts(
    target: Target, info: ServerInfo, spec: ParitySpec, seed: int, endpoint: Endpoint
) -> tuple[list[Prompt], str]:
    size, source = find_vocab(None, info, target) if endpoint == "completions" else (0, "assumed")
    dataset = "chat" if source == "assumed" else "random"
    prompts = make_source(endpoint=endpoint, dataset=dataset, seed=seed, vocab_size=size or None)
    return prompts.take(spec.prompts, spec.isl, spec.osl, _STREAM), prompts.kind


def _notes(asked: Asked, answers: list[Answer]) -> list[str]:
    """What the server refused, and each reason for which prompts are missing, once."""
    failed = Counter(a.failure for a in answers if a.failure is not None)
    return asked.notes + [f"{n} of {len(answers)} prompts failed: {why}" for why, n in failed.items()]
