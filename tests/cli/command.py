"""Runs dsv4bench as a user does, in a process of its own, and reads what it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsv4bench.records.cell import CellsDocument

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = ["--isl", "16", "--osl", "4", "--vocab", "1000", "--requests", "4", "--no-warmup", "--timeout", "5"]
FIELDS = {
    *("concurrency", "n_ok", "n_err", "isl", "errors", "output_tokens", "token_source", "n_short", "invalid"),
    *("output_tok_s", "output_tok_s_steady", "ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s"),
    *("achieved_batch", "tokens_per_chunk", "client_lag_p99_s", "timestamps"),
}


class Done:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout, checked for what every reader of it counts on."""
        assert self.out.endswith("\n") and self.out.count("\n") == 1, self.out
        document: dict[str, Any] = json.loads(self.out)
        assert document["schema"] == "dsv4bench.cells/1"
        msgspec.convert(document, CellsDocument)
        assert set(document) >= {"id", "path", "status", "cells", "notes", "error", "largest_concurrency_within_slo"}
        for cell in document["cells"]:
            assert set(cell) >= FIELDS
        assert (document["error"] is None) == (self.code in (0, 130))
        return document

    @property
    def error(self) -> str:
        """The one `error:` line on stderr; nothing may look like a crash."""
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0].removeprefix("error: ")


Call = Callable[..., Done]  # the fixture `call`: the entry point, in the test's own process


def environment() -> dict[str, str]:
    """Ours, with the package importable from any folder, and no setting of the user's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("DSV4BENCH_") and k != "COLUMNS"}
    return {**kept, "PYTHONPATH": str(ROOT)}


def start(
    args: Sequence[str],
    cwd: Path,
    preexec: Callable[[], None] | None = None,
    program: Sequence[str] = ("-m", "dsv4bench"),
) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, *program, *args]
    return subprocess.Popen(
        command, cwd=cwd, env=environment(), stdout=pipe, stderr=pipe, text=True, preexec_fn=preexec
    )


def finish(process: subprocess.Popen[str]) -> Done:
    out, err = process.communicate(timeout=60)
    return Done(process.returncode, out, err)


def run(*args: str, cwd: Path) -> Done:
    return finish(start(args, cwd))
