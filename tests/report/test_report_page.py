"""The report's page and its Markdown without a browser: what they say, and that no foreign text becomes markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
import report_inputs as inputs

from dsv4bench.records.campaign import ExperimentData, ReportInput
from dsv4bench.records.cell import Cell
from dsv4bench.records.verdict import Grade, Mechanism, ScalingLaw, Verdict
from dsv4bench.report.campaign_markdown import markdown
from dsv4bench.report.page import html, kernels, latency, levels, pareto, sections, theme, throughput
from dsv4bench.report.page.blocks import Figure, Fold, Lines, Section, Table

needs_extra = pytest.mark.skipif(bool(html.not_installed()), reason=f"not installed: {html.not_installed()}")


def every_text(found: list[Section]) -> str:
    """All words of the sections, one block a line."""
    parts = []
    for s in found:
        parts.append(s.title)
        for b in s.blocks:
            if isinstance(b, Lines):
                parts += b.items
            elif isinstance(b, Fold):
                parts += [b.summary, *b.lines, b.log or "", *(words(b.table) if b.table else [])]
            elif isinstance(b, Table):
                parts += words(b)
            else:
                parts += [b.title, b.see, *(k.text for k in b.keys), *words(b.table)]
    return "\n".join(parts)


def words(t: Table) -> list[str]:
    return [t.caption, " | ".join(t.head), *(" | ".join(row) for row in t.rows)]


def section(r: ReportInput, name: str) -> list[str]:
    return every_text([s for s in sections.sections(r) if s.id == name]).splitlines()


def figures(r: ReportInput) -> dict[str, Figure]:
    return {b.id: b for s in sections.sections(r) for b in s.blocks if isinstance(b, Figure)}


class Seen(HTMLParser):
    """Tags with their attributes, and the text outside scripts and styles."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self._in = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts.append(data)
        elif self._in != "style":
            self.text.append(data)


def seen(page: str) -> Seen:
    parser = Seen()
    parser.feed(page)
    parser.close()
    return parser


# --- what it says ------------------------------------------------------------------------------------------


def test_the_bottom_line_says_the_best_the_verdicts_the_target_and_the_bad_news() -> None:
    said = section(inputs.whole(), "bottom-line")
    best = inputs.tok_s("mtp", 32, 1.004)
    first = next(s for s in said if f"mtp gives {best:.2f} output tok/s" in s and "vs baseline" in s)
    assert first.endswith("; not compared, no verdict).")  # no verdict was made at C=32
    assert "fp8-cfg vs baseline, throughput: GAIN [E2] at C=1 (+3.9 %); UNRESOLVED [E2] at C=8 (+1.1 %)" in "\n".join(
        said
    )
    cut, step = 100 * (1 - inputs.tok_s("baseline", 16) / 1000), 1e3 * 16 / inputs.tok_s("baseline", 16)
    assert any(
        s.startswith("1,000 tok/s at C=16 from baseline")
        and f"{cut:.1f} % of the {step:.1f} ms that a token of each of the 16 takes, prefill in it, must" in s
        for s in said
    )
    assert any("fp8_cfg of fp8-cfg was not in force" in s for s in said)
    assert "Greedy output differs from the baseline: mtp." in said
    assert "The campaign is partial (one launch failed twice). 7 launches planned: 6 complete, 1 failed." in said


@pytest.mark.parametrize(
    ("fields", "sure"),
    [
        ({"verdict": Verdict.GAIN, "grade": Grade.E2}, "GAIN [E2]"),
        ({"verdict": None, "grade": Grade.E0}, "no verdict [E0]"),
    ],
)
def test_the_best_figure_carries_its_verdict_and_grade(fields: dict[str, Any], sure: str) -> None:
    r = inputs.whole()
    assert r.verdict is not None
    there = {"config": "mtp", "versus": "baseline", "versus_name": "baseline", "concurrency": 32}
    own = next(v for v in r.verdict.cells if v.metric == "output_tok_s")
    cells = [*r.verdict.cells, msgspec.structs.replace(own, **there, **fields)]
    said = section(msgspec.structs.replace(r, verdict=msgspec.structs.replace(r.verdict, cells=cells)), "bottom-line")
    assert next(s for s in said if "output tok/s" in s).endswith(f"; {sure}).")


