"""`dsv4bench sweep` as a process: what it prints, its exit code, and the one JSON document in every case."""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command import SMALL, Call, Done, finish, run, start
from openai_server import Behaviour, serve

from dsv4bench.records.experiment import Status
from dsv4bench.server.detect import detect
from dsv4bench.store.store import Store


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def stored(folder: Path) -> list[tuple[str, int]]:
    (entry,) = Store(folder).list()
    return [(c.cell, c.n_ok) for c in Store(folder).open(entry.id).cells()]


# --- it works ------------------------------------------------------------------------------------------------


def test_the_shortest_use(tmp_path: Path, call: Call) -> None:
    """A table and where it rests on stdout, progress on stderr; the results lie in ./results."""
    with serve() as server:
        done = run("sweep", server.url, *SMALL, "-c", "1,2", cwd=tmp_path)
    assert done.code == 0 and "error" not in done.err
    lines = done.out.splitlines()
    assert [line.removeprefix("!").split()[0] for line in lines[2:4]] == ["1", "2"]
    assert "tok/s" in lines[0] and "TPOT" in lines[0]
    assert any(line.startswith("stored in results/") for line in lines)
    assert any("--repeat 5" in line for line in lines)
    assert "vllm 0.32.0 at" in done.err and "[2/2] C=2 ISL 16" in done.err
    assert stored(tmp_path / "results") == [("r0-c1-i16", 4), ("r0-c2-i16", 4)]
    again = call("show", "default")
    assert again.code == 0 and lines[2] in again.out and lines[3] in again.out
    listed = call("list")
    assert listed.code == 0 and "complete" in listed.out and "default" in listed.out


def test_json_is_all_that_is_on_stdout(tmp_path: Path, call: Call) -> None:
    with serve() as server:
        args = ["sweep", server.url, *SMALL, "-c", "2", "--json", "--slo", "ttft=20s", "--seed", "7"]
        done = run(*args, cwd=tmp_path)
    document = done.document
    assert done.code == 0 and document["error"] is None and document["status"] == "complete"
    (cell,) = document["cells"]
    assert (cell["concurrency"], cell["n_ok"], cell["n_err"], cell["isl"], cell["errors"]) == (2, 4, 0, 16, {})
    assert (cell["output_tokens"], cell["token_source"], cell["n_short"]) == (16, "usage", 0)
    assert cell["tokens_per_chunk"] == 1.0 and cell["timestamps"] in ("kernel", "user")
    assert cell["ttft_p50_s"] > 0 and cell["output_tok_s"] > 0 and cell["client_lag_p99_s"] is not None
    assert document["largest_concurrency_within_slo"] == (2 if cell["invalid"] is None else None)
    assert Path(tmp_path, document["path"]).name == document["id"]
    shown = call("show", document["id"], "--json")
    assert shown.document["cells"] == document["cells"]
    experiment = Store(tmp_path / "results").open(document["id"]).experiment
    assert experiment.workload.seed == 7 and experiment.command[:2] == ["sweep", server.url]


def test_a_dry_run_writes_nothing(tmp_path: Path, call: Call) -> None:
    with serve() as server:
        done = call("sweep", server.url, *SMALL, "--dry-run", "--json")
    assert done.code == 0 and done.document["cells"] == [] and "levels" in done.document["notes"][-1]
    assert list(tmp_path.iterdir()) == []


