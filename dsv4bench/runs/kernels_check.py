"""`dsv4bench kernels check`: every bundled kernel on every case, on this GPU or else in Triton's interpreter.

A GPU runs the whole list; a CPU runs the small one, in a process of its own, since Triton must know before it is
imported that it shall interpret. A complete list is stored, and makes `bench` believe the kernel on that device; a
part of it is shown and stored nowhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from dsv4bench import __version__
from dsv4bench.errors import BenchError, MeasuredBad, Unanswerable, UsageError
from dsv4bench.kernels import device
from dsv4bench.kernels.registry import KERNELS
from dsv4bench.records.cell import ErrorNote
from dsv4bench.records.codec import decode, encode
from dsv4bench.records.kernels import DeviceFacts, ParityDocument, ParityRow
from dsv4bench.records.progress import MessageCallback
from dsv4bench.report.kernels_parity import parity_markdown
from dsv4bench.runs.kernels_candidates import Candidate, candidates
from dsv4bench.store import kernels as store
from dsv4bench.store.naming import iso, utc_now

INTERPRET = "TRITON_INTERPRET"
Device = Literal["cuda", "cpu"]
_EXITS: dict[int, type[BenchError]] = {1: MeasuredBad, 4: Unanswerable}


class CheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. `names` with commas; None: every bundled kernel, no peer."""

    names: str | None = None
    device: str = "auto"  # auto | cuda | cpu (Triton's interpreter)
    small: bool = False  # the short list, also on a GPU
    only: str | None = None  # cases whose label holds this text
    peers: str | None = None  # a Python file that defines PEERS
    seed: int = 0
    out: str = "results"


def run_check(o: CheckOptions, say: MessageCallback) -> ParityDocument:
    """The rows of this run; stored where they are complete. Raises UsageError, or Unanswerable without a GPU."""
    chosen = _chosen(o)
    where = _where(o.device)
    stored = o.only is None and not (o.small and where == "cuda")
    if stored:  # the list takes minutes: not to be lost at its end
        store.ready(o.out, device.gpu_facts().name if where == "cuda" else device.INTERPRETER)
    if where == "cpu" and not _interprets():
        document = _apart(o, say)
    else:
        document = _checked(o, chosen, where, say)
    if stored:
        store.write_parity(o.out, document, parity_markdown)
        return document
    note = "only a part of the list was run: nothing is stored"
    return msgspec.structs.replace(document, notes=[*document.notes, note])


def _chosen(o: CheckOptions) -> list[Candidate]:
    if o.names is None:
        own = candidates(None, None, o.peers, registry=()) if o.peers else []
        return [k for k in KERNELS if k.role != "peer"] + own
    return candidates(o.names, None, o.peers)


def _where(wanted: str) -> Device:
    """Raises UsageError for a word that is no device, Unanswerable for a GPU that is not there."""
    device.require_torch()
    why = device.no_gpu()
    if wanted == "cuda" and why is not None:
        raise Unanswerable(f"no CUDA GPU here: {why}", "leave --device out: the interpreter needs none")
    if wanted not in ("auto", "cuda", "cpu"):
        raise UsageError(f"--device {wanted}: not a device", "auto, cuda or cpu")
    if wanted == "cpu" or why is not None:
        device.interpreter_facts()
        return "cpu"
    if wanted == "auto" and _interprets():
        return "cpu"  # Triton cannot compile for the GPU in a process that interprets
    return "cuda"


def _interprets() -> bool:
    return os.environ.get(INTERPRET, "").lower() in ("1", "true", "on", "yes", "y")


def _checked(o: CheckOptions, chosen: Sequence[Candidate], where: Device, say: MessageCallback) -> ParityDocument:
    """In this process."""
    from dsv4bench.kernels.cases import PARITY, SMALL
    from dsv4bench.kernels.parity import green, run_list

    told = device.gpu_facts() if where == "cuda" else device.interpreter_facts()
    whole = SMALL if o.small or where == "cpu" else PARITY
    shapes = [s for s in whole if o.only is None or o.only.lower() in s.label.lower()]
    if not shapes:
        raise UsageError(f"--case {o.only}: no case has that in its name", f"for instance {whole[0].label!r}")
    started = utc_now()
    kernels: list[Any] = [*chosen]  # a user's own has what of a `Kernel` is asked for
    rows = run_list(kernels, shapes, where, lambda row: say(_told(row)), o.seed)
    return _document(iso(started), told, chosen, rows, green(rows))


def _document(
    created_utc: str, told: DeviceFacts, chosen: Sequence[Candidate], rows: list[ParityRow], passed: list[str]
) -> ParityDocument:
    failed = {row.kernel for row in rows if row.outcome == "fail"}
    return ParityDocument(
        created_utc=created_utc,
        tool=__version__,
        device=told,
        code={k.name: k.code_hash() for k in chosen},
        green=passed,
        red=[k.name for k in chosen if k.name in failed],
        rows=rows,
    )


def _told(row: ParityRow) -> str:
    figure = "" if row.rel_fro is None else f" {row.rel_fro:.1e}"
    return f"{row.outcome} {row.kernel}, {row.case}{figure}" + (f": {row.why}" if row.why else "")


def _apart(o: CheckOptions, say: MessageCallback) -> ParityDocument:
    """The same in a process that interprets; what it says is passed on. Raises what it raised."""
    code = "from dsv4bench.runs.kernels_check import interpreting; interpreting()"
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder) / "options.json", Path(folder) / "parity.json"
        asked.write_bytes(encode(o))
        run = subprocess.Popen(
            [sys.executable, "-c", code, str(asked), str(answer)],
            env={**os.environ, INTERPRET: "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        last = _listen(run.stdout, say)
        if run.wait() != 0 or not answer.is_file():
            raise MeasuredBad(f"the interpreter's process ended with {run.returncode}: {last}", "report this")
        document = decode(answer.read_bytes(), ParityDocument, "the interpreter's answer")
    if document.error is not None:
        raise _EXITS.get(document.error.exit_code, UsageError)(document.error.message, document.error.hint)
    return document


def _listen(stream: IO[str] | None, say: MessageCallback) -> str:
    last = ""
    for line in stream or ():
        if line.strip():
            last = line.strip()
            say(last)
    return last


def interpreting() -> None:
    """What the process of `_apart` runs: options from the first file, the document into the second."""
    asked, answer = (Path(p) for p in sys.argv[1:3])
    o = msgspec.json.decode(asked.read_bytes(), type=CheckOptions)
    try:
        document = _checked(o, _chosen(o), "cpu", lambda text: print(text, flush=True))
    except BenchError as error:
        note = ErrorNote(message=error.message, hint=error.hint, exit_code=error.exit_code)
        empty = _document(iso(utc_now()), device.interpreter_facts(), [], [], [])
        document = msgspec.structs.replace(empty, error=note)
    answer.write_bytes(encode(document))
