"""Levers: the recorded difference, what was declared, and what nobody told."""

from __future__ import annotations

from typing import Any

import pytest
from arms_made import make_arm

from dsv4bench.compare.levers import is_volatile, lever_verdict
from dsv4bench.records.verdict import LeverStatus, LeverVerdict

PARENT = {"engine": "sglang", "version": "0.5", "args.port": 30000, "args.tp_size": 4, "env.NCCL_PROTO": "Simple"}


def judged(
    changed: dict[str, Any] | None, levers: list[str], keys: dict[str, list[str]] | None = None
) -> LeverVerdict:
    server = None if changed is None else PARENT | changed
    parent = make_arm("base", [], server=PARENT)
    return lever_verdict(
        parent, make_arm("new", [], server=server, parent="base", levers=levers, lever_keys=keys or {})
    )


def test_one_lever_and_one_key_need_no_declaration() -> None:
    v = judged({"env.NCCL_PROTO": "LL"}, ["nccl_ll"])
    assert (v.status, v.bundled, v.extra_keys) == (LeverStatus.VERIFIED, False, [])
    assert v.differing == {"env.NCCL_PROTO": ["Simple", "LL"]}


def test_several_keys_need_one() -> None:
    changed = {"args.speculative_algorithm": "EAGLE", "args.speculative_num_steps": 1}
    v = judged(changed, ["mtp"])
    assert v.status is LeverStatus.UNVERIFIED
    assert "declares no keys" in v.notes[0]
    assert judged(changed, ["mtp"], {"mtp": ["args.speculative_*"]}).status is LeverStatus.VERIFIED
    assert (
        judged(changed, ["mtp"], {"mtp": ["--speculative-algorithm", "speculative_num_steps"]}).status
        is LeverStatus.VERIFIED
    )


def test_other_keys_contradict() -> None:
    v = judged(
        {"args.speculative_algorithm": "EAGLE", "args.tp_size": 8, "version": "0.6"}, ["mtp"], {"mtp": ["spec*"]}
    )
    assert (v.status, v.extra_keys) == (LeverStatus.CONTRADICTED, ["args.tp_size", "version"])
    assert v.differing["args.tp_size"] == [4, 8]


def test_a_lever_that_no_setting_shows_is_unverified() -> None:
    assert judged({}, ["mtp"], {"mtp": ["spec*"]}).status is LeverStatus.UNVERIFIED
    v = judged({}, ["fp8_cfg"])
    assert v.status is LeverStatus.UNVERIFIED
    assert v.notes == ["fp8_cfg is not visible: the servers' recorded settings are equal"]


def test_what_the_server_does_not_tell_is_not_verified() -> None:
    v = judged(None, ["mtp"])
    assert v.status is LeverStatus.UNVERIFIED
    assert v.notes == ["the server of new does not tell its settings"]


def test_a_bundle_is_never_split() -> None:
    both = {"args.fp8_config": "x.json", "env.NCCL_PROTO": "LL"}
    v = judged(both, ["fp8_cfg", "nccl_ll"], {"fp8_cfg": ["args.fp8_config"], "nccl_ll": ["env.NCCL_*"]})
    assert (v.status, v.bundled) == (LeverStatus.VERIFIED, True)
    assert v.notes == ["new bundles fp8_cfg, nccl_ll: not separable"]
    assert judged(both, ["fp8_cfg", "nccl_ll"]).status is LeverStatus.UNVERIFIED
    half = judged(both, ["fp8_cfg", "nccl_ll"], {"nccl_ll": ["env.NCCL_*"]})
    assert half.status is LeverStatus.UNVERIFIED
    assert "args.fp8_config differ and fp8_cfg declares no keys" in half.notes[1]
    one_shown = judged(
        {"env.NCCL_PROTO": "LL"}, ["fp8_cfg", "nccl_ll"], {"fp8_cfg": ["fp8*"], "nccl_ll": ["env.NCCL_*"]}
    )
    assert one_shown.status is LeverStatus.UNVERIFIED
    assert "no recorded setting shows fp8_cfg: was it applied?" in one_shown.notes


def test_no_lever_named() -> None:
    assert judged({}, []).status is LeverStatus.VERIFIED
    v = judged({"args.tp_size": 8}, [])
    assert (v.status, v.notes) == (LeverStatus.UNVERIFIED, ["no lever is named; these differ: args.tp_size"])


def test_volatile_settings_are_listed_as_ignored() -> None:
    v = judged({"args.port": 30001, "args.random_seed": 7, "env.NCCL_PROTO": "LL"}, ["nccl_ll"])
    assert v.status is LeverStatus.VERIFIED
    assert v.notes == ["ignored: args.port, args.random_seed"]


@pytest.mark.parametrize(
    "key", ["args.--nccl-port", "pid", "args.log_level_http", "env.HOSTNAME", "args.dist_init_addr"]
)
def test_volatile(key: str) -> None:
    assert is_volatile(key)


@pytest.mark.parametrize(
    "key",
    [
        "args.tp_size",
        "version",
        "args.speculative_draft_model_path",
        "args.cuda_graph_max_bs",
        "args.model_dir",
        "env.NCCL_PROTO",
        "args.context_length",
    ],
)
def test_what_changes_speed_is_not_volatile(key: str) -> None:
    assert not is_volatile(key)


def test_true_is_not_one_and_absent_is_none() -> None:
    assert judged({"args.tp_size": 4.0}, ["x"]).differing == {}
    assert judged({"args.new": None}, ["x"]).differing == {}
    parent = make_arm("p", [], server={"a": 1})
    assert lever_verdict(parent, make_arm("n", [], server={"a": True}, levers=["x"])).differing == {"a": [1, True]}
