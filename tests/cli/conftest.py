"""The command line in this process; the fake server of the tests of runs serves here, too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runs"))

from command import ROOT, Call, Done


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """The console script's own function, with `tmp_path` as the working folder: spares an interpreter's start."""
    from dsv4bench.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for the load workers, which start in this folder

    def run(*args: str) -> Done:
        monkeypatch.setattr("sys.argv", ["dsv4bench", *args])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return Done(int(ended.value.code or 0), out, err)

    return run
