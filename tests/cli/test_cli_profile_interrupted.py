"""Interrupted after a capture that no file can answer: the error is said, and the exit code is still 130."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from dsv4bench.cli.main import app
from dsv4bench.errors import Unanswerable
from dsv4bench.records.breakdown import BreakdownDocument
from dsv4bench.runs import profile_live
from dsv4bench.runs.profile import Profile
from dsv4bench.runs.profile_live import LiveProfile


def test_interrupted_wins_over_what_the_captures_say(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = Profile(BreakdownDocument(), [], [])
    found = LiveProfile(profile, Unanswerable("no kernels", "capture again"), interrupted=True)
    monkeypatch.setattr(profile_live, "run_profile_live", lambda *_: found)
    done = CliRunner().invoke(app, ["profile", "http://127.0.0.1:1", "-q"])
    assert done.exit_code == 130
    assert "no kernels" in done.output and "interrupted; what was captured is kept" in done.output
