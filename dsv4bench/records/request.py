"""One request, as the client saw it. Times are monotonic nanoseconds from the start of its level.

`chunk_ns` are the arrivals of the chunks that carried generated text (or, where the server counts as it goes,
a token without visible text); everything named TTFT, TPOT, ICL and E2E derives from them (`metrics.py` defines each).
"""

from __future__ import annotations

import itertools
from enum import StrEnum

import msgspec


class ErrorKind(StrEnum):
    """Why a request failed. HTTP statuses are their own keys: `http_429`, `http_503`, …"""

    IN_STREAM = "in_stream"  # an error object inside a 200 stream
    FINISH_ERROR = "finish_error"  # finish_reason "error" (or "abort")
    EMPTY = "empty"  # the stream ended and carried no token
    TRUNCATED = "truncated"  # cut after some tokens, or ended without finish_reason
    STALLED = "stalled"  # no byte for the per-request timeout
    REFUSED = "refused"  # no connection
    CLOSED = "closed"  # connection lost before the first byte, twice
    BAD_RESPONSE = "bad_response"  # 200, but no event stream that can be read
    CANCELLED = "cancelled"  # we stopped it (Ctrl-C, end of drain); counted in neither n_ok nor n_err


class TokenSource(StrEnum):
    """Who counted the output tokens."""

    USAGE = "usage"  # the server's usage object
    CHUNKS = "chunks"  # chunks with text: a lower bound, enters no verdict
    MIXED = "mixed"  # some requests of a level had usage, others not
    CLIENT = "client"  # another tool's client, with its own tokenizer; the server may have counted otherwise
    NONE = "none"  # nothing was counted


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `error` is an `ErrorKind` or `http_<status>`; None means it completed."""

    index: int
    t_sched_ns: int | None = None  # open loop: when it should have been sent
    t_send_ns: int
    t_headers_ns: int | None = None
    t_first_chunk_ns: int | None = None  # first event with choices, role chunks too
    t_first_ns: int | None = None  # first non-empty generated text of any kind
    t_first_content_ns: int | None = None  # first text that is no reasoning
    t_last_ns: int | None = None  # last token
    t_end_ns: int  # end of the stream, or the failure
    chunk_ns: list[int] = msgspec.field(default_factory=list)
    chunk_tokens: list[int] | None = None  # tokens a chunk, when the server counts as it goes
    n_first: int | None = None  # tokens that had arrived with the first chunk, when known
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    token_source: TokenSource = TokenSource.NONE
    requested_tokens: int | None = None
    finish_reason: str | None = None
    status: int | None = None
    error: str | None = None
    error_text: str | None = None
    retried: bool = False
    reads: int = 0
    merged_reads: int = 0  # reads that held more than one chunk with text
    saw_done: bool = False
    sent_ns: list[int] | None = None  # the server's own send stamp of each chunk, where it tells (paced server)

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def t0_ns(self) -> int:
        """Where latency starts: the schedule in an open loop, the send in a closed one."""
        return self.t_send_ns if self.t_sched_ns is None else self.t_sched_ns

    @property
    def ttft_s(self) -> float | None:
        """First non-empty generated text of any kind, from t0."""
        return self._since_t0(self.t_first_ns)

    @property
    def ttfc_s(self) -> float | None:
        """First event with choices (role chunks count), from t0."""
        return self._since_t0(self.t_first_chunk_ns)

    @property
    def ttft_content_s(self) -> float | None:
        """First text that is no reasoning, from t0."""
        return self._since_t0(self.t_first_content_ns)

    @property
    def e2e_s(self) -> float | None:
        """Last token, from t0."""
        return self._since_t0(self.t_last_ns)

    @property
    def e2e_stream_s(self) -> float | None:
        """End of the stream, from t0."""
        return self._since_t0(self.t_end_ns)

    @property
    def tpot_s(self) -> float | None:
        """(t_last − t_first) / (n − n_first); None for one token, or when every token came at one instant.

        Where the server does not count as it goes, n_first is n over chunks, i.e. chunks are taken as even.
        """
        if self.t_first_ns is None or self.t_last_ns is None or not self.output_tokens or not self.chunk_ns:
            return None
        n_first = self.n_first if self.n_first is not None else self.output_tokens / len(self.chunk_ns)
        rest = self.output_tokens - n_first
        span_ns = self.t_last_ns - self.t_first_ns
        return span_ns / rest / 1e9 if rest > 0 and span_ns > 0 else None

    @property
    def ntpot_s(self) -> float | None:
        """(t_last − t0) / n: what other tools call normalised time per output token."""
        return self.e2e_s / self.output_tokens if self.e2e_s is not None and self.output_tokens else None

    @property
    def icl_s(self) -> list[float]:
        """Gaps between chunks with text. Not between tokens: show only beside tokens per chunk."""
        return [(b - a) / 1e9 for a, b in itertools.pairwise(self.chunk_ns)]

    def _since_t0(self, t_ns: int | None) -> float | None:
        return None if t_ns is None else (t_ns - self.t0_ns) / 1e9
