"""The blocks of PROFILE_FINDINGS.md from the published campaign: every number has its source."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runs"))

from campaign_samples import FOLDER, compared

from dsv4bench.records.prediction import Measured, Prediction
from dsv4bench.records.verdict import Grade, Verdict, VerdictDocument
from dsv4bench.report.findings import Findings, blocks, new_file
from dsv4bench.runs.campaign_data import load_campaign

DOCUMENT = msgspec.structs.replace(compared(load_campaign(FOLDER)), id="20261129T000000Z-baseline-vs-A-B-1f3a")


def rendered(*documents: VerdictDocument, **fields: object) -> dict[str, str]:
    return {b.id: b.body for b in blocks(Findings(documents=list(documents or [DOCUMENT]), **fields))}  # type: ignore[arg-type]


def test_the_ten_sections_in_order() -> None:
    headings = list(dict.fromkeys(b.heading for b in blocks(Findings(documents=[DOCUMENT]))))
    assert [h.split()[1] for h in headings] == [str(n) for n in range(1, 11)]
    text = new_file(blocks(Findings(documents=[DOCUMENT])))
    assert all(h in text for h in headings) and "(negative)" in text


def test_every_line_with_a_number_names_its_source() -> None:
    for name, body in rendered().items():
        if name in ("predictions", "claims"):  # a claim's lines stand under the tag of the claim
            continue
        for line in body.split("\n"):
            head = line.startswith(("| ---", "| output", "| lever", "| config", "| kernel", "| change"))
            if re.search(r"\d", line) and not head and not line.endswith(":"):
                assert "[v:1f3a]" in line, line


def test_the_bottom_line_is_five_lines_at_most() -> None:
    body = rendered(DOCUMENT, DOCUMENT, DOCUMENT)["bottom-line"]
    assert len(body.split("\n")) == 5
    assert "At C=16 B gives the most, 23.6 tok/s, +1.7 % vs baseline (23.2; no verdict, E0)." in body
    assert "at most 258 tok/s at C=16; the target is 1000" in body


def test_the_tables() -> None:
    got = rendered()
    assert "| baseline | 10.2 ± 0.05 | ~24 ± 0.5 | 23.2 ± 0.05 | [v:1f3a] |" in got["configs"]
    assert "| fp8_cfg + nccl_ll (A) | baseline | +4.9 % no verdict (E0) | −5.8 % no verdict (E0) |" in got["levers"]
    assert "| mtp (B) | baseline | +53.9 % no verdict (E0) |" in got["levers"]
    assert "bundled, not separable" in got["levers"]
    assert "| FP8 matmul | dense | &lt;1 % |" in got["kernels"]
    assert "| unattributed |  | 27 % |" in got["kernels"] and "| unattributed |  | 7 % |" in got["kernels"]
    assert "101 (×4.35)" in got["plan"] and "258 (×11.1)" in got["plan"]
    assert "provisional (1 doubling)" in got["scaling"]
    assert "baseline at C=8 is an about-value (~24 ± 0.5)" in got["threats"]


def test_nothing_is_a_dead_end_before_it_is_proven() -> None:
    assert rendered()["dead-ends"].startswith("No lever is proven to buy nothing")
    proven = [
        msgspec.structs.replace(v, verdict=Verdict.NO_EFFECT, grade=Grade.E2) if v.config == "A" else v
        for v in DOCUMENT.cells
    ]
    body = rendered(msgspec.structs.replace(DOCUMENT, cells=proven))["dead-ends"]
    assert body.startswith("- fp8_cfg + nccl_ll (negative): vs baseline +4.9 % NO EFFECT at C=1")
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
    assert "+22.0 % to +50.0 % vs baseline | +40.0 % vs baseline | hit (E2, no interval) | [p0a0b] [v:beef] |" in body
    assert "not yet | open | [p0a0c] |" in body and "1 of 1 hit (grade E2); 1 open." in body
    single = msgspec.structs.replace(m, grade="E0", hit=False, note="bundled: of all its levers together")
    got = rendered(ledger=[(p, m), (p, single)])
    assert "1 of 2 measured predictions lie in their interval (1 E0, 1 E2; E0: single" in got["bottom-line"]
    assert "miss (E0, no interval); bundled: of all its levers together | [p0a0b]" in got["predictions"]
    alone = rendered(ledger=[(p, single)])["bottom-line"]
    assert "0 of 1 measured predictions lie in their interval (grade E0: single launches, no interval)." in alone
    sure = msgspec.structs.replace(m, ci_ratio=(1.3, 1.5))
    assert "| hit (E2) |" in rendered(ledger=[(p, sure)])["predictions"]


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
