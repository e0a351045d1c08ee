"""One folder: written, read back, killed, resumed, redacted."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from store_samples import EPOCH_S, make_cell, make_experiment, make_request, make_sample, make_server

from dsv4bench.errors import SchemaError, StoreError
from dsv4bench.records.cell import Invalid
from dsv4bench.records.experiment import Status
from dsv4bench.store.experiment import ExperimentDir
from dsv4bench.store.store import Store


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    cell, requests = make_cell(), [make_request(0), make_request(1, ttft_s=0.3)]
    samples = [make_sample(0.0, running=8.0), make_sample(1.0)]
    with make_experiment(tmp_path) as e:
        e.append_telemetry(samples)
        e.append_requests(cell.cell, requests)
        e.append_cell(cell)
        e.finish()
    back = Store(tmp_path).open(e.id)
    assert back.experiment.status is Status.COMPLETE
    assert back.experiment.ended_utc is not None
    assert [c.cell for c in back.cells()] == [cell.cell]
    assert back.cells()[0].tpot_p50_s == 0.0123457  # six significant digits
    assert [r.chunk_ns for r in back.requests()] == [r.chunk_ns for r in requests]
    assert {r.cell for r in back.requests(cell.cell)} == {cell.cell}
    assert list(back.requests("other")) == []
    assert back.telemetry() == samples
    assert back.warnings == []


def test_the_folder_is_as_designed(tmp_path: Path) -> None:
    moment = datetime(2026, 11, 29, 23, 15, tzinfo=UTC)
    with make_experiment(tmp_path, config="../a b/ü", scenario="基线", now=moment) as e:
        e.server_log.write_text("listening\n")
        (e.path / "trace").mkdir()
        (e.path / "trace" / "a.json").write_bytes(b"{}")
        e.append_requests("r0", [make_request()])
        e.append_telemetry([make_sample(0)])
        e.append_cell(make_cell("r0"))
        e.finish()
    stamp, scenario, *config, four = e.path.name.split("-")
    assert stamp == "20261129T231500Z" and "-".join(config) == "a-b-u" and len(four) == 4
    assert scenario.isascii() and e.path.parent == tmp_path
    names = {p.name for p in e.path.iterdir()}
    assert names == {
        "run.json", "cells.jsonl", "requests.jsonl.gz", "telemetry.jsonl", "series.json", "server.log", "trace"
    }  # fmt: skip
    run = json.loads((e.path / "run.json").read_bytes())
    assert run["schema"] == "dsv4bench.run/1" and run["config"] == "../a b/ü"
    assert run["launches"] == {"L0": EPOCH_S}
    assert set(run["files"]) == {"requests.jsonl.gz", "telemetry.jsonl", "server.log", "trace/a.json"}
    raw = (e.path / "requests.jsonl.gz").read_bytes()
    assert run["files"]["requests.jsonl.gz"] == {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
    lines = gzip.decompress(raw).splitlines()  # any gzip reader takes it
    assert json.loads(lines[0])["cell"] == "r0"
    assert json.loads((tmp_path / "index.jsonl").read_bytes())["n_cells"] == 1


def test_a_torn_tail_is_reported_when_reading_and_cut_when_resuming(tmp_path: Path) -> None:
    with make_experiment(tmp_path) as e:
        for i in range(3):
            e.append_requests(f"r{i}", [make_request(i)])
            e.append_telemetry([make_sample(i, cell=f"r{i}")])
            e.append_cell(make_cell(f"r{i}"))
    for name in ("cells.jsonl", "requests.jsonl.gz", "telemetry.jsonl"):
        os.truncate(e.path / name, (e.path / name).stat().st_size - 9)
    before = {p.name: p.read_bytes() for p in e.path.iterdir()}

    reader = Store(tmp_path).open(e.id)
    assert [c.cell for c in reader.cells()] == ["r0", "r1"]
    assert [r.cell for r in reader.requests()] == ["r0", "r1"]
    assert len(reader.telemetry()) == 2
    assert len(reader.warnings) == 3
    assert {p.name: p.read_bytes() for p in e.path.iterdir()} == before  # reading never writes

    with Store(tmp_path).resume(e.id) as again:
        assert again.done() == {"r0", "r1"}
        again.append_requests("r2", [make_request(2)])
        again.append_telemetry([make_sample(2, cell="r2")])
        again.append_cell(make_cell("r2"))
        again.finish()
    whole = Store(tmp_path).open(e.id)
    assert [c.cell for c in whole.cells()] == ["r0", "r1", "r2"]
    assert [r.cell for r in whole.requests()] == ["r0", "r1", "r2"]
    assert [s.cell for s in whole.telemetry()] == ["r0", "r1", "r2"]
    assert whole.warnings == []


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_requests_survive_a_cut_at_any_byte(tmp_path: Path, cut: int) -> None:
    with make_experiment(tmp_path) as e:
        e.append_requests("r0", [make_request(0)])
        size = (e.path / "requests.jsonl.gz").stat().st_size
        e.append_requests("r1", [make_request(1)])
    os.truncate(e.path / "requests.jsonl.gz", size + cut)
    reader = ExperimentDir.open(e.path)
    assert [r.cell for r in reader.requests()] == ["r0"]
    assert len(reader.warnings) == 1


def test_damage_in_the_middle_costs_one_level_only(tmp_path: Path) -> None:
    with make_experiment(tmp_path) as e:
        sizes = []
        for i in range(3):
            e.append_requests(f"r{i}", [make_request(i)])
            e.append_cell(make_cell(f"r{i}"))
            sizes.append(((e.path / "requests.jsonl.gz").stat().st_size, (e.path / "cells.jsonl").stat().st_size))
    for name, at in (("requests.jsonl.gz", sizes[0][0]), ("cells.jsonl", sizes[0][1])):
        raw = bytearray((e.path / name).read_bytes())
        raw[at + 30 : at + 60] = bytes(30)
        (e.path / name).write_bytes(raw)
    reader = ExperimentDir.open(e.path)
    assert [c.cell for c in reader.cells()] == ["r0", "r2"]
    assert [r.cell for r in reader.requests()] == ["r0", "r2"]
    assert len(reader.warnings) == 2 and "damaged line 2" in reader.warnings[0]


def test_an_interrupted_level_is_kept_and_gives_way_when_measured_again(tmp_path: Path) -> None:
    with make_experiment(tmp_path) as e:
        e.append_cell(make_cell("r0"))
        e.append_requests("r1", [make_request(0)])
        e.append_cell(make_cell("r1", invalid=Invalid.INTERRUPTED, n_ok=1))
        e.finish(Status.ABORTED, "interrupted")
    assert [c.n_ok for c in ExperimentDir.open(e.path).cells()] == [24, 1]
    with Store(tmp_path).resume(e.id) as again:
        assert again.done() == {"r0"}
        again.append_requests("r1", [make_request(i) for i in range(3)])
        again.append_cell(make_cell("r1", n_ok=3))
        again.finish()
    whole = ExperimentDir.open(e.path)
    assert [(c.cell, c.n_ok) for c in whole.cells()] == [("r0", 24), ("r1", 3)]
    assert len(list(whole.requests("r1"))) == 3
    assert whole.warnings == [] and whole.experiment.reason is None


def test_a_level_measured_twice_is_said(tmp_path: Path) -> None:
    with make_experiment(tmp_path) as e:
        e.append_cell(make_cell("r0", n_ok=1))
        e.append_cell(make_cell("r0", n_ok=2))
    reader = ExperimentDir.open(e.path)
    assert [c.n_ok for c in reader.cells()] == [2]
    assert "r0 stands there twice" in reader.warnings[0]


def test_running_without_a_lock_reads_as_killed(tmp_path: Path) -> None:
    with make_experiment(tmp_path) as e:
        assert ExperimentDir.open(e.path).experiment.status is Status.RUNNING
    found = ExperimentDir.open(e.path).experiment
    assert found.status is Status.ABORTED and "killed" in (found.reason or "")
    assert json.loads((e.path / "run.json").read_bytes())["status"] == "running"  # reading never writes


def test_secrets_never_reach_the_disk(tmp_path: Path) -> None:
    secret = "sk-abcdefghijklmnopqrstuvwxyz"
    server = make_server(
        url=f"http://user:{secret}@h:1",
        args={"api_key": secret, "max_total_tokens": 4096},
        missing={"x": f"Bearer {secret}"},
    )
    e = make_experiment(
        tmp_path,
        server=server,
        command=["dsv4bench", "sweep", "--api-key", secret],
        environment={"HF_TOKEN": secret, "NCCL_PROTO": "LL"},
        extra={"nested": [{"authorization": f"Bearer {secret}"}]},
    )
    e.server_log.write_text(f"line one\nargs: api_key='{secret}'\nlast line without an end")
    error = f"401: Authorization: Bearer {secret}"
    e.append_requests("r0", [make_request(0, error="http_401", error_text=error)])
    e.append_cell(make_cell("r0", error_example=error, notes=[error], errors={"http_401": 1}, invalid_why=error))
    e.update(extra={"header": f"Authorization: Bearer {secret}"})
    e.finish(Status.FAILED, error)
    written = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(written) >= 6
    for path in written:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
        assert secret.encode() not in raw, path
    back = ExperimentDir.open(e.path)
    assert back.experiment.server.args == {"api_key": "***", "max_total_tokens": 4096}
    assert back.experiment.environment["NCCL_PROTO"] == "LL"
    assert e.server_log.read_text().splitlines()[::2] == ["line one", "last line without an end"]
    assert back.cells()[0].error_example is not None and back.cells()[0].errors == {"http_401": 1}


def test_a_log_without_secrets_is_not_touched(tmp_path: Path) -> None:
    with make_experiment(tmp_path) as e:
        e.server_log.write_bytes(b"caf\xe9 \xff\r\nok\n")
        inode = e.server_log.stat().st_ino
        e.finish()
    assert e.server_log.stat().st_ino == inode and e.server_log.read_bytes() == b"caf\xe9 \xff\r\nok\n"


def test_writing_needs_the_lock(tmp_path: Path) -> None:
    with make_experiment(tmp_path) as e:
        e.finish()
    for write in (lambda x: x.append_cell(make_cell()), lambda x: x.finish(), lambda x: x.update(reason="y")):
        with pytest.raises(StoreError, match="reading only"):
            write(ExperimentDir.open(e.path))


def test_a_newer_or_damaged_header_is_refused_by_name(tmp_path: Path) -> None:
    with make_experiment(tmp_path) as e:
        pass
    run = e.path / "run.json"
    whole = run.read_bytes()
    run.write_bytes(whole.replace(b"dsv4bench.run/1", b"dsv4bench.run/2"))
    with pytest.raises(SchemaError, match=r"dsv4bench\.run/2"):
        ExperimentDir.open(e.path)
    run.write_bytes(whole[:100])
    with pytest.raises(SchemaError, match=r"run\.json"):
        ExperimentDir.open(e.path)
    run.write_bytes(whole.replace(b'"id"', b'"from_the_future": {"a": 1}, "id"'))
    assert ExperimentDir.open(e.path).id == e.id


def test_a_clone_says_that_the_bulk_is_missing(tmp_path: Path) -> None:
    with make_experiment(tmp_path) as e:
        e.append_requests("r0", [make_request()])
        e.append_cell(make_cell("r0"))
        e.finish()
    (e.path / "requests.jsonl.gz").unlink()
    clone = ExperimentDir.open(e.path)
    assert list(clone.requests()) == [] and "git keeps only the numbers" in clone.warnings[0]
    series = clone.series()
    assert series is not None and series.cells[0].ttft.n == 1
