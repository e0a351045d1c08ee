"""What findings say of the experiments, campaign and profiles behind a comparison: setup, GPU, kernels, threats."""

from __future__ import annotations

import re

import msgspec
import pytest
from report_inputs import LAWS, breakdown, cell, hostile, whole

from dsv4bench.records.breakdown import CaptureNote, KernelRow
from dsv4bench.records.campaign import OutputPair, OutputParity, ReportInput
from dsv4bench.records.experiment import GpuInfo
from dsv4bench.records.shares import KernelShare, SharesDocument
from dsv4bench.records.verdict import InputNote, TableFigure
from dsv4bench.report.findings.data import Compared, Findings, Profiled
from dsv4bench.report.findings.gpu import measured_on
from dsv4bench.report.findings.sections import blocks
from dsv4bench.report.markdown import WIDTH, wrapped

IDS = {n: [f"20261201T0{i}0000Z-c16-{n}-000{i}" for i in (k + 1, k + 4)] for k, n in enumerate(LAWS)}


def compared(r: ReportInput | None = None, **fields: object) -> Compared:
    r = r or whole()
    assert r.verdict is not None
    inputs = [InputNote(name=n, source="dsv4bench", ids=ids, cells_sha256="ab" * 8) for n, ids in IDS.items()]
    profiles = [Profiled(source="x/kernels.json", breakdown=b) for b in r.breakdowns]
    known = {
        "document": msgspec.structs.replace(r.verdict, inputs=inputs),
        "experiments": r.experiments,
        "campaign": r.campaign,
        "profiles": profiles,
    }
    return Compared(**{**known, **fields})


def section(c: Compared, name: str) -> str:
    body = next(b.body for b in blocks(Findings(compared=[c])) if b.id == name)
    return re.sub(r"\n  (?! *-)", " ", body)


BLOCKS_OF_TWO = "2 of 2 launches in 2 blocks, every second block in reverse order, seed 7"


def on_gpu(name: str, **server: object) -> Compared:
    r = whole()
    experiments = []
    for x in r.experiments:
        assert x.experiment.machine is not None
        machine = msgspec.structs.replace(x.experiment.machine, gpus=[GpuInfo(name=name)])
        e = msgspec.structs.replace(x.experiment, machine=machine)
        args = {**(e.server.args or {}), **server}
        e = msgspec.structs.replace(e, server=msgspec.structs.replace(e.server, args=args))
        experiments.append(msgspec.structs.replace(x, experiment=e))
    return compared(experiments=experiments)


# --- the GPU --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NVIDIA H200", "NVIDIA H200 (sm_90), not sm_120"),
        ("NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 5090 (sm_120)"),
        ("NVIDIA H200 NVL 9", "NVIDIA H200 NVL 9 (architecture not known here)"),
    ],
)
def test_a_gpu_is_named_with_its_architecture_and_with_what_it_is_not(name: str, said: str) -> None:
    assert measured_on(on_gpu(name)) == said


def test_a_server_on_the_cpu_of_a_gpu_host_was_not_measured_on_that_gpu() -> None:
    c = on_gpu("NVIDIA H200", device="cpu")
    assert measured_on(c) == "a CPU, not sm_120"
    said = section(c, "setup")
    assert "- no GPU: the server runs on a CPU" in said and "GPU: a CPU" not in said and "- GPU:" not in said


@pytest.mark.parametrize(("blocks", "said"), [(1, "2 of 2 launches in 1 block, seed 7"), (2, BLOCKS_OF_TWO)])
def test_a_campaign_of_one_block_has_no_order_of_blocks(blocks: int, said: str) -> None:
    line = f"campaign c: 2 of 2 launches in {blocks} blocks, every second block in reverse order, seed 7"
    c = compared()
    c = msgspec.structs.replace(c, document=msgspec.structs.replace(c.document, setup=[line]))
    assert f"campaign c: {said}" in section(c, "setup")


def test_a_server_elsewhere_is_on_a_gpu_that_only_its_profiles_tell() -> None:
    away = [
        msgspec.structs.replace(x, experiment=msgspec.structs.replace(x.experiment, server_on_this_host=False))
        for x in whole().experiments
    ]
    assert measured_on(compared(experiments=away, profiles=[])) == "a GPU that is not told"
    assert measured_on(compared(experiments=away)).startswith("NVIDIA RTX PRO 6000 Blackwell (")


MIXED = [GpuInfo(name="NVIDIA B200"), GpuInfo(name="NVIDIA H200"), GpuInfo(name="NVIDIA H200")]


