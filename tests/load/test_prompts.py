from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.load.prompts import Prompt, PromptSource, make_source, text_chars

VOCAB = 129_280


def random_source(seed: int = 7, vocab_size: int = VOCAB, prefix_share: float = 0.0) -> PromptSource:
    return make_source(
        endpoint="completions", dataset="random", seed=seed, vocab_size=vocab_size, prefix_share=prefix_share
    )


def chat_source(endpoint: Any = "chat", **options: Any) -> PromptSource:
    return make_source(endpoint=endpoint, dataset="chat", **{"seed": 7, **options})


def ids(prompt: Prompt) -> list[int]:
    return list(prompt.fields["prompt"])


def text(prompt: Prompt) -> str:
    return str(prompt.fields["prompt"] if "prompt" in prompt.fields else prompt.fields["messages"][0]["content"])


def write(folder: Path, *records: Any, name: str = "prompts.jsonl") -> str:
    path = folder / name
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
    return str(path)


# random


def test_random_prompts_have_the_exact_length_and_stay_inside_the_vocabulary() -> None:
    prompts = random_source().take(20, 777, 64, "level", 8)
    assert [len(ids(p)) for p in prompts] == [777] * 20
    assert all(0 <= i < VOCAB for p in prompts for i in ids(p))
    assert {(p.isl, p.osl) for p in prompts} == {(777, 64)}


def test_random_prompts_reach_every_token_of_the_vocabulary() -> None:
    seen = {i for p in random_source(vocab_size=50).take(4, 1000, 1, "level") for i in ids(p)}
    assert seen == set(range(50))


def test_the_same_call_gives_the_same_prompts_and_another_stream_or_seed_gives_others() -> None:
    levels = [("level", c, r) for c in (1, 8, 16) for r in (0, 1)] + [("warmup", 1, 0)]
    firsts = [random_source().take(3, 32, 1, *level) for level in levels]
    assert firsts == [random_source().take(3, 32, 1, *level) for level in levels]
    everything = [tuple(ids(p)) for prompts in firsts for p in prompts]
    everything += [tuple(ids(p)) for p in random_source(seed=8).take(3, 32, 1, *levels[0])]
    assert len(set(everything)) == len(everything)


def test_prompts_do_not_depend_on_the_process() -> None:
    code = (
        "from dsv4bench.load.prompts import make_source\n"
        "s = make_source(endpoint='completions', dataset='random', seed=7, vocab_size=129280)\n"
        "print(s.take(1, 5, 1, 'level', 8)[0].fields['prompt'])"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    ]
    assert said[0] == said[1] == f"{ids(random_source().take(1, 5, 1, 'level', 8)[0])}\n"


@pytest.mark.parametrize("make", [random_source, chat_source])
def test_a_longer_take_begins_with_the_prompts_of_a_shorter_one(make: Any) -> None:
    assert make().take(9, 40, 1, "level")[:4] == make().take(4, 40, 1, "level")


def test_a_shared_prefix_is_common_to_the_sweep_and_the_rest_is_not() -> None:
    source = random_source(prefix_share=0.25)
    prompts = [ids(p) for stream in ("a", "b") for p in source.take(3, 100, 1, stream)]
    assert len({tuple(p[:25]) for p in prompts}) == 1
    assert len({tuple(p[25:]) for p in prompts}) == len(prompts)
    longer = ids(source.take(1, 400, 1, "c")[0])
    assert longer[:25] == prompts[0][:25]


def test_something_of_a_prompt_is_always_its_own() -> None:
    prompts = random_source(prefix_share=0.99).take(8, 10, 1, "level")
    assert len({tuple(ids(p)[:9]) for p in prompts}) == 1
    assert len({tuple(ids(p)) for p in prompts}) > 1


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"endpoint": "chat", "dataset": "random", "vocab_size": 9}, "--dataset chat"),
        ({"dataset": "random"}, "--vocab"),
        ({"dataset": "random", "vocab_size": 1}, "--vocab"),
        ({"dataset": "random", "vocab_size": 9, "prefix_share": 1.0}, "0.5"),
        ({"dataset": "chat", "prefix_share": -0.1}, "0.5"),
        ({"dataset": "chat", "chars_per_token": 0.0}, "English"),
        ({"dataset": "no/such/file.jsonl"}, "--dataset"),
        ({"dataset": "no/such/file.jsonl", "prefix_share": 0.5}, "--dataset random or chat"),
    ],
)
def test_what_cannot_be_made_says_what_to_do(options: dict[str, Any], hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_source(**{"endpoint": "completions", "seed": 1, **options})
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("isl", "osl", "option"), [(0, 5, "--isl"), (None, 5, "--isl"), (5, None, "--osl"), (5, 0, "--osl")]
)
def test_lengths_below_one_are_refused(isl: int | None, osl: int | None, option: str) -> None:
    for source in (random_source(), chat_source()):
        with pytest.raises(UsageError) as caught:
            source.take(1, isl, osl, "level")
        assert option in caught.value.hint


