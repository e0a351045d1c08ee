"""What one file told of one level: the cell, and the facts that an arm keeps beside its cells.

A tool's module fills a `Draft`; what it leaves out becomes None with a reason. `Draft.level` then looks at the whole:
no successful request, a client that read all tokens of a request at one instant, and whether mean ICL / mean TPOT
agrees with the tokens per chunk.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec

from dsv4bench.records.arm import Plain
from dsv4bench.records.cell import Cell, Invalid
from dsv4bench.records.request import TokenSource

NOTHING_TIMED_S = 20e-6  # a median TPOT below this is 50,000 tok/s a user: the client read whole answers at once
SAME = 0.1  # how far tokens per chunk may be from mean ICL / mean TPOT
NOT_TOLD = "the file does not tell"
LITTLE = "achieved batch by Little's law: mean E2E × requests a second"
ZERO = "0 in the file, which means no data"
EXPLAINED = (
    *("output_tok_s", "total_tok_s", "request_s", "tok_s_per_user", "duration_s", "isl_mean", "osl_mean"),
    *("ttft_mean_s", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "ttfc_p50_s", "ntpot_p50_s"),
    *("tpot_mean_s", "tpot_p50_s", "tpot_p90_s", "tpot_p99_s", "icl_mean_s", "icl_p50_s", "icl_p99_s"),
    *("e2e_mean_s", "e2e_p50_s", "e2e_p99_s", "e2e_stream_p50_s", "achieved_batch", "peak_in_flight"),
    *("tokens_per_chunk", "client_lag_p99_s", "started_utc"),
)


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One level of one file. The cell's id, launch, repeat and ISL are placeholders until an arm is made."""

    cell: Cell
    workload: dict[str, Plain]
    label: str | None = None  # the configuration's name, where the file holds one
    launch_key: str | None = None  # what differs between two starts of the server, where the file tells
    run: int | None = None  # the repeat's own number
    server: dict[str, Plain] | None = None
    hardware: dict[str, Plain] | None = None
    asked_isl: float | None = None  # of files that tell no realised length
    complete: bool = True
    notes: list[str] = msgspec.field(default_factory=list)  # on the configuration, not on this level
    digest: str = ""  # of the record it was made from: the same record is not counted twice


class ImportedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One recognised file."""

    path: str
    tool: str
    sha256: str
    levels: list[Level]
    notes: list[str] = msgspec.field(default_factory=list)


class Draft:
    """One level while its file is read."""

    def __init__(self, record: object) -> None:
        self.fields: dict[str, Any] = {}
        self.why: dict[str, str] = {}
        self.notes: list[str] = []
        self.approximate: list[str] = []
        self.digest = digest(record)

    def put(self, field: str, value: float | None, zero: str = ZERO) -> None:
        """A quantity that cannot be zero: zero becomes None, with a reason."""
        if value is not None and value <= 0:
            self.why[field] = zero
        elif value is not None:
            self.fields[field] = value

    def not_ours(self, why: str, *fields: str) -> None:
        """Their figure of this name measures something else."""
        for field in fields:
            self.fields.pop(field, None)
            self.why[field] = why

    def about(self, why: str, *fields: str) -> None:
        """Figures that are shown and enter no verdict."""
        self.approximate += [f for f in fields if f in self.fields]
        self.notes.append(why)

    def invalid(self, kind: Invalid, why: str) -> None:
        self.fields.setdefault("invalid", kind)
        self.fields.setdefault("invalid_why", why)

    def level(self, workload: dict[str, Plain], **about: Any) -> Level:
        """The finished level; `about` are fields of `Level`."""
        self._judge()
        return Level(cell=self._cell(), workload=workload, digest=self.digest, **about)

    def _judge(self) -> None:
        f = self.fields
        if f.get("n_ok") == 0:
            self.invalid(Invalid.ALL_FAILED, "no successful requests")
        tpot, tpot_p50, icl = f.get("tpot_mean_s"), f.get("tpot_p50_s"), f.get("icl_mean_s")
        if tpot_p50 is not None and tpot_p50 < NOTHING_TIMED_S:
            why = f"median TPOT is {1e3 * tpot_p50:.4f} ms: the client read whole answers at once"
            self.invalid(Invalid.CLIENT_SATURATED, why)
        if tpot is not None:
            f.setdefault("tok_s_per_user", 1 / tpot)
            if "tpot_mean_s" in self.approximate:
                self.approximate.append("tok_s_per_user")
        if tpot is not None and icl is not None and "tpot_mean_s" not in self.approximate:
            self._identity(icl / tpot)

    def _identity(self, ratio: float) -> None:
        """Mean ICL / mean TPOT is the tokens per chunk: checked where those are known, else derived."""
        f = self.fields
        counted, accepted = f.get("tokens_per_chunk"), f.get("accept_length")
        other, name = (counted, "tokens per chunk") if counted is not None else (accepted, "acceptance length")
        if counted is None:
            f["tokens_per_chunk"] = ratio
            self.approximate.append("tokens_per_chunk")
            self.why["tokens_per_chunk"] = "derived: mean ICL / mean TPOT"
        if other is not None and abs(ratio / other - 1) > SAME:
            self.notes.append(f"mean ICL / mean TPOT is {ratio:.2f} where {name} is {other:.2f}: do not compare ICL")

    def _cell(self) -> Cell:
        known: dict[str, Any] = {x.name: None for x in msgspec.structs.fields(Cell) if x.required}
        known |= {"cell": "", "launch": "", "repeat": 0, "isl": 0, "started_utc": "", "n_workers": 0}
        known |= {"token_source": TokenSource.NONE, "timestamps": "unknown", "n_ok": 0, "n_err": 0, "n_sent": 0}
        known |= self.fields
        why = {name: NOT_TOLD for name in EXPLAINED if known[name] is None or known[name] == ""} | self.why
        return Cell(**known, notes=self.notes, approximate=self.approximate, why_null=why)


def digest(record: object) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True, default=str).encode()).hexdigest()
