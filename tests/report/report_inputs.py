"""What reports are drawn from, for their tests: a campaign with everything in it, one with nothing, a hostile one.

The figures follow a step time of a + b·C ms, so that a test can work each of them out again.
"""

from __future__ import annotations

from typing import Any

import msgspec
from report_cells import make_cell

from dsv4bench.records.breakdown import (
    BreakdownDocument,
    DeviceBreakdown,
    KernelRow,
    LiveLabel,
    Plan,
    PlanStep,
    StepComponent,
    Steps,
    UnitTime,
)
from dsv4bench.records.campaign import (
    Campaign,
    CampaignStatus,
    ExperimentData,
    LaunchNote,
    LaunchStatus,
    LeverLive,
    Live,
    LiveCheck,
    OutputPair,
    OutputParity,
    ProfileNote,
    ReportInput,
)
from dsv4bench.records.cell import Cell, Invalid
from dsv4bench.records.device import DeviceActivity, Share
from dsv4bench.records.experiment import Experiment, GpuInfo, Machine, Status, Tool
from dsv4bench.records.goal import Goal, GoalReport, PlanReach
from dsv4bench.records.series import CellSeries, GpuSeries, Histogram, Series, TelemetrySeries
from dsv4bench.records.server import Engine, ServerInfo
from dsv4bench.records.verdict import (
    CellVerdict,
    Grade,
    InputNote,
    LeverStatus,
    LeverVerdict,
    Mechanism,
    Plateau,
    ScalingLaw,
    ScalingReport,
    SpecPrediction,
    SpecState,
    SpecVerdict,
    Verdict,
    VerdictDocument,
)
from dsv4bench.records.workload import Plan as LoadPlan
from dsv4bench.records.workload import Workload

LEVELS = (1, 2, 4, 8, 16, 32)
LAWS = {"baseline": (44.0, 39.6), "fp8-cfg": (41.0, 39.5), "mtp": (20.8, 33.0)}  # a, b in ms
HOSTILE = "<img src=x onerror=alert(1)>"
CLOSING = "</script><script>alert(2)</script>"
HOSTILE_MARKDOWN = "| `x` <b>bold</b> [link](http://example.invalid) |"


def tok_s(config: str, concurrency: int, factor: float = 1.0) -> float:
    a, b = LAWS[config]
    return factor * 1e3 * concurrency / (a + b * concurrency)


def experiment(config: str, launch: int, status: Status = Status.COMPLETE, **fields: Any) -> Experiment:
    workload = Workload(
        endpoint="completions", dataset="random", prompt_kind="token_ids", isl=[1024], osl=256, seed=7
    )
    known: dict[str, Any] = {
        "id": f"20261201T{launch:02d}0000Z-c16-{config}-{launch:04x}",
        "scenario": "c16",
        "config": config,
        "status": status,
        "started_utc": f"2026-12-01T{launch:02d}:00:00.000Z",
        "ended_utc": f"2026-12-01T{launch:02d}:20:00.000Z",
        "workload": workload,
        "workload_fingerprint": workload.fingerprint(),
        "plan": LoadPlan(concurrency=list(LEVELS), isl=[1024]),
        "server": ServerInfo(
            url="http://127.0.0.1:30000",
            engine=Engine.SGLANG,
            version="0.5.13",
            model="deepseek-ai/DeepSeek-V4-Flash",
            args={"tp_size": 4, "speculative_num_steps": 1 if config == "mtp" else 0, "page_size": 256},
        ),
        "launches": {"L0": 1796000000.0 + launch},
        "machine": Machine(
            cpu="AMD EPYC 9355",
            cores=64,
            memory_bytes=512 << 30,
            os="Ubuntu 24.04",
            kernel="Linux 6.8",
            python="3.12.3",
            hostname_sha256="ab" * 32,
            gpus=[GpuInfo(name="NVIDIA RTX PRO 6000 Blackwell", power_limit_w=600.0)] * 4,
            driver="580.95",
        ),
        "server_on_this_host": True,
        "tool": Tool(version="0.1.0", git="0123456789abcdef", dirty=False, packages={"httpx": "0.28.1"}),
        "command": ["sweep", "http://127.0.0.1:30000", "-c", "1,2,4,8,16,32", "--name", config],
    }
    return Experiment(**{**known, **fields})


