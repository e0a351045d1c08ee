"""The server's own counters and gauges, mapped from each engine's names to one `Gauges`.

Sums over data-parallel ranks and engines, the maximum for KV usage, the mean for SGLang's acceptance length. Ranks
that repeat one figure (tensor, pipeline and expert ranks of one SGLang scheduler) count once. A metric that is not
there is None, never 0; `_created` series are other names and are not read. Prompt tokens include cached ones.
Differences are `delta`'s, which refuses a counter that was reset.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from dsv4bench.errors import Unanswerable
from dsv4bench.records.server import Engine, Gauges

Labels = Mapping[str, str]
Series = list[tuple[Labels, float]]

_PREFIXES = {
    Engine.VLLM: "vllm",
    Engine.SGLANG: "sglang",
    Engine.LLAMACPP: "llamacpp",
    Engine.DSV4BENCH: "dsv4bench",
}

# Field of Gauges -> names in order of preference: today's first, then the ones of older versions.
_VLLM_NAMES = {
    "running": ["num_requests_running"],
    "waiting": ["num_requests_waiting"],
    "kv_usage_frac": ["kv_cache_usage_perc", "gpu_cache_usage_perc"],
    "prompt_tokens_total": ["prompt_tokens_total"],
    "output_tokens_total": ["generation_tokens_total"],
    "prefix_queries_total": ["prefix_cache_queries_total", "gpu_prefix_cache_queries_total"],
    "prefix_hits_total": ["prefix_cache_hits_total", "gpu_prefix_cache_hits_total"],
    "spec_drafts_total": ["spec_decode_num_drafts_total"],
    "spec_draft_tokens_total": ["spec_decode_num_draft_tokens_total"],
    "spec_accepted_total": ["spec_decode_num_accepted_tokens_total"],
    "preemptions_total": ["num_preemptions_total"],
    "ttft_sum_s": ["time_to_first_token_seconds_sum"],
    "ttft_count": ["time_to_first_token_seconds_count"],
    "tpot_sum_s": ["request_time_per_output_token_seconds_sum"],
    "tpot_count": ["request_time_per_output_token_seconds_count"],
    # the older name counts gaps between tokens, too, in spite of what it says
    "itl_sum_s": ["inter_token_latency_seconds_sum", "time_per_output_token_seconds_sum"],
    "itl_count": ["inter_token_latency_seconds_count", "time_per_output_token_seconds_count"],
}
_SGLANG_NAMES = {
    "running": ["num_running_reqs"],
    "waiting": ["num_queue_reqs"],
    "kv_usage_frac": ["token_usage"],
    "prompt_tokens_total": ["prompt_tokens_total"],
    "output_tokens_total": ["generation_tokens_total"],
    "prefix_queries_total": ["prompt_tokens_total"],
    "prefix_hits_total": ["cached_tokens_total"],
    "spec_accept_length": ["spec_accept_length"],
    "preemptions_total": ["num_retracted_requests_total"],
    "ttft_sum_s": ["time_to_first_token_seconds_sum"],
    "ttft_count": ["time_to_first_token_seconds_count"],
    "itl_sum_s": ["inter_token_latency_seconds_sum", "time_per_output_token_seconds_sum"],
    "itl_count": ["inter_token_latency_seconds_count", "time_per_output_token_seconds_count"],
}
_LLAMACPP_NAMES = {
    "running": ["requests_processing"],
    "waiting": ["requests_deferred"],
    "kv_usage_frac": ["kv_cache_usage_ratio"],
    "prompt_tokens_total": ["prompt_tokens_total"],
    "output_tokens_total": ["tokens_predicted_total"],
    "prefix_hits_total": ["prompt_tokens_cached_total"],
    "spec_drafts_total": ["spec_decode_num_drafts_total"],
    "spec_draft_tokens_total": ["spec_decode_num_draft_tokens_total"],
    "spec_accepted_total": ["spec_decode_num_accepted_tokens_total"],
}
_NAMES = {
    Engine.VLLM: _VLLM_NAMES,
    Engine.SGLANG: _SGLANG_NAMES,
    Engine.LLAMACPP: _LLAMACPP_NAMES,
    Engine.DSV4BENCH: _VLLM_NAMES,
}
_START = "process_start_time_seconds"

# Labels that tell apart the ranks of one scheduler, and the processes that report it.
_REPEATING_LABELS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid"})


def parse_gauges(text: str, engine: Engine, *, t_s: float | None = None) -> Gauges:
    """Gauges from Prometheus text; `t_s` is the scrape's time (epoch), now when not given.

    A generic server is read by whichever engine's prefix its metrics carry. Raises Unanswerable when the text is
    no Prometheus text.
    """
    engine = engine if engine in _NAMES else _engine_by_prefix(text)
    names = _NAMES.get(engine, {})
    prefix = _PREFIXES.get(engine, "")
    wanted = {f"{prefix}{joint}{n}": n for ns in names.values() for n in ns for joint in ":_"} | {_START: _START}
    found = _read(text, wanted)
    values: dict[str, float | None] = {}
    for field, candidates in names.items():
        series = next((found[n] for n in candidates if n in found), [])
        values[field] = _finite(_COMBINE.get(field, _sum_once), series)
    if engine is Engine.LLAMACPP:
        _count_cached_prompts(values)
    values["process_start_time_s"] = _finite(lambda s: min(v for _, v in s), found.get(_START, []))
    return Gauges(t_s=time.time() if t_s is None else t_s, **values)


def delta(before: Gauges | None, after: Gauges | None, field: str) -> float | None:
    """Growth of a counter; None when it is missing, fell (a reset), or the server was started anew in between."""
    if before is None or after is None or before.process_start_time_s != after.process_start_time_s:
        return None
    first, last = getattr(before, field), getattr(after, field)
    if first is None or last is None or last < first:
        return None
    growth: float = last - first
    return growth


def _read(text: str, wanted: Mapping[str, str]) -> dict[str, Series]:
    """Series by common name. Only the wanted lines are parsed: a vLLM scrape has 600 lines of buckets."""
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in text.splitlines() if line[: _name_end(line)] in wanted]
    if not lines:
        _refuse_other_text(text)
    found: dict[str, Series] = {}
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                if not math.isnan(sample.value):
                    found.setdefault(wanted[sample.name], []).append((sample.labels, sample.value))
    except (ValueError, KeyError, IndexError) as e:
        raise Unanswerable(f"the metrics text cannot be parsed: {e}", "is /metrics Prometheus text?") from e
    return found


def _name_end(line: str) -> int:
    """Where a sample's name ends: at its labels or at the space before its value."""
    ends = [i for i in (line.find("{"), line.find(" "), line.find("\t")) if i >= 0]
    return min(ends, default=len(line))


