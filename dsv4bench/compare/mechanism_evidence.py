"""What stands beside a mechanism: the ratios it was told by, the argument that equals a cap, what looks alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsv4bench.compare.symptoms import BURSTY, RUN_LIMITS, Pair, argument
from dsv4bench.records.arm import Plain

CAP_ARGUMENTS = (*RUN_LIMITS, "cuda_graph_max_bs")


def by_text(found: Sequence[tuple[str, str]]) -> list[str]:
    """(name, text) -> one line a text, with the names that share it."""
    names: dict[str, list[str]] = {}
    for name, text in found:
        names.setdefault(text, []).append(name)
    return [f"{', '.join(who)}: {text}" for text, who in names.items()]


def observed(p: Pair) -> list[str]:
    """The ratios themselves, for the reader who wants to judge."""
    ratios = (
        ("throughput", p.throughput_ratio),
        ("TPOT", p.tpot_ratio),
        (f"{_average(p)} TTFT".lstrip(), p.ttft_ratio),
    )
    parts = [f"{name} x{value:.2f}" for name, value in ratios if value is not None]
    unknown = [name for name, value in ratios if value is None]
    line = f"C={p.low.concurrency} -> {p.high.concurrency}: {', '.join(parts) or 'nothing recorded at both levels'}"
    return [line + (f" ({' and '.join(unknown)} not recorded)" if unknown else "")]


def _average(p: Pair) -> str:
    """Which TTFT the ratio is of."""
    if p.ratio("ttft_mean_s") is not None:
        return "mean"
    return "median" if p.ttft_ratio is not None else ""


def limits(p: Pair, name: str, server: Mapping[str, Plain] | None) -> list[str]:
    """For a cap: the server's argument that equals it, how long requests waited, and what looks the same."""
    if "cap" not in name:
        return []
    lines = []
    running = p.high.mean("server_running_mean")  # a mean over gaps between requests, too: at most the limit itself
    for key, value in (server or {}).items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_cap = is_number and argument(key) in CAP_ARGUMENTS
        if is_cap and running and 0.95 * running <= float(value or 0) <= 1.35 * running:
            lines.append(f"the server was started with {key} = {value}")
    if p.service_times is not None:
        lines.append(f"the first token came {p.service_times:.2f} decode times of a request later")
    if name == "admission cap" and (p.high.burstiness or 0) >= BURSTY:
        lines.append(
            f"ICL p99/p50 = {p.high.burstiness:.1f}: a prefill that cannot keep up queues requests in the same way"
        )
    return lines
