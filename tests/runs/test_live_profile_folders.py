"""The folder under /tmp that a server writes into: never taken away from a server that may still write."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from live_profiles import Said, capture, quick_windows
from profiled_server import profiled, until

from dsv4bench.capture import torch_http
from dsv4bench.errors import BenchError
from dsv4bench.runs import told_to_stop


def left(folder: Path) -> list[Path]:
    return list(folder.glob("dsv4bench-*"))


def test_a_server_that_did_not_stop_keeps_its_folder(tmp_path: Path) -> None:
    said = Said()
    with quick_windows(tmp_path), profiled(tmp_path, "sglang") as fake:
        fake.hangs = {"stop"}
        with pytest.raises(BenchError):
            capture(fake.url, tmp_path / "out", said, concurrency=[2], flush_timeout_s=0.5)
    (folder,) = left(tmp_path)
    assert folder.stat().st_mode & 0o7777 == 0o1777
    assert said.has(f"{folder} is left: the server may still write its trace there")


def test_a_window_that_was_cut_short_leaves_nothing(tmp_path: Path) -> None:
    with quick_windows(tmp_path), profiled(tmp_path, "sglang", crawls=True) as fake:

        def interrupt() -> None:
            until(lambda: fake.recording, "a recording")
            signal.raise_signal(signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            capture(fake.url, tmp_path / "out", concurrency=[2])
        assert fake.calls == ["start", "stop"]
    assert left(tmp_path) == []


def test_a_second_ctrl_c_does_not_wait_and_leaves_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said()
    with quick_windows(tmp_path), profiled(tmp_path, "sglang", crawls=True) as fake:
        monkeypatch.setattr(torch_http, "ABORT_S", 600.0)
        monkeypatch.setattr(told_to_stop, "TWICE_S", 0.0)
        fake.hangs = {"stop"}

        def interrupt() -> None:
            until(lambda: fake.recording, "a recording")
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: "stop" in fake.calls, "it is told to stop")
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            capture(fake.url, tmp_path / "out", said, concurrency=[2])
    (folder,) = left(tmp_path)
    assert said.has("waited for up to 600 s") and said.has("not waited for") and said.has(f"{folder} is left")


@pytest.mark.parametrize("how", ["url", "launch"])
def test_a_results_folder_that_cannot_be_made_is_found_out_first(tmp_path: Path, how: str) -> None:
    (tmp_path / "file").write_text("")
    with quick_windows(tmp_path), profiled(tmp_path, "sglang") as fake:
        launch = {"launch": "sleep 60"} if how == "launch" else {}
        with pytest.raises(BenchError) as caught:
            capture(fake.url, tmp_path / "file" / "out", concurrency=[2], **launch)
        assert "cannot make" in caught.value.message and fake.calls == []