def test_options_win_over_a_scenario_file(tmp_path: Path, call: Call) -> None:
    with serve() as server:
        (tmp_path / "s.yaml").write_text(
            f"name: nightly\nserver: {{url: '{server.url}', timeout_s: 5}}\n"
            "workload: {isl: [24], osl: 9, vocab: 500, seed: 3}\n"
            "levels: {concurrency: [1, 2, 4], requests: 2, warmup: false, slo: {ttft: 20s}}\n"
            "config: {name: filed, parent: stock, lever: none}\n"
        )
        done = run(
            "sweep", "--scenario", "s.yaml", "--osl", "4", "-c", "2", "--name", "typed", "--json", cwd=tmp_path
        )
        assert max(i for b in server.bodies for i in b["prompt"]) < 500
    (cell,) = done.document["cells"]
    assert (cell["isl"], cell["osl"], cell["concurrency"], cell["n_ok"]) == (24, 4, 2, 2)
    e = Store(tmp_path / "results").open(done.document["id"]).experiment
    assert (e.scenario, e.config, e.parent, e.lever, e.workload.seed) == ("nightly", "typed", "stock", "none", 3)
    assert e.plan.slo is not None and (e.plan.slo.ttft_s, e.plan.slo.tpot_s) == (20.0, None)


# --- exit code 2: what the user typed, or where it points ------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["ftp://host"], "ftp"),
        (["http://"], "names no host"),
        (["http://a b"], "space"),
        (["--concurrency", "x"], "--concurrency x: not a list of whole numbers"),
        (["--concurrency", "0"], "--concurrency 0: every value must be at least 1"),
        (["--concurrency", "8,8"], "a value stands twice"),
        (["--concurrency", ","], "--concurrency"),
        (["--isl", "1k"], "--isl 1k"),
        (["--slo", "nonsense"], "--slo nonsense: not a limit"),
        (["--slo", "ttft=fast"], "--slo ttft fast: not a duration"),
        (["--slo", "p99=3"], "--slo p99: not a limit"),
        (["--slo", ""], "names no limit"),
        (["--duration", "60", "--requests", "5"], "--requests and --duration were both given"),
        (["--rate", "nan"], "--rate nan"),
        (["--rate", "0"], "--rate 0"),
        (["--rate", "inf"], "--rate inf"),
        (["--timeout", "soon"], "--timeout soon: not a duration"),
        (["--osl", "0"], "--osl 0"),
        (["--repeat", "0"], "--repeat 0"),
        (["--vocab", "99999999999"], "--vocab 99999999999"),
        (["--endpoint", "embeddings"], "--endpoint embeddings"),
        (["--arrivals", "never"], "--arrivals never"),
        (["--demo", "http://127.0.0.1:1"], "--demo and the URL http://127.0.0.1:1 were both given"),
        (["--tensor-pipe-gpus", "x"], "--tensor-pipe-gpus x: not a list of whole numbers"),
        (["--tensor-pipe-gpus", "0,-1"], "--tensor-pipe-gpus 0,-1: not a list of GPUs"),
        (["--tensor-pipe-gpus", ","], "--tensor-pipe-gpus : not a list of GPUs"),
        (["--scenario", "none.yaml"], "none.yaml: No such file"),
        (["--header", "nonsense", "http://127.0.0.1:1"], "--header"),
    ],
)
def test_usage_errors(args: list[str], said: str, tmp_path: Path, call: Call) -> None:
    done = call("sweep", *args, "--json")
    assert done.code == 2 and said in done.error and done.document["error"]["message"] == done.error
    assert done.document["error"]["exit_code"] == 2 and done.document["cells"] == []
    assert not (tmp_path / "results").exists() or list((tmp_path / "results").iterdir()) == []


@pytest.mark.parametrize("args", [["sweep", "--nonsense", "--json"], ["nonsense"], ["sweep", "--osl", "many"]])
def test_what_typer_refuses(args: list[str], call: Call) -> None:
    done = call(*args)
    assert done.code == 2 and done.out == "" and "Traceback" not in done.err and done.err


def test_a_usage_error_as_a_process(tmp_path: Path) -> None:
    done = run("sweep", "http://127.0.0.1:1", "--concurrency", "x", "--json", cwd=tmp_path)
    assert done.code == 2 and done.document["error"]["message"] == done.error
    assert "hint: for instance --concurrency 1,8,16" in done.err