def test_the_bottom_line_names_the_mechanism_where_no_plateau_does() -> None:
    r = inputs.whole()
    assert r.verdict is not None and r.verdict.scaling is not None
    mechanism = Mechanism(name="admission cap", evidence=["the server ran 4.0 of 16 and 12.0 waited"], excluded=[])
    laws = [
        msgspec.structs.replace(law, plateau=None, mechanism=mechanism if law.config == "mtp" else None)
        for law in r.verdict.scaling.laws
    ]
    scaling = msgspec.structs.replace(r.verdict.scaling, laws=laws)
    said = section(
        msgspec.structs.replace(r, verdict=msgspec.structs.replace(r.verdict, scaling=scaling)), "bottom-line"
    )
    assert [s for s in said if "stops growing" in s] == [
        "mtp stops growing: admission cap (the server ran 4.0 of 16 and 12.0 waited)."
    ]


def test_the_bottom_line_says_who_reached_the_target() -> None:
    r = inputs.whole()
    assert r.verdict is not None and r.verdict.goal is not None
    at = {c: inputs.tok_s(c, 16) for c in ("baseline", "mtp", "fp8-cfg")}

    def said(target: float) -> list[str]:
        goal = msgspec.structs.replace(r.verdict.goal, target_tok_s=target)  # type: ignore[union-attr]
        return section(
            msgspec.structs.replace(r, verdict=msgspec.structs.replace(r.verdict, goal=goal)), "bottom-line"
        )

    most = max(at, key=lambda c: at[c])
    assert any(s.startswith(f"No configuration reaches it; {most} gives the most there") for s in said(1e6))
    second, first = sorted(at.values())[-2:]
    (reached,) = [s for s in said((first + second) / 2) if s.startswith("Reached ")]
    assert most in reached and not any(c in reached for c in at if c != most)
    assert f"Reached in each of 2 launches by {most} (" in reached


def test_reached_on_the_average_is_not_reached_in_every_launch_and_prompt_lengths_stay_apart() -> None:
    r = inputs.whole()
    assert r.verdict is not None and r.verdict.goal is not None
    own = [inputs.experiment("mtp", n) for n in (3, 6)]
    data = [
        ExperimentData(
            experiment=e,
            cells=[inputs.cell("mtp", 16, output_tok_s=x), inputs.cell("mtp", 16, output_tok_s=10.0, isl=4096)],
        )
        for e, x in zip(own, (900.0, 1200.0), strict=True)
    ]

    def said(target: float, experiments: list[ExperimentData]) -> list[str]:
        goal = msgspec.structs.replace(r.verdict.goal, target_tok_s=target)  # type: ignore[union-attr]
        verdict = msgspec.structs.replace(r.verdict, goal=goal)
        found = msgspec.structs.replace(r, experiments=experiments, verdict=verdict, campaign=None)
        return [s for s in section(found, "bottom-line") if s.startswith(("Reached", "No configuration reaches"))]

    assert said(1000, data) == ["Reached on the average, not in every launch (1 of 2), by mtp at ISL 1024 (1,039)."]
    assert said(800, data) == ["Reached in each of 2 launches by mtp at ISL 1024 (1,039)."]
    assert said(800, data[:1]) == ["Reached in one launch by mtp at ISL 1024 (900.0)."]
    assert said(5000, data) == ["No configuration reaches it; mtp gives the most there at ISL 1024, 1,039 tok/s."]


def test_only_a_plateau_is_bottom_line() -> None:
    r = inputs.whole()
    assert r.verdict is not None and r.verdict.scaling is not None
    texts = {"baseline": "plateau: X = 24 tok/s", "mtp": "provisional (1 doubling): X = 26 tok/s"}
    laws = []
    for law in r.verdict.scaling.laws:
        assert law.plateau is not None
        text = texts.get(law.config, "not shown to be flat (1 doubling): X = 25 tok/s")
        laws.append(msgspec.structs.replace(law, plateau=msgspec.structs.replace(law.plateau, text=text)))
    scaling = msgspec.structs.replace(r.verdict.scaling, laws=laws)
    said = section(
        msgspec.structs.replace(r, verdict=msgspec.structs.replace(r.verdict, scaling=scaling)), "bottom-line"
    )
    assert [s for s in said if " X = " in s] == [f"{c}: {text}." for c, text in texts.items()]
    assert not any("stops growing" in s for s in said)  # of one that may still grow nothing is said here


