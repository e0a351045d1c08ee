"""`dsv4bench profile URL`: hold the load, record a window at each concurrency, go on as with files that were named.

    for each concurrency   C requests held, not recorded      TPOT without
    for each concurrency   C requests held, a window around N decode steps
    then                   the breakdown of the traces, each beside its TPOT without a recorder

All runs without a recorder come first: a profiler that has run can slow what comes after it. What was captured is
broken down even when a later capture fails or is interrupted. Traces stay in `<out>/traces/<time>-<name>/`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from dsv4bench.errors import BenchError
from dsv4bench.host.process import need_files
from dsv4bench.records.breakdown import BreakdownDocument, CaptureNote
from dsv4bench.records.capture import Captured
from dsv4bench.records.progress import MessageCallback
from dsv4bench.records.server import Gauges
from dsv4bench.runs.live_notes import (
    Reference,
    elsewhere,
    note_line,
    note_of,
    reference_of,
    tokens_a_step,
    unseen_gpus,
)
from dsv4bench.runs.live_options import LiveOptions
from dsv4bench.runs.prefilling import prefilled
from dsv4bench.runs.probe import Probed, probe
from dsv4bench.runs.profile import Profile, ProfileOptions, checked_options, run_profile
from dsv4bench.runs.profile_server import Served, served
from dsv4bench.runs.profile_windows import Recorders
from dsv4bench.runs.steady import Steady, drained, held
from dsv4bench.runs.terminating import terminated_as_interrupted
from dsv4bench.server.scraper import GaugeScraper
from dsv4bench.store import breakdowns
from dsv4bench.store.files import failing_as
from dsv4bench.store.naming import slug

TRACES = "traces"
DRAIN_S = 10.0  # a gauge may stand still once nothing runs
USUAL_TPOT_S = 0.01
REFERENCE_S = 1.0  # a run that is not recorded lasts so long at least
MOST_STEPS = 500


class LiveProfile(NamedTuple):
    """`profile` is of what was captured; `error` or `interrupted` say why that is not all."""

    profile: Profile
    error: BenchError | None = None
    interrupted: bool = False


class _Taken(NamedTuple):
    """One capture and its files."""

    captured: Captured
    note: CaptureNote
    files: list[str]


def run_profile_live(o: LiveOptions, base: ProfileOptions, say: MessageCallback) -> LiveProfile:
    """Capture and break down. Raises BenchError or KeyboardInterrupt only while nothing has been captured."""
    o.check()
    checked_options(base)
    need_files(max(o.concurrency))
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = Path(o.root) / TRACES / f"{stamp}-{slug(o.name or o.method)}-{secrets.token_hex(2)}"
    with terminated_as_interrupted(), _no_empty_folder(folder), served(o, folder, say) as server:
        run = _Run(o, base, server, folder, say)
        try:
            run.capture_all()
        finally:
            run.recorders.clean()
        return run.broken_down()


class _Run:
    """The state of one profile: what has been captured so far, and what ended it."""

    def __init__(
        self, o: LiveOptions, base: ProfileOptions, server: Served, folder: Path, say: MessageCallback
    ) -> None:
        self.recorders = Recorders(o, server, say)
        self._o, self._base, self._server, self._folder, self._say = o, base, server, folder, say
        decode = server.by_role.get("decode")
        self._scraper = (
            GaugeScraper(decode.target, decode.info) if decode else GaugeScraper(server.target, server.info)
        )
        self._taken: list[_Taken] = []
        self._error: BenchError | None = None
        self._interrupted = False

    def capture_all(self) -> None:
        """Every window. What ends it early is kept for the result once there is one capture, else raised."""
        o = self._o
        self.recorders.ready()
        with failing_as("make", self._folder.parent):  # found out before anything is recorded
            self._folder.parent.mkdir(parents=True, exist_ok=True)
        probed = probe(o.probe_options(), self._server.target, self._server.info, self._seed(), self._say)
        for note in probed.notes:
            self._say(note)
        try:
            references = {c: self._reference(probed, c) for c in o.concurrency if "decode" in self._server.by_role}
            for role in self._server.by_role:
                for c in o.concurrency:
                    self._capture(probed, role, c, references.get(c))
        except BenchError as e:
            self._error = self._with_end(e)
        except KeyboardInterrupt:
            self._interrupted = True
        if self._taken:
            return
        if self._error is not None:
            raise self._error
        raise KeyboardInterrupt

    def broken_down(self) -> LiveProfile:
        """The document of all captures; where no file can answer it holds the captures and the reason."""
        missing = [t for t in self._taken if not t.files and not t.captured.samples]
        profile = Profile(BreakdownDocument(captures=[t.note for t in self._taken]), [], [])
        error = self._error
        try:
            profile = self._profile()
        except BenchError as e:
            error = error or e
        if missing and error is None:
            error = elsewhere([(t.captured, t.note) for t in missing], self._server.target.host)
        return LiveProfile(profile, error, self._interrupted)

    def _reference(self, probed: Probed, c: int) -> Reference:
        known = self._base.accept_length if self._base.accept_length > 1 else None
        steady = self._steady(probed, known)
        steps = max(steady.steps, min(MOST_STEPS, math.ceil(REFERENCE_S / steady.tpot_s)))
        self._say(f"C={c}: {steps} decode steps, not recorded")
        before = self._scraper.scrape_now()
        window = held(msgspec.structs.replace(steady, steps=steps), c, "reference", None, self._say)
        for note in window.notes:
            self._say(f"C={c}: {note}")
        return reference_of(c, window, known or tokens_a_step(before, self._scraper.scrape_now(), window))

    def _capture(self, probed: Probed, role: str, c: int, reference: Reference | None) -> None:
        label = f"c{c}" if role == "decode" else f"{role}-c{c}"
        drained(self._scraper.scrape_now, DRAIN_S)
        recorder = self.recorders.window(role, label, reference.tpot_s if reference is not None else None)
        self._say(f"{label}: {self._o.steps} steps, recorded by {recorder.method}")
        if role == "decode":
            assert reference is not None, "decode windows have one"
            steady = self._steady(probed, reference.tokens_a_step, reference.tpot_s)
            window = held(steady, c, f"captured {label}", recorder, self._say)
        else:
            window = prefilled(self._steady(probed, None), c, f"captured {label}", recorder, self._say)
        assert window.captured is not None, "a window with a recorder"
        files = self.recorders.kept(window.captured, self._folder / label)
        note = note_of(
            label=label,
            role=role,
            concurrency=c,
            isl=self._o.isl,
            window=window,
            reference=reference if role == "decode" else None,
            files=window.captured.kept if self._o.method == "nsys" else files,
            more=unseen_gpus(files, self._o.launch, self._server.info) if self._o.method == "nsys" else [],
        )
        self._say(note_line(note))
        for said in note.notes:
            self._say(f"{label}: {said}")
        captured = dataclasses.replace(window.captured, label=label, role=role, concurrency=c)
        self._taken.append(_Taken(captured, note, files))

    def _steady(self, probed: Probed, per_step: float | None, tpot_s: float | None = None) -> Steady:
        return Steady(
            sender=probed.sender,
            take=lambda n, osl, purpose: probed.source.take(n, self._o.isl, osl, "profile", purpose),
            isl=self._o.isl,
            steps=self._o.steps,
            timeout_s=self._o.timeout_s,
            gauges=self._gauges,
            max_model_len=self._server.info.max_model_len,
            tpot_s=tpot_s or probed.tpot_s or USUAL_TPOT_S,
            tokens_a_step=per_step,
        )

    def _gauges(self) -> Gauges | None:
        return self._scraper.scrape_now()

    def _profile(self) -> Profile:
        """Of the decode captures; a prefill worker's devices stand beside them, and are in no plan and no store."""
        decode = [t for t in self._taken if t.note.role is None]
        other = [t for t in self._taken if t.note.role is not None]
        main = self._of(decode, self._o.name)
        if not any(t.files for t in other):
            return main
        beside = self._of(other, None).document
        document = main.document
        joined = msgspec.structs.replace(
            document,
            devices=[*document.devices, *beside.devices],
            ranks=[*document.ranks, *beside.ranks],
            steps_by_label=[*document.steps_by_label, *beside.steps_by_label],
            live=[*document.live, *beside.live],
            captures=[*document.captures, *beside.captures],
            warnings=[*document.warnings, *beside.warnings],
        )
        return Profile(joined, main.shares, main.stored)

    def _of(self, taken: list[_Taken], config: str | None) -> Profile:
        with_files = [t for t in taken if t.files]
        if not with_files:
            return self._sampled([t.note for t in taken], config)
        return run_profile(
            msgspec.structs.replace(
                self._base,
                traces=[f"{t.note.label}={file}" for t in with_files for file in t.files],
                concurrency=[t.note.concurrency for t in with_files],
                isl=self._o.isl,
                config=config,
                captures=[t.note for t in with_files],
                cache=self._base.cache or self._server.cache,
            )
        )

    def _sampled(self, notes: list[CaptureNote], config: str | None) -> Profile:
        """Of captures without a trace: what was sampled is stored under its coordinate, beside any kernels there."""
        whole = BreakdownDocument(
            config=config,
            concurrency=max((n.concurrency for n in notes), default=None),
            isl=self._o.isl,
            captures=notes,
        )
        stored = [
            breakdowns.write(self._o.root, msgspec.structs.replace(whole, concurrency=n.concurrency, captures=[n]))
            for n in notes
            if config is not None and n.activity is not None
        ]
        return Profile(whole, [], stored)

    def _seed(self) -> int:
        return self._o.seed if self._o.seed is not None else secrets.randbits(31)

    def _with_end(self, e: BenchError) -> BenchError:
        """A server of ours that ended says why in its log."""
        ended = self._server.ended()
        if ended is not None:
            e.hint = f"the server ended with {ended}"
        return e


@contextlib.contextmanager
def _no_empty_folder(folder: Path) -> Iterator[None]:
    """Of the folders that were made for a run, those that nothing came into are taken away again."""
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the first that holds something ends it
            for one in new:
                if one.exists():
                    one.rmdir()
