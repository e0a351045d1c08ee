"""What went wrong with nsys, from what it says and what it left: one error, one remedy.

Its exit codes say little: `stop` exits 0 although no report could be made, `start` exits 0 for a session that is not
there. So its words and its files are read. The importer (a program of its own that makes the report) is asked for its
own words, since nsys keeps them back.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from dsv4bench.errors import BenchError, Unanswerable, UsageError
from dsv4bench.host.nsight import LIBRARIES_REMEDY, Nsight, importer_lacks, missing_library
from dsv4bench.host.profiling import REMEDY as COUNTERS_REMEDY
from dsv4bench.host.redact import redact_text

REPORTS = (".nsys-rep", ".qdrep")
STREAM = ".qdstrm"
SAY_EVERY_S = 5.0
_OTHER_DISK = "make room there, or set TMPDIR to a folder on a larger disk"
_SHORTER = "record fewer steps"
_LINE = 200


def no_nsys() -> UsageError:
    """There is none on this machine."""
    return UsageError(
        "--with nsys needs nsys, which is neither on the PATH nor where NVIDIA installs it",
        "install nsight-systems-cli (Nsight Compute has one, too, in host/target-linux-x64), or use --with torch",
    )


def no_importer(library: str, nsys: Nsight) -> UsageError:
    """Found out before the server was started: this nsys could record, and make no report of it."""
    elves = library.startswith(("libdw", "libelf"))
    remedy = (
        LIBRARIES_REMEDY if elves else f"install the package that has {library}, or add its folder to LD_LIBRARY_PATH"
    )
    return UsageError(f"{nsys.shown} cannot make reports: its importer lacks {library}", remedy)


def no_report(folder: Path, stem: str, nsys: Nsight, said: str) -> BenchError:
    """nsys stopped, and no report lies there."""
    library = missing_library(said) or importer_lacks(nsys.path)
    if library is not None:
        return no_importer(library, nsys)
    if (full := disk_full(folder, said)) is not None:
        return full
    if (folder / f"{stem}{STREAM}").is_file():
        return Unanswerable(
            f"nsys left only a raw stream of {stem}: its importer made no report of it{_last(said, 'mport')}",
            f"its libraries may be missing: {LIBRARIES_REMEDY}; or it is not there: install all of Nsight Systems",
        )
    return Unanswerable(f"nsys stopped and left no report of {stem}{_last(said)}", "profile again; try --with torch")


def no_export(folder: Path, stem: str, nsys: Nsight, said: str) -> BenchError:
    """A report lies there, and its own nsys makes no SQLite of it."""
    library = missing_library(said) or importer_lacks(nsys.path)
    if library is not None:
        return no_importer(library, nsys)
    return disk_full(folder, said) or Unanswerable(
        f"nsys could not export the report of {stem}{_last(said)}", "profile again; try --with torch"
    )


def refused(action: str, said: str, session: str) -> BenchError:
    """`nsys start` or `nsys stop` did not do what it was told to."""
    low = said.lower()
    if "permission" in low and ("counters" in low or "gpu metrics" in low):
        return UsageError("nsys may not read the GPU's counters", COUNTERS_REMEDY)
    if "unrecognised option" in low:
        return UsageError(f"nsys {action} refused an option{_last(said, 'unrecognised')}", "install a newer nsys")
    if "failed to find session" in low:
        return Unanswerable(
            f"nsys lost its session {session}: the server, or nsys' agent, has ended", "read the server's log"
        )
    if "not allowed in this state" in low:
        return Unanswerable(f"nsys cannot {action} now{_last(said)}", "is another `nsys start` driving this server?")
    return Unanswerable(f"nsys did not {action}{_last(said)}", "profile again; try --with torch")


def not_begun(session: str, seconds: float) -> Unanswerable:
    """`nsys start` was accepted and nothing is recorded."""
    return Unanswerable(
        f"nsys was told to record and did not begin within {seconds:.0f} s (session {session})", "profile again"
    )


def no_range(seconds: float) -> Unanswerable:
    """Armed for cudaProfilerStart, which no traced process called."""
    return Unanswerable(
        f"no traced process called cudaProfilerStart within {seconds:.0f} s",
        "the call must come from the server's own process while it decodes: SGLang's /start_profile with the "
        'activity CUDA_PROFILER, vLLM started with --profiler-config \'{"profiler":"cuda"}\'',
    )


def too_slow(what: str, seconds: float, nbytes: int) -> Unanswerable:
    return Unanswerable(
        f"nsys {what} was not done after {seconds:.0f} s ({megabytes(nbytes)} written): it was ended",
        f"{_SHORTER}, or allow more time",
    )


def too_large(what: str, nbytes: int, limit: int) -> Unanswerable:
    return Unanswerable(f"{what} has {megabytes(nbytes)}, more than {megabytes(limit)}", _SHORTER)


def server_died(how: str) -> Unanswerable:
    """`how`: how it ended, and the end of its log."""
    return Unanswerable(f"the server under nsys has ended: {how}", "start it without nsys; does it last?")


def disk_full(folder: Path, said: str = "", spare: int = 0) -> UsageError | None:
    """No space left, by nsys' words or by the disk's own; None where there is."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return None
    if free > spare and "no space left" not in said.lower():
        return None
    return UsageError(f"no space is left in {folder} for the report ({megabytes(free)} free)", _OTHER_DISK)


def need_room(folder: Path, need: int) -> None:
    """Raises UsageError where fewer than `need` bytes are free."""
    free = shutil.disk_usage(folder).free
    if free < need:
        raise UsageError(f"{folder} has {megabytes(free)} free, a capture wants {megabytes(need)}", _OTHER_DISK)


def megabytes(nbytes: int) -> str:
    """As people read it."""
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.0f} MB"


def bytes_in(folder: Path) -> int:
    """Of all files below a folder that others write into."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def watching(folder: Path, what: str, say: Callable[[str], None], spare: int) -> Callable[[float], None]:
    """A watch that tells how far nsys is, and raises UsageError before the disk is full."""
    told = 0.0

    def watch(seconds: float) -> None:
        nonlocal told
        if seconds - told >= SAY_EVERY_S:
            told = seconds
            say(f"nsys {what}: {megabytes(bytes_in(folder))} after {seconds:.0f} s")
        if (full := disk_full(folder, spare=spare)) is not None:
            raise full

    return watch


def _last(said: str, holding: str = "") -> str:
    """The last line that holds a word, without secrets; nsys overwrites its progress with carriage returns."""
    lines = [line.strip() for line in said.replace("\r", "\n").splitlines()]
    lines = [line for line in lines if line and holding in line and not line.startswith("[")]
    return f": {redact_text(lines[-1])[:_LINE]}" if lines else ""
