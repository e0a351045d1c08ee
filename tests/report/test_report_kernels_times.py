"""Tables of kernel times and of parity, as they are printed and as they are stored."""

from __future__ import annotations

import io
import itertools
from typing import Any

import msgspec
from rich.console import Console

from dsv4bench.records.kernels import (
    AbDocument,
    AbRow,
    BenchDocument,
    DeviceFacts,
    KernelTime,
    ParityDocument,
    ParityRow,
    ReadCeiling,
)
from dsv4bench.records.verdict import Grade, Verdict
from dsv4bench.report.kernels_device import facts, title, warning
from dsv4bench.report.kernels_parity import parity_markdown, print_parity
from dsv4bench.report.kernels_times import ab_markdown, absent, bench_markdown, print_ab, print_bench, us

H200 = DeviceFacts(
    name="NVIDIA H200", arch="sm_90", sms=132, l2_bytes=60 << 20, driver="580.159", torch="2.11.0", triton="3.6.0"
)
PRO = msgspec.structs.replace(H200, name="NVIDIA RTX PRO 6000", arch="sm_120")
CPU = DeviceFacts(name="cpu (Triton interpreter)", torch="2.13.0", triton="3.6.0")


def time(kernel: str, batch: int, value: float | None, **more: Any) -> KernelTime:
    given: dict[str, Any] = {
        "component": "moe",
        "role": "peer",
        "shape": "E256 top6 D4096 I2048",
        "parity": None if value is None else "green",
        **more,
    }
    return KernelTime(kernel=kernel, batch=batch, us=value, us_again=value, us_p10=value, us_p90=value, **given)


def bench() -> BenchDocument:
    slow: dict[str, Any] = {"role": "fallback", "speedup": 1.0, "gb_s": 190.0}
    rows = [
        time("slot_gemv", 1, 423.3, **slow, read_frac=0.042, floor_us=21.1, tflop_s=0.7),
        time("marlin", 1, None, why_null="vllm cannot be imported"),
        time("quick", 1, 54.2, speedup=7.81, gb_s=1481.4, read_frac=0.327, floor_us=21.1, tflop_s=5.6),
        time("slot_gemv", 16, 5852.0, **slow, read_frac=0.041),
        time("marlin", 16, None, why_null="vllm cannot be imported"),
        time("quick", 16, None, why_null="its result is wrong on this data"),
        time("per_head", 1, 9.87, component="attention", role="fallback", shape="H64", speedup=1.0, gb_s=1.79),
    ]
    return BenchDocument(
        created_utc="2026-11-30T06:09:42.006Z",
        tool="0.1.0",
        device=H200,
        ceiling=ReadCeiling(stream_gb_s=4528.4, stream_bytes=4 << 30, cold_gb_s={"27": 3212.0, "80.02": 3793.0}),
        rows=rows,
        code={},
        notes=["a note"],
    )


def printed(show: Any, document: Any) -> list[str]:
    out = io.StringIO()
    show(document, Console(file=out, width=200))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_benchmark_on_the_terminal() -> None:
    assert printed(print_bench, bench()) == [
        "NVIDIA H200 (sm_90, not sm_120)",
        "",
        "MoE, E256 top6 D4096 I2048",
        "tokens  kernel     role         µs  again      p10–p90  speed-up  GB/s  of read  floor µs  TFLOP/s  parity",
        "     1  slot_gemv  fallback  423.3  423.3  423.3–423.3     1.00x   190    4.2 %      21.1      0.7  green",
        "     1  quick      peer       54.2   54.2    54.2–54.2     7.81x  1481   32.7 %      21.1      5.6  green",
        "    16  slot_gemv  fallback   5852   5852    5852–5852     1.00x   190    4.1 %         –        –  green",
        "",
        "sparse attention, H64",
        "requests  kernel    role        µs  again    p10–p90  speed-up  GB/s  of read  floor µs  TFLOP/s  parity",
        "       1  per_head  fallback  9.87   9.87  9.87–9.87     1.00x  1.79        –         –        –  green",
        "",
        "marlin: not timed: vllm cannot be imported",
        "quick: not timed at 16: its result is wrong on this data",
        "read ceiling of this run: 4528 GB/s over 4.0 GiB",
        "one cold launch reads 27 MB 3212, 80.02 MB 3793 GB/s; floor µs is interpolated between these",
        "GB/s, share and floor count the bytes that any implementation must move, each once",
        "speed-up is over the component's fallback in this run",
        "measured on sm_90: structure and correctness carry over to sm_120, figures do not",
        "a note",
    ]


def test_a_benchmark_as_a_page() -> None:
    lines = bench_markdown(bench()).splitlines()
    assert lines[0] == "# Kernel times: NVIDIA H200 (sm_90, not sm_120)"
    assert lines[2] == (
        "2026-11-30T06:09:42.006Z, dsv4bench 0.1.0. 132 SMs, L2 60 MiB, driver 580.159, torch 2.11.0, triton 3.6.0."
    )
    at = lines.index("| µs by tokens | 1 | 16 |")
    assert lines[at + 2 : at + 4] == ["| slot_gemv | 423.3 | 5852 |", "| quick | 54.2 (7.8x) | – |"]
    assert "| 1 | quick | peer | 54.2 | 54.2 | 54.2–54.2 | 7.81x | 1481 | 32.7 % | 21.1 | 5.6 | green |" in lines
    assert "- marlin: not timed: vllm cannot be imported" in lines and "- a note" in lines
    for before, line in itertools.pairwise(lines):
        if before.startswith("|") and line.startswith("|"):
            assert before.count("|") == line.count("|")