def test_a_configuration_without_a_figure_is_named() -> None:
    r = inputs.whole()
    r = msgspec.structs.replace(r, experiments=[d for d in r.experiments if d.experiment.config != "fp8-cfg"])
    assert "Without a valid level: fp8-cfg." in section(r, "bottom-line")


def test_a_verdict_stands_with_its_base_interval_grade_and_bound() -> None:
    rows = section(inputs.whole(), "verdicts")
    row = next(r for r in rows if r.startswith("GAIN | fp8-cfg | C=1 |"))
    base, new = inputs.tok_s("baseline", 1), inputs.tok_s("fp8-cfg", 1)
    assert f"{base:.2f} → {new:.2f}" in row
    assert "+3.9 % vs baseline" in row and "[+2.7 %, +5.1 %]" in row
    assert "E2 (4 and 4)" in row and "at most +1.0 %" in row
    tpot = next(r for r in rows if r.startswith("GAIN | mtp | C=1 |") and "−" in r)
    assert "−33.2 % vs fp8-cfg" in tpot


def test_an_invalid_cell_is_listed_and_in_no_mean() -> None:
    r = inputs.whole()
    found = levels.by_level(levels.measured(r))
    assert len(found["mtp", (32, 1024)]) == 1 and len(found["mtp", (16, 1024)]) == 2
    assert any("client_saturated (worker CPU 97 %)" in s for s in section(r, "throughput"))
    assert any("launch 6 (block 2)" in s and "invalid: client_saturated" in s for s in section(r, "results"))


def test_cells_of_a_launch_that_failed_are_in_no_mean() -> None:
    r = inputs.whole()
    first = r.experiments[0]
    failed = msgspec.structs.replace(first.experiment, status="failed")
    r = msgspec.structs.replace(
        r, experiments=[msgspec.structs.replace(first, experiment=failed), *r.experiments[1:]]
    )
    assert len(levels.by_level(levels.measured(r))["baseline", (8, 1024)]) == 1
    assert any("its launch is failed" in s for s in section(r, "throughput"))


def test_a_failure_stands_with_its_cause_and_the_end_of_its_log() -> None:
    said = section(inputs.whole(), "failures")
    assert any("exit code 137 after 93 s. Likely cause: out of memory" in s for s in said)
    assert "torch.OutOfMemoryError: CUDA out of memory." in said
    assert any("profile of mtp (torch) failed: the profiler did not stop" in s for s in said)


def test_the_plan_tells_target_bounds_and_that_it_cannot_reach() -> None:
    said = section(inputs.whole(), "plan")
    now = inputs.tok_s("baseline", 16)
    assert f"The whole plan leads to at most {11.1 * now:.0f} tok/s: it cannot reach the target." in said
    assert any(s.startswith("moe kernel | moe | 39 % | 5× faster |") for s in said)
    assert any("×1.45 (k=5, roofline)" in s for s in said)


def test_provenance_says_what_differs_and_what_is_equal() -> None:
    said = section(inputs.whole(), "provenance")
    assert "speculative_num_steps | 0 | 0 | 1" in said
    assert "page_size = 256" in said and "page_size = 256 |" not in "\n".join(said)
    assert any(s.startswith("driver | 580.95 | all") for s in said)
    assert any("4 × NVIDIA RTX PRO 6000 Blackwell, power limit 600 W" in s for s in said)
    assert said.count("python -m sglang.launch_server --tp 4") == 3  # of two launches each
    alone = ReportInput(campaign=None, experiments=inputs.whole().experiments[2:3])
    typed = "dsv4bench sweep http://127.0.0.1:30000 -c 1,2,4,8,16,32 --name mtp"
    assert typed in section(alone, "provenance") and typed not in said
    assert "blocks, order seed | 2, 11" in said and "prompt seed | 7 | all" in said