def on_host(gpus: list[GpuInfo], profiled_on: str | None = None, **fields: object) -> Compared:
    """Six launches on one host, the first of them profiled if asked."""
    r, experiments = whole(), []
    for x in r.experiments:
        assert x.experiment.machine is not None
        machine = msgspec.structs.replace(x.experiment.machine, gpus=gpus)
        experiments.append(
            msgspec.structs.replace(x, experiment=msgspec.structs.replace(x.experiment, machine=machine, **fields))
        )
    profiles = []
    if profiled_on is not None:
        b = breakdown("baseline", 16)
        b = msgspec.structs.replace(b, devices=[msgspec.structs.replace(b.devices[0], gpu=profiled_on)])
        profiles = [Profiled(source=f"{experiments[0].experiment.id}/kernels.json", breakdown=b)]
    return compared(experiments=experiments, profiles=profiles)


def test_of_a_host_with_several_kinds_of_gpu_the_one_used_is_told_or_none() -> None:
    profiled = on_host(MIXED, "NVIDIA H200")
    assert measured_on(profiled) == "NVIDIA H200 (sm_90), not sm_120"
    assert "measured on NVIDIA H200 (sm_90): the structure" in section(profiled, "threats")
    assert "; used: NVIDIA H200 (sm_90), driver 580.95" in section(profiled, "setup")
    both = "NVIDIA B200 (sm_100), NVIDIA H200 (sm_90)"
    untold = on_host(MIXED)
    assert measured_on(untold) == f"a host that has {both}, not sm_120"
    assert "GPU: the host has 1 x NVIDIA B200 (sm_100), 2 x NVIDIA H200 (sm_90), driver" in section(untold, "setup")


