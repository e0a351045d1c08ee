"""A trace that cannot be written is said, and the engine goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from dsv4bench.engine.profiler import ProfileRequest, StepProfiler
from dsv4bench.engine.spans import Spans
from dsv4bench.errors import StoreError


def test_a_folder_that_was_taken_away(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "traces"
    profiler = StepProfiler(Spans())
    profiler.start(ProfileRequest(output_dir=str(folder)))
    profiler.before_step()
    profiler.after_step()
    folder.rmdir()
    with pytest.raises(StoreError, match="the trace was not written"):
        profiler.stop()
    assert "the trace was not written" in capfd.readouterr().err
    assert profiler.stop() is None  # said once
    profiler.start(ProfileRequest(output_dir=str(folder)))
    assert profiler.active