def test_a_nested_setting_that_differs_comes_without_its_section() -> None:
    r = inputs.whole()
    nested = [
        msgspec.structs.replace(
            d,
            experiment=msgspec.structs.replace(
                d.experiment,
                server=msgspec.structs.replace(
                    d.experiment.server,
                    args={"scheduler": {"max_num_seqs": 4 if d.experiment.config == "mtp" else 64, "policy": "fcfs"}},
                ),
            ),
        )
        for d in r.experiments
    ]
    shown = section(msgspec.structs.replace(r, experiments=nested), "provenance")
    assert any(line.startswith("scheduler.max_num_seqs | 64 |") for line in shown)
    assert not any("fcfs" in line for line in shown if "max_num_seqs" in line)


def test_what_is_missing_is_said_with_its_reason_and_never_as_zero() -> None:
    said = every_text(sections.sections(inputs.nothing()))
    for sentence in (
        "No throughput against concurrency: no level was measured.",
        "No kernel breakdown is stored",
        "No distribution of TTFT: series.json is not there.",
        "No comparison is stored for this campaign, so there is no verdict.",
        "No check that levers were in force: this campaign recorded none.",
        "No scaling law",
        "No target is set.",
        "No experiment could be read",
    ):
        assert sentence in said, sentence
    assert " 0 tok/s" not in said and "0.0 %" not in said and "None" not in said


def test_a_figure_that_a_cell_does_not_have_keeps_its_reason() -> None:
    r = inputs.whole()
    one = r.experiments[0]
    cells = [
        msgspec.structs.replace(
            c, tok_s_per_user=None, tensor_pipe_frac=None, why_null={"tok_s_per_user": "one token each"}
        )
        for c in one.cells
    ]
    r = ReportInput(campaign=None, experiments=[msgspec.structs.replace(one, cells=cells)])
    assert "Per-user speed against throughput: no data: one token each." in section(r, "throughput")
    assert any("no tok_s_per_user: one token each" in s for s in section(r, "results"))


def test_an_open_loop_has_no_concurrency_to_draw_against() -> None:
    one = inputs.whole().experiments[0]
    cells = [msgspec.structs.replace(c, concurrency=None, rate_req_s=4.0) for c in one.cells[:1]]
    r = ReportInput(campaign=None, experiments=[msgspec.structs.replace(one, cells=cells)])
    assert any("open loop, with a rate and no concurrency" in s for s in section(r, "throughput"))
    assert any("4 req/s" in s for s in section(r, "results"))


# --- what is drawn -----------------------------------------------------------------------------------------


def test_every_valid_cell_is_a_mark() -> None:
    r = inputs.whole()
    drawn = figures(r)["throughput-1024"].rows
    cells: list[tuple[str, Cell]] = [(d.experiment.config, c) for d in r.experiments for c in d.cells]
    valid = sorted((n, c.concurrency, c.output_tok_s) for n, c in cells if c.invalid is None)
    assert sorted((p["config"], p["concurrency"], p["output_tok_s"]) for p in drawn["points"]) == valid
    assert [(p["config"], p["concurrency"]) for p in drawn["invalid"]] == [("mtp", 32)]


def test_the_curve_is_the_stored_law_with_its_acceptance_length() -> None:
    law = inputs.law("baseline")
    assert throughput.law_tok_s(law, 8) == pytest.approx(8 / (0.044 + 0.0396 * 8))
    assert law.b_s is not None
    spec = msgspec.structs.replace(law, ceiling_tok_s=1.92 / law.b_s)
    assert throughput.law_tok_s(spec, 8) == pytest.approx(1.92 * 8 / (0.044 + 0.0396 * 8))
    curve = [p for p in figures(inputs.whole())["throughput-1024"].rows["curve"] if p["config"] == "baseline"]
    assert curve[0]["concurrency"] == 1 and curve[-1]["concurrency"] == pytest.approx(32)
    assert curve[-1]["output_tok_s"] == pytest.approx(32 / (0.044 + 0.0396 * 32))


def test_a_rejected_law_is_dotted_beside_the_means_and_no_law_is_no_curve() -> None:
    rows = figures(inputs.whole())["throughput-1024"].rows
    assert {p["line"] for p in rows["curve"] if p["config"] == "mtp"} == {"law rejected"}
    assert {p["config"] for p in rows["means"]} == {"mtp"}
    none: ScalingLaw = msgspec.structs.replace(inputs.law("baseline"), a_s=None, b_s=None, ceiling_tok_s=None)
    assert throughput.law_tok_s(none, 8) is None