# the corpus


def test_the_corpus_is_prose_of_many_kinds_and_says_nothing_twice() -> None:
    raw = files("dsv4bench.load").joinpath("corpus.txt").read_bytes()
    paragraphs = raw.decode("utf-8").strip().split("\n\n")
    assert 30_000 <= len(raw) <= 45_000
    assert len(paragraphs) == len(set(paragraphs)) > 80
    assert any(not p.isascii() for p in paragraphs)
    assert all(p.strip() for p in paragraphs)
    assert chat_source().sha256 == hashlib.sha256(raw).hexdigest()


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
@pytest.mark.parametrize("chars_per_token", [3.1, 4.4])
def test_texts_are_as_long_as_asked_on_average(endpoint: str, chars_per_token: float) -> None:
    source = chat_source(endpoint, chars_per_token=chars_per_token)
    for isl in (64, 1024):
        chars = [text_chars(p) for p in source.take(40, isl, 1, "level")]
        assert mean(chars) == pytest.approx(isl * chars_per_token, rel=0.01)


def test_texts_are_natural_text_behind_a_line_of_their_own() -> None:
    corpus = files("dsv4bench.load").joinpath("corpus.txt").read_text(encoding="utf-8")
    prompts = [text(p) for stream in ("a", "b") for p in chat_source("completions").take(20, 50, 1, stream)]
    assert len({p.split("\n")[0] for p in prompts}) == 40
    assert all(p.split("\n", 1)[1].rstrip() in (corpus.strip() + "\n\n") * 2 for p in prompts)


def test_a_chat_is_one_user_message_with_an_instruction_short_or_long() -> None:
    prompts = chat_source().take(60, 512, 1, "level")
    assert all([m["role"] for m in p.fields["messages"]] == ["user"] for p in prompts)
    instructions = {text(p).split("\n")[1] for p in prompts}
    assert min(map(len, instructions)) < 50 < 200 < max(map(len, instructions))
    assert {p.isl for p in prompts} == {None}


def test_a_prompt_longer_than_the_corpus_goes_round() -> None:
    prompt = text(chat_source().take(1, 30_000, 1, "level")[0])
    assert len(prompt) == pytest.approx(120_000, rel=0.001)


def test_the_shortest_prompts_still_differ() -> None:
    assert len({text(p) for p in chat_source().take(50, 1, 1, "level")}) == 50


def test_the_shared_part_of_a_text_comes_first() -> None:
    prompts = [text(p) for s in ("a", "b") for p in chat_source(prefix_share=0.5).take(5, 400, 1, s)]
    shared = prompts[0][:760]
    assert all(p.startswith(shared) for p in prompts)
    assert len({p[840:] for p in prompts}) == len({p[:840] for p in prompts}) == len(prompts)


# files


def test_a_file_of_texts_and_their_lengths(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "one", "output_tokens": 5, "id": 9}, {"prompt": "zwei\u2028", "max_tokens": 6})
    source = make_source(endpoint="completions", dataset=path, seed=1)
    assert (source.kind, source.sha256) == ("text", hashlib.sha256(Path(path).read_bytes()).hexdigest())
    assert {(text(p), p.osl) for p in source.take(2, None, None, "level")} == {("one", 5), ("zwei\u2028", 6)}
    assert {p.osl for p in source.take(2, None, 77, "level")} == {77}


def test_a_text_goes_to_a_chat_as_one_user_message(tmp_path: Path) -> None:
    source = make_source(endpoint="chat", dataset=write(tmp_path, {"prompt": "one"}), seed=1)
    assert source.kind == "messages"
    assert source.take(1, None, 3, "level")[0].fields == {"messages": [{"role": "user", "content": "one"}]}


def test_token_ids_keep_their_length(tmp_path: Path) -> None:
    source = make_source(endpoint="completions", dataset=write(tmp_path, {"prompt": [3, 1, 2], "osl": 4}), seed=1)
    assert source.kind == "token_ids"
    assert source.take(1, 999, None, "level") == [Prompt({"prompt": [3, 1, 2]}, 4, 3)]


