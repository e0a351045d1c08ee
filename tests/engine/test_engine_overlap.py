"""An executor that overlaps: tokens come a step late, and what was computed beyond a request's end is dropped."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.executor import Live, Pending
from dsv4bench.engine.sequence import Sampling, Sequence
from dsv4bench.engine.stepper import Stepper

EOS = 99


@dataclass
class Later:
    """Tokens that nobody may ask for before the next launch."""

    executor: Numbering
    drawn: list[int]
    launches: int

    def tokens(self) -> list[int]:
        assert self.executor.launches > self.launches or self.executor.idle, "asked before the next launch"
        return self.drawn


@dataclass
class Numbering:
    """Draws 1, 2, 3 … for each request, by how many it has drawn; `ends` at a number for a request."""

    ends: dict[str, int] = field(default_factory=dict)
    overlaps: bool = True
    eos_id: int = EOS
    launches: int = 0
    idle: bool = False
    log: list[str] = field(default_factory=list)
    live: Live = field(default_factory=lambda: Live("a", "b", "a", "b", "none", []))

    def warm_up(self) -> None:
        pass

    def prefill(self, seq: Sequence, tokens: list[int], *, last: bool) -> Pending | None:
        self.launches += 1
        self.log.append(f"prefill {seq.request_id} at {seq.computed} slot {seq.slot}")
        return Later(self, [self._draw(seq, 0)], self.launches) if last else None

    def decode(self, sequences: list[Sequence], drafts: list[list[int]], accepted: list[int]) -> Pending:
        self.launches += 1
        self.log.append("decode " + " ".join(f"{seq.request_id}@{seq.computed}" for seq in sequences))
        drawn = [self._draw(seq, count) for seq, count in zip(sequences, accepted, strict=True)]
        return Later(self, drawn, self.launches)

    def _draw(self, seq: Sequence, count: int) -> int:
        number = seq.launched + count + 1
        return EOS if self.ends.get(seq.request_id) == number else number


def _stepper(executor: Numbering, **options: int | float) -> Stepper:
    config = EngineConfig(max_running=2, max_model_len=64, prefill_chunk=4, **options)  # type: ignore[arg-type]
    return Stepper(config, executor)


def _sequence(name: str, prompt: int = 3, tokens: int = 3, *, ignore_eos: bool = False) -> Sequence:
    return Sequence(name, [0] * prompt, Sampling(max_tokens=tokens, temperature=0.0, ignore_eos=ignore_eos), 5, 0.0)


def _step(stepper: Stepper, executor: Numbering) -> list[tuple[str, list[int], str | None]]:
    schedule = stepper.schedule
    executor.idle = not schedule.decoding() and not schedule.waiting and all(s.prefilled for s in schedule.running)
    return [(e.delivery.request_id, e.delivery.tokens, e.delivery.finish) for e in stepper.step().emissions]


def test_tokens_come_with_the_next_step_and_the_last_ones_without_another_launch() -> None:
    executor = Numbering()
    stepper = _stepper(executor)
    stepper.schedule.waiting += [_sequence("a", prompt=6), _sequence("b", tokens=2)]
    delivered = []
    while stepper.schedule.waiting or stepper.schedule.running:
        delivered.append(_step(stepper, executor))
    assert delivered == [
        [],
        [],
        [("a", [1], None)],
        [("b", [1], None), ("a", [2], None)],
        [("a", [3], "length"), ("b", [2], "length")],
    ]
    assert executor.log == [
        "prefill a at 0 slot 0",
        "prefill a at 4 slot 0",
        "prefill b at 0 slot 1",
        "prefill b at 2 slot 1",
        "decode a@6",
        "decode a@7 b@3",
    ]
    assert stepper.schedule.pool.used_frac == 0.0


def test_what_was_launched_beyond_the_end_of_a_sequence_is_dropped() -> None:
    executor = Numbering(ends={"a": 2})
    stepper = _stepper(executor)
    seq = _sequence("a", tokens=9)
    stepper.schedule.waiting.append(seq)
    delivered = []
    while stepper.schedule.running or stepper.schedule.waiting:
        delivered += _step(stepper, executor)
    assert delivered == [("a", [1], None), ("a", [EOS], "stop")]
    assert executor.log[-1] == "decode a@4", "one step was on its way when the end came"
    other = _sequence("b", tokens=1)
    stepper.schedule.waiting.append(other)
    assert _step(stepper, executor) == []  # a's late token is nobody's, b takes its slot
    executor.idle = True
    assert _step(stepper, executor) == [("b", [1], "length")]
    assert seq.output == [1, EOS]


def test_a_cancelled_request_gets_nothing_more() -> None:
    executor = Numbering()
    stepper = _stepper(executor)
    stepper.schedule.waiting += [_sequence("a", tokens=5), _sequence("b", prompt=1, tokens=2)]
    _step(stepper, executor)
    _step(stepper, executor)
    stepper.schedule.cancel("a")
    delivered = []
    while stepper.schedule.running:
        delivered += _step(stepper, executor)
    assert [name for name, _, _ in delivered] == ["b"] or {name for name, _, _ in delivered} == {"b"}
    assert stepper.schedule.pool.used_frac == 0.0


@pytest.mark.parametrize("overlaps", [False, True])
def test_speculation_delivers_accepted_drafts_and_never_more_than_asked(overlaps: bool) -> None:
    executor = Numbering(overlaps=overlaps)
    executor.idle = not overlaps
    stepper = _stepper(executor, spec_tokens=4, spec_accept=0.7)
    seq = _sequence("a", tokens=11, ignore_eos=True)
    stepper.schedule.waiting.append(seq)
    while stepper.schedule.running or stepper.schedule.waiting:
        if overlaps:
            _step(stepper, executor)
        else:
            stepper.step()
    assert len(seq.output) == 11
    drafts_and_own = Numbering()
    other = _stepper(drafts_and_own, spec_tokens=4, spec_accept=0.7)
    again = _sequence("a", tokens=11, ignore_eos=True)
    other.schedule.waiting.append(again)
    while other.schedule.running or other.schedule.waiting:
        _step(other, drafts_and_own)
    assert again.output == seq.output, "the same whether it overlaps or not"


def test_slots_are_distinct_and_come_back() -> None:
    executor = Numbering()
    stepper = _stepper(executor)
    stepper.schedule.waiting += [_sequence(name, tokens=2) for name in "abcd"]
    seen = set()
    while stepper.schedule.running or stepper.schedule.waiting:
        _step(stepper, executor)
        slots = [seq.slot for seq in stepper.schedule.running]
        assert len(set(slots)) == len(slots) and set(slots) <= {0, 1}
        seen |= set(slots)
    assert seen == {0, 1}