def cell(config: str, concurrency: int, factor: float = 1.0, **fields: Any) -> Cell:
    a, b = LAWS[config]
    step_s = (a + b * concurrency) / 1e3 / factor
    tensor = 0.02 + 0.001 * concurrency
    known: dict[str, Any] = {
        "output_tok_s": tok_s(config, concurrency, factor),
        "tok_s_per_user": 1 / step_s,
        "ttft_p50_s": 0.2 + 0.05 * concurrency,
        "ttft_p90_s": 0.3 + 0.06 * concurrency,
        "ttft_p99_s": 0.4 + 0.08 * concurrency,
        "tpot_p50_s": step_s,
        "tpot_p90_s": 1.02 * step_s,
        "tpot_p99_s": 1.05 * step_s,
        "achieved_batch": concurrency - 0.02,
        "tensor_pipe_frac": tensor,
        "dram_frac": 0.31,
        "sm_active_frac": 0.55,
        "device": DeviceActivity(
            method="NVML GPM",
            gpus=[0],
            window="steady",
            window_s=60.0,
            interval_s=1.0,
            n_samples=60,
            n_dropped=0,
            tensor_pipe=Share(metric="pipe_tensor_of_elapsed", mean_frac=tensor, p50_frac=tensor, p99_frac=tensor),
        ),
    }
    return make_cell(concurrency, **{**known, **fields})


def series(cells: list[Cell], start_s: float) -> Series:
    """A histogram of three bins around each p50, and twelve telemetry points a level."""
    found = []
    for i, c in enumerate(cells):
        at = start_s + 70.0 * i
        gpu = GpuSeries(
            index=0,
            sm_clock_mhz=[2400.0] * 12,
            power_w=[380.0] * 12,
            temperature_c=[60.0] * 12,
            util_frac=[1.0] * 12,
            tensor_pipe_frac=[(c.tensor_pipe_frac or 0) * (1 + 0.02 * (k % 3)) for k in range(12)],
            sm_active_frac=[0.55] * 12,
            dram_frac=[0.31, None, *[0.30 + 0.01 * (k % 2) for k in range(10)]],
        )
        telemetry = TelemetrySeries(
            start_s=at,
            n_samples=24,
            t_s=[5.0 * k for k in range(12)],
            running=[float(c.concurrency or 0)] * 12,
            waiting=[0.0] * 12,
            kv_usage_frac=[0.1] * 12,
            output_tok_s=[c.output_tok_s] * 12,
            gpus=[gpu],
        )
        found.append(
            CellSeries(
                cell=c.cell,
                n_requests=24,
                ttft=_around(c.ttft_p50_s),
                tpot=_around(c.tpot_p50_s),
                icl=_around(c.tpot_p50_s),
                e2e=_around(10.0),
                telemetry=telemetry,
            )
        )
    return Series(cells=found)


def _around(value_s: float | None) -> Histogram:
    from dsv4bench.records.series import edges_s

    inside = next(i for i, edge in enumerate(edges_s()) if edge > (value_s or 1.0)) - 1
    return Histogram(n=24, first_bin=inside - 1, counts=[5, 15, 4])


def measured(config: str, launch: int, factor: float, **fields: Any) -> ExperimentData:
    cells = [cell(config, c, factor * (1 + 0.002 * (c % 3))) for c in LEVELS]
    return ExperimentData(
        experiment=experiment(config, launch, **fields), cells=cells, series=series(cells, 1.796e9 + 1000 * launch)
    )


def law(config: str) -> ScalingLaw:
    a, b = (x / 1e3 for x in LAWS[config])
    ceiling = 1 / b
    return ScalingLaw(
        config=config,
        isl=1024,
        a_s=a,
        b_s=b,
        ceiling_tok_s=ceiling,
        ceiling_ci_tok_s=(0.98 * ceiling, 1.02 * ceiling),
        knee=a / b,
        knee_ci=None,
        n_launches=2,
        levels=list(LEVELS),
        residuals_frac={"8": 0.004},
        holds=config != "mtp",
        plateau=Plateau(
            from_concurrency=8,
            output_tok_s=ceiling,
            ci_tok_s=None,
            doublings=2.0,
            proven=True,
            text=f"plateau at {ceiling:.1f} tok/s from C=8, proven over 2 doublings",
        ),
        mechanism=Mechanism(
            name="per-sequence kernel cost",
            evidence=["TPOT(32)/TPOT(16) = 1.94", "running requests equal C"],
            excluded=["admission cap", "client"],
        ),
        roofline_tok_s={"16": 1700.0, "32": 2900.0},
    )


