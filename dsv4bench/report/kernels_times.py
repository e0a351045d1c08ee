"""Times of kernels beside each other: a table a component for the terminal, the same and a matrix in Markdown.

Microseconds a call. GB/s counts the bytes that any implementation must move, so it is a rate of work, not of traffic;
its share is of the read-only stream measured in the same run. A kernel that was not timed is named with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsv4bench.records.kernels import AbDocument, BenchDocument, KernelTime, ReadCeiling
from dsv4bench.report import markdown
from dsv4bench.report.kernels_device import facts, title, warning

DASH = "–"
NAMES = {"moe": "MoE", "attention": "sparse attention"}
BATCH = {"moe": "tokens", "attention": "requests"}
ROLES = {"fallback": "fallback", "second_fallback": "2nd fallback", "optimized": "optimized", "peer": "peer"}
HEADS = (
    "kernel",
    "role",
    "µs",
    "again",
    "p10–p90",
    "speed-up",
    "GB/s",
    "of read",
    "floor µs",
    "TFLOP/s",
    "parity",
)
COUNTERS = ("tensor", "DRAM")


def print_bench(d: BenchDocument, console: Console) -> None:
    """Title, a table a component and shape, what was not timed, the ceiling, the notes."""
    _say(console, title(d.device))
    for shape, rows in _groups(d.rows):
        _say(console, "")
        _say(console, shape)
        console.print(bench_table(rows))
    _say(console, "")
    for line in (*absent(d.rows), *footer(d)):
        _say(console, line)


def bench_table(rows: Sequence[KernelTime]) -> Table:
    """The timed rows of one component and shape, by batch."""
    counted = any(r.tensor_pipe_pct is not None or r.dram_pct is not None for r in rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in (BATCH[rows[0].component], *HEADS, *(COUNTERS if counted else ())):
        left = head in ("kernel", "role", "parity")
        table.add_column(head, no_wrap=True, justify="left" if left else "right")
    for row in (r for r in rows if r.us is not None):
        table.add_row(*map(Text, (str(row.batch), *_cells(row), *(_counters(row) if counted else ()))))
    return table


def bench_markdown(d: BenchDocument) -> str:
    """A page: title, facts, a matrix and the full table of each component, what was not timed, notes."""
    parts = [f"# Kernel times: {title(d.device)}", f"{d.created_utc}, dsv4bench {d.tool}. {facts(d.device)}."]
    for shape, rows in _groups(d.rows):
        timed = [r for r in rows if r.us is not None]
        if not timed:
            continue
        head = (BATCH[timed[0].component], *HEADS)
        parts += [f"## {shape}", _matrix(timed)]
        parts.append(markdown.table(head, [(str(r.batch), *map(markdown.text, _cells(r))) for r in timed]))
    missing = absent(d.rows)
    if missing:
        parts += ["## Not timed", markdown.bullets(map(markdown.text, missing))]
    parts += ["## How to read it", markdown.bullets(map(markdown.text, footer(d)))]
    return "\n\n".join(parts) + "\n"


def print_ab(d: AbDocument, console: Console) -> None:
    """The verdicts of two kernels in turn."""
    _say(console, f"{d.new} vs {d.base}: {title(d.device)}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    heads = _ab_heads(d)
    for head in heads:
        table.add_column(head, no_wrap=True, justify="left" if head == "verdict" else "right")
    for row in _ab_rows(d):
        table.add_row(*map(Text, row))
    console.print(table)
    for line in _ab_lines(d):
        _say(console, line)


def ab_markdown(d: AbDocument) -> str:
    parts = [
        f"# {d.new} vs {d.base}: {title(d.device)}",
        f"{d.created_utc}, dsv4bench {d.tool}. {facts(d.device)}.",
        markdown.table(_ab_heads(d), [[markdown.text(c) for c in row] for row in _ab_rows(d)]),
        markdown.bullets(map(markdown.text, _ab_lines(d))),
    ]
    return "\n\n".join(parts) + "\n"


def absent(rows: Sequence[KernelTime]) -> list[str]:
    """`marlin: not timed: …`, once for all batches that share a reason."""
    found: dict[tuple[str, str], list[int]] = {}
    batches: dict[str, set[int]] = {}
    for r in rows:
        batches.setdefault(r.kernel, set()).add(r.batch)
        if r.us is None:
            found.setdefault((r.kernel, r.why_null or "no reason told"), []).append(r.batch)
    lines = []
    for (kernel, why), where in found.items():
        part = "" if set(where) == batches[kernel] else f" at {', '.join(map(str, sorted(where)))}"
        lines.append(f"{kernel}: not timed{part}: {why}")
    return lines


def footer(d: BenchDocument) -> list[str]:
    """What the figures rest on."""
    lines = [] if d.ceiling is None else ceiling_lines(d.ceiling)
    lines.append("GB/s, share and floor count the bytes that any implementation must move, each once")
    lines.append("speed-up is over the component's fallback in this run")
    warned = warning(d.device)
    return [*lines, *([warned] if warned else []), *d.notes]


def ceiling_lines(c: ReadCeiling) -> list[str]:
    stream = f"read ceiling of this run: {c.stream_gb_s:.0f} GB/s over {c.stream_bytes / 2**30:.1f} GiB"
    if not c.cold_gb_s:
        return [stream]
    sizes = ", ".join(f"{mb} MB {rate:.0f}" for mb, rate in c.cold_gb_s.items())
    return [stream, f"one cold launch reads {sizes} GB/s; floor µs is interpolated between these"]


def _groups(rows: Sequence[KernelTime]) -> list[tuple[str, list[KernelTime]]]:
    """`MoE, E256 top6 …` → its rows by batch, in the order given."""
    found: dict[str, list[KernelTime]] = {}
    for r in rows:
        found.setdefault(f"{NAMES[r.component]}, {r.shape}", []).append(r)
    return [(shape, sorted(group, key=lambda r: r.batch)) for shape, group in found.items()]


def _cells(r: KernelTime) -> list[str]:
    return [
        r.kernel,
        ROLES[r.role],
        us(r.us),
        us(r.us_again),
        DASH if r.us_p10 is None or r.us_p90 is None else f"{us(r.us_p10)}–{us(r.us_p90)}",
        DASH if r.speedup is None else f"{r.speedup:.2f}x" if r.speedup < 10 else f"{r.speedup:.1f}x",
        _number(r.gb_s),
        DASH if r.read_frac is None else f"{100 * r.read_frac:.1f} %",
        us(r.floor_us),
        DASH if r.tflop_s is None else f"{r.tflop_s:.1f}",
        r.parity or DASH,
    ]


def _counters(r: KernelTime) -> list[str]:
    return [DASH if v is None else f"{v:.1f} %" for v in (r.tensor_pipe_pct, r.dram_pct)]


def _matrix(timed: Sequence[KernelTime]) -> str:
    """Kernels down, batches across: microseconds, and the speed-up in brackets."""
    batches = sorted({r.batch for r in timed})
    rows = []
    for kernel in dict.fromkeys(r.kernel for r in timed):
        at = {r.batch: r for r in timed if r.kernel == kernel}
        rows.append([kernel, *(_brief(at.get(b)) for b in batches)])
    return markdown.table((f"µs by {BATCH[timed[0].component]}", *map(str, batches)), rows)


def _brief(r: KernelTime | None) -> str:
    if r is None:
        return DASH
    return us(r.us) + ("" if r.speedup is None or r.role == "fallback" else f" ({r.speedup:.1f}x)")


def us(value: float | None) -> str:
    """Four significant digits at most, never an exponent: 13.4, 416.7, 26388."""
    if value is None:
        return DASH
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:.0f}" if value >= 10 else f"{value:.2f}"


def _ab_heads(d: AbDocument) -> tuple[str, ...]:
    return (BATCH[d.component], "base µs", "new µs", "change", "interval", "limit", "pairs", "verdict")


def _ab_rows(d: AbDocument) -> list[list[str]]:
    rows = []
    for r in d.rows:
        interval = DASH if r.ci_frac is None else f"[{r.ci_frac[0]:+.1%}, {r.ci_frac[1]:+.1%}]"
        rows.append(
            [
                str(r.batch),
                us(r.base_us),
                us(r.new_us),
                DASH if r.delta_frac is None else f"{r.delta_frac:+.1%}",
                interval,
                DASH if r.limit_frac is None else f"{r.limit_frac:.0%}",
                str(r.pairs),
                str(r.verdict or "no verdict"),
            ]
        )
    return rows


def _ab_lines(d: AbDocument) -> list[str]:
    """The reasons, the notes, and what the change is of."""
    warned = warning(d.device)
    reasons = [f"{BATCH[d.component]} {r.batch}: {r.reason}" for r in d.rows if r.reason]
    return [f"change of time vs {d.base}; less is faster", *reasons, *([warned] if warned else []), *d.notes]


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