def test_a_roofline_far_above_is_told_and_one_that_fits_is_drawn() -> None:
    r = inputs.whole()
    assert figures(r)["throughput-1024"].rows["roof"] == []
    assert any("The roofline lies above the drawing: 2,900 tok/s at C=32" in s for s in section(r, "throughput"))
    assert r.verdict is not None and r.verdict.scaling is not None
    laws = [msgspec.structs.replace(law, roofline_tok_s={"16": 40.0, "32": 42.0}) for law in r.verdict.scaling.laws]
    scaling = msgspec.structs.replace(r.verdict.scaling, laws=laws)
    r = msgspec.structs.replace(r, verdict=msgspec.structs.replace(r.verdict, scaling=scaling))
    assert len(figures(r)["throughput-1024"].rows["roof"]) == 6


def test_a_bar_is_the_sum_of_its_parts_in_milliseconds() -> None:
    b = inputs.breakdown("baseline", 16)
    assert b.steps is not None
    own = kernels.parts(b.steps)
    span_ms = 44.0 + 39.6 * 16
    assert own["moe"] == pytest.approx(0.39 * span_ms) and own["idle"] == pytest.approx(0.05 * span_ms)
    rows = [p for p in figures(inputs.whole())["kernels-ms"].rows["parts"] if p["bar"] == "baseline C=16"]
    assert rows[0]["part"] == "moe" and rows[0]["start"] == 0.0
    assert rows[-1]["end"] == pytest.approx(sum(own.values()))
    assert [p["end"] for p in rows[:-1]] == [p["start"] for p in rows[1:]]
    rest = next(p for p in rows if p["part"] == kernels.REST)
    assert rest["value"] == pytest.approx((0.008 + 0.005) * span_ms)
    shares = [p for p in figures(inputs.whole())["kernels-share"].rows["parts"] if p["bar"] == "baseline C=16"]
    assert shares[-1]["end"] == pytest.approx(100.0)


def test_a_profile_without_steps_is_named_with_its_reason() -> None:
    b = msgspec.structs.replace(inputs.breakdown("baseline", 16), steps=None, warnings=["no annotation in the trace"])
    r = msgspec.structs.replace(inputs.whole(), breakdowns=[b])
    assert "kernels-ms" not in figures(r)
    assert any("no decode step was found in the trace: no annotation" in s for s in section(r, "kernels"))


def test_histograms_of_launches_add_up() -> None:
    r = inputs.whole()
    rows = figures(r)["latency-tpot"].rows["bins"]
    strip = [p for p in rows if p["strip"] == "C=1 baseline"]
    assert sum(p["requests"] for p in strip) == 2 * 24
    tallest = max(strip, key=lambda p: p["requests"])
    assert tallest["top"] == pytest.approx(tallest["floor"] - latency.FILL)
    p50 = [p["p50_ms"] for p in figures(r)["latency-tpot"].rows["p50"] if p["strip"] == "C=1 baseline"]
    want = [
        1e3 * (c.tpot_p50_s or 0) for d in r.experiments if d.experiment.config == "baseline" for c in d.cells[:1]
    ]
    assert p50 == pytest.approx(want)


def test_activity_skips_what_was_not_sampled() -> None:
    rows = figures(inputs.whole())["activity-0"].rows["points"]
    dram = [p for p in rows if p["counter"] == "DRAM" and p["level"] == "C=1"]
    assert len(dram) == 11  # twelve points, one of them without a sample
    assert dram[0]["percent"] == pytest.approx(31.0)


def test_names_of_close_levels_do_not_lie_on_each_other() -> None:
    rows = figures(inputs.whole())["pareto-1024"].rows["means"]
    named = {(p["config"], p["concurrency"]) for p in rows if p["label"]}
    assert ("mtp", 32) in named and ("baseline", 16) not in named
    assert pareto.NAME_WIDTH > 0


