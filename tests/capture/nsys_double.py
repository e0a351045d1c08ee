"""A stand-in for nsys that keeps sessions as the real one was seen to (2023.4), faults included.

What it copies: the server gets a session of its own and the agent belongs to nobody; `stop` exits 0 although no
report could be made; `cancel` is not implemented; states are Launched, StartRange, RangeCollection, Collection and
Shutdown.
`install` writes it as an executable; its faults and its log lie in a folder of the test's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HOME = Path(os.environ.get("NSYS_DOUBLE", "/nonexistent"))
FLAGS = {
    "launch": "--session-new= --trace= --cuda-graph-trace= --trace-fork-before-exec= --wait= --env-var=",
    "start": "--session= --output= --sample= --cpuctxsw= --force-overwrite= --capture-range= --capture-range-end="
    " --gpu-metrics-devices= --gpu-metrics-frequency=",
}
NO_IMPORTER = """Importer error status: An unknown error occurred.
Unable to retrieve the importer version: skipping importation of the QDSTRM file."""
NO_LIBRARY = "QdstrmImporter: error while loading shared libraries: {}: cannot open shared object file: No such file"


def install(folder: Path, faults: tuple[str, ...] = (), lacks: str = "", importer_lacks: str = "") -> Path:
    """The executable, in the layout of the real one. `lacks`: an option that its version does not know."""
    home = folder / "double"
    (home / "host-linux-x64").mkdir(parents=True)
    (home / "target-linux-x64").mkdir()
    (home / "faults.json").write_text(json.dumps([list(faults), lacks]))
    nsys = home / "target-linux-x64" / "nsys"
    nsys.write_text(f'#!/bin/sh\nNSYS_DOUBLE={home} exec {sys.executable} -S -E {__file__} "$@"\n')
    importer = home / "host-linux-x64" / "QdstrmImporter"
    dead = f'echo "{NO_LIBRARY.format(importer_lacks)}" >&2; exit 127' if importer_lacks else "echo 2023.4"
    importer.write_text(f"#!/bin/sh\n{dead}\n")
    for program in (nsys, importer):
        program.chmod(0o755)
    return nsys


def asked(nsys: Path) -> list[list[str]]:
    """Every command line so far, without help and listings."""
    log = nsys.parents[1] / "log"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
    return [line for line in lines if "--help" not in line and line[0] not in ("--version", "sessions")]


def main() -> int:
    words = sys.argv[1:]
    with (HOME / "log").open("a") as log:
        log.write(json.dumps(words) + "\n")
    faults, lacks = json.loads((HOME / "faults.json").read_text())
    verb, options = words[0], dict(w.split("=", 1) for w in words[1:] if w.startswith("--") and "=" in w)
    if verb == "--version":
        print("NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0")
        return 0
    if words[1:2] == ["--help"]:
        print("\n".join(f"\t{flag}" for flag in FLAGS[verb].split() if flag.rstrip("=") != lacks))
        return 0
    if verb == "sessions":
        return sessions()
    return {
        "launch": launch,
        "start": start,
        "stop": stop,
        "cancel": cancel,
        "shutdown": shutdown,
        "export": export,
    }[verb](options, faults, words)


def place() -> Path:
    """Sessions are found through TMPDIR."""
    return Path(os.environ.get("TMPDIR", "/tmp")) / "double-session.json"


def known() -> dict[str, str]:
    return json.loads(place().read_text()) if place().is_file() else {}


def put(**values: str) -> None:
    session = {**known(), **values}
    place().with_suffix(".new").write_text(json.dumps(session))
    place().with_suffix(".new").replace(place())


def sessions() -> int:
    print("              ID         TIME                       STATE LAUNCH NAME")
    session = known()
    if session:
        print(f"         1028966        00:03 {session['state']:>27}      1 {session['name']}")
    return 0


def launch(options: dict[str, str], faults: list[str], words: list[str]) -> int:
    command = words[next(i for i, w in enumerate(words) if i and not w.startswith("--")) :]
    name, _, value = options["--env-var"].partition("=")
    put(name=options["--session-new"], state="Launched")
    agent = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    server = subprocess.Popen(command, env={**os.environ, name: value}, start_new_session=True)
    (HOME / "pids.json").write_text(json.dumps([agent.pid, server.pid]))

    def told(number: int, frame: object) -> None:
        os.killpg(server.pid, signal.SIGTERM)
        if "agent" not in faults:
            agent.terminate()
        place().unlink(missing_ok=True)
        os._exit(143)

    signal.signal(signal.SIGTERM, told)
    code = server.wait()
    put(state="Shutdown")
    time.sleep(0.3)  # it lives a moment longer than the server
    agent.terminate()
    return code if code >= 0 else 128 - code


def start(options: dict[str, str], faults: list[str], words: list[str]) -> int:
    session = known()
    if session.get("name") != options["--session"]:
        print(f"Failed to find session: {options['--session']}.", file=sys.stderr)
        return 0
    if "start" in faults or session["state"] != "Launched":
        print("Configuring is not allowed in this state.", file=sys.stderr)
        return 1
    if "metrics" in faults and "--gpu-metrics-devices" in options:
        print("GPU Metrics: the user does not have permission to access NVIDIA GPU Performance Counters.")
        return 1
    if "deaf" in faults:
        return 0
    put(state="StartRange" if "--capture-range" in options else "Collection", output=options["--output"])
    return 0


def in_range(begin: bool, home: str) -> None:
    """What cudaProfilerStart and cudaProfilerStop of the server do; called by a test's server."""
    os.environ["TMPDIR"] = home
    if begin:
        put(state="RangeCollection")
        return
    report(Path(known()["output"]), [])
    put(state="Launched")


def stop(options: dict[str, str], faults: list[str], words: list[str]) -> int:
    state = known().get("state")
    if state not in ("Collection", "RangeCollection", "StartRange"):
        print("Collection stop is not allowed in this state.", file=sys.stderr)
        return 1
    if "hang" in faults:
        (place().parent / "nsys-report-3c69.qdstrm").write_bytes(b"raw" * 1_000_000)
        time.sleep(600)
    if "full" in faults:
        print("Failed to write: No space left on device")
        return 1
    print("Generating '/tmp/nsys-report-3c69.qdstrm'")
    put(state="Launched")
    if state != "StartRange":
        report(Path(known()["output"]), faults)
    return 0


def report(output: Path, faults: list[str]) -> None:
    if "importer" in faults:
        output.with_suffix(".qdstrm").write_bytes(b"raw")
        print(NO_IMPORTER, file=sys.stderr)
    elif "nothing" not in faults:
        print(f"\r[1/1] [0%   ] {output.name}\r[1/1] [=100%] {output.name}\nGenerated:\n    {output}")
        output.write_bytes(b"SECRET=hf_of_the_server" + b"." * (50_000_000 if "huge" in faults else 10))


def cancel(options: dict[str, str], faults: list[str], words: list[str]) -> int:
    print("Operation cancel is not implemented. Try to shut down the session instead.", file=sys.stderr)
    return 1


def shutdown(options: dict[str, str], faults: list[str], words: list[str]) -> int:
    place().unlink(missing_ok=True)
    return 0


def export(options: dict[str, str], faults: list[str], words: list[str]) -> int:
    if "export" in faults:
        print("Export failed: the report is of a newer version")
        return 1
    Path(options["--output"]).write_bytes(b"SQLite format 3\0" + Path(words[-1]).read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
