"""The report as a whole: what a law may say, where the mechanism is asked, speculation foretold, the roofline."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from queueing import FLASH_ON, Server, arm, changed, published, without

from dsv4bench.compare.affine import fit_line
from dsv4bench.compare.ladder import ladders
from dsv4bench.compare.roofline import argument, gpu_of, model_of
from dsv4bench.compare.scaling import scaling_report
from dsv4bench.compare.spec_law import predict, verified_tokens
from dsv4bench.dsv4 import FLASH
from dsv4bench.errors import UsageError
from dsv4bench.gpus import custom, find
from dsv4bench.limits import step_floor
from dsv4bench.records.arm import Arm, Plain
from dsv4bench.records.cell import Invalid
from dsv4bench.records.verdict import ScalingLaw, ScalingReport

A = {1: 10.7, 8: 22.6, 16: 23.2}
B = {1: 15.7, 8: 23.2, 16: 23.6}
MTP: dict[str, Plain] = {"engine": "sglang", "speculative_num_draft_tokens": 2}


def only(a: Arm, **options: Any) -> ScalingLaw:
    (law,) = scaling_report([a], **options).laws
    return law


def by_level(report: ScalingReport) -> dict[int, float]:
    return {p.concurrency: p.predicted_tok_s for p in report.predictions}


def test_kernels_are_named_only_with_their_mechanism() -> None:
    law = only(arm(Server().cells()))
    assert law.mechanism is not None and law.mechanism.name == "per-sequence kernel cost"
    assert any("per-sequence cost dominates: kernels do not batch" in n for n in law.notes)
    assert law.plateau is None or "mechanism: per-sequence kernel cost" in law.plateau.text
    law = only(arm(published(A)))
    assert any("whether the kernels are its cause is not determined" in n for n in law.notes)
    assert law.plateau is not None
    assert law.plateau.text.endswith("fitted ceiling 25.9 tok/s; mechanism: not determined")


def test_a_capped_ladder_without_tpot_fits_a_line_that_is_no_kernels() -> None:
    law = only(arm(without(Server(a_s=0.001, cap=1, prefill_s=0).cells(), "tpot_mean_s")))
    assert law.holds is True
    assert any("what holds throughput is admission cap: nothing is concluded about kernels" in n for n in law.notes)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (Server(a_s=1.0, b_s=0.005), "weights or launches bound: more C is free"),
        (Server(a_s=1.0, b_s=0.03), "neither part dominates"),
        (Server(a_s=0.2, b_s=0.03), "per-sequence cost dominates past the knee"),
        (Server(b_s=0.0), "step time does not grow up to C=32"),
        (Server(a_s=-0.001), "is 100%: per-sequence cost dominates: kernels do not batch"),
    ],
)
def test_what_a_and_b_mean(server: Server, said: str) -> None:
    assert any(said in n for n in only(arm(server.cells())).notes)


def test_no_mechanism_is_asked_while_throughput_grows() -> None:
    assert only(arm(Server(a_s=1.0, b_s=0.005).cells())).mechanism is None


def test_a_level_that_the_client_spoilt_is_why_the_ladder_ends() -> None:
    cells = changed(Server(a_s=1.0, b_s=0.005).cells(), 32, invalid=Invalid.CLIENT_SATURATED, invalid_why="lag 2 s")
    law = only(arm(cells))
    assert law.levels == [1, 2, 4, 8, 16]
    assert law.mechanism is not None and law.mechanism.name == "client CPU-bound"


def test_a_cap_is_told_also_while_throughput_grows() -> None:
    """A cap of 24 between 16 and 32: throughput still grows, but the highest level is not what it says."""
    law = only(arm(Server(a_s=1.0, b_s=0.005, cap=24).cells()))
    assert law.plateau is None
    assert law.mechanism is not None and law.mechanism.name == "admission cap"
    assert law.mechanism.evidence[0] == "the server ran 24.0 of 32 and 8.0 waited"


def test_a_cliff_is_asked_why() -> None:
    cells = changed(Server(b_s=0.0).cells(), 32, output_tok_s=20.0, notes=["7 preemptions"])
    law = only(arm(cells))
    assert law.plateau is None
    assert law.mechanism is not None and law.mechanism.name == "KV preemption"


def test_two_configurations_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two configurations have one name: x, x"):
        scaling_report([arm(Server().cells(), "x"), arm(Server().cells(), "x")])


def test_arms_without_cells_give_an_empty_report() -> None:
    assert scaling_report([arm([], "x")]) == ScalingReport()
    assert scaling_report([]) == ScalingReport()


# speculation


def test_the_published_prediction() -> None:
    """Ordinary least squares of A alone, m = 2, AL = 1.92: B within 4 %. Relative error gives its own figures."""
    (ladder,) = ladders(arm(published(A)))
    law = only(arm(published(A)))
    line = fit_line([r.concurrency for r in ladder.rungs], [r.step_s for r in ladder.rungs], relative=False)
    plain = msgspec.structs.replace(law, a_s=line.a_s, b_s=line.b_s)
    assert [predict(plain, 1.92, 2, c) for c in B] == pytest.approx([15.1, 22.5, 23.3], abs=0.06)
    assert [predict(law, 1.92, 2, c) for c in B] == pytest.approx([14.6, 22.8, 23.8], abs=0.06)


def test_a_prediction_stands_beside_what_was_measured() -> None:
    b = arm(published(B, accept_length=1.92), "B", parent="A", server=MTP)
    report = scaling_report([arm(published(A), "A"), b])
    assert [(p.config, p.base, p.verified, p.accept_length) for p in report.predictions] == [("B", "A", 2, 1.92)] * 3
    assert by_level(report) == pytest.approx({1: 14.57, 8: 22.83, 16: 23.80}, abs=0.01)
    assert [p.measured_tok_s for p in report.predictions] == [15.7, 23.2, 23.6]


def test_a_verifier_that_does_not_batch_is_predicted_exactly() -> None:
    """Planted: m tokens of a sequence cost m sequences. Decode is compared with decode."""
    plain, drafted = Server(), Server(b_s=3 * 0.0398, accept_length=2.4)
    new = arm(drafted.cells(), "mtp", server={"speculative_config.num_speculative_tokens": 2})
    report = scaling_report([arm(plain.cells()), new])
    assert len(report.predictions) == 6
    for p in report.predictions:
        assert p.verified == 3
        assert p.predicted_tok_s == pytest.approx(p.measured_tok_s)


def test_the_parent_is_the_base_of_a_prediction() -> None:
    arms = [
        arm(Server(b_s=1.0).cells(), "first"),
        arm(Server().cells(), "parent"),
        arm(Server(accept_length=1.5).cells(), "new", parent="parent", server=MTP),
    ]
    assert {p.base for p in scaling_report(arms).predictions} == {"parent"}
    gone = msgspec.structs.replace(arms[2], parent="gone")
    assert {p.base for p in scaling_report([*arms[:2], gone]).predictions} == {"first"}


@pytest.mark.parametrize(
    ("base", "new", "why"),
    [
        (Server().cells([1, 2]), arm(Server(accept_length=1.5).cells(), "n", server=MTP), "it has no scaling law"),
        (
            Server(accept_length=1.9).cells(),
            arm(Server(accept_length=1.5).cells(), "n", server=MTP),
            "it speculates itself",
        ),
        (
            Server().cells(),
            arm(Server(accept_length=1.5).cells(), "n"),
            "the server does not tell how many tokens a step verifies",
        ),
        (Server().cells(), arm(Server().cells(), "n", server=MTP), "no acceptance length was recorded"),
        (
            Server().cells(),
            arm(without(Server(accept_length=1.5).cells(), "tpot_mean_s"), "n", server=MTP),
            "its law is of TPOT",
        ),
    ],
)
def test_why_speculation_is_not_predicted(base: list[Any], new: Arm, why: str) -> None:
    report = scaling_report([arm(base), new])
    assert report.predictions == []
    assert any(f"speculation is not predicted from base: {why}" in n for n in report.laws[1].notes)


def test_an_acceptance_that_cannot_be_is_not_predicted() -> None:
    cells = changed(Server(accept_length=1.5).cells(), 4, accept_length=2.5)
    report = scaling_report([arm(Server().cells()), arm(cells, "n", server=MTP)])
    assert 4 not in by_level(report) and len(report.predictions) == 5
    assert any(n.startswith("C=4 is not predicted: acceptance length 2.5 with 2") for n in report.laws[1].notes)


def test_a_level_without_acceptance_and_one_beyond_the_base_are_named() -> None:
    cells = changed(Server(accept_length=1.5).cells(), 4, accept_length=None)
    report = scaling_report([arm(Server().cells()), arm(cells, "n", server=MTP)])
    notes = report.laws[1].notes
    assert 4 not in by_level(report)
    assert "C=4 is not predicted: no acceptance length was recorded there" in notes
    assert any("by extrapolation: C=32 asks for 64 sequences of a step, its levels end at 32" in n for n in notes)


def test_a_law_that_falls_below_zero_predicts_nothing_there() -> None:
    base = arm(Server(a_s=1.0, b_s=-0.02).cells())
    report = scaling_report([base, arm(Server(accept_length=1.5).cells(), "n", server=MTP)])
    assert list(by_level(report)) == [1, 2, 4, 8, 16]
    assert any("C=32 is not predicted: the law of base gives no step time at C=32" in n for n in report.laws[1].notes)


def test_a_base_whose_law_does_not_hold_is_named() -> None:
    base = arm(changed(Server().cells(), 4, tpot_mean_s=0.4))
    report = scaling_report([base, arm(Server(accept_length=1.5).cells(), "n", server=MTP)])
    assert report.predictions
    assert "predicted from base, whose own law does not hold" in report.laws[1].notes


def test_acceptance_that_was_not_recorded_is_said() -> None:
    law = only(arm(Server().cells(), server=MTP))
    assert any("times are per token, not per step" in n for n in law.notes)
    assert not any("per token, not per step" in n for n in only(arm(Server().cells())).notes)


@pytest.mark.parametrize(("accept", "verified", "level"), [(2.5, 2, 8), (0.9, 2, 8), (1.5, 2, 0)])
def test_predictions_outside_the_law_are_refused(accept: float, verified: int, level: int) -> None:
    with pytest.raises(UsageError):
        predict(only(arm(Server().cells())), accept, verified, level)


def test_no_law_no_prediction() -> None:
    with pytest.raises(UsageError, match="base has no scaling law at ISL 1024"):
        predict(only(arm(Server().cells([1, 2]))), 1.5, 2, 8)


@pytest.mark.parametrize(
    ("server", "m"),
    [
        ({"speculative_num_draft_tokens": 4}, 4),
        ({"spec_tokens": 3}, 3),
        ({"spec_tokens": 0}, None),
        ({"speculative_config.num_speculative_tokens": 1}, 2),
        ({"speculative_num_draft_tokens": None}, None),
        ({}, None),
        (None, None),
    ],
)
def test_verified_tokens_as_servers_tell_them(server: dict[str, Plain] | None, m: int | None) -> None:
    assert verified_tokens(server) == m


# roofline


H200 = find("NVIDIA H200")


def test_the_roofline_stands_at_each_level() -> None:
    assert H200 is not None
    law = only(arm(Server().cells(), workload=FLASH_ON), gpu=H200, tp=8)
    floor = step_floor(FLASH, H200, 8, 1024 + 128, tp=8)
    assert law.roofline_tok_s["8"] == pytest.approx(floor.output_tok_s)
    assert list(law.roofline_tok_s) == ["1", "2", "4", "8", "16", "32"]
    assert any("flash on 8 x NVIDIA H200 (4800 GB/s, datasheet)" in n for n in law.notes)
    assert any(n.startswith("measured of the roofline: ") and "at C=32" in n for n in law.notes)
    assert not any("is wrong" in n for n in law.notes)


def test_gpu_and_tp_as_the_arm_tells_them() -> None:
    hardware: dict[str, Plain] = {"gpus": "NVIDIA H200, NVIDIA H200", "n_gpus": 2}
    told = only(arm(Server().cells(), workload=FLASH_ON, hardware=hardware, server={"tp_size": 2}))
    given = only(arm(Server().cells(), workload=FLASH_ON), gpu=H200, tp=2)
    assert told.roofline_tok_s == given.roofline_tok_s != {}


def test_speculation_is_inside_the_roofline() -> None:
    law = only(arm(Server(accept_length=1.5).cells(), workload=FLASH_ON, server=MTP), gpu=H200)
    assert H200 is not None
    floor = step_floor(FLASH, H200, 4, 1152, verified=2, accept_length=1.5)
    assert law.roofline_tok_s["4"] == pytest.approx(floor.output_tok_s)


def test_faster_than_the_hardware_is_an_error_of_the_model() -> None:
    slow = custom("slow card", 50e9)
    law = only(arm(Server().cells(), workload=FLASH_ON), gpu=slow)
    assert any(
        "of the roofline" in n and "the bytes model, the bandwidth or the TP size is wrong" in n for n in law.notes
    )


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "the dimensions of an untold model are not known"),
        ({"workload": {"model": "some/other-model"}}, "the dimensions of some/other-model are not known"),
        ({"workload": {"model": "x/DeepSeek-V4-Flash-Base-mine"}}, "are not known"),
        ({"workload": FLASH_ON}, "the GPU is not known"),
        ({"workload": FLASH_ON, "hardware": {"gpus": "NVIDIA H200, NVIDIA B200"}}, "the GPU is not known"),
        ({"workload": FLASH_ON, "hardware": {"gpus": None}}, "the GPU is not known"),
        ({"workload": FLASH_ON, "hardware": {}, "server": {"device": "cpu"}}, "no GPU, the server runs on a CPU"),
        ({"server": {"engine": "dsv4bench", "preset": "unheard-of"}}, "are not known"),
        (
            {"workload": FLASH_ON, "hardware": {"gpus": "NVIDIA H200"}, "server": {"tp_size": 3}},
            "tp = 3 does not divide 64 heads",
        ),
    ],
)
def test_why_there_is_no_roofline(fields: dict[str, Any], why: str) -> None:
    law = only(arm(Server().cells(), **fields))
    assert law.roofline_tok_s == {}
    assert any(n.startswith("no roofline: ") and why in n for n in law.notes)


def test_a_context_of_unknown_length_has_no_roofline() -> None:
    law = only(arm(published(A, isl=0), workload=FLASH_ON), gpu=H200)
    assert law.roofline_tok_s == {}
    assert "no roofline: the length of the context is not known" in law.notes


def test_our_own_server_tells_its_preset() -> None:
    own = arm([], server={"engine": "dsv4bench", "preset": "flash-layers", "layers": 6})
    dims = model_of(own)
    assert dims is not None and dims.layers == 6
    tiny = model_of(arm([], server={"engine": "dsv4bench", "preset": "tiny", "layers": None}))
    assert tiny is not None and tiny.name == "tiny"
    assert model_of(arm([], server={"engine": "vllm", "preset": "tiny"})) is None
    assert model_of(arm([], workload={"model": "/models/DeepSeek-V4-Flash/"})) is FLASH


def test_arguments_are_found_at_any_depth() -> None:
    assert argument({"a.b.--tp-size": 4}, "tp_size") == 4
    assert argument({"tp_size": True, "x.tp": 2}, "tp_size", "tp") == 2
    assert argument(None, "tp") is None
    assert gpu_of(arm([])) is None
