"""`dsv4bench import` as typed: table, one JSON document, exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "store"))

from import_samples import sglang, vllm, write

from dsv4bench.cli.importing import import_files
from dsv4bench.errors import SchemaError, Unanswerable

app = typer.Typer()
app.command()(import_files)
run = CliRunner()


def test_the_table_and_what_it_rests_on(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / f"b_rep{i}.jsonl", sglang(duration=10.0 + i))) for i in range(3)]
    done = run.invoke(app, [*paths, "--out", str(tmp_path / "r")])
    assert done.exit_code == 0
    assert done.stdout.startswith("b, from sglang: b_rep0.jsonl, b_rep1.jsonl, b_rep2.jsonl\n")
    assert "400.0–400.0" in done.stdout and "repeats: 3; a verdict in compare needs" in done.stdout
    assert f"stored in {tmp_path / 'r'}" in done.stdout


def test_json_is_one_document_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", vllm())
    done = run.invoke(app, [str(path), "--out", str(tmp_path / "r"), "--json"])
    document = json.loads(done.stdout)
    assert document["schema"] == "dsv4bench.imported/1"
    (one,) = document["experiments"]
    assert (one["config"], one["tool"], one["cells"][0]["output_tok_s"]) == ("a", "vllm", 400)
    assert (tmp_path / "r" / one["id"] / "run.json").exists()


@pytest.mark.parametrize(("content", "kind"), [({"a": 1}, SchemaError), (vllm(completed=0, failed=80), Unanswerable)])
def test_refusals_end_with_4(tmp_path: Path, content: object, kind: type[Unanswerable]) -> None:
    done = run.invoke(app, [str(write(tmp_path / "x.json", content)), "--out", str(tmp_path / "r")])
    assert isinstance(done.exception, kind) and done.exception.exit_code == 4 and done.stdout == ""
