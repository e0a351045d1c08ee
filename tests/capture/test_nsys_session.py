"""A server under nsys, driven through a stand-in that behaves as the real one was seen to, failures included."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nsys_double
import pytest
from nsys_double import asked, install

from dsv4bench.capture import nsys_faults
from dsv4bench.capture.nsys import Limits, NsysSession, ProfilerRange
from dsv4bench.errors import BenchError, Unanswerable, UsageError
from dsv4bench.host.nsight import Nsight
from dsv4bench.server.launch import Launched, launch

QUICK = Limits(
    control_s=10, begin_s=0.6, range_s=0.6, stop_s=10, export_s=10, need_bytes=1, spare_bytes=1, report_bytes=1 << 20
)
SERVER = [sys.executable, "-S", "-c", "import time; print('up', flush=True); time.sleep(600)"]
MB = 1 << 20


def session(nsys: Path, server: list[str] = SERVER, **options: object) -> NsysSession:
    settings: dict[str, object] = {"limits": QUICK, **options}
    return NsysSession(server, nsys=Nsight(str(nsys), (2023, 4, 4)), **settings)  # type: ignore[arg-type]


@contextlib.contextmanager
def running(s: NsysSession, tmp_path: Path, until: str = "up") -> Iterator[Launched]:
    """The server, once it has printed a word and nsys knows its session."""
    log = tmp_path / "server.log"
    with s, launch(s.command, log_path=log, env=s.env) as server:
        for _ in range(200):
            if until in log.read_text() and s.state() is not None:
                break
            time.sleep(0.05)
        yield server


def lives(pid: int) -> bool:
    """A zombie that nobody waits for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def all_end(pids: list[int], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(lives, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(lives, pids))


def pids(nsys: Path) -> list[int]:
    found: list[int] = json.loads((nsys.parents[1] / "pids.json").read_text())
    return found


def failure(s: NsysSession, tmp_path: Path, by_server: ProfilerRange | None = None) -> BenchError:
    """What one window raises; afterwards nothing of it is left, and nothing runs."""
    with running(s, tmp_path) as server, pytest.raises(BenchError) as caught:
        window = s.window(
            "c1", lambda: None if server.exit_code is None else f"exit code {server.exit_code}", by_server
        )
        try:
            window.open()
            window.close()
        finally:
            window.abort()
            assert not list(s.folder.glob("c1.*"))
    assert caught.value.hint and not s.folder.exists()
    return caught.value


def test_the_exact_commands_of_two_windows(tmp_path: Path) -> None:
    nsys = install(tmp_path)
    s = session(nsys)
    with running(s, tmp_path):
        for label in ("c1", "c 16"):
            window = s.window(label)
            window.open()
            captured = window.close()
            assert captured.method == "nsys" and captured.seconds > 0
            assert [Path(f).name for f in captured.files] == [f"{label.replace(' ', '_')}.sqlite"]
            assert Path(captured.files[0]).read_bytes().startswith(b"SQLite format 3\0")
    folder, name = s.folder, f"--session={s.name}"
    start = [name, "--sample=none", "--cpuctxsw=none"]
    tmpdir = os.environ.get("TMPDIR", "/tmp")
    assert asked(nsys) == [
        [
            *("launch", f"--session-new={s.name}", "--trace=cuda,nvtx", "--cuda-graph-trace=node"),
            *("--trace-fork-before-exec=true", "--wait=primary", f"--env-var=TMPDIR={tmpdir}", *SERVER),
        ],
        *(
            command
            for stem in ("c1", "c_16")
            for command in (
                ["start", *start, f"--output={folder}/{stem}.nsys-rep", "--force-overwrite=true"],
                ["stop", name],
                [
                    *("export", "--type=sqlite", "--force-overwrite=true", f"--output={folder}/{stem}.sqlite"),
                    f"{folder}/{stem}.nsys-rep",
                ],
            )
        ),
    ]


def test_what_was_recorded_is_private_and_goes_with_the_session(tmp_path: Path) -> None:
    nsys = install(tmp_path)
    s = session(nsys)
    assert stat.S_IMODE(s.folder.stat().st_mode) == 0o700
    with running(s, tmp_path):
        window = s.window("c1")
        window.open()
        captured = window.close()
        assert not list(s.folder.glob("*.nsys-rep")), "the report is not needed any more"
        assert "hf_of_the_server" not in repr(captured)
    assert not s.folder.exists()
    assert s.end() == "the nsys session had ended"
    assert all_end(pids(nsys))


def test_gpus_without_kernels_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsv4bench.capture.nsys_window.missing_gpus", lambda export, ranks: f"{export.name}: {ranks}")
    s = session(install(tmp_path), [*SERVER, "--tp", "4"])
    with running(s, tmp_path):
        window = s.window("c1")
        window.open()
        assert window.close().notes[1] == "c1.sqlite: Ranks(count=4, told_by='--tp 4')"


def test_a_kept_report_is_its_owners_and_says_what_it_holds(tmp_path: Path) -> None:
    s = session(install(tmp_path), keep=tmp_path / "kept")
    with running(s, tmp_path):
        said: list[str] = []
        s.say = said.append
        window = s.window("c1")
        window.open()
        captured = window.close()
    (report,) = (tmp_path / "kept").iterdir()
    assert captured.kept == [str(report)] and str(report) not in "".join(captured.notes)
    assert report.name.startswith("c1-") and report.suffix == ".nsys-rep"
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert b"hf_of_the_server" in report.read_bytes()
    assert any(str(report) in line and "keys and tokens included" in line for line in said)


def test_a_report_that_cannot_be_kept_costs_the_copy_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file")
    said: list[str] = []
    s = session(install(tmp_path), keep=tmp_path / "kept")
    with running(s, tmp_path):
        s.say = said.append
        window = s.window("c1")
        window.open()
        captured = window.close()
        assert captured.kept == [] and Path(captured.files[0]).is_file()
    assert any("is not whole" in line for line in said)


def test_the_server_keeps_its_own_tmpdir(tmp_path: Path) -> None:
    server = [
        sys.executable,
        "-S",
        "-c",
        "import os, time; print('at', os.environ['TMPDIR'], flush=True); time.sleep(600)",
    ]
    s = session(install(tmp_path), server, variables={"TMPDIR": "/of/the/server", "OTHER": "x"})
    assert s.env == {"TMPDIR": str(s.folder), "OTHER": "x"}
    with running(s, tmp_path, "at ") as launched:
        assert "at /of/the/server" in launched.log_tail()


@pytest.mark.parametrize(
    ("server", "variables", "spawns"),
    [
        (["vllm", "serve", "m"], {}, True),
        ([sys.executable, "-m", "vllm.entrypoints.openai.api_server"], {}, True),
        (["vllm", "serve", "m"], {"VLLM_WORKER_MULTIPROC_METHOD": "fork"}, False),
        (["python", "-m", "sglang.launch_server"], {}, False),
    ],
)
def test_vllm_is_made_to_spawn_its_workers(
    tmp_path: Path, server: list[str], variables: dict[str, str], spawns: bool
) -> None:
    with session(install(tmp_path), server, variables=variables) as s:
        assert (s.env.get("VLLM_WORKER_MULTIPROC_METHOD") == "spawn") == spawns
        assert any("spawn" in note for note in s.notes) == spawns


def test_no_nsys_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsv4bench.capture.nsys.find_nsys", lambda: None)
    with pytest.raises(UsageError, match="--with nsys needs nsys") as caught:
        NsysSession(SERVER)
    assert "nsight-systems-cli" in caught.value.hint


@pytest.mark.parametrize(
    ("library", "remedy"), [("libdw.so.1", "apt-get install libdw1 libelf1"), ("libssh.so.4", "the package that has")]
)
def test_an_importer_without_its_libraries_is_refused_before_anything_starts(
    tmp_path: Path, library: str, remedy: str
) -> None:
    nsys = install(tmp_path, importer_lacks=library)
    with pytest.raises(UsageError, match=library) as caught:
        session(nsys)
    assert remedy in caught.value.hint and "LD_LIBRARY_PATH" in caught.value.hint
    assert asked(nsys) == []


def test_an_nsys_too_old_to_drive_sessions(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not know --session-new") as caught:
        session(install(tmp_path, lacks="--session-new"))
    assert "2022.1 or newer" in caught.value.hint


def test_an_option_that_this_version_lacks_is_left_out_and_said(tmp_path: Path) -> None:
    with session(install(tmp_path, lacks="--trace-fork-before-exec")) as s:
        assert not any("fork" in word for word in s.command)
        assert "--cuda-graph-trace=node" in s.command
        assert any("no --trace-fork-before-exec" in note for note in s.notes)


def test_a_stream_without_a_report_names_the_libraries(tmp_path: Path) -> None:
    error = failure(session(install(tmp_path, ("importer",))), tmp_path)
    assert "only a raw stream of c1" in error.message and "skipping importation" in error.message
    assert "libdw1" in error.hint and "LD_LIBRARY_PATH" in error.hint


def test_an_importer_that_broke_meanwhile_names_its_library(tmp_path: Path) -> None:
    nsys = install(tmp_path, ("importer",))
    s = session(nsys)
    importer = nsys.parents[1] / "host-linux-x64" / "QdstrmImporter"
    importer.write_text(f"#!/bin/sh\necho '{nsys_double.NO_LIBRARY.format('libelf.so.1')}'\nexit 127\n")
    assert "its importer lacks libelf.so.1" in failure(s, tmp_path).message


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("start", Unanswerable, "nsys cannot start now: Configuring is not allowed"),
        ("deaf", Unanswerable, "did not begin within 1 s"),
        ("nothing", Unanswerable, "left no report of c1"),
        ("full", UsageError, "no space is left"),
        ("huge", Unanswerable, "the report of c1 has 50 MB, more than 1 MB"),
        (
            "export",
            Unanswerable,
            "could not export the report of c1: Export failed: the report is of a newer version",
        ),
    ],
)
def test_each_failure_has_one_line_and_a_remedy(
    tmp_path: Path, fault: str, kind: type[BenchError], message: str
) -> None:
    error = failure(session(install(tmp_path, (fault,))), tmp_path)
    assert type(error) is kind and message in error.message and "\n" not in error.message


