"""Section 6 of the findings: where the decode time went, by component for every profile, and the kernels behind it.

Components are the comparison's own shares, from which its bounds were taken; a published table of kernels is shown as
it was published. The kernels come from the breakdowns stored with the experiments: shares of kernel time, launches of
one name together whatever their grid, and the unit only with its evidence.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsv4bench.records.breakdown import BreakdownDocument, DeviceBreakdown, KernelRow
from dsv4bench.records.shares import KernelShare, SharesDocument
from dsv4bench.report.breakdown import RUNS_ON
from dsv4bench.report.findings import tables as tables
from dsv4bench.report.findings.data import Compared, Profiled
from dsv4bench.report.findings.tables import tag
from dsv4bench.report.markdown import DASH, number, paragraph, table, text, wrapped

TOP_FRAC = 0.02  # a kernel is shown where it takes this part of kernel time at one level at least
TOP = 6
NAME_LENGTH = 64
NO_BREAKDOWN = "No kernel breakdown at these coordinates."
Column = tuple[str, int, "int | None"]  # config, concurrency, ISL


def kernels(c: Compared) -> str:
    d = c.document
    parts = _shares(c, d.shares) if d.shares is not None and d.shares.shares else []
    if not parts:
        none = "No kernel shares are stored with this comparison." if c.profiles else NO_BREAKDOWN
        parts = [f"{none} {tag(d)}"]
    for config in dict.fromkeys(p.breakdown.config for p in c.profiles):
        parts += _top(c, [p for p in c.profiles if p.breakdown.config == config])
    slowed = _slowed(c.profiles)
    return "\n\n".join([*parts, *([wrapped([f"{slowed} {tag(d)}"])] if slowed else [])])


def _shares(c: Compared, found: SharesDocument) -> list[str]:
    d = c.document
    if found.published or any(s.kernel != s.component for s in found.shares):
        parts = _as_given(c, found.shares)
    else:
        parts = [_components(c, found.shares)]
    source = "published" if found.published else "breakdown"
    notes = [f"source: {source}, {text(found.source)}", *map(text, found.notes)]
    return [*parts, wrapped(f"{n} {tag(d)}" for n in notes)]


def _as_given(c: Compared, shares: Sequence[KernelShare]) -> list[str]:
    """One table a profile: kernels that were named by hand need not be the same ones."""
    parts = []
    for config, level in sorted({(s.config, s.concurrency) for s in shares}, key=lambda k: (k[0], -k[1])):
        own = [s for s in shares if (s.config, s.concurrency) == (config, level)]
        parts.append(f"{text(config)} at C={level}:\n\n{tables.kernel_table(own, c.document)}")
    return parts


# --- components, every profile side by side -----------------------------------------------------------------


def _components(c: Compared, shares: Sequence[KernelShare]) -> str:
    order = [i.name for i in c.document.inputs]
    columns: list[Column] = sorted(
        {(s.config, s.concurrency, s.isl) for s in shares},
        key=lambda k: (order.index(k[0]) if k[0] in order else len(order), k[1], k[2] or 0),
    )
    by_place = {k: {s.component: s for s in shares if (s.config, s.concurrency, s.isl) == k} for k in columns}
    bases = {s.of for s in shares}
    rows = []
    for component in sorted({s.component for s in shares}, key=lambda x: -_most(x, shares)):
        own = [by_place[k].get(component) for k in columns]
        shown = [DASH if s is None else _part(s.share_frac) for s in own]
        rows.append([text(component), *shown, tag(c.document)])
    left = [max(0.0, 1 - sum(s.share_frac for s in by_place[k].values())) for k in columns]
    rows.append(["unattributed", *map(_part, left), tag(c.document)])
    steps = [_step_ms(c.profiles, k) for k in columns]
    if any(s is not None for s in steps):
        rows.append(["decode step, ms", *map(number, steps), tag(c.document)])
    isls = {k[2] for k in columns}
    head = [f"{text(k[0])} {_level(k, isls)}{'' if len(bases) == 1 else f' ({_base(by_place[k])})'}" for k in columns]
    of = f" ({tables.of_what(next(iter(bases)))})" if len(bases) == 1 else ""
    return table([f"component{of}", *head, ""], rows)


def _most(component: str, shares: Sequence[KernelShare]) -> float:
    return max(s.share_frac for s in shares if s.component == component)


def _part(frac: float) -> str:
    """One decimal, so that a column of large and small parts can be read down."""
    return f"{100 * frac:.1f} %"


def _base(own: dict[str, KernelShare]) -> str:
    return tables.of_what(next(iter(own.values())).of)


def _level(column: Column, isls: set[int | None]) -> str:
    return f"C={column[1]}" + (f", ISL {column[2]}" if len(isls) > 1 and column[2] is not None else "")


def _step_ms(profiles: Sequence[Profiled], column: Column) -> float | None:
    found = [p.breakdown for p in profiles if _place(p.breakdown) == column]
    steps = found[0].steps if found else None
    return None if steps is None or steps.median_ns is None else steps.median_ns / 1e6


def _place(b: BreakdownDocument) -> Column:
    return b.config or "", b.concurrency or 0, b.isl


# --- kernels by name ------------------------------------------------------------------------------------------


def _top(c: Compared, own: Sequence[Profiled]) -> list[str]:
    """The kernels of one configuration, its levels side by side."""
    own = sorted(own, key=lambda p: (p.breakdown.concurrency or 0, p.breakdown.isl or 0))
    devices = {id(p): _busiest(p.breakdown.devices) for p in own}
    own = [p for p in own if (one := devices[id(p)]) is not None and one.rows]
    if not own:
        return []
    by_level = [_by_name(_rows(devices[id(p)])) for p in own]
    sums = [max(1, sum(r.time_ns for r in _rows(devices[id(p)]))) for p in own]
    frac = {
        name: [_time(level.get(name)) / whole for level, whole in zip(by_level, sums, strict=True)]
        for name in dict.fromkeys(name for level in by_level for name in level)
    }
    ranked = sorted(frac, key=lambda name: -max(frac[name]))
    top = [name for name in ranked if max(frac[name]) >= TOP_FRAC][:TOP]
    rows = []
    for name in top:
        largest = max((r for level in by_level for r in level.get(name, [])), key=lambda r: r.time_ns)
        shown = [_part(x) if x else DASH for x in frac[name]]
        rows.append([_cut(name), text(largest.component), *shown, _unit(largest), tag(c.document)])
    rest = [n for n in ranked if n not in top]
    if rest:
        left = [_part(sum(frac[n][i] for n in rest)) for i in range(len(own))]
        rows.append([f"the other {len(rest)}", "", *left, "", tag(c.document)])
    isls = {p.breakdown.isl for p in own}
    head = ["kernel", "component", *(_level(_place(p.breakdown), isls) for p in own), "runs on (evidence)", ""]
    return [paragraph(f"{_caption(own)} {tag(c.document)}"), table(head, rows)]


def _caption(own: Sequence[Profiled]) -> str:
    live = dict.fromkeys(one.text for p in own for one in p.breakdown.live if one.moe or one.attention)
    said = f" ({text('; '.join(live))})" if live else ""
    several = max(len(p.breakdown.devices) for p in own)
    device = f", of the busiest of {several} devices" if several > 1 else ""
    where = ", ".join(dict.fromkeys(p.source for p in own))
    least = f"{100 * TOP_FRAC:g} % of the recorded kernel time or more at one level"
    return f"{text(own[0].breakdown.config)}{said}: the largest kernels, {least}{device}; from {text(where)}:"


def _busiest(devices: Sequence[DeviceBreakdown]) -> DeviceBreakdown | None:
    return max(devices, key=lambda d: d.kernel_sum_ns, default=None)


def _rows(device: DeviceBreakdown | None) -> list[KernelRow]:
    return device.rows if device is not None else []


def _by_name(rows: Sequence[KernelRow]) -> dict[str, list[KernelRow]]:
    found: dict[str, list[KernelRow]] = {}
    for r in rows:
        found.setdefault(r.name, []).append(r)
    return found


def _time(rows: Sequence[KernelRow] | None) -> int:
    return sum(r.time_ns for r in rows or ())


def _unit(r: KernelRow) -> str:
    return RUNS_ON[r.runs_on] + (f" ({r.evidence})" if r.evidence != "none" else "")


def _cut(name: str) -> str:
    """Templates of C++ fill lines; the beginning tells the kernel."""
    return text(name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…")


def _slowed(profiles: Sequence[Profiled]) -> str:
    """What recording itself cost."""
    ratios = [n.inflation_ratio for p in profiles for n in p.breakdown.captures if n.inflation_ratio is not None]
    if not ratios:
        return ""
    methods = ", ".join(dict.fromkeys(n.method for p in profiles for n in p.breakdown.captures))
    worst = max(ratios)
    return f"recording ({text(methods)}) made TPOT {100 * (worst - 1):.1f} % longer at most"