def verdicts(config: str, parent: str) -> list[CellVerdict]:
    found = []
    for metric in ("output_tok_s", "tpot_p50_s"):
        for c in (1, 8, 16):
            base, new = tok_s(parent, c), tok_s(config, c)
            if metric == "tpot_p50_s":
                base, new = c / base, c / new
            delta = new / base - 1
            word = Verdict.GAIN if abs(delta) > 0.03 else Verdict.NO_EFFECT if c == 16 else Verdict.UNRESOLVED
            found.append(
                CellVerdict(
                    metric=metric,
                    concurrency=c,
                    isl=1024,
                    config=config,
                    versus="parent",
                    versus_name=parent,
                    base=base,
                    new=new,
                    delta_frac=delta,
                    better=True,
                    ci_frac=(delta - 0.012, delta + 0.012),
                    limit_frac=0.03,
                    verdict=word,
                    grade=Grade.E2,
                    n_base=4,
                    n_new=4,
                    mde_frac=0.021,
                    pairs_needed=8,
                    bound_frac=0.0101 if config == "fp8-cfg" else None,
                    reason="paired launches",
                )
            )
    return found


def breakdown(config: str, concurrency: int) -> BreakdownDocument:
    a, b = LAWS[config]
    span = (a + b * concurrency) * 1e6
    shares = {
        "moe": 0.39,
        "attention": 0.33,
        "dense": 0.11,
        "mhc": 0.04,
        "comm": 0.02,
        "indexer": 0.015,
        "router": 0.01,
        "glue": 0.008,
        "sampling": 0.005,
    }
    components = [
        StepComponent(
            component=name,
            median_ns=round(span * share),
            exclusive_median_ns=round(span * share),
            launches=43.0,
            share_of_step_frac=share,
        )
        for name, share in shares.items()
    ]
    row = KernelRow(
        name="_mxfp4_slot_gemv_kernel",
        component="moe",
        count=4300,
        time_ns=round(20 * span * 0.39),
        share_of_sum_frac=0.42,
        runs_on="cuda",
        evidence="sass",
        waves=1.7,
    )
    device = DeviceBreakdown(
        device=0,
        label=f"C{concurrency}",
        rank=0,
        file="trace.json",
        gpu="NVIDIA RTX PRO 6000 Blackwell",
        window_ns=round(20 * span),
        kernel_sum_ns=round(19 * span),
        kernel_busy_ns=round(19 * span),
        any_busy_ns=round(19 * span),
        copy_only_ns=0,
        idle_ns=round(span),
        overlap_ns=0,
        opaque_graph_ns=0,
        kernels=50000,
        units=[
            UnitTime(runs_on="cuda", time_ns=1, share_of_busy_frac=0.79),
            UnitTime(runs_on="tensor", time_ns=1, share_of_busy_frac=0.12),
        ],
        rows=[row],
    )
    steps = Steps(
        label=f"C{concurrency}",
        count=20,
        method="annotation",
        median_ns=round(span),
        idle_median_ns=round(0.05 * span),
        overlap_median_ns=round(0.02 * span),
        copy_only_median_ns=round(0.002 * span),
        components=components,
    )
    plan = Plan(
        label=f"C{concurrency}",
        concurrency=concurrency,
        unattributed_frac=0.03,
        ceiling_ratio=4.0,
        steps=[
            PlanStep(
                component="moe",
                share_of_step_frac=0.39,
                bound_ratio=1.64,
                speedup=5.0,
                speedup_source="roofline",
                target_ratio=1.45,
                joint_ratio=1.64,
                joint_tok_s=38.0,
                binds="DRAM bytes",
                reason="GEMV reads every expert once a token",
            )
        ],
    )
    return BreakdownDocument(
        config=config,
        concurrency=concurrency,
        isl=1024,
        devices=[device],
        steps=steps,
        steps_by_label=[steps],
        live=[LiveLabel(label=None, moe=["fallback-slot-gemv"], attention=["fallback-perhead"])],
        plans=[plan] if concurrency == 16 else [],
    )


