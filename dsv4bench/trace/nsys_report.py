"""A `.nsys-rep`: only nsys can read it, so the nsys of this machine exports it into a temporary folder.

The export is read and thrown away; nothing is written beside the report, and an export that lies there already is not
used, for it may be of another capture. nsys' own words are shown in one line, without what marks itself as a secret.
"""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
from pathlib import Path

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.host.nsight import LIBRARIES_REMEDY, find_nsys, importer_lacks, missing_library
from dsv4bench.host.process import die_with_parent, kill_group
from dsv4bench.host.redact import redact_text
from dsv4bench.records.trace import KernelTrace
from dsv4bench.trace.nsys import read_nsys_sqlite

REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_NEWER = re.compile(r"(?i)newer version|unsupported (?:report|file) version|version .{0,60}is not supported")
_TAIL_BYTES = 65536
_LINE = 200
_ELSEWHERE = "export it where it was recorded (nsys export --type sqlite REPORT.nsys-rep) and give the .sqlite"


def read_nsys_report(path: Path, label: str | None = None, timeout_s: float = 600.0) -> list[KernelTrace]:
    """The traces of a report. Raises Unanswerable where nsys is missing, fails or takes longer than `timeout_s`."""
    if not path.is_file():
        raise UsageError(f"{path} is no file", "check the path")
    if path.suffix == ".qdstrm":
        raise Unanswerable(
            f"{path} is a raw stream: nsys could not make a report of it when it was recorded",
            f"its importer lacked a library: {LIBRARIES_REMEDY}; and record again",
        )
    found = find_nsys()
    if found is None:
        raise Unanswerable(
            f"{path} needs nsys, and no nsys is on the PATH or where NVIDIA installs it",
            f"install nsight-systems-cli, or {_ELSEWHERE}",
        )
    nsys = found.path
    with tempfile.TemporaryDirectory(prefix="dsv4bench-") as folder:
        export = Path(folder) / "export.sqlite"
        output = Path(folder) / "output.txt"
        code = _run(nsys, path, export, output, timeout_s)
        if code != 0 or not export.is_file() or export.stat().st_size == 0:
            raise _failure(nsys, path, code, _tail(output))
        return read_nsys_sqlite(export, label, shown=str(path))


def _run(nsys: str, report: Path, export: Path, output: Path, timeout_s: float) -> int:
    """nsys' exit code. It runs in a group of its own: its importer is a process of its own, and ends with it."""
    command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={export}", str(report.resolve())]
    with output.open("wb") as said:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )
        except OSError as error:
            raise Unanswerable(
                f"{nsys} cannot be started: {error.strerror}", f"repair it, or {_ELSEWHERE}"
            ) from error
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise Unanswerable(
                f"{report}: nsys export was not done after {timeout_s:g} s",
                f"record a shorter window, or {_ELSEWHERE}",
            ) from error
        finally:
            kill_group(child.pid, signal.SIGKILL)
            child.wait()


def _failure(nsys: str, report: Path, code: int, said: str) -> Unanswerable:
    library = missing_library(said) or importer_lacks(nsys)
    if library:
        return Unanswerable(
            f"{report}: nsys cannot import it without {library}", f"{LIBRARIES_REMEDY}, or {_ELSEWHERE}"
        )
    if _NEWER.search(said):
        return Unanswerable(
            f"{report} was recorded by an nsys newer than {nsys}",
            f"install that version, or {_ELSEWHERE}",
        )
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = f": {redact_text(lines[-1])[:_LINE]}" if lines else ""
    what = f"exit code {code}" if code else "no file written"
    return Unanswerable(f"{report}: nsys export failed ({what}){last}", _ELSEWHERE)


def _tail(output: Path) -> str:
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace")