def test_a_configuration_has_one_colour_everywhere() -> None:
    r = inputs.whole()
    assert [k.text for k in levels.keys(r)] == list(inputs.LAWS)
    for f in figures(r).values():
        for k in f.keys:
            if k.kind == "config":
                assert k.text.partition(":")[0] == list(inputs.LAWS)[k.index]


@pytest.mark.parametrize("t", [theme.LIGHT, theme.DARK], ids=lambda t: t.name)
def test_colours_can_be_read(t: theme.Theme) -> None:
    assert min(contrast(c, t.page) for c in (t.ink, t.soft, t.link)) >= 4.5
    assert contrast(t.ink, t.panel) >= 4.5
    assert min(contrast(c, t.page) for c in t.configs) >= 3
    assert min(contrast(t.on_part, c) for c in (*t.parts, *t.grey_parts)) >= 4.5
    assert len(t.configs) == len(theme.SHAPES)
    marks = [(t.configs[i % len(t.configs)], theme.ALL_SHAPES[i]) for i in range(len(theme.ALL_SHAPES))]
    assert len(set(marks)) == len(marks) == 64  # in the ninth configuration the colour comes back, the shape does not
    assert theme.vega_config(t)["range"]["symbol"] == list(theme.ALL_SHAPES)


def contrast(a: str, b: str) -> float:
    """WCAG's ratio of two #rrggbb colours."""
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# --- what cannot break out ---------------------------------------------------------------------------------


@needs_extra
def test_hostile_text_is_text_in_the_page() -> None:
    page = html.page(inputs.hostile())
    found = seen(page)
    assert not [t for t, _ in found.tags if t in ("img", "iframe", "object", "embed", "b")]
    assert [n for _, a in found.tags for n in a if n.startswith("on")] == []
    assert sum(t == "script" for t, _ in found.tags) == 3
    assert inputs.HOSTILE in "".join(found.text) and "<b>bold</b>" in "".join(found.text)
    charts = json.loads(found.scripts[0])
    assert any(inputs.HOSTILE in json.dumps(spec) for spec in charts["charts"].values())
    assert "<" not in found.scripts[0] and "&" not in found.scripts[0]


@needs_extra
def test_the_policy_allows_the_two_scripts_of_the_page_and_no_network() -> None:
    page = html.page(inputs.whole())
    policy = next(
        a["content"] for t, a in seen(page).tags if t == "meta" and "Content-Security" in (a.get("http-equiv") or "")
    )
    assert policy is not None and policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy and "http" not in policy and "connect-src" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.S)
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests and len(digests) == 2


@needs_extra
def test_the_page_names_no_other_host_to_load_from() -> None:
    tags = seen(html.page(inputs.whole())).tags
    loaded = [a[n] for _, a in tags for n in ("src", "href", "srcset", "data", "action") if n in a]
    assert [x for x in loaded if x is None or not (x.startswith("#") or x == "data:,")] == []
    assert ("html", {"lang": "en"}) in tags


@needs_extra
def test_the_same_input_gives_the_same_bytes() -> None:
    assert html.page(inputs.whole()) == html.page(inputs.whole())


def test_script_text_cannot_end_its_element() -> None:
    assert "</script" not in html.script_text('a = "</script>"; b = "<!--"') and "<!--" not in html.script_text(
        "<!--"
    )


def test_markdown_has_what_a_pull_request_needs_and_no_markup_of_others() -> None:
    text = markdown(inputs.whole())
    for head in ("Bottom line", "Results by level", "Verdicts", "Plan and target", "Failures", "Provenance"):
        assert f"## {head}\n" in text
    assert "Latency distributions" not in text and "Every cell" not in text
    assert "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |" in text  # verdicts: text left, figures right
    assert "- For all levels of the step above: paired launches" in text
    assert "torch.OutOfMemoryError" in text
    text = markdown(inputs.hostile())
    outside = re.sub(r"^~~~~~~~~\n.*?^~~~~~~~~$", "", text, flags=re.S | re.M)
    assert re.search(r"<[a-z/!]", outside) is None
    rows = [line for line in outside.splitlines() if line.startswith("|")]
    assert rows
    heads = [i for i, line in enumerate(rows) if set(line) <= set("|-: ")]
    for i in heads:
        width = columns(rows[i])
        assert columns(rows[i - 1]) == width


def columns(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", row)) - 1