def goal_report() -> GoalReport:
    now = tok_s("baseline", 16)

    def item(name: str, share: float, alone: float, joint: float, speedup: float | None = None) -> PlanReach:
        return PlanReach(
            name=name,
            components=[name.split()[0]],
            share_frac=share,
            kernel_speedup=speedup,
            effort="M",
            alone_ratio=alone,
            alone_tok_s=alone * now,
            joint_ratio=joint,
            joint_tok_s=joint * now,
        )

    return GoalReport(
        config="baseline",
        concurrency=16,
        target_tok_s=1000.0,
        measured_tok_s=now,
        step_s=16 / now,
        needed_ratio=1000.0 / now,
        needed_cut_frac=1 - now / 1000.0,
        unattributed_frac=0.07,
        of="span",
        items=[
            item("moe kernel", 0.39, 1.45, 1.45, 5.0),
            item("attention kernel", 0.38, 1.61, 4.35),
            item("tail", 0.14, 1.16, 11.1),
        ],
        reached=False,
    )


def verdict() -> VerdictDocument:
    return VerdictDocument(
        id="20261201T120000Z-baseline-vs-fp8-cfg-mtp-8bd1",
        created_utc="2026-12-01T12:00:00Z",
        baseline="baseline",
        inputs=[InputNote(name=n, source="dsv4bench", ids=[n], cells_sha256="00") for n in LAWS],
        cells=[*verdicts("fp8-cfg", "baseline"), *verdicts("mtp", "fp8-cfg")],
        levers=[
            LeverVerdict(
                config="mtp",
                parent="fp8-cfg",
                levers=["mtp"],
                bundled=False,
                status=LeverStatus.VERIFIED,
                differing={"speculative_num_steps": [0, 1]},
            )
        ],
        speculation=[
            SpecVerdict(
                config="mtp",
                base="fp8-cfg",
                concurrency=16,
                isl=1024,
                throughput_ratio=1.02,
                tokens_per_step_base=1.0,
                tokens_per_step=1.92,
                step_time_ratio=1.89,
                state=SpecState.SATURATED,
                reason="the step grows as much as the tokens",
            )
        ],
        scaling=ScalingReport(
            laws=[law(n) for n in LAWS],
            predictions=[
                SpecPrediction(
                    config="mtp",
                    base="fp8-cfg",
                    concurrency=8,
                    verified=2,
                    accept_length=1.92,
                    predicted_tok_s=22.5,
                    measured_tok_s=23.2,
                )
            ],
        ),
        goal=goal_report(),
        notes=["launch noise is assumed (1.5 %)"],
    )


def campaign(**fields: Any) -> Campaign:
    configs = list(LAWS)
    launches = [
        LaunchNote(
            order=i + 1,
            block=i // 3 + 1,
            config=configs[i % 3],
            status=LaunchStatus.COMPLETE,
            attempt=1,
            experiment=experiment(configs[i % 3], i + 1).id,
            ready_s=141.0 + i,
            first_generation_s=4.2,
            second_generation_s=0.9,
            command=["python", "-m", "sglang.launch_server", "--tp", "4"],
            notes=["the first generation took 4.7 times the second: a kernel was compiled"],
        )
        for i in range(6)
    ]
    failed = LaunchNote(
        order=7,
        block=3,
        config="mtp",
        status=LaunchStatus.FAILED,
        attempt=2,
        reason="the server ended with exit code 137 after 93 s",
        cause="out of memory: the kernel ended the process",
        log_tail="torch.OutOfMemoryError: CUDA out of memory.\nKilled",
    )
    known: dict[str, Any] = {
        "id": "20261201T010000Z-c16-levers-9f3a",
        "name": "c16-levers",
        "about": "What do the FP8 configuration and MTP buy on four RTX PRO 6000?",
        "status": CampaignStatus.PARTIAL,
        "reason": "one launch failed twice",
        "scenario_sha256": "cd" * 32,
        "started_utc": "2026-12-01T01:00:00Z",
        "ended_utc": "2026-12-01T09:00:00Z",
        "baseline": "baseline",
        "configs": configs,
        "parents": {"fp8-cfg": "baseline", "mtp": "fp8-cfg"},
        "levers": {"fp8-cfg": "fp8_cfg", "mtp": "mtp"},
        "blocks": 2,
        "seed": 11,
        "launches": [*launches, failed],
        "profiles": [ProfileNote(config="mtp", method="torch", error="the profiler did not stop within 120 s")],
        "parity": [
            OutputParity(config="fp8-cfg", base="baseline", same=True, pairs=[_pair(0, None), _pair(1, None)]),
            OutputParity(config="mtp", base="baseline", same=False, pairs=[_pair(0, 41), _pair(1, None)]),
        ],
        "live": [
            LeverLive(
                config="fp8-cfg",
                lever="fp8_cfg",
                state=Live.NOT_LIVE,
                checks=[
                    LiveCheck(
                        where="log", wanted="Using configuration from", seen="default config", state=Live.NOT_LIVE
                    )
                ],
            ),
            LeverLive(
                config="mtp",
                lever="mtp",
                state=Live.LIVE,
                checks=[LiveCheck(where="args", wanted="speculative_num_steps=1", seen="1", state=Live.LIVE)],
            ),
        ],
        "goal": Goal(config="baseline", concurrency=16, output_tok_s=1000.0),
        "verdict": "20261201T120000Z-baseline-vs-fp8-cfg-mtp-8bd1",
        "notes": ["GPU 2 was throttled by its power cap in launch 4"],
    }
    return Campaign(**{**known, **fields})