def test_messages_are_sent_as_they_stand_unless_the_answer_is_in_them(tmp_path: Path) -> None:
    system, user = {"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}
    path = write(tmp_path, {"messages": [system, user]}, {"messages": [user, {"role": "assistant", "content": "hi"}]})
    source = make_source(endpoint="chat", dataset=path, seed=1)
    sent = [p.fields["messages"] for p in source.take(2, None, 3, "level")]
    assert sorted(sent, key=len) == [[user], [system, user]]


def test_sharegpt_gives_the_first_human_turn_and_leaves_out_talk_without_one(tmp_path: Path) -> None:
    talks = [
        {"id": "a", "conversations": [{"from": "human", "value": "why?"}, {"from": "gpt", "value": "so."}]},
        {"id": "b", "conversations": [{"from": "gpt", "value": "and"}, {"from": "human", "value": "how?"}]},
        {"id": "c", "conversations": []},
    ]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps(talks, indent=1), encoding="utf-8-sig")
    source = make_source(endpoint="completions", dataset=str(path), seed=1)
    assert {text(p) for p in source.take(2, None, 3, "level")} == {"why?", "how?"}
    assert not source.repeats


def test_streams_share_a_file_without_repeats_until_it_is_used_up(tmp_path: Path) -> None:
    source = make_source(
        endpoint="completions", dataset=write(tmp_path, *[{"prompt": f"p{i}"} for i in range(10)]), seed=1
    )
    warmup, level = source.take(3, None, 1, "warmup"), source.take(7, None, 1, "level", 8)
    assert len({text(p) for p in warmup + level}) == 10
    assert source.take(3, None, 1, "warmup") == warmup
    assert not source.repeats
    assert {text(p) for p in source.take(2, None, 1, "level", 16)} <= {text(p) for p in warmup}
    assert source.repeats


def test_the_order_of_a_file_follows_from_the_seed(tmp_path: Path) -> None:
    path = write(tmp_path, *[{"prompt": f"p{i}"} for i in range(50)])
    orders = [
        [text(p) for p in make_source(endpoint="completions", dataset=path, seed=s).take(50, None, 1, "level")]
        for s in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


@pytest.mark.parametrize(
    ("lines", "endpoint", "said", "hint"),
    [
        ("", "completions", "the file is empty", "prompt"),
        ("\n\n", "completions", "the file is empty", "prompt"),
        ('{"prompt": "a"}\n{"prompt": \n', "completions", "line 2: not JSON", "prompt"),
        ('{"prompt": "a"}\n\n7\n', "completions", "line 3: a JSON int", "prompt"),
        ('{"prompt": ""}', "completions", "line 1: prompt is ''", "not empty"),
        ('{"prompt": [1, "2"]}', "completions", "line 1: prompt is [1, '2']", "integers"),
        ('{"prompt": [1, -2]}', "completions", "line 1: prompt is [1, -2]", "integers"),
        ('{"prompt": [true]}', "completions", "line 1: prompt is [True]", "integers"),
        ('{"text": "a"}', "completions", "line 1: the record holds no prompt (its keys: text)", "messages"),
        ('{"prompt": "a", "osl": 0}', "completions", "line 1: osl is 0", "1 or more"),
        ('{"prompt": "a", "max_tokens": "9"}', "completions", "line 1: max_tokens is '9'", "1 or more"),
        ('{"prompt": "a"}\n{"prompt": [1]}', "completions", "line 2: the prompt is a list of token ids", "split"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "completions", "line 1: messages", "--endpoint chat"),
        ('{"prompt": [1]}', "chat", "line 1: token ids", "--endpoint completions"),
        ('{"messages": ["a"]}', "chat", "line 1: the turns are ['a']", "role"),
        ('{"conversations": {"from": "human"}}', "chat", "line 1: the turns are", "from"),
        ('[{"prompt": "a"}, 5]', "completions", "record 2: a JSON int", "prompt"),
        ('[{"prompt": "a"}', "completions", "not JSON", "prompt"),
        ('[{"conversations": []}]', "completions", "none of its 1 conversations", "prompt"),
    ],
)
def test_a_wrong_file_is_named_with_the_line_and_what_was_expected(
    tmp_path: Path, lines: str, endpoint: Any, said: str, hint: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(lines)
    with pytest.raises(UsageError) as caught:
        make_source(endpoint=endpoint, dataset=str(path), seed=1)
    assert said in caught.value.message
    assert str(path) in caught.value.message
    assert hint in caught.value.hint


def test_a_file_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"prompt": "caf\xe9"}')
    with pytest.raises(UsageError, match="line 1: not JSON"):
        make_source(endpoint="completions", dataset=str(path), seed=1)


def test_a_record_without_a_length_needs_osl(tmp_path: Path) -> None:
    source = make_source(endpoint="completions", dataset=write(tmp_path, {"prompt": "a"}), seed=1)
    with pytest.raises(UsageError, match=r"line 1: the record names no output length") as caught:
        source.take(1, None, None, "level")
    assert "--osl" in caught.value.hint
