"""What is sent: the plain description whose fields, side by side, decide whether two results may be compared."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

Endpoint = Literal["completions", "chat"]


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The prompts and the sampling of a sweep. `dataset` is random, chat, or a file's name.

    None stands for what an imported file does not tell; a sweep of our own fills every field that has no default.
    `prompt_kind` is how prompts travel (token ids keep their exact length, text is tokenised by the server).
    """

    endpoint: Endpoint | None
    dataset: str | None
    dataset_sha256: str | None = None  # of a file or of the packaged corpus; random prompts follow from the seed
    prompt_kind: Literal["token_ids", "text", "messages"] | None
    isl: list[int]
    osl: int | None  # None: the lengths that a file names
    seed: int | None
    vocab_size: int | None = None
    vocab_source: str | None = None  # option | server | config | probed | assumed
    prefix_share: float | None = 0.0
    temperature: float | None = 0.0
    ignore_eos: bool | None = True
    sent_fields: list[str] = msgspec.field(default_factory=list)  # request fields the server accepted

    def fingerprint(self) -> str:
        """A short hash of the fields that must be equal for a comparison; the plain fields stand beside it.

        The seed is not among them (each sweep sends fresh prompts of the same kind), nor is what one server's
        dialect needed to be sent or how the vocabulary's size was learnt.
        """
        fields = msgspec.to_builtins(self)
        for name in ("seed", "sent_fields", "vocab_source"):
            del fields[name]
        raw = msgspec.json.encode(fields, order="deterministic")
        return "w:" + hashlib.sha256(raw).hexdigest()[:12]


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """Limits a request must keep to count as good. None: no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The levels of a sweep and how long each lasts. Closed loop: `concurrency`; open loop: `rates_req_s`."""

    concurrency: list[int]
    isl: list[int]
    repeat: int = 1
    rates_req_s: list[float] = msgspec.field(default_factory=list)
    arrivals: Literal["poisson", "constant"] = "poisson"
    requests: int | None = None
    duration_s: float | None = None
    timeout_s: float = 300.0
    warmup: bool = True
    slo: Slo | None = None

    def requests_at(self, concurrency: int) -> int:
        """Requests of one level: as asked, else max(3·C, 16)."""
        return self.requests if self.requests is not None else max(3 * concurrency, 16)