def _pair(prompt: int, at: int | None) -> OutputPair:
    return OutputPair(
        prompt=prompt,
        n_base=64,
        n_new=64,
        first_difference=at,
        gap=0.02 if at is not None else None,
        near_tie=True if at is not None else None,
    )


def whole() -> ReportInput:
    """Three configurations, two launches each, one of whose levels is invalid; a failed launch; a lever not live."""
    experiments = []
    for i in range(6):
        config = list(LAWS)[i % 3]
        experiments.append(measured(config, i + 1, 1.0 if i < 3 else 1.006))
    bad = experiments[-1]
    cells = [
        *bad.cells[:-1],
        msgspec.structs.replace(bad.cells[-1], invalid=Invalid.CLIENT_SATURATED, invalid_why="worker CPU 97 %"),
    ]
    experiments[-1] = msgspec.structs.replace(bad, cells=cells)
    breakdowns = [breakdown(c, at) for c in ("baseline", "mtp") for at in (1, 16)]
    return ReportInput(
        campaign=campaign(),
        experiments=experiments,
        verdict=verdict(),
        breakdowns=breakdowns,
        warnings=["results/x/series.json: a torn last line was dropped"],
    )


def nothing() -> ReportInput:
    """A campaign whose every launch failed before a level was measured."""
    failed = msgspec.structs.replace(campaign().launches[-1], order=1)
    return ReportInput(
        campaign=campaign(launches=[failed], profiles=[], parity=[], live=[], goal=None, verdict=None, notes=[]),
        experiments=[],
    )


def hostile() -> ReportInput:
    """Every text that a server or a user can set is an attack."""
    bad = f"{HOSTILE}{CLOSING}{HOSTILE_MARKDOWN}"
    r = msgspec.convert(_poisoned(msgspec.to_builtins(whole()), bad), ReportInput)
    laws = {n: bad + n for n in LAWS}
    return msgspec.convert(_renamed(msgspec.to_builtins(r), laws), ReportInput)


_KEPT = {"schema", "status", "state", "verdict", "grade", "endpoint", "prompt_kind", "versus", "window", "runs_on"}
_KEPT |= {"evidence", "engine", "token_source", "invalid", "timestamps", "started_utc", "ended_utc", "id", "ids"}
_KEPT |= {"experiment", "cell", "config", "configs", "baseline", "base", "parent", "component", "of", "arrivals"}
_KEPT |= {"versus_name", "created_utc", "vocab_source"}


def _poisoned(value: Any, bad: str, key: str = "") -> Any:
    """Free text replaced; enumerations, ids and the names that join records kept."""
    if isinstance(value, dict):
        return {k: _poisoned(v, bad, k) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_poisoned(v, bad, key) for v in value]
    return f"{bad} {value}" if isinstance(value, str) and key not in _KEPT else value


def _renamed(value: Any, names: dict[str, str], key: str = "") -> Any:
    """Configurations get hostile names everywhere, keys of dictionaries too."""
    if isinstance(value, dict):
        return {
            names.get(k, k) if key in ("parents", "levers") else k: _renamed(v, names, k) for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        return [_renamed(v, names, key) for v in value]
    return names.get(value, value) if isinstance(value, str) else value
