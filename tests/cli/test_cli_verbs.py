"""The other verbs: what they print, and that an error is one line and, with --json, one document."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from command import Call, finish, run, start

from dsv4bench import __version__
from dsv4bench.metrics import METRICS


def test_help_names_every_verb_with_a_line_of_what_it_does(call: Call) -> None:
    done = call("--help")
    assert done.code == 0
    for verb in ("sweep", "serve", "selftest", "metrics", "list", "show", "reindex", "doctor"):
        (line,) = [x for x in done.out.splitlines() if x.split()[:1] == [verb]]
        assert len(line.split()) > 3


@pytest.mark.parametrize("verb", ["sweep", "serve", "selftest", "metrics", "list", "show", "reindex", "doctor"])
def test_each_verb_explains_itself(verb: str, call: Call) -> None:
    done = call(verb, "--help")
    assert done.code == 0 and "Usage: dsv4bench" in done.out and "--help" in done.out


def test_the_version(call: Call) -> None:
    assert call("--version").out == f"dsv4bench {__version__}\n"


def test_metrics_lists_all_of_them(call: Call) -> None:
    done = call("metrics")
    assert done.code == 0 and all(m.name in done.out for m in METRICS)
    document = json.loads(call("metrics", "--json").out)
    assert document["schema"].startswith("dsv4bench.metrics/")
    assert [m["name"] for m in document["metrics"]] == [m.name for m in METRICS]


def test_doctor(call: Call) -> None:
    done = call("doctor", "--json")
    document = json.loads(done.out)
    assert done.code == 0 and document["schema"] == "dsv4bench.doctor/1"
    assert {"cores", "kernel receive stamps", "open files"} <= {f["what"] for f in document["findings"]}
    assert all(f["remedy"] or f["ok"] or f["what"] in ("cores", "open files") for f in document["findings"])
    assert call("doctor").out.count("\n") == len(document["findings"])


def test_an_empty_results_folder(call: Call, tmp_path: Path) -> None:
    done = call("list")
    assert done.code == 0 and "no experiments yet" in done.out and not (tmp_path / "results").exists()
    assert json.loads(call("list", "--json").out)["experiments"] == []


def test_a_folder_that_is_not_there_is_no_empty_one(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for named, said in (("nosuch", "nosuch is not there: no results folder"), ("file", "file is a file: no results")):
        done = call("list", "--out", named)
        assert done.code == 2 and said in done.error and done.out == ""
    (tmp_path / "empty").mkdir()
    done = call("list", "--out", "empty")
    assert done.code == 0 and "no experiments yet" in done.out


def test_show_of_nothing(call: Call) -> None:
    done = call("show", "nosuch")
    assert done.code == 2 and "nosuch" in done.error and "hint: " in done.err and done.out == ""


def test_an_error_of_any_verb_is_a_document_with_json(call: Call) -> None:
    done = call("show", "nosuch", "--json")
    document = json.loads(done.out)
    assert done.code == 2 and done.out.count("\n") == 1
    assert document["schema"] == "dsv4bench.error/1" and document["error"]["message"] == done.error
    assert document["error"]["exit_code"] == 2 and document["error"]["hint"]


def test_debug_shows_where_an_error_came_from(call: Call) -> None:
    done = call("--debug", "show", "nosuch")
    assert done.code == 2 and "Traceback" in done.err and "error: " in done.err
    done = call("--debug", "sweep", "http://127.0.0.1:1", "-c", "x")
    assert done.code == 2 and "Traceback" in done.err and "UsageError" in done.err


def test_selftest_measures_its_own_error(tmp_path: Path) -> None:
    done = run("selftest", "-c", "1,4", "--tokens", "20", "--itl-ms", "3", "--ttft-ms", "5", "--json", cwd=tmp_path)
    document = json.loads(done.out)
    assert done.code == 0 and done.out.count("\n") == 1
    assert [x["concurrency"] for x in document["levels"]] == [1, 4]
    for level in document["levels"]:
        assert level["tokens"] == 3 * level["concurrency"] * 20
        assert 0 <= level["icl_error_p50_s"] <= level["icl_error_p99_s"]
        assert level["icl_error_p50_s"] < 0.003  # under one interval, or the stamps belong to other events
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", [["-c", "0"], ["-c", "x"], ["--tokens", "1"], ["--itl-ms", "0"]])
def test_selftest_refuses_what_cannot_be_run(option: list[str], call: Call) -> None:
    done = call("selftest", *option)
    assert done.code == 2 and done.error


def test_ctrl_c_in_a_verb_without_results(tmp_path: Path) -> None:
    process = start(["selftest", "-c", "1", "--tokens", "2000"], tmp_path)
    assert process.stderr is not None and "C=1" in process.stderr.readline()  # it has begun
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.code == 130 and "Traceback" not in done.err


def test_a_reader_that_goes_away_is_no_crash(tmp_path: Path) -> None:
    process = start(["metrics"], tmp_path)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.wait(30)
    process.stderr.close()
    assert "Traceback" not in said and process.returncode in (0, 1)


def test_the_module_runs_as_the_script_does(tmp_path: Path) -> None:
    done = run("--version", cwd=tmp_path)
    assert (done.code, done.out) == (0, f"dsv4bench {__version__}\n")
