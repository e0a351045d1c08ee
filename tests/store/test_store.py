"""The results folder: naming, listing, finding, resuming."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from store_samples import PLAN, WORKLOAD, make_cell, make_experiment

from dsv4bench.errors import StoreError, UsageError
from dsv4bench.records.experiment import Status
from dsv4bench.store import naming
from dsv4bench.store.naming import slug
from dsv4bench.store.store import Store

T0 = datetime(2026, 11, 29, 23, 15, tzinfo=UTC)


def stored(root: Path, config: str, minute: int = 0, status: Status | None = Status.COMPLETE, **fields: Any) -> str:
    """An experiment of one cell; status None leaves it as a kill does."""
    with make_experiment(root, config, now=T0 + timedelta(minutes=minute), **fields) as e:
        e.append_cell(make_cell())
        if status is not None:
            e.finish(status, None if status is Status.COMPLETE else "because")
    return e.id


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("baseline", "baseline"),
        ("a/b c", "a-b-c"),
        ("../../etc", "etc"),
        ("naïve ü", "naive-u"),
        ("a..b", "a.b"),
        ("x" * 200, "x" * 40),
        ("-o rm -rf", "o-rm-rf"),
        ("a\x00\nb", "a-b"),
    ],
)
def test_slugs_are_safe(name: str, expected: str) -> None:
    assert slug(name) == expected


@pytest.mark.parametrize("name", ["", "..", "基线", "/", "💥", "\udcff"])
def test_a_name_of_which_nothing_is_left_gets_a_stable_one(name: str) -> None:
    assert re.fullmatch(r"x[0-9a-f]{6}", slug(name)) and slug(name) == slug(name)


def test_two_nameless_names_differ() -> None:
    assert slug("基线") != slug("配置")


def test_list_comes_from_folders_and_index_alike(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.list() == []
    ids = [stored(tmp_path, f"c{i}", i) for i in range(3)]
    listed = store.list()
    assert [e.id for e in listed] == ids and [e.n_cells for e in listed] == [1, 1, 1]
    index = tmp_path / "index.jsonl"
    for damage in (
        lambda: index.write_bytes(index.read_bytes()[:-20]),
        lambda: index.write_bytes(b"{}\n\0\0"),
        index.unlink,
    ):
        damage()
        state = index.read_bytes() if index.exists() else None
        assert store.list() == listed
        assert (index.read_bytes() if index.exists() else None) == state  # listing never writes
    assert store.reindex() == listed
    assert len(index.read_bytes().splitlines()) == 3 and store.list() == listed


def test_the_index_is_used_while_it_is_newer(tmp_path: Path) -> None:
    id_ = stored(tmp_path, "a")
    index = tmp_path / "index.jsonl"
    index.write_bytes(index.read_bytes().replace(b'"n_cells":1', b'"n_cells":77'))
    later = (tmp_path / id_ / "run.json").stat().st_mtime_ns + 10**9
    os.utime(index, ns=(later, later))
    assert Store(tmp_path).list()[0].n_cells == 77
    os.utime(tmp_path / id_ / "run.json", ns=(later, later))
    assert Store(tmp_path).list()[0].n_cells == 1


def test_an_index_line_after_a_torn_one_is_not_swallowed(tmp_path: Path) -> None:
    stored(tmp_path, "a")
    index = tmp_path / "index.jsonl"
    index.write_bytes(index.read_bytes()[:-20])
    second = stored(tmp_path, "b", 1)
    assert json.loads(index.read_bytes().splitlines()[-1])["id"] == second


def test_a_deleted_folder_leaves_the_list(tmp_path: Path) -> None:
    gone, kept = stored(tmp_path, "a"), stored(tmp_path, "b", 1)
    for p in (tmp_path / gone).iterdir():
        p.unlink()
    (tmp_path / gone).rmdir()
    assert [e.id for e in Store(tmp_path).list()] == [kept]


def test_one_broken_folder_does_not_hide_the_others(tmp_path: Path) -> None:
    broken, kept = stored(tmp_path, "a"), stored(tmp_path, "b", 1)
    (tmp_path / broken / "run.json").write_bytes(b"")
    (tmp_path / "20261129T000000Z-campaign-0000").mkdir()  # no run.json: a campaign's
    store = Store(tmp_path)
    (tmp_path / "index.jsonl").unlink()
    assert [e.id for e in store.list()] == [kept]
    assert broken in store.warnings[0]


def test_what_a_name_selects(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = stored(tmp_path, "baseline", 0), stored(tmp_path, "baseline", 1)
    other = stored(tmp_path, "configB", 2)
    stored(tmp_path, "baseline", 3, Status.FAILED)
    stored(tmp_path, "baseline", 4, None)
    assert store.resolve("baseline").id == second
    assert store.resolve(first).id == first
    assert store.resolve("20261129T2317").id == other
    assert store.resolve(f"{tmp_path}/{first}/").id == first
    (tmp_path / "baselines.yaml").write_text(f"baseline: {{id: {first}, reason: tuned}}\nconfigB: {first}\n")
    assert store.resolve("baseline").id == first
    assert store.resolve("configB").id == first
    assert store.resolve(second).id == second


def test_what_cannot_be_resolved_says_what_is_near(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(StoreError, match="nothing is called baseline") as e:
        store.resolve("baseline")
    assert "holds no experiment" in e.value.hint
    stored(tmp_path, "baseline")
    failed = stored(tmp_path, "tp8", 1, Status.FAILED)
    with pytest.raises(StoreError) as e:
        store.resolve("baselnie")
    assert "did you mean baseline" in e.value.hint
    with pytest.raises(StoreError, match=f"no complete experiment.*{failed}, failed"):
        store.resolve("tp8")
    with pytest.raises(UsageError, match="begins 2 ids"):
        store.resolve("20261129T23")
    (tmp_path / "baselines.yaml").write_text("nightly: 20260101T000000Z-c16-x-0000\n")
    with pytest.raises(StoreError, match="nightly is pinned to 20260101"):
        store.resolve("nightly")
    with pytest.raises(StoreError, match="no experiment nope"):
        store.open("nope")


@pytest.mark.parametrize("text", ["- a\n", "a: {reason: x}\n", "a: [1\n"])
def test_a_baselines_file_of_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "baselines.yaml").write_text(text)
    with pytest.raises(StoreError, match=r"baselines\.yaml"):
        Store(tmp_path).resolve("a")


def test_the_newest_unfinished_of_equal_conditions_is_resumable(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def find() -> str | None:
        found = store.find_resumable("baseline", "c16", WORKLOAD.fingerprint(), PLAN)
        return found.id if found else None

    assert find() is None
    stored(tmp_path, "baseline", 0)
    stored(tmp_path, "other", 1, Status.FAILED)
    stored(tmp_path, "baseline", 2, Status.FAILED, plan=msgspec.structs.replace(PLAN, requests=99))
    stored(tmp_path, "baseline", 3, Status.FAILED, workload=msgspec.structs.replace(WORKLOAD, osl=64))
    assert find() is None
    failed = stored(tmp_path, "baseline", 4, Status.FAILED)
    assert find() == failed
    killed = stored(tmp_path, "baseline", 5, None)
    assert find() == killed
    with (
        make_experiment(tmp_path, now=T0 + timedelta(minutes=6)),
        pytest.raises(StoreError, match="is being written by another process"),
    ):
        find()
    with store.resume(killed) as e:
        e.finish()
    assert store.list()[-2].status is Status.COMPLETE and store.list()[-2].id == killed


def test_creating_never_overwrites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = iter(["aaaa", "aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr(naming, "secrets", SimpleNamespace(token_hex=lambda n: next(digits)))
    ids = {stored(tmp_path, "a"), stored(tmp_path, "a")}
    assert {i[-4:] for i in ids} == {"aaaa", "bbbb"}


def test_a_place_that_cannot_be_written_is_named_before_anything_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreError, match="is not a directory"):
        Store(file).check_writable()
    with pytest.raises(StoreError, match=r"cannot create .*/file/results: Not a directory"):
        Store(file / "results").check_writable()
    with pytest.raises(StoreError, match="/proc/dsv4bench"):
        Store("/proc/dsv4bench").check_writable()
    good = tmp_path / "new" / "results"
    Store(good).check_writable()
    assert list(good.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    os.seteuid(65534)
    try:
        with pytest.raises(StoreError, match="Permission denied") as e:
            Store(tmp_path / "results").check_writable()
    finally:
        os.seteuid(0)
    assert "--out" in e.value.hint