def _refuse_other_text(text: str) -> None:
    """Raise Unanswerable unless this is Prometheus text that merely holds none of our metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    head = text.lstrip()[:1]
    try:
        other = not head or head in "<{[" or not any(text_string_to_metric_families(text))
    except (ValueError, KeyError, IndexError):
        other = True
    if other:
        raise Unanswerable("the metrics page is not Prometheus text", "does a proxy or a login page answer there?")


def _engine_by_prefix(text: str) -> Engine:
    for engine, prefix in _PREFIXES.items():
        if f"\n{prefix}:" in text or text.startswith(f"{prefix}:"):
            return engine
    return Engine.GENERIC


def _once(series: Series) -> list[float]:
    """One value a scheduler: the largest of the ranks that repeat it."""
    groups: dict[tuple[tuple[str, str], ...], float] = {}
    for labels, value in series:
        key = tuple(sorted((k, v) for k, v in labels.items() if k not in _REPEATING_LABELS))
        groups[key] = max(value, groups.get(key, -math.inf))
    return list(groups.values())


def _sum_once(series: Series) -> float:
    return sum(_once(series))


def _requests(series: Series) -> float:
    """SGLang with priorities exports each priority and, with an empty label, their total: the total alone counts."""
    totals = [(labels, v) for labels, v in series if labels.get("priority") == ""]
    return _sum_once(totals or series)


def _largest(series: Series) -> float:
    return max(v for _, v in series)


def _mean_accepted(series: Series) -> float:
    """0 stands for a rank that has not speculated: an acceptance length is at least 1."""
    told = [v for v in _once(series) if v > 0]
    return sum(told) / len(told) if told else math.nan


_COMBINE: dict[str, Callable[[Series], float]] = {
    "running": _requests,
    "waiting": _requests,
    "kv_usage_frac": _largest,
    "spec_accept_length": _mean_accepted,
}


def _finite(combine: Callable[[Series], float], series: Series) -> float | None:
    if not series:
        return None
    value = combine(series)
    return value if math.isfinite(value) else None


def _count_cached_prompts(values: dict[str, float | None]) -> None:
    """llama.cpp counts processed and cached prompt tokens apart; the others count both in one."""
    processed, cached = values["prompt_tokens_total"], values["prefix_hits_total"]
    if processed is not None and cached is not None:
        values["prompt_tokens_total"] = values["prefix_queries_total"] = processed + cached
