"""The pandas view."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from store_samples import make_cell, make_experiment, make_request

from dsv4bench.store.frames import cells_frame, requests_frame


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for config in ("baseline", "configB"):
        with make_experiment(tmp_path, config) as e:
            for i, c in enumerate((1, 8)):
                e.append_requests(f"r{i}", [make_request(0, ttft_s=0.25), make_request(1, error="http_500")])
                e.append_cell(make_cell(f"r{i}", concurrency=c))
            e.finish()
    return tmp_path


def test_one_row_a_cell(root: Path) -> None:
    frame = cells_frame(["baseline", "configB"], root=root)
    assert list(zip(frame["config"], frame["concurrency"], strict=True)) == [
        ("baseline", 1), ("baseline", 8), ("configB", 1), ("configB", 8)
    ]  # fmt: skip
    assert frame["tpot_p50_s"].iloc[0] == 0.0123457 and frame.attrs["warnings"] == []


def test_one_row_a_request(root: Path) -> None:
    frame = requests_frame("baseline", "r1", root=root)
    assert list(frame["cell"]) == ["r1", "r1"] and frame["ttft_s"].iloc[0] == 0.25
    assert list(frame["error"].notna()) == [False, True]


def test_a_path_is_taken_and_losses_are_said(root: Path) -> None:
    (folder,) = root.glob("*-baseline-*")
    os.truncate(folder / "cells.jsonl", (folder / "cells.jsonl").stat().st_size - 1)
    frame = cells_frame(folder)
    assert len(frame) == 1 and "torn last line" in frame.attrs["warnings"][0]
