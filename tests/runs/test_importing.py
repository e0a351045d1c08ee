"""Imported files as experiments: what is stored, what stays unknown, and that they read like any other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "store"))

from import_samples import aiperf, guidellm, sglang, vllm, write

from dsv4bench.errors import StoreError, Unanswerable, UsageError
from dsv4bench.records.experiment import Status
from dsv4bench.report.experiments import header_lines
from dsv4bench.runs.importing import import_files
from dsv4bench.store.store import Store


def test_a_file_becomes_an_experiment_that_reads_like_any_other(tmp_path: Path) -> None:
    out = tmp_path / "results"
    paths = [write(tmp_path / f"base_c{c}.json", vllm(max_concurrency=c)) for c in (1, 8)]
    (stored,) = import_files([str(p) for p in paths], str(out))
    found = Store(out).resolve("base")
    e = found.experiment
    assert (e.id, e.status, e.scenario) == (stored.id, Status.COMPLETE, "imported")
    assert [c.concurrency for c in found.cells()] == [1, 8] == e.plan.concurrency
    assert found.cells() == stored.cells
    assert e.extra["imported_from"] == "vllm" and set(e.extra["files"]) == {"base_c1.json", "base_c8.json"}
    assert found.warnings == [] and found.series() is not None


def test_what_the_file_does_not_tell_stays_unknown(tmp_path: Path) -> None:
    import_files([str(write(tmp_path / "a.json", vllm()))], str(tmp_path / "r"))
    e = Store(tmp_path / "r").resolve("a").experiment
    w = e.workload
    assert e.machine is None and not e.server_on_this_host and e.server.args is None
    assert (w.dataset, w.prompt_kind, w.osl, w.seed, w.temperature, w.ignore_eos, w.prefix_share) == (None,) * 7
    assert (w.endpoint, w.isl, e.server.model) == ("completions", [100], "m/one")
    text = "\n".join(header_lines(e))
    assert "dataset not told" in text and "imported from a vllm file" in text and "None" not in text


def test_server_arguments_and_sampling_are_kept_where_told(tmp_path: Path) -> None:
    import_files([str(write(tmp_path / "s.jsonl", sglang()))], str(tmp_path / "r"))
    import_files([str(write(tmp_path / "p.json", aiperf()))], str(tmp_path / "r"))
    store = Store(tmp_path / "r")
    server = store.resolve("s").experiment.server
    assert (server.engine, server.version, server.args) == ("sglang", "0.5.9", {"model_path": "m/one", "tp_size": 4})
    assert store.resolve("p").experiment.workload.ignore_eos is True


def test_a_name_for_one_configuration_and_not_for_two(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.json", vllm()), write(tmp_path / "b.json", guidellm())
    (stored,) = import_files([str(a)], str(tmp_path / "r"), "tuned")
    assert stored.config == "tuned"
    with pytest.raises(UsageError, match=r"2 configurations \(a, b\)"):
        import_files([str(a), str(b)], str(tmp_path / "r"), "tuned")


def test_a_run_that_was_cut_short_is_no_complete_experiment(tmp_path: Path) -> None:
    import_files([str(write(tmp_path / "p.json", aiperf(was_cancelled=True)))], str(tmp_path / "r"))
    (entry,) = Store(tmp_path / "r").list()
    assert entry.status is Status.ABORTED
    with pytest.raises(StoreError, match="no complete experiment"):
        Store(tmp_path / "r").resolve("p")


def test_nothing_is_stored_when_one_of_the_files_cannot_be_read(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "a.json", vllm()), write(tmp_path / "b.json", vllm(completed=0, failed=80))
    with pytest.raises(Unanswerable, match="no successful requests"):
        import_files([str(good), str(bad)], str(tmp_path / "r"))
    assert not (tmp_path / "r").exists()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot read .*nowhere\.json"):
        import_files([str(tmp_path / "nowhere.json")], str(tmp_path / "r"))