def test_visible_devices_tell_the_gpu_of_a_launched_server() -> None:
    told = {"CUDA_VISIBLE_DEVICES": "1,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    launched = on_host(MIXED, environment=told, extra={"campaign": "x"})
    assert measured_on(launched) == "NVIDIA H200 (sm_90), not sm_120"
    assert "GPU: 2 x NVIDIA H200 (sm_90), of 3 GPUs of the host, driver" in section(launched, "setup")
    by_speed = on_host(MIXED, environment={"CUDA_VISIBLE_DEVICES": "1,2"}, extra={"campaign": "x"})
    foreign = on_host(MIXED, environment=told)  # of a server that was started elsewhere
    assert measured_on(by_speed).startswith("a host that has ") and measured_on(foreign).startswith(
        "a host that has "
    )
    eight = [GpuInfo(name="NVIDIA H200")] * 8
    one = on_host(eight, environment={"CUDA_VISIBLE_DEVICES": "3"}, extra={"campaign": "x"})
    assert "GPU: 1 x NVIDIA H200 (sm_90), of 8 GPUs of the host, driver" in section(one, "setup")
    assert "GPU: the host has 8 x NVIDIA H200 (sm_90), driver" in section(on_host(eight), "setup")
    for odd in ("GPU-1f3a", "", "9", "-1"):
        assert measured_on(
            on_host(MIXED, environment={**told, "CUDA_VISIBLE_DEVICES": odd}, extra={"campaign": "x"})
        ) == (measured_on(on_host(MIXED)))


# --- was the target met ---------------------------------------------------------------------------------------


def test_the_target_is_reached_in_every_launch_or_on_the_average() -> None:
    r = whole()
    assert r.verdict is not None and r.verdict.goal is not None

    def said(first: float, second: float, **fields: object) -> str:
        figures = [TableFigure(metric="output_tok_s", config="mtp", concurrency=16, isl=1024, value=1020.0, n=2)]
        experiments = [
            msgspec.structs.replace(
                x, cells=[cell("mtp", 16, output_tok_s=tok_s), cell("mtp", 8), cell("mtp", 16, isl=4096)]
            )
            for x, tok_s in zip(
                [x for x in whole().experiments if x.experiment.config == "mtp"], (first, second), strict=True
            )
        ]
        c = compared(experiments=experiments, campaign=None, **fields)
        c = msgspec.structs.replace(c, document=msgspec.structs.replace(c.document, figures=figures))
        return next(x for x in section(c, "bottom-line").split("\n") if x.startswith("- Target"))

    assert "reached in each of 2 launches by mtp 1020 (vs baseline" in said(1010.0, 1030.0)
    assert "reached on the average, not in every launch (1 of 2), by mtp 1020 (" in said(980.0, 1060.0)
    gone = said(1010.0, 1030.0, missing=IDS["mtp"][:1])
    assert "reached on the average (its launches are not at hand) by mtp 1020 (" in gone


def test_the_campaign_ran_until_its_last_launch_ended() -> None:
    r = whole()
    assert r.campaign is not None
    later = msgspec.structs.replace(r.campaign, ended_utc="2026-12-09T00:00:00Z", started_utc="2026-12-01T01:00:00Z")
    launches = [msgspec.structs.replace(n, ended_utc=f"2026-12-01T08:1{n.order}:00Z") for n in later.launches[:3]]
    later = msgspec.structs.replace(later, launches=launches)
    last = max(n.order for n in launches)
    assert f"- ran 2026-12-01 01:00 to 08:1{last} UTC" in section(compared(campaign=later), "setup")
    assert "01:00 to 2026-12-09 00:00 UTC" in section(
        compared(campaign=msgspec.structs.replace(later, launches=[])), "setup"
    )


# --- setup ----------------------------------------------------------------------------------------------------


def test_setup_says_what_all_share_once_and_shortens_ids() -> None:
    body = section(compared(), "setup")
    assert "| mtp | mtp | fp8-cfg | 2 | 0003, 0006 | `abababababab` | [v:8bd1] |" in body
    assert body.count("sglang 0.5.13 on this host") == 1 and body.count("AMD EPYC 9355, 64 cores") == 1
    assert (
        "- GPU: the host has 4 x NVIDIA RTX PRO 6000 Blackwell (architecture not known here), driver 580.95" in body
    )
    assert "; prompts of seed 7 [v:8bd1]" in body
    assert len(body.split("\n")) < 20 and "20261201T010000Z-c16-baseline-0001" not in body
    assert "whole ids of the experiments: `inputs` in this comparison's file in `verdicts/`" in body


def test_setup_names_the_experiments_whose_values_differ() -> None:
    r = whole()
    odd = r.experiments[4]
    server = msgspec.structs.replace(odd.experiment.server, version="0.5.14")
    workload = msgspec.structs.replace(odd.experiment.workload, seed=8)
    r.experiments[4] = msgspec.structs.replace(
        odd, experiment=msgspec.structs.replace(odd.experiment, server=server, workload=workload)
    )
    body = section(compared(experiments=r.experiments, missing=["20261201T090000Z-c16-mtp-00aa"]), "setup")
    assert "sglang 0.5.13 on this host, model deepseek-ai/DeepSeek-V4-Flash (5 of 6 experiments)" in body
    assert "sglang 0.5.14 on this host, model deepseek-ai/DeepSeek-V4-Flash (0005)" in body
    assert "prompts of 2 seeds (each experiment's run.json)" in body
    assert "- not in the results folder: 00aa [v:8bd1]" in body


# --- kernels --------------------------------------------------------------------------------------------------


def shares(*configs: str) -> SharesDocument:
    parts = {"moe": 0.6, "attention": 0.3, "idle": 0.004}
    found = [
        KernelShare(config=c, kernel=k, component=k, concurrency=level, isl=1024, share_frac=x / level, of="span")
        for c in configs
        for level in (1, 16)
        for k, x in parts.items()
    ]
    return SharesDocument(source="the campaign", published=False, shares=found)


def test_components_of_all_profiles_stand_side_by_side() -> None:
    c = compared()
    body = section(
        msgspec.structs.replace(c, document=msgspec.structs.replace(c.document, shares=shares("mtp", "baseline"))),
        "kernels",
    )
    assert "| component (of the step) | baseline C=1 | baseline C=16 | mtp C=1 | mtp C=16 |  |" in body
    assert "| moe | 60.0 % | 3.8 % | 60.0 % | 3.8 % | [v:8bd1] |" in body
    assert "| idle | 0.4 % | 0.0 % | 0.4 % | 0.0 % | [v:8bd1] |" in body
    assert "| unattributed | 9.6 % |" in body
    assert "| decode step, ms | 83.6 | 678 | 53.8 | 549 | [v:8bd1] |" in body  # a + b·C of report_inputs
    assert body.index("| moe |") < body.index("| attention |") < body.index("| idle |")


def row(name: str, time_ns: int, **fields: object) -> KernelRow:
    return KernelRow(**{"name": name, "component": "dense", "count": 1, "time_ns": time_ns, **fields})  # type: ignore[arg-type]


def test_the_largest_kernels_with_their_unit_and_the_rest_in_one_row() -> None:
    b = breakdown("baseline", 1)
    rows = [
        row("gemv", 300, component="moe", grid=(1, 1, 1)),
        row("gemv", 200, component="moe", grid=(2, 1, 1)),
        row("nvjet_a", 480, runs_on="tensor", evidence="rule"),
        *(row(f"tiny{i}", 5) for i in range(4)),
    ]
    devices = [msgspec.structs.replace(b.devices[0], rows=rows)]
    note = CaptureNote(label="c1", method="torch", concurrency=1, steps_asked=10, inflation_ratio=1.013)
    one = Profiled(source="e/kernels.json", breakdown=msgspec.structs.replace(b, devices=devices, captures=[note]))
    body = section(compared(profiles=[one]), "kernels")
    assert "| gemv | moe | 50.0 % | unknown | [v:8bd1] |" in body  # both grids together
    assert "| nvjet_a | dense | 48.0 % | tensor cores (rule) | [v:8bd1] |" in body
    assert "tiny0" not in body and "| the other 4 |  | 2.0 % |  | [v:8bd1] |" in body
    assert "(moe fallback-slot-gemv, attention fallback-perhead)" in body and "from e/kernels.json: [v:8bd1]" in body
    assert "recording (torch) made TPOT 1.3 % longer at most" in body


def test_without_a_breakdown_the_section_says_so() -> None:
    assert "No kernel breakdown at these coordinates. [v:8bd1]" in section(compared(profiles=[]), "kernels")


# --- threats --------------------------------------------------------------------------------------------------


def test_threats_hold_the_campaigns_own_notes_and_what_its_launches_noted() -> None:
    body = section(compared(), "threats")
    assert "- the campaign's own note: GPU 2 was throttled by its power cap in launch 4 [v:8bd1]" in body
    assert "- 6 of 7 launches (baseline, fp8-cfg, mtp): the first generation took 4.7 times the second" in body
    assert "- launches that were started more than once: mtp 1 (of 7 in all) [v:8bd1]" in body
    assert body.count("- mtp: 1 of 3 launches failed or were left out: the server ended with exit code 137") == 1


def test_a_failed_launch_that_the_comparison_notes_is_said_once() -> None:
    c = compared()
    note = "mtp: 1 of 3 launches failed or were left out: the server ended with exit code 137 after 93 s"
    noted = msgspec.structs.replace(c, document=msgspec.structs.replace(c.document, notes=[note]))
    assert section(noted, "threats").count("1 of 3 launches failed") == 1


def test_throttling_names_the_levels_whose_clock_fell_and_no_others() -> None:
    r = whole()

    def at(c: int | None, mhz: float, flags: list[str]) -> str:
        cells = [
            [
                msgspec.structs.replace(y, gpu_sm_clock_mean_mhz=mhz, gpu_throttle=flags)
                if y.concurrency == c
                else msgspec.structs.replace(y, gpu_sm_clock_mean_mhz=2000.0, gpu_throttle=[])
                for y in x.cells
            ]
            for x in r.experiments
        ]
        made = [msgspec.structs.replace(x, cells=own) for x, own in zip(r.experiments, cells, strict=True)]
        return section(compared(experiments=made), "threats")

    slowed, flagged = at(32, 1700.0, ["sw_power_cap"]), at(32, 1990.0, ["sw_power_cap"])
    assert "GPU throttled at baseline C=32" in slowed and "SM clock 1700 MHz" in slowed and "not slowed" not in slowed
    assert "throttled" not in flagged.replace("was throttled by its power cap", "") and "not slowed" in flagged
    assert "SM clock" not in at(None, 2000.0, [])


def test_outputs_that_cannot_be_told_apart_are_a_threat() -> None:
    r = whole()
    assert r.campaign is not None
    pairs = [OutputPair(prompt=i, n_base=32, n_new=32, first_difference=13 if i else None) for i in range(4)]
    parity = [
        OutputParity(config="fp8-cfg", base="baseline", same=None, pairs=pairs, why="no log-probabilities"),
        OutputParity(config="mtp", base="baseline", same=None, why="its text may differ"),
    ]
    body = section(compared(campaign=msgspec.structs.replace(r.campaign, parity=parity)), "threats")
    assert "whether at near-ties cannot be told: fp8-cfg (3 of 4) [v:8bd1]" in body
    assert "- greedy output was not compared: mtp (its text may differ) [v:8bd1]" in body


def test_another_architecture_is_a_threat_and_the_campaigns_own_is_none() -> None:
    assert "its size, tok/s and milliseconds do not" in section(on_gpu("NVIDIA H200"), "threats")
    assert "milliseconds" not in section(on_gpu("NVIDIA GeForce RTX 5090"), "threats")


# --- all of it ------------------------------------------------------------------------------------------------


def test_hostile_text_cannot_break_out_of_any_section() -> None:
    r = hostile()
    c = compared(r, document=r.verdict)
    for b in blocks(Findings(compared=[c])):
        assert "<" not in b.body and not re.search(r"(?m)^#", b.body), b.id


def test_lines_are_cut_where_markdown_sees_no_list_and_a_tag_stays_with_its_number() -> None:
    words = "word " * 22
    cut = wrapped([f"{words} a + b and 7 % [v:86d8]", f"{words} 1. and - and more"])
    for line in cut.split("\n"):
        assert len(line) <= WIDTH + len(" 7 % [v:86d8]")
        assert not re.match(r"  ([-+*]|\d+[.]|%|\[v)", line), line
    assert " ".join(cut.split()) == " ".join(f"- {words} a + b and 7 % [v:86d8] - {words} 1. and - and more".split())
