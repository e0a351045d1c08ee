"""No prompt is sent twice: not by another level, a repeat, the warm-up, the probe, nor by a sweep taken up again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai_server import Behaviour, OpenAIServer, serve
from sweeping import Sweep, sweep

OPTIONS = {"concurrency": [1, 2], "isl": [16, 32], "repeat": 2, "requests": 3, "osl": 5}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OpenAIServer, Sweep]]:
    """A sweep with warm-ups, two lengths and a repeat; its seed is a fresh one."""
    with serve(Behaviour(itl_s=0.001, ttft_s=0.001)) as server:
        yield server, sweep(server.url, tmp_path_factory.mktemp("prompts"), warmup=True, **OPTIONS)


def test_each_length_is_a_cell_of_its_own(recorded: tuple[OpenAIServer, Sweep]) -> None:
    _, swept = recorded
    assert [c.cell for c in swept.cells] == [f"r{r}-c{c}-i{isl}" for r in (0, 1) for isl in (16, 32) for c in (1, 2)]
    assert [c.prompt_tokens for c in swept.cells] == [3 * 16, 3 * 16, 3 * 32, 3 * 32] * 2


def test_every_prompt_is_another(recorded: tuple[OpenAIServer, Sweep]) -> None:
    server, _ = recorded
    prompts = Counter(server.prompts())
    levels, warmups, probes = 8 * 3, 4 * 1 + 2 * 1, 3
    # one wave at each (concurrency, isl): 1 + 2 prompts for each of two lengths
    assert warmups == 2 * (1 + 2)
    assert prompts.total() == len(prompts) == levels + warmups + probes


def test_no_level_meets_a_prefix_cache(recorded: tuple[OpenAIServer, Sweep]) -> None:
    _, swept = recorded
    assert [c.prefix_hit_frac for c in swept.cells] == [0.0] * 8


def test_no_two_prompts_begin_alike(recorded: tuple[OpenAIServer, Sweep]) -> None:
    """A prefix cache works by blocks: another end would not be enough."""
    server, _ = recorded
    heads = Counter(tuple(json.loads(p)[:8]) for p in server.prompts())
    assert heads.most_common(1)[0][1] == 1


def test_a_fresh_seed_is_recorded_and_repeats_the_prompts(tmp_path: Path) -> None:
    options = {"concurrency": [2], "requests": 3}
    with serve(Behaviour(itl_s=0.0005, ttft_s=0.0)) as server:
        first = sweep(server.url, tmp_path, **options)
        sent = server.prompts()
        seed = first.stored.experiment.workload.seed
        del server.bodies[:]
        again = sweep(server.url, tmp_path, seed=seed, **options)
        assert sorted(server.prompts()) == sorted(sent)
        del server.bodies[:]
        fresh = sweep(server.url, tmp_path, **options)
        assert not set(sent) & set(server.prompts())
    assert again.stored.experiment.workload.seed == seed != fresh.stored.experiment.workload.seed
    prints = {x.stored.experiment.workload_fingerprint for x in (first, again, fresh)}
    assert len(prints) == 1  # the seed does not make another workload


def test_a_shared_prefix_is_shared_by_all_and_only_that(tmp_path: Path) -> None:
    with serve(Behaviour(itl_s=0.0005)) as server:
        swept = sweep(server.url, tmp_path, concurrency=[1, 2], isl=[20], prefix_share=0.5)
        prompts = [json.loads(p) for p in server.prompts()]
    assert len({tuple(p[:10]) for p in prompts}) == 1
    assert len({tuple(p[10:14]) for p in prompts}) == len(prompts)
    assert {len(p) for p in prompts} == {20}
    assert swept.stored.experiment.workload.prefix_share == 0.5


def test_requests_ask_for_exactly_what_was_asked(recorded: tuple[OpenAIServer, Sweep]) -> None:
    server, _ = recorded
    for body in server.bodies:
        assert body["stream"] is True and body["temperature"] == 0.0 and body["ignore_eos"] is True
        assert body["model"] == "tiny" and len(body["prompt"]) in (16, 32) and max(body["prompt"]) < 1000
    assert Counter(len(b["prompt"]) for b in server.bodies)[32] == 4 * 3 + 3  # levels and warm-ups
    assert {b["max_tokens"] for b in server.bodies} == {5}
