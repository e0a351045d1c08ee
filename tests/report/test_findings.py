"""The blocks of PROFILE_FINDINGS.md from the published campaign: every number has its source."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runs"))

from campaign_samples import FOLDER, compared

from dsv4bench.records.prediction import Measured, Prediction
from dsv4bench.records.verdict import (
    Grade,
    Mechanism,
    Plateau,
    ScalingLaw,
    ScalingReport,
    TableFigure,
    Verdict,
    VerdictDocument,
)
from dsv4bench.report.findings.data import Compared, Findings
from dsv4bench.report.findings.sections import blocks, new_file
from dsv4bench.report.findings.tables import tags_of
from dsv4bench.report.page.plan import target_line
from dsv4bench.report.target import goal_lines
from dsv4bench.runs.campaign_data import load_campaign

DOCUMENT = msgspec.structs.replace(compared(load_campaign(FOLDER)), id="20261129T000000Z-baseline-vs-A-B-1f3a")
FINDINGS = Findings(compared=[Compared(document=DOCUMENT)])


def rendered(*documents: VerdictDocument, **fields: object) -> dict[str, str]:
    compared = [Compared(document=d) for d in documents or [DOCUMENT]]
    return {b.id: b.body for b in blocks(Findings(compared=compared, **fields))}  # type: ignore[arg-type]


def on_one_line(body: str) -> str:
    """Without the cuts of long lines."""
    return re.sub(r"\n  (?! *-)", " ", body)


def test_the_ten_sections_in_order() -> None:
    headings = list(dict.fromkeys(b.heading for b in blocks(FINDINGS)))
    assert [h.split()[1] for h in headings] == [str(n) for n in range(1, 11)]
    text = new_file(blocks(FINDINGS))
    assert all(h in text for h in headings) and "(negative)" in text


def test_every_line_with_a_number_names_its_source() -> None:
    for name, body in rendered().items():
        if name in ("predictions", "claims"):  # a claim's lines stand under the tag of the claim
            continue
        for line in on_one_line(body).split("\n"):
            head = line.startswith(("| ---", "| output", "| lever", "| config", "| kernel", "| change"))
            if re.search(r"\d", line) and not head and not line.endswith(":"):
                assert "[v:1f3a]" in line, line


def test_the_bottom_line_answers_what_was_best_what_was_reached_and_where_the_baseline_stops() -> None:
    lines = on_one_line(rendered()["bottom-line"]).split("\n")
    assert lines[0] == "**baseline, A, B on sm_120 (as its text says)** [v:1f3a]"
    assert [line.split()[1] for line in lines[2:]] == ["Best:", "Target", "Where", "Throughput", "Of"]
    assert "C=16 B gives the most, 23.6 tok/s, +1.7 % vs baseline (23.2; no verdict, E0)." in lines[2]
    assert "1000 tok/s at C=16: not reached, the most is B 23.6 (vs baseline: no verdict, E0)" in lines[3]
    assert "the whole plan, from baseline, gives at most 258 tok/s" in lines[3]
    assert "at most ~24 tok/s measured (C=8); no ceiling" in lines[4] and "flat" not in lines[4]
    assert "no ceiling is known, t(C) = a + b·C does not hold" in lines[4]
    assert "mechanism: not determined" in lines[4] and "grows with C" not in lines[4]


def test_who_reached_the_target_and_by_which_grade() -> None:
    assert DOCUMENT.goal is not None
    goal = msgspec.structs.replace(DOCUMENT.goal, target_tok_s=23.2)
    body = on_one_line(rendered(msgspec.structs.replace(DOCUMENT, goal=goal))["bottom-line"])
    assert (
        "reached as published by baseline 23.2, A 23.2, B 23.6 (vs baseline: no verdict, E0)." in body
        and "plan" not in body
    )
    elsewhere = msgspec.structs.replace(goal, concurrency=64)
    body = rendered(msgspec.structs.replace(DOCUMENT, goal=elsewhere))["bottom-line"]
    assert "Target 23.2 tok/s at C=64: not measured there;" in body


def figure_at(config: str, concurrency: int, value: float, isl: int = 256) -> TableFigure:
    return TableFigure(metric="output_tok_s", config=config, concurrency=concurrency, isl=isl, value=value, n=4)


def test_the_best_is_taken_where_every_configuration_was_measured() -> None:
    figures = [
        figure_at("baseline", 16, 266.0),
        figure_at("baseline", 64, 250.0),
        figure_at("both", 16, 1640.0),
        figure_at("both", 32, 2050.0),
    ]
    d = VerdictDocument(id="x-vs-y-1f3a", baseline="baseline", figures=figures)
    said = on_one_line(rendered(d)["bottom-line"])
    assert "- Best: at C=16 both gives the most, 1640 tok/s, +516.5 % vs baseline (266; not compared, no" in said
    apart = msgspec.structs.replace(d, figures=[figures[1], figures[0], figures[3]])
    said = on_one_line(rendered(apart)["bottom-line"])
    assert "Best" not in said and "the most of each, tok/s: baseline 266 at C=16, both 2050 at C=32." in said
    two = [figure_at("baseline", 32, 200.0), figure_at("baseline", 16, 100.0, 2048), *figures[:1], figures[3]]
    said = on_one_line(rendered(msgspec.structs.replace(d, figures=two))["bottom-line"])
    assert "Best: at C=32, ISL 256 both gives the most" in said  # not the longer prompts' last level
    about = msgspec.structs.replace(figures[0], about=True)
    said = rendered(msgspec.structs.replace(d, figures=[about]))["bottom-line"]
    assert "Best: at C=16 baseline gives the most, ~266 tok/s." in said


def test_a_plateau_is_flat_in_the_bottom_line_only_where_launches_carry_it() -> None:
    assert DOCUMENT.scaling is not None
    (law, *_) = [x for x in DOCUMENT.scaling.laws if x.config == "baseline"]

    def said(text: str, ci: tuple[float, float] | None) -> str:
        p = Plateau(
            from_concurrency=16, output_tok_s=266.2, ci_tok_s=ci, doublings=1.0, proven=text[:2] == "pl", text=text
        )
        scaling = ScalingReport(laws=[msgspec.structs.replace(law, plateau=p)])
        return on_one_line(rendered(msgspec.structs.replace(DOCUMENT, scaling=scaling))["bottom-line"])

    assert "flat from C=16 at 266 tok/s [265, 268] (provisional); " in said(
        "provisional (1 doubling): …", (264.7, 267.7)
    )
    assert "flat from C=16 at 266 tok/s [265, 268] (proven); " in said("plateau: …", (264.7, 267.7))
    assert "flat" not in said("provisional (1 doubling): …", None)
    assert "flat" not in said("falls beyond C=16: …", (264.7, 267.7))


def test_what_must_vanish_is_of_a_tokens_time_and_not_of_a_decode_step() -> None:
    assert DOCUMENT.goal is not None
    goal = msgspec.structs.replace(DOCUMENT.goal, step_s=0.0601, needed_cut_frac=0.734, measured_tok_s=266.1)
    body = on_one_line(rendered(msgspec.structs.replace(DOCUMENT, goal=goal))["plan"])
    said = "73.4 % of the 60.1 ms that a token of each of the 16 takes, prefill in it, to vanish"
    assert f"the target of 1000 needs {said} [v:1f3a]" in body
    assert f"from baseline (266.1 tok/s measured): needs {said}" in goal_lines(goal)[0]
    assert "must vanish." in target_line(goal) and said.removesuffix(" to vanish") in target_line(goal)
    for got in (body, *goal_lines(goal), target_line(goal)):
        assert "of the decode step" not in got and "of the step to vanish" not in got
    one = msgspec.structs.replace(goal, concurrency=1, step_s=None)
    assert "73.4 % of the time that a token takes, prefill in it, to vanish" in goal_lines(one)[0]


def test_comparisons_whose_ids_end_alike_have_longer_tags() -> None:
    one, two = (msgspec.structs.replace(DOCUMENT, id=f"2026-baseline-vs-{n}-1f3a") for n in ("A", "B"))
    p = Prediction(
        id="p0a0b",
        created_utc="2026-11-29T00:00:00Z",
        lever="x",
        config="C",
        parent="baseline",
        metric="output_tok_s",
        concurrency=16,
        low_ratio=1.0,
        high_ratio=1.3,
        basis="stated",
    )
    m = Measured(
        prediction="p0a0b",
        filled_utc="2026-11-30T00:00:00Z",
        verdict="2026-baseline-vs-C-1f3a",  # of a comparison that is not in the file
        versus="baseline",
        ratio=1.4,
        ci_ratio=None,
        grade="E2",
        hit=False,
    )
    got = rendered(one, two, ledger=[(p, m)])
    for name, body in got.items():
        assert "[v:1f3a]" not in body, name
        if name != "predictions":
            assert "** [v:A-1f3a]" in body and "** [v:B-1f3a]" in body, name
    assert "[p0a0b] [v:C-1f3a] |" in got["predictions"] and "[v:C-1f3a]" in got["bottom-line"]
    assert tags_of(["2-x-1f3a", "1-x-1f3a", "1-x-beef"]) == {
        "2-x-1f3a": "[v:2-x-1f3a]",
        "1-x-1f3a": "[v:1-x-1f3a]",
        "1-x-beef": "[v:beef]",
    }


def test_a_law_that_holds_gives_ceiling_knee_and_what_grows() -> None:
    law = ScalingLaw(
        config="baseline",
        isl=DOCUMENT.figures[0].isl,
        a_s=0.0025654,
        b_s=0.00329517,
        ceiling_tok_s=303.475,
        ceiling_ci_tok_s=(302.51, 304.442),
        knee=0.778533,
        knee_ci=None,
        n_launches=4,
        levels=[1, 4, 16, 32],
        holds=True,
        mechanism=Mechanism(name="per-sequence kernel cost", evidence=[], excluded=[]),
    )
    scaled = msgspec.structs.replace(DOCUMENT, scaling=ScalingReport(laws=[law]))
    body = on_one_line(rendered(scaled)["bottom-line"])
    assert (
        "ceiling 303 tok/s [303, 304], knee at C=0.78; mechanism: per-sequence kernel cost; 98 % of the step" in body
    )
    assert "at C=32 grows with C." in body


def test_each_section_names_the_comparison_and_figures_of_two_gpus_are_told_apart() -> None:
    other = msgspec.structs.replace(DOCUMENT, id="x-vs-y-beef", setup=["one GPU (sm_90)"])
    got = rendered(DOCUMENT, other)
    for name, body in got.items():
        if name != "predictions":
            assert body.count("**baseline, A, B on sm_120 (as its text says)** [v:1f3a]\n\n") == 1, name
            assert body.count("**baseline, A, B on sm_90 (as its text says)** [v:beef]\n\n") == 1, name
    said = (
        "Figures of different GPUs are not comparable with each other. On sm_120 (as its text says) [v:1f3a]; sm_90"
    )
    assert said in got["bottom-line"].replace("\n", " ")
    assert "not comparable" not in rendered(DOCUMENT)["bottom-line"]


def test_the_tables() -> None:
    got = rendered()
    assert "| baseline | 10.2 ± 0.05 | ~24 ± 0.5 | 23.2 ± 0.05 | [v:1f3a] |" in got["configs"]
    assert "| fp8_cfg + nccl_ll (A) | baseline | C=1 | +4.9 % | no verdict (E0) | – |" in got["levers"]
    assert "| fp8_cfg + nccl_ll (A) | baseline | C=8 | −5.8 % | no verdict (E0) | – |" in got["levers"]
    assert "| mtp (B) | baseline | C=1 | +53.9 % | no verdict (E0) | – |" in got["levers"]
    assert "bundled, not separable" in got["levers"]
    assert "| FP8 matmul | dense | &lt;1 % |" in got["kernels"]
    assert "| unattributed |  | 27 % |" in got["kernels"] and "| unattributed |  | 7 % |" in got["kernels"]
    assert "101 (×4.35)" in got["plan"] and "258 (×11.1)" in got["plan"]
    assert "provisional (1 doubling)" in got["scaling"]
    assert "baseline at C=8 is an about-value (~24 ± 0.5)" in got["threats"]


def test_nothing_is_a_dead_end_before_it_is_proven() -> None:
    assert "\n\nNo lever is proven to buy nothing" in rendered()["dead-ends"]
    proven = [
        msgspec.structs.replace(v, verdict=Verdict.NO_EFFECT, grade=Grade.E2) if v.config == "A" else v
        for v in DOCUMENT.cells
    ]
    body = rendered(msgspec.structs.replace(DOCUMENT, cells=proven))["dead-ends"]
    assert body.split("\n\n")[1].startswith("- fp8_cfg + nccl_ll (negative): vs baseline +4.9 % NO EFFECT at C=1")
    assert "mtp" not in body


def test_predicted_beside_measured() -> None:
    p = Prediction(
        id="p0a0b",
        created_utc="2026-11-29T00:00:00Z",
        lever="grouped-moe",
        config="C",
        parent="baseline",
        metric="output_tok_s",
        concurrency=16,
        low_ratio=1.22,
        high_ratio=1.5,
        basis="stated",
        note="experts are 46.8 of 54.4 ms",
    )
    m = Measured(
        prediction="p0a0b",
        filled_utc="2026-11-30T00:00:00Z",
        verdict="x-vs-y-beef",
        versus="baseline",
        ratio=1.4,
        ci_ratio=None,
        grade="E2",
        hit=True,
    )
    body = rendered(ledger=[(p, m), (msgspec.structs.replace(p, id="p0a0c"), None)])["predictions"]
    row = "| C (grouped-moe) | baseline | C=16 | +22.0 % to +50.0 % | +40.0 % | hit (E2, no interval) |"
    assert f"{row} [p0a0b] [v:beef] |" in body and "Missed" not in body
    assert "not yet | open | [p0a0c] |" in body and "1 of 1 hit (grade E2); 1 open." in body
    assert "- C vs baseline at C=16: experts are 46.8 of 54.4 ms [p0a0b]" in body
    single = msgspec.structs.replace(m, grade="E0", hit=False, note="bundled: of all its levers together")
    got = rendered(ledger=[(p, m), (p, single)])
    elsewhere = "Of comparisons that are not in this file: 1 of 2 measured predictions lie in their interval (1 E0,"
    assert elsewhere in got["bottom-line"]
    assert "miss (E0, no interval); bundled: of all its levers together | [p0a0b]" in got["predictions"]
    why = "+22.0 % to +50.0 % was predicted (“experts are 46.8 of 54.4 ms”), measured +40.0 % [p0a0b] [v:beef]"
    assert f"- C vs baseline at C=16: {why}" in on_one_line(got["predictions"])
    own = msgspec.structs.replace(single, verdict=DOCUMENT.id or "")
    alone = on_one_line(rendered(ledger=[(p, own)])["bottom-line"])
    said = "0 of 1 measured predictions lie in their interval (grade E0: single launches, no interval). Missed: "
    assert f"- {said}C vs baseline at C=16 (+40.0 %, predicted +22.0 % to +50.0 %). [v:1f3a]" in alone
    sure = msgspec.structs.replace(m, ci_ratio=(1.3, 1.5))
    assert "| hit (E2) |" in rendered(ledger=[(p, sure)])["predictions"]
    wide = msgspec.structs.replace(m, ci_ratio=(1.3, 1.51))
    got = rendered(ledger=[(p, wide), (p, sure)])
    assert "| hit, its interval reaches beyond (E2) |" in got["predictions"] and "| hit (E2) |" in got["predictions"]
    counted = "(grade E2; of 1 hit the measured 95 % interval reaches beyond the predicted one)"
    assert f"2 of 2 hit {counted}" in got["predictions"] and counted in " ".join(got["bottom-line"].split())
    missed = msgspec.structs.replace(wide, hit=False)
    assert "| miss (E2) |" in rendered(ledger=[(p, missed)])["predictions"]


def test_the_best_figure_carries_its_verdict_and_grade() -> None:
    proven = [msgspec.structs.replace(v, verdict=Verdict.GAIN, grade=Grade.E2) for v in DOCUMENT.cells]
    body = rendered(msgspec.structs.replace(DOCUMENT, cells=proven))["bottom-line"]
    assert "+1.7 % vs baseline (23.2; GAIN, E2)." in body
    body = rendered(msgspec.structs.replace(DOCUMENT, cells=[]))["bottom-line"]
    assert "+1.7 % vs baseline (23.2; not compared, no verdict)." in body


def test_foreign_text_cannot_break_out() -> None:
    evil = msgspec.structs.replace(
        DOCUMENT, setup=["a | b <!-- dsv4bench:end --> `x`\n## fake"], notes=["<script>alert(1)</script>"]
    )
    got = rendered(evil)
    assert "<!--" not in got["setup"] and "\n## fake" not in got["setup"] and "a \\| b" in got["setup"]
    assert "<script" not in got["threats"]


def test_an_empty_comparison_says_what_is_missing() -> None:
    got = rendered(VerdictDocument(id="x-vs-y-0001"))
    assert all(body.strip() for name, body in got.items() if name != "setup")
    assert "No throughput was compared" in got["bottom-line"] and "No target is set" in got["plan"]
