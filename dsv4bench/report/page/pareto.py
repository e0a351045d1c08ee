"""The price of throughput: what does one user get while the server gives that much in all?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dsv4bench.records.campaign import ReportInput
from dsv4bench.report.page import drawing, levels
from dsv4bench.report.page.blocks import Block, Figure, Row, Table, missing
from dsv4bench.report.page.words import figure, reason

NAME_WIDTH, NAME_HEIGHT = 0.12, 0.06  # of the axes, at the narrowest


def blocks(r: ReportInput) -> list[Block]:
    isls = levels.prompt_lengths(levels.measured(r))
    return [_figure(r, isl, several=len(isls) > 1) for isl in isls]


def _figure(r: ReportInput, isl: int, several: bool) -> Block:
    here = levels.closed(levels.measured(r), isl)
    title = "Per-user speed against throughput" + (f", ISL {isl}" if several else "")
    names = levels.configs(r)
    order = {name: i for i, name in enumerate(names)}
    rows: list[Row] = []
    for (config, (c, _)), cells in sorted(levels.by_level(here).items(), key=lambda i: (order[i[0][0]], i[0][1])):
        user, whole = levels.mean(cells, "tok_s_per_user"), levels.mean(cells, "output_tok_s")
        if user is not None and whole is not None:
            rows.append({"config": config, "concurrency": c, "tok_s_per_user": user, "output_tok_s": whole})
    if not rows:
        return missing(f"{title}: no data: {reason((m.cell for m in here), 'tok_s_per_user')}.")

    def draw(data: Mapping[str, Sequence[Row]]) -> Any:
        return _chart(data, names)

    rows = _labelled(rows)
    logs = [
        name
        for name, field in (("per-user speed", "tok_s_per_user"), ("throughput", "output_tok_s"))
        if drawing.is_wide([row[field] for row in rows])
    ]
    axes = f" Logarithmic axis: {' and '.join(logs)}." if logs else ""
    return Figure(
        id=f"pareto-{isl}",
        title=title,
        see="Up and to the right is better for everyone; along a line, more concurrency trades one user's speed "
        f"for the sum. Marks are means over the valid cells of a level.{axes}",
        rows={"means": rows},
        draw=draw,
        table=Table(
            "Per-user speed (1 / mean TPOT) and throughput; means over valid cells",
            ["configuration", "C", "tok/s a user", "output tok/s in all"],
            [
                [row["config"], str(row["concurrency"]), figure(row["tok_s_per_user"]), figure(row["output_tok_s"])]
                for row in rows
            ],
        ),
        keys=levels.keys(r, {row["config"] for row in rows}),
        height=320,
    )


def _labelled(rows: Sequence[Row]) -> list[Row]:
    """A level's name at its mark, the best throughput first; none where it would lie on another one."""
    axes = [_placed([row[field] for row in rows]) for field in ("tok_s_per_user", "output_tok_s")]
    taken: list[tuple[float, float]] = []
    named: set[int] = set()
    for i in sorted(range(len(rows)), key=lambda i: -rows[i]["output_tok_s"]):
        x, y = axes[0][i], axes[1][i]
        if all(abs(x - u) > NAME_WIDTH or abs(y - v) > NAME_HEIGHT for u, v in taken):
            taken.append((x, y))
            named.add(i)
    return [{**row, "label": f"C={row['concurrency']}" if i in named else ""} for i, row in enumerate(rows)]


def _placed(values: Sequence[float]) -> list[float]:
    """From 0 to 1 along the axis that these values get."""
    wide = drawing.is_wide(values)
    low, high = (math.log(min(values)), math.log(max(values))) if wide else (0.0, max(values))
    return [((math.log(v) if wide else v) - low) / ((high - low) or 1.0) for v in values]


def _chart(rows: Mapping[str, Sequence[Row]], names: Sequence[str]) -> Any:
    import altair as alt

    means = rows["means"]
    x = drawing.value_axis(
        "tok_s_per_user", [r["tok_s_per_user"] for r in means], title="tok/s a user (1 / mean TPOT)", channel="x"
    )
    y = drawing.value_axis("output_tok_s", [r["output_tok_s"] for r in means])
    color, shape = drawing.config_color(names), drawing.config_shape(names)
    tips = [
        "config:N",
        "concurrency:Q",
        alt.Tooltip("tok_s_per_user:Q", format=".4r", title="tok/s a user"),
        alt.Tooltip("output_tok_s:Q", format=".4r", title="output tok/s in all"),
    ]
    base = alt.Chart(drawing.data(rows, "means"))
    chart = alt.layer(
        base.mark_line().encode(x=x, y=y, color=color, order="concurrency:Q"),
        base.mark_point(filled=True, opacity=1).encode(x=x, y=y, color=color, shape=shape, tooltip=tips),
        base.mark_text(align="left", dx=7, dy=-7, style="ink").encode(x=x, y=y, text="label:N"),
    )
    return drawing.framed(chart, "output tok/s, all requests together", 320)