def test_counters_that_may_not_be_read(tmp_path: Path) -> None:
    error = failure(session(install(tmp_path, ("metrics",)), metrics=True), tmp_path)
    assert "may not read the GPU's counters" in error.message
    assert "NVreg_RestrictProfilingToAdminUsers=0" in error.hint


def test_a_stop_that_hangs_tells_how_far_it_is_and_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nsys_faults, "SAY_EVERY_S", 0.2)
    monkeypatch.setattr("dsv4bench.capture.nsys_window._ABORT_S", 1.0)
    said: list[str] = []
    limits = Limits(**{f: getattr(QUICK, f) for f in QUICK.__struct_fields__} | {"stop_s": 1.0})
    nsys = install(tmp_path, ("hang",))
    error = failure(session(nsys, say=said.append, limits=limits), tmp_path)
    assert "nsys stop was not done after 1 s (3 MB written)" in error.message and "fewer steps" in error.hint
    assert len(said) >= 3 and "nsys writes its report: 3 MB after" in said[1]
    assert all_end(pids(nsys))


def test_a_disk_that_fills_up_ends_the_stop_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nsys hangs here; it is the watch that ends it."""
    s = session(install(tmp_path, ("hang",)))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("dsv4bench.capture.nsys_window._ABORT_S", 1.0)
    with running(s, tmp_path):
        window = s.window("c1")
        window.open()
        monkeypatch.setattr(nsys_faults.shutil, "disk_usage", lambda _: usage._replace(free=0))
        begun = time.monotonic()
        with pytest.raises(UsageError, match=r"no space is left in .* \(0 MB free\)") as caught:
            window.close()
        assert time.monotonic() - begun < 5 and "TMPDIR" in caught.value.hint
        assert "ends with its session" in window.abort()
    assert not s.folder.exists()


def test_no_room_for_a_capture_is_refused_before_anything_starts(tmp_path: Path) -> None:
    limits = Limits(need_bytes=1 << 60)
    nsys = install(tmp_path)
    with pytest.raises(UsageError, match="a capture wants") as caught:
        session(nsys, limits=limits)
    assert "TMPDIR" in caught.value.hint and asked(nsys) == []


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_server_that_dies_is_told_with_its_exit_code(tmp_path: Path, when: str) -> None:
    wait = {"before": 0, "while": 2}[when]
    code = f"import sys, time; print('up', flush=True); time.sleep({wait}); print('CUDA out of memory'); sys.exit(3)"
    nsys = install(tmp_path)
    s = session(nsys, [sys.executable, "-S", "-c", code])
    with running(s, tmp_path) as server:
        ended = lambda: None if server.exit_code is None else f"code {server.exit_code}: {server.log_tail(1)}"  # noqa: E731
        window = s.window("c1", ended)
        with pytest.raises(Unanswerable, match="the server under nsys has ended: code 3: CUDA out of memory"):
            if when == "before":
                time.sleep(0.2)
                window.open()
            else:
                window.open()
                server._process.wait(20)
                window.close()
        assert "nsys" in window.abort()
    assert all_end(pids(nsys))


def test_a_session_that_is_not_there_starts_no_other(tmp_path: Path) -> None:
    """The real `nsys start` makes a session of its own then, and exits 0."""
    nsys = install(tmp_path)
    with session(nsys) as s:
        with pytest.raises(Unanswerable):
            s.window("c1", lambda: "it was never started").open()
        assert asked(nsys) == []


def test_abort_stops_where_cancel_is_not_implemented(tmp_path: Path) -> None:
    nsys = install(tmp_path)
    s = session(nsys)
    with running(s, tmp_path):
        window = s.window("c1")
        assert window.abort() == "nsys was not recording"
        window = s.window("c1")
        window.open()
        assert window.abort() == "nsys was told to stop, and did"
        assert window.abort() == "nsys was not recording"
        assert s.state() == "Launched" and not list(s.folder.glob("c1*"))
        assert [line[0] for line in asked(nsys)] == ["launch", "start", "cancel", "stop"]


def test_a_window_is_used_once(tmp_path: Path) -> None:
    s = session(install(tmp_path))
    with running(s, tmp_path):
        window = s.window("c1")
        with pytest.raises(Unanswerable, match="is not open"):
            window.close()
        window.open()
        window.close()
        with pytest.raises(Unanswerable, match="is not open"):
            window.close()


def test_a_range_that_the_server_bounds(tmp_path: Path) -> None:
    nsys = install(tmp_path)
    s = session(nsys)
    home = str(s.folder)
    bounds = ProfilerRange(lambda: ranged(nsys, home, begin=True), lambda: ranged(nsys, home, begin=False))
    with running(s, tmp_path):
        window = s.window("c1", by_server=bounds)
        window.open()
        assert s.state() == "RangeCollection"
        assert len(window.close().files) == 1
        start = next(line for line in asked(nsys) if line[0] == "start")
        assert start[-2:] == ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
        assert "stop" not in [line[0] for line in asked(nsys)], "the end of the range has ended it"


def test_a_range_whose_end_never_comes_is_ended_by_nsys(tmp_path: Path) -> None:
    nsys = install(tmp_path)
    s = session(nsys)
    home = str(s.folder)
    bounds = ProfilerRange(lambda: ranged(nsys, home, begin=True), lambda: None)
    with running(s, tmp_path):
        window = s.window("c1", by_server=bounds)
        window.open()
        assert len(window.close().files) == 1
        assert "stop" in [line[0] for line in asked(nsys)]


def test_a_range_that_never_begins(tmp_path: Path) -> None:
    """As when the client calls cudaProfilerStart: it is another process."""
    nsys, ends = install(tmp_path), []

    def end() -> None:
        ends.append(1)
        raise ConnectionError("the server does not listen")

    error = failure(session(nsys), tmp_path, ProfilerRange(lambda: None, end))
    assert "no traced process called cudaProfilerStart" in error.message
    assert "CUDA_PROFILER" in error.hint and "--profiler-config" in error.hint
    assert ends, "the server is told that it is over"
    assert "stop" in [line[0] for line in asked(nsys)], "and nsys waits no longer, whatever the server answered"


def ranged(nsys: Path, home: str, begin: bool) -> None:
    """The server's own call, in a process of its own."""
    code = f"import nsys_double; nsys_double.in_range({begin}, {home!r})"
    environment = {**os.environ, "NSYS_DOUBLE": str(nsys.parents[1]), "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run([sys.executable, "-S", "-c", code], env=environment, check=True)


_OWNER = """
import sys, time
from dsv4bench.capture.nsys import Limits, NsysSession
from dsv4bench.host.nsight import Nsight
from dsv4bench.server.launch import launch
worker = "import time; time.sleep(600)"
server = "import subprocess, sys, time\\n" \\
    f"p = subprocess.Popen([sys.executable, '-S', '-c', {worker!r}], start_new_session=True)\\n" \\
    "print('up', p.pid, flush=True)\\ntime.sleep(600)"
s = NsysSession([sys.executable, "-S", "-c", server], nsys=Nsight(sys.argv[1]), limits=Limits(need_bytes=1))
launched = launch(s.command, log_path=sys.argv[2], env=s.env)
while "up" not in open(sys.argv[2]).read() or s.state() is None:
    time.sleep(0.05)
s.window("c1").open()
print(s.folder, launched.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_when_we_are_killed_nothing_is_left(tmp_path: Path, how: signal.Signals) -> None:
    """Neither the server, nor a worker in a session of its own, nor nsys' agent, nor the half-written report."""
    nsys, log = install(tmp_path, ("agent",)), tmp_path / "server.log"
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, str(nsys), str(log)], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        folder, leash = owner.stdout.readline().split()
        worker = next(int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("up"))
        everybody = [int(leash), worker, *pids(nsys)]
        assert all(map(lives, everybody)) and len({os.getsid(pid) for pid in everybody}) == 4
        owner.send_signal(how)
        owner.wait(10)
        assert all_end(everybody)
        assert not Path(folder).exists()
    finally:
        owner.kill()
        owner.communicate()