def test_counters_have_columns_only_where_they_were_read() -> None:
    document = bench()
    assert "tensor" not in "\n".join(printed(print_bench, document))
    counted = msgspec.structs.replace(document.rows[0], tensor_pipe_pct=0.0, dram_pct=3.94)
    lines = printed(print_bench, msgspec.structs.replace(document, rows=[counted, *document.rows[1:]]))
    assert lines[3].endswith("parity  tensor   DRAM") and lines[4].endswith("green    0.0 %  3.9 %")
    assert lines[5].endswith("green        –      –")


def test_the_campaigns_own_gpu_carries_no_warning() -> None:
    assert title(PRO) == "NVIDIA RTX PRO 6000 (sm_120)" and warning(PRO) is None
    assert title(CPU) == "cpu (Triton interpreter)" and "figures do not" in (warning(CPU) or "")
    assert facts(CPU) == "torch 2.13.0, triton 3.6.0"


def test_one_reason_for_all_batches_is_one_line() -> None:
    assert absent([time("a", 1, None, why_null="x"), time("a", 4, None, why_null="x"), time("b", 1, 2.0)]) == [
        "a: not timed: x"
    ]
    assert absent([time("a", 4, None, why_null="x"), time("a", 1, 3.0)]) == ["a: not timed at 4: x"]


def test_microseconds_have_four_digits_and_no_exponent() -> None:
    assert [us(v) for v in (1.234, 13.44, 416.74, 26388.2, None)] == ["1.23", "13.4", "416.7", "26388", "–"]


def verdicts() -> AbDocument:
    row = AbRow(
        batch=16,
        shape="H64",
        base_us=1755.2,
        new_us=231.3,
        delta_frac=-0.868,
        ci_frac=(-0.87, -0.866),
        limit_frac=0.02,
        pairs=6,
        verdict=Verdict.GAIN,
        grade=Grade.E2,
        reason="-86.8 % [-87.0, -86.6]",
    )
    return AbDocument(
        created_utc="2026-11-30T06:09:42Z",
        tool="0.1.0",
        device=H200,
        component="attention",
        base="per_head",
        new="multi_head",
        code={},
        rows=[row],
    )


def test_a_verdict_names_what_it_is_of() -> None:
    assert printed(print_ab, verdicts()) == [
        "multi_head vs per_head: NVIDIA H200 (sm_90, not sm_120)",
        "requests  base µs  new µs  change          interval  limit  pairs  verdict",
        "      16     1755   231.3  -86.8%  [-87.0%, -86.6%]     2%      6  GAIN",
        "change of time vs per_head; less is faster",
        "requests 16: -86.8 % [-87.0, -86.6]",
        "measured on sm_90: structure and correctness carry over to sm_120, figures do not",
    ]
    page = ab_markdown(verdicts()).splitlines()
    assert page[0] == "# multi_head vs per_head: NVIDIA H200 (sm_90, not sm_120)"
    assert "| 16 | 1755 | 231.3 | -86.8% | [-87.0%, -86.6%] | 2% | 6 | GAIN |" in page


def parity() -> ParityDocument:
    def row(kernel: str, case: str, **more: Any) -> ParityRow:
        return ParityRow(kernel=kernel, case=case, rel_fro_limit=1e-2, **more)

    return ParityDocument(
        created_utc="2026-11-30T06:09:42Z",
        tool="0.1.0",
        device=H200,
        code={"good": "6764feb2fca4", "bad": "73835b59d569", "elsewhere": "f2f34657c9c7"},
        green=["good"],
        red=["bad"],
        rows=[
            row("good", "E256 M1", outcome="pass", rel_fro=4.9e-3, worst=0.48),
            row("good", "E256 M4", outcome="pass", rel_fro=5.8e-3, worst=0.31),
            row("bad", "H64 B4", outcome="fail", rel_fro=0.2, worst=7.5, lse_worst=0.1, why="relative error 2e-1"),
            row("bad", "H64 B1", outcome="fail", why="3 of 64 elements of out are NaN"),
            row("elsewhere", "all", outcome="skipped", why="it does not support sm_90"),
        ],
        notes=["a note"],
    )


def test_parity_on_the_terminal() -> None:
    assert printed(print_parity, parity()) == [
        "parity on NVIDIA H200 (sm_90, not sm_120)",
        "kernel     parity           passed  failed  skipped  relative error    limit  worst element          text",
        "good       green                 2       0        0         5.8e-03  1.0e-02           0.48  6764feb2fca4",
        "bad        RED                   0       2        0         2.0e-01  1.0e-02           7.50  73835b59d569",
        "elsewhere  nothing checked       0       0        1               –        –              –  f2f34657c9c7",
        "RED bad, H64 B4: relative error 2e-1",
        "RED bad, H64 B1: 3 of 64 elements of out are NaN",
        "elsewhere: not checked: it does not support sm_90",
        "a note",
    ]


def test_parity_as_a_page_has_every_case() -> None:
    lines = parity_markdown(parity()).splitlines()
    assert lines[0] == "# Kernel parity: NVIDIA H200 (sm_90, not sm_120)"
    assert "| H64 B4 | fail | 2.0e-01 | 1.0e-02 | 7.500 | 0.100 | relative error 2e-1 |" in lines
    assert sum(line.startswith("| ") and "| pass |" in line for line in lines) == 2
    assert "| all | skipped | – | 1.0e-02 | – | – | it does not support sm_90 |" in lines
    heads = [line for line in lines if line.startswith("| ---")]
    assert len(heads) == 4
