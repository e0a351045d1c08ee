"""Greedy outputs end to end: the embedded server with both kernel sets, and servers that tell less."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openai_server import Behaviour, serve

from dsv4bench.records.codec import encode
from dsv4bench.records.outputs import Outputs
from dsv4bench.runs.campaign_live import check
from dsv4bench.runs.campaign_outputs import outputs_of, parity_of
from dsv4bench.scenario.launched import ConfigSpec, LiveSpec, ParitySpec
from dsv4bench.server.detect import detect
from dsv4bench.server.launch import free_port, launch
from dsv4bench.server.target import parse_url

SPEC = ParitySpec(prompts=4, isl=16, osl=12)


@contextmanager
def embedded(folder: Path, *options: str) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "dsv4bench", "serve", "--port", str(port), "--max-running", "4", *options]
    with launch(command, log_path=folder / f"{port}.log") as server:
        server.wait_ready(f"http://127.0.0.1:{port}", 120.0)
        yield f"http://127.0.0.1:{port}"


def asked(url: str, spec: ParitySpec = SPEC, seed: int = 7, **more: Any) -> Outputs:
    target = parse_url(url)
    return outputs_of(target, detect(target, None), spec, seed, lambda _: None, **more)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outputs]:
    """What three configurations of the embedded server write."""
    folder, found = tmp_path_factory.mktemp("servers"), {}
    for name, options in {
        "fallback": ("--kernels", "fallback"),
        "optimized": ("--kernels", "optimized"),
        "corrupt": ("--kernels", "optimized", "--seed", "1"),  # other weights: nothing of the text is right
    }.items():
        with embedded(folder, *options) as url:
            found[name] = asked(url)
            if name == "optimized":
                found["chat"] = asked(url, endpoint="chat")
                found["again"] = asked(url)
                info = detect(parse_url(url), None)
                port = parse_url(url).port
                spec = LiveSpec(args={"kernels": "optimized"}, env={"PATH": ""})
                config = ConfigSpec(name="optimized", lever="kernels", launch="serve", live=spec)
                live = check(config, info, port=port, log_text=None, kernel_names=None)
                assert [str(c.state) for c in live.checks] == ["live", "not live"]
    return found


def test_ids_and_log_probabilities_of_every_position(sides: dict[str, Outputs]) -> None:
    found = sides["fallback"]
    assert (found.unit, found.prompt_kind, found.repeats, found.notes) == ("ids", "token_ids", True, [])
    assert [o.prompt for o in found.outputs] == [0, 1, 2, 3]
    for output in found.outputs:
        assert len(output.tokens) == 12 and output.best is not None and len(output.best) == 12
        assert all(len(best) == 5 for best in output.best)
        assert all(max(best, key=best.__getitem__) == t for t, best in zip(output.tokens, output.best, strict=True))
    assert msgspec.json.decode(encode(found), type=Outputs).outputs[0].tokens == found.outputs[0].tokens


def test_both_kernel_sets_write_the_same_but_for_near_ties(sides: dict[str, Outputs]) -> None:
    p = parity_of(sides["fallback"], sides["optimized"], "optimized", "fallback", SPEC)
    assert p.same is True, p.why
    assert len(p.pairs) == 4
    assert all(pair.first_difference is None or pair.near_tie for pair in p.pairs)


def test_other_weights_are_seen(sides: dict[str, Outputs]) -> None:
    p = parity_of(sides["fallback"], sides["corrupt"], "corrupt", "fallback", SPEC)
    assert p.same is False
    assert "where it is none" in p.why


def test_a_seed_makes_the_same_prompts_again(sides: dict[str, Outputs]) -> None:
    assert sides["again"] == sides["optimized"]
    assert sides["chat"].prompts_sha256 != sides["optimized"].prompts_sha256


def test_chat_has_text_prompts_and_log_probabilities(sides: dict[str, Outputs]) -> None:
    found = sides["chat"]
    assert (found.endpoint, found.prompt_kind, found.unit) == ("chat", "messages", "ids")
    assert all(o.best is not None and len(o.best) == len(o.tokens) == 12 for o in found.outputs)
    assert parity_of(found, found, "b", "a", SPEC).same is True


def test_a_server_that_tells_only_text() -> None:
    with serve(Behaviour(vocab=500)) as server:
        found = asked(server.url)
    assert (found.unit, len(found.outputs)) == ("words", 4)
    assert "the server tells no log-probabilities" in found.notes
    why = parity_of(found, found, "b", "a", SPEC).why
    assert "positions count words" in why


def test_a_server_that_fails_leaves_nothing_to_compare() -> None:
    with serve(Behaviour(vocab=500, error_status=500)) as server:
        found = asked(server.url)
    assert found.outputs == [] and found.repeats is None
    assert any("4 of 4 prompts failed" in note for note in found.notes)
    p = parity_of(found, found, "b", "a", SPEC)
    assert p.same is None and "no prompt was answered by both" in p.why


def test_no_prompts_asked_for() -> None:
    with serve(Behaviour(vocab=500)) as server:
        assert asked(server.url, ParitySpec(prompts=0)).outputs == []