def test_a_refused_port(closed_port: int, call: Call) -> None:
    done = call("sweep", f"http://127.0.0.1:{closed_port}", "--json")
    assert done.code == 2 and str(closed_port) in done.error and done.document["error"]["hint"]


def test_a_model_that_is_not_served(call: Call) -> None:
    with serve() as server:
        done = call("sweep", server.url, "--model", "huge", "--json")
    assert done.code == 2 and "'huge'" in done.error and "tiny" in done.document["error"]["message"]


def test_a_server_that_accepts_and_never_answers(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the first question (its own 5 s are cut short here) nor a request."""
    monkeypatch.setattr("dsv4bench.runs.sweep.detect", partial(detect, timeout_s=0.5))
    with serve(Behaviour(hang_models=True)) as silent:
        done = call("sweep", silent.url, *SMALL, "--json")
    assert done.code == 2 and "did not answer GET /v1/models within 0.5 s" in done.error
    assert done.document["cells"] == []
    with serve(Behaviour(hang_posts=True)) as stuck:
        done = call("sweep", stuck.url, *SMALL, "--timeout", "0.5", "--json")
    assert done.code == 1 and "stalled: no byte for 0.5 s" in done.error and done.document["error"]["exit_code"] == 1


def test_a_results_folder_that_is_a_file(tmp_path: Path, call: Call) -> None:
    (tmp_path / "results").write_text("mine")
    with serve() as server:
        done = call("sweep", server.url, "--json")
        below = call("sweep", server.url, "--json", "--out", "results/below")
        assert server.bodies == []  # it is seen before anything is sent
    assert done.code == 2 and "results is not a directory" in done.error and done.document["cells"] == []
    assert below.code == 2 and "results/below" in below.error
    assert (tmp_path / "results").read_text() == "mine"


SMALL_PROBE = "import dsv4bench.store.store as s; s.PROBE_BYTES = 100; from dsv4bench.cli.main import main; main()"


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))  # a level takes 5 to 25 kB


def test_a_disk_that_fills(tmp_path: Path) -> None:
    """The levels' requests outgrow what a file may hold; what was measured is printed all the same."""
    many = ["--isl", "4", "--osl", "100", "--vocab", "100", "--requests", "40", "--no-warmup", "--timeout", "20"]
    with serve(Behaviour(itl_s=0.0, ttft_s=0.0)) as server:
        args = ["sweep", server.url, *many, "-c", ",".join(map(str, range(4, 24))), "--json"]
        done = finish(start(args, tmp_path, limit_files, ("-c", SMALL_PROBE)))
    document = done.document
    assert done.code == 2 and "File too large" in done.error and "safe there" in done.error
    kept = stored(tmp_path / "results")
    assert 1 <= len(kept) == len(document["cells"]) - 1 < 19  # the level that did not fit is shown, too
    assert all(cell["n_ok"] == 40 for cell in document["cells"]) and document["status"] == "failed"


# --- exit code 1: measured, and bad -----------------------------------------------------------------------------


def test_a_server_that_is_killed_in_a_level(tmp_path: Path, call: Call) -> None:
    with serve(Behaviour(die_at=9)) as server:
        done = call("sweep", server.url, *SMALL, "-c", "1,2,4", "--json")
    document = done.document
    assert done.code == 1 and "the server went away during C=2 ISL 16" in done.error
    assert [(c["concurrency"], c["invalid"]) for c in document["cells"]][1:] == [(2, "interrupted")]
    assert document["cells"][0]["n_ok"] == 4 and document["status"] == "failed"
    assert stored(tmp_path / "results") == [(c["cell"], c["n_ok"]) for c in document["cells"]]


def test_every_request_fails(tmp_path: Path) -> None:
    failing = Behaviour(error_status=500, fail_from=3)  # each server counts its own requests
    with serve(failing) as one, serve(failing) as other:
        level = [*SMALL, "-c", "1", "--slo", "ttft=1s"]
        as_json = start(["sweep", one.url, *level, "--json"], tmp_path)
        as_text = start(["sweep", other.url, *level, "-q", "--out", "text"], tmp_path)
        done, text = finish(as_json), finish(as_text)
    (cell,) = done.document["cells"]
    assert done.code == 1 and "every request failed at r0-c1-i16: out of memory" in done.error
    assert (cell["n_ok"], cell["n_err"], cell["errors"], cell["invalid"]) == (0, 4, {"http_500": 4}, "all_failed")
    for name in ("output_tokens", "output_tok_s", "output_tok_s_steady", "ttft_p50_s", "tpot_p50_s"):
        assert cell[name] is None
    assert text.code == 1 and text.error == done.error
    assert text.err.startswith("error: every request failed")  # --quiet: nothing on the way
    assert "4/4" in text.out and "INVALID all_failed" in text.out and "4 http_500" in text.out
    assert "within the SLO" not in text.out


# --- interrupted ---------------------------------------------------------------------------------------------


def interrupt_at_level_2(behaviour: Behaviour, args: list[str], cwd: Path, number: signal.Signals) -> Done:
    """Signal the process when the server sees the second level's first wave in full."""
    processes: list[subprocess.Popen[str]] = []
    with serve(behaviour) as server:

        def strike(body: dict[str, Any]) -> None:
            if server.running == 2 and processes:
                processes.pop().send_signal(number)

        server.behaviour.on_request = strike
        process = start(["sweep", server.url, *SMALL, "-c", "1,2,4", "--osl", "10", *args], cwd)
        processes.append(process)
        done = finish(process)
        assert not processes
        return done


def test_ctrl_c(tmp_path: Path) -> None:
    done = interrupt_at_level_2(Behaviour(itl_s=0.01), ["--json"], tmp_path, signal.SIGINT)
    document = done.document
    assert done.code == 130 and "interrupted" in done.err and "Traceback" not in done.err
    whole, part = document["cells"]
    assert (whole["concurrency"], whole["n_ok"], part["concurrency"], part["invalid"]) == (1, 4, 2, "interrupted")
    assert whole["invalid"] != "interrupted" and document["status"] == "aborted" and document["error"] is None
    assert [cell for cell, _ in stored(tmp_path / "results")] == ["r0-c1-i16", "r0-c2-i16"]


def test_ctrl_c_prints_the_table(tmp_path: Path) -> None:
    done = interrupt_at_level_2(Behaviour(itl_s=0.01), [], tmp_path, signal.SIGINT)
    assert done.code == 130 and "INVALID interrupted" in done.out and "stored in results/" in done.out
    assert "--resume" in done.err


def test_kill_and_resume(tmp_path: Path) -> None:
    behaviour = Behaviour(itl_s=0.01)
    killed = interrupt_at_level_2(behaviour, [], tmp_path, signal.SIGKILL)
    assert killed.code == -signal.SIGKILL and killed.out == ""
    (entry,) = Store(tmp_path / "results").list()
    assert entry.status is Status.ABORTED and stored(tmp_path / "results") == [("r0-c1-i16", 4)]
    behaviour.on_request = None
    with serve(behaviour) as server:
        options = [*SMALL, "-c", "1,2,4", "--osl", "10", "--resume", "--json"]
        done = finish(start(["sweep", server.url, *options], tmp_path))
        assert len(server.bodies) == 3 + 2 * 4  # the probe and the two levels that were missing
    document = done.document
    assert done.code == 0 and document["id"] == entry.id and document["status"] == "complete"
    assert [(c["concurrency"], c["n_ok"]) for c in document["cells"]] == [(1, 4), (2, 4), (4, 4)]
    assert all(c["invalid"] != "interrupted" for c in document["cells"])
    assert stored(tmp_path / "results") == [("r0-c1-i16", 4), ("r0-c2-i16", 4), ("r0-c4-i16", 4)]
    assert "1 of 3 levels are done" in done.err
