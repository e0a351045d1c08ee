"""The GPUs' counters under and in a sweep's table, letter by letter."""

from __future__ import annotations

import io
from textwrap import dedent
from typing import Any

from report_cells import make_cell
from rich.console import Console

from dsv4bench.records.cell import Cell
from dsv4bench.records.device import DeviceActivity, Share
from dsv4bench.report.console import WIDTH
from dsv4bench.report.table import print_sweep

OF = ".avg.pct_of_peak_sustained_elapsed"


def shown(cells: list[Cell]) -> str:
    out = Console(file=io.StringIO(), width=WIDTH, color_system=None)
    print_sweep(cells, None, out)
    return "\n".join(line.rstrip() for line in out.file.getvalue().splitlines())  # type: ignore[attr-defined]


def text(block: str) -> str:
    return dedent(block).strip("\n")


def share(metric: str, mean: float, p50: float, p99: float) -> Share:
    return Share(metric=metric + OF, mean_frac=mean, p50_frac=p50, p99_frac=p99)


def cell(c: int, tensor: float, sm: float, dram: float | None, **fields: Any) -> Cell:
    made: dict[str, Any] = {
        "method": "CUPTI PM sampling",
        "gpus": [0],
        "compute": "12.0",
        "window": "steady",
        "window_s": 4.0,
        "interval_s": 2e-4,
        "n_samples": 20000,
        "n_dropped": 0,
        "tensor_pipe": share("sm__pipe_tensor_cycles_active", tensor, tensor / 2, min(tensor * 10, 1.0)),
        "sm": share("sm__cycles_active", sm, sm, sm),
        "dram": None if dram is None else share("dram__throughput", dram, dram, dram),
        **fields,
    }
    device = DeviceActivity(**made)
    return make_cell(
        c, achieved_batch=float(c), tensor_pipe_frac=tensor, sm_active_frac=sm, dram_frac=dram, device=device
    )


def test_columns_and_what_they_rest_on() -> None:
    cells = [cell(1, 0.0026, 0.72, 0.061), cell(8, 0.031, 0.91, 0.1234), cell(16, 0.928, 0.956, 0.17)]
    assert shown(cells) == text("""
            output  steady   tok/s  TTFT ms        TPOT ms        achieved  tensor pipe %               SM %  DRAM %
         C   tok/s   tok/s  a user      p50   p99      p50   p99     batch           mean   p50    p99  mean    mean  failed
         1    23.5    24.0     3.0      123  2500      330  7.89       1.0           0.26  0.13   2.60  72.0    6.10       0
         8    23.5    24.0     3.0      123  2500      330  7.89       8.0           3.10  1.55   31.0  91.0    12.3       0
        16    23.5    24.0     3.0      123  2500      330  7.89      16.0           92.8  46.4  100.0  95.6    17.0       0
        kernel receive stamps; client lag p99 at most 0.12 ms; tokens from usage
        tensor pipe, SM, DRAM: % of elapsed cycles over the steady window (prefills of the requests that follow are inside); CUPTI PM sampling, samples of 0.2 ms, GPU 0: sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed, sm__cycles_active.avg.pct_of_peak_sustained_elapsed, dram__throughput.avg.pct_of_peak_sustained_elapsed
        repeats: 1; a verdict in compare needs --repeat 5 or more
    """)  # noqa: E501


def test_a_level_says_what_was_lost_and_where_the_sms_were_idle() -> None:
    cells = [
        cell(1, 0.01, 0.1, 0.06, n_dropped=50, n_samples=950),
        cell(
            8, 0.02, 0.8, None, window="level", notes=["NVML names no process on any GPU: all of them were sampled"]
        ),
    ]
    lines = shown(cells).splitlines()
    assert lines[2].split()[-2:] == ["6.00", "0"] and lines[3].split()[-2:] == ["–", "0"]  # no DRAM figure is no 0
    assert lines[4] == (
        "C=1: 50 of 1000 counter samples dropped; SMs active 10.0 %: idle between kernels, or kernels on few SMs, "
        "so a low tensor pipe says little of the kernels"
    )
    assert lines[5] == "C=8: no steady window: counters are over the whole level"
    assert sum("% of elapsed cycles over the steady" in line for line in lines) == 1
    assert sum("% of elapsed cycles over the level;" in line for line in lines) == 1
    assert "NVML names no process on any GPU: all of them were sampled" in lines


def test_where_half_arithmetic_runs_on_the_tensor_pipe_it_is_said() -> None:
    lines = shown([cell(1, 0.0126, 0.9, 0.1, compute="9.0")]).splitlines()
    assert (
        "on sm_90 packed half arithmetic (HFMA2) runs on the tensor pipe, too: about 1 % may be without a single "
        "matrix instruction"
    ) in lines
    assert "HFMA2" not in shown([cell(1, 0.0126, 0.9, 0.1, compute="12.0")])
    assert "HFMA2" not in shown([cell(1, 0.0126, 0.9, 0.1, compute=None)])


def test_matrix_instructions_alone_where_the_chip_tells_them_apart() -> None:
    mma = "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active"
    cells = [
        cell(1, 0.0126, 0.9, 0.1, compute="9.0", tensor_mma=share(mma, 0.0, 0.0, 0.0)),
        cell(16, 0.93, 0.9, 0.1, compute="9.0", tensor_mma=share(mma, 0.92, 0.9, 1.0)),
    ]
    assert (
        "on sm_90 packed half arithmetic (HFMA2) runs on the tensor pipe, too; matrix instructions alone: "
        "C=1 0.00 %, C=16 92.0 %"
    ) in shown(cells).splitlines()


def test_no_counters_no_columns() -> None:
    assert "tensor" not in shown([make_cell(8)])
