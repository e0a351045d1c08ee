"""A `.nsys-rep` through the `nsys` that is found: a script here, which says and does what the real one does."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from nsys_made import decode

from dsv4bench.errors import SchemaError, Unanswerable, UsageError
from dsv4bench.trace.nsys_report import read_nsys_report

FIND_OUTPUT = 'for a in "$@"; do case "$a" in --output=*) out="${a#--output=}";; esac; last="$a"; done\n'


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "decode.nsys-rep"
    path.write_bytes(b"not ours to read")
    return path


@pytest.fixture
def nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder / "nsys"


def script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}")
    path.chmod(0o755)


def refusal(report: Path, timeout_s: float = 20) -> Unanswerable:
    with pytest.raises(Unanswerable) as caught:
        read_nsys_report(report, timeout_s=timeout_s)
    assert caught.value.hint and "\n" not in caught.value.message
    return caught.value


def test_the_export_is_read_and_thrown_away(tmp_path: Path, report: Path, nsys: Path) -> None:
    export = decode(tmp_path / "made.sqlite", "2025")
    script(nsys, FIND_OUTPUT + f'echo "$@" > {tmp_path}/asked\necho "$out" > {tmp_path}/out\ncp {export} "$out"')
    (trace,) = read_nsys_report(report, "A")
    assert (len(trace), trace.label, trace.file) == (4, "A", str(report))
    asked = (tmp_path / "asked").read_text().split()
    assert asked[:2] == ["export", "--type=sqlite"]
    assert asked[-1] == str(report.resolve())
    written = Path((tmp_path / "out").read_text().strip())
    assert not written.parent.exists()
    assert not report.with_suffix(".sqlite").exists()


def test_no_nsys_on_the_path(report: Path, nsys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(nsys.parent))
    error = refusal(report)
    assert "no nsys is on the PATH" in error.message
    assert "nsys export --type sqlite" in error.hint


def test_an_importer_without_libdw_names_the_packages(report: Path, nsys: Path) -> None:
    script(
        nsys,
        'echo "QdstrmImporter: error while loading shared libraries: libdw.so.1: cannot open shared object file:'
        ' No such file or directory" >&2\necho "Export failed"\nexit 1',
    )
    error = refusal(report)
    assert "without libdw.so.1" in error.message
    assert "libdw1" in error.hint and "libelf1" in error.hint


def test_a_raw_stream_has_its_own_remedy(tmp_path: Path) -> None:
    stream = tmp_path / "decode.qdstrm"
    stream.write_bytes(b"raw")
    assert "libdw1" in refusal(stream).hint


def test_a_report_newer_than_nsys(report: Path, nsys: Path) -> None:
    script(nsys, 'echo "The report was created by a newer version of Nsight Systems"\nexit 1')
    assert f"newer than {nsys}" in refusal(report).message


def test_other_failures_show_the_last_line_without_secrets(report: Path, nsys: Path) -> None:
    script(nsys, 'echo first\necho "bad file --api-key=hf_AbCdEfGhIjKlMnOpQrSt"\nexit 3')
    error = refusal(report)
    assert "exit code 3" in error.message and "bad file" in error.message
    assert "hf_Ab" not in error.message


def test_success_without_a_file_is_a_failure(report: Path, nsys: Path) -> None:
    script(nsys, "exit 0")
    assert "no file written" in refusal(report).message


def test_an_export_that_is_none(report: Path, nsys: Path) -> None:
    script(nsys, FIND_OUTPUT + 'echo text > "$out"')
    with pytest.raises(SchemaError, match=r"decode\.nsys-rep is no SQLite file"):
        read_nsys_report(report)


def test_too_long_ends_nsys_and_its_importer(tmp_path: Path, report: Path, nsys: Path) -> None:
    script(nsys, f"sleep 60 & echo $! > {tmp_path}/importer\nwait")
    assert "not done after 0.5 s" in refusal(report, timeout_s=0.5).message
    importer = int((tmp_path / "importer").read_text())
    for _ in range(100):
        if not _runs(importer):
            break
        time.sleep(0.05)
    assert not _runs(importer)


def _runs(pid: int) -> bool:
    """A zombie that nobody waits for is not running."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_an_nsys_that_cannot_start(report: Path, nsys: Path) -> None:
    nsys.write_text("#!/does/not/exist\n")
    nsys.chmod(0o755)
    assert "cannot be started" in refusal(report).message


def test_no_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no file"):
        read_nsys_report(tmp_path / "absent.nsys-rep")
