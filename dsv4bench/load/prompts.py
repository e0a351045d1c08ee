"""What is asked: sources of prompts that never ask the same thing twice unless a file makes them.

    random   token ids drawn uniformly over the whole vocabulary, so that the length is exact and the hash-routed
             layers of DeepSeek-V4 (expert = table[token id]) spread over their experts
    chat     passages of the packaged corpus: natural text, without which speculative decoding has nothing to accept
    FILE     the user's own prompts (`prompt_files.py`)

`take(n, isl, osl, *stream)` is a function of (seed, stream, isl): the same call gives the same prompts, and another
stream (a level, a repeat, the warm-up) gives others, so that no level is served from the prefix cache that an earlier
one has filled. Nothing here tokenises: the realised length of a text is what the server's `usage` says.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import random
from typing import Any, Protocol

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.load.prompt_files import PromptFile, PromptKind, read_prompt_file
from dsv4bench.records.workload import Endpoint

StreamPart = int | str

_INSTRUCTIONS = (
    "Continue this text.",
    "Carry on writing in the same voice.",
    "Summarise the following in plain words.",
    "What is the main point of the text below, and what speaks against it?",
    "Translate the following passage into French, paragraph by paragraph.",
    "Below is an excerpt from a reader that is used in evening classes. Write an essay about it: say what each part "
    "is about, which of the parts belong together, and which one you would leave out. Give your reasons at length, "
    "quote where it helps, and close with three questions that a teacher could ask.",
    "You are the editor of a small magazine and this is what came in the post. Write a long and friendly letter back "
    "to the author. Go through the pieces in their order, praise what is good in each, point out every place where "
    "a reader could lose the thread, and propose another wording for at least five sentences.",
    "Read the pages below carefully. Then explain them to a curious twelve-year-old, step by step, with an "
    "example of your own for each idea, and leave nothing out that matters.",
)


class Prompt(msgspec.Struct, frozen=True):
    """What goes into a request's body, the tokens to ask for, and the prompt's own (None: the server will tell)."""

    fields: dict[str, Any]
    osl: int
    isl: int | None


class PromptSource(Protocol):
    """Where prompts come from. `repeats` turns true once a prompt was handed out a second time."""

    @property
    def kind(self) -> PromptKind: ...
    @property
    def sha256(self) -> str | None: ...
    @property
    def repeats(self) -> bool: ...
    def take(self, n: int, isl: int | None, osl: int | None, *stream: StreamPart) -> list[Prompt]:
        """`n` prompts of `isl` tokens that ask for `osl`; a longer take begins with a shorter one's prompts."""
        ...


def make_source(
    *,
    endpoint: Endpoint,
    dataset: str,
    seed: int,
    vocab_size: int | None = None,
    prefix_share: float = 0.0,
    chars_per_token: float = 4.0,
) -> PromptSource:
    """The source that `--dataset` names. `prefix_share`: the part of each prompt that all prompts have in common.

    `chars_per_token` sizes texts; calibrate it with `text_chars(prompt) / usage.prompt_tokens`. Raises UsageError.
    """
    if not 0.0 <= prefix_share < 1.0:
        raise UsageError(
            f"a prefix share of {prefix_share} is not in [0, 1)", "0.5 shares the first half of a prompt"
        )
    if not chars_per_token > 0:
        raise UsageError(f"{chars_per_token} characters a token make no text", "English has about 4")
    if dataset == "chat":
        return CorpusSource(endpoint, seed, prefix_share, chars_per_token)
    if dataset != "random":
        if prefix_share:
            raise UsageError(
                f"a prefix share of {prefix_share} cannot be made from the file {dataset}",
                "use --dataset random or chat, or share the prefixes inside the file",
            )
        return FileSource(read_prompt_file(dataset, endpoint), seed)
    if endpoint == "chat":
        raise UsageError(
            "random prompts are token ids, and a chat endpoint takes none",
            "use --dataset chat, or --endpoint completions",
        )
    if vocab_size is None:
        raise UsageError("the size of the vocabulary is not known", "give it with --vocab N (DeepSeek-V4: 129280)")
    if vocab_size < 2:
        raise UsageError(f"a vocabulary of {vocab_size} tokens has no random prompt", "give its size with --vocab N")
    return RandomSource(vocab_size, seed, prefix_share)


def text_chars(prompt: Prompt) -> int:
    """The characters of a prompt's text; 0 for token ids. The numerator of characters a token."""
    if "messages" in prompt.fields:
        contents = (m.get("content") for m in prompt.fields["messages"])
        return sum(len(c) for c in contents if isinstance(c, str))
    text = prompt.fields["prompt"]
    return len(text) if isinstance(text, str) else 0


class RandomSource:
    """Token ids of exactly the length asked for."""

    kind: PromptKind = "token_ids"
    sha256: str | None = None  # the prompts follow from the seed
    repeats = False

    def __init__(self, vocab_size: int, seed: int, prefix_share: float) -> None:
        self._ids = list(range(vocab_size))  # choices() then hands out these objects and makes no new ones
        self._seed = seed
        self._prefix_share = prefix_share

    def take(self, n: int, isl: int | None, osl: int | None, *stream: StreamPart) -> list[Prompt]:
        isl, osl = _length(isl, "ISL"), _length(osl, "OSL")
        n_shared = min(round(isl * self._prefix_share), isl - 1)
        shared = _rng(self._seed, "shared").choices(self._ids, k=n_shared)
        rng = _rng(self._seed, "ids", isl, *stream)
        return [Prompt({"prompt": shared + rng.choices(self._ids, k=isl - n_shared)}, osl, isl) for _ in range(n)]


class CorpusSource:
    """Passages of the packaged corpus, from a random paragraph on, behind a line that no other prompt has."""

    repeats = False

    def __init__(self, endpoint: Endpoint, seed: int, prefix_share: float, chars_per_token: float) -> None:
        raw = importlib.resources.files("dsv4bench.load").joinpath("corpus.txt").read_bytes()
        self.kind: PromptKind = "messages" if endpoint == "chat" else "text"
        self.sha256: str | None = hashlib.sha256(raw).hexdigest()
        self._text = raw.decode("utf-8").strip() + "\n\n"
        self._starts = _paragraph_starts(self._text)
        self._seed = seed
        self._prefix_share = prefix_share
        self._chars_per_token = chars_per_token

    def take(self, n: int, isl: int | None, osl: int | None, *stream: StreamPart) -> list[Prompt]:
        isl, osl = _length(isl, "ISL"), _length(osl, "OSL")
        chars = round(isl * self._chars_per_token)
        shared = self._passage(_rng(self._seed, "shared"), round(chars * self._prefix_share))
        prompts = []
        for i in range(n):
            text = shared + self._own(chars - len(shared), isl, i, *stream)
            fields = (
                {"messages": [{"role": "user", "content": text}]} if self.kind == "messages" else {"prompt": text}
            )
            prompts.append(Prompt(fields, osl, None))
        return prompts

    def _own(self, chars: int, isl: int, index: int, *stream: StreamPart) -> str:
        """The part that is this prompt's alone; the line with its name is never cut, however short the prompt."""
        digest = _digest(self._seed, "text", isl, *stream, index)
        rng = random.Random(digest)
        head = f"Case {digest[:6].hex()}.\n"
        if self.kind == "messages":
            fitting = [line for line in _INSTRUCTIONS if len(line) <= (chars - len(head)) // 2]
            head += rng.choice(fitting) + "\n\n" if fitting else ""
        return head + self._passage(rng, chars - len(head))

    def _passage(self, rng: random.Random, chars: int) -> str:
        """About `chars` characters of the corpus in their natural order, cut between words, round again if short."""
        start = rng.choice(self._starts)
        if chars <= 0:
            return ""
        text = self._text[start:] + self._text * (chars // len(self._text) + 2)
        before, after = text.rfind(" ", 0, chars + 1), text.find(" ", chars)
        # The nearer of the two word ends, so that lengths are right on average and not always a little short.
        return text[: before if before > 0 and chars - before <= after - chars else after]


class FileSource:
    """The user's prompts in a shuffled order. Each stream takes the next ones that no other stream has had."""

    def __init__(self, file: PromptFile, seed: int) -> None:
        self.kind: PromptKind = file.kind
        self.sha256: str | None = file.sha256
        self._file = file
        self._order = list(range(len(file.prompts)))
        _rng(seed, "file").shuffle(self._order)
        self._taken: dict[tuple[StreamPart, ...], list[int]] = {}
        self._next = 0

    @property
    def repeats(self) -> bool:
        return self._next > len(self._order)

    def take(self, n: int, isl: int | None, osl: int | None, *stream: StreamPart) -> list[Prompt]:
        """The file's lengths rule: `isl` says nothing here, and `osl` None is what each record asks for.

        Streams draw on one file, so which prompts a stream gets depends on the streams that drew before it.
        """
        taken = self._taken.setdefault(stream, [])
        while len(taken) < n:
            taken.append(self._order[self._next % len(self._order)])
            self._next += 1
        return [self._prompt(i, osl) for i in taken[:n]]

    def _prompt(self, index: int, osl: int | None) -> Prompt:
        record = self._file.prompts[index]
        wanted = record.osl if osl is None else _length(osl, "OSL")
        if wanted is None:
            raise UsageError(
                f"{self._file.path}, {record.where}: the record names no output length",
                "give --osl N, or output_tokens in each record",
            )
        return Prompt(record.fields, wanted, record.isl)


def _length(tokens: int | None, name: str) -> int:
    if tokens is None or tokens < 1:
        raise UsageError(f"an {name} of {tokens} makes no request", f"give --{name.lower()} 1 or more")
    return tokens


def _paragraph_starts(text: str) -> list[int]:
    starts, at = [0], text.find("\n\n")
    while 0 <= at < len(text) - 2:
        starts.append(at + 2)
        at = text.find("\n\n", at + 2)
    return starts


def _digest(seed: int, *parts: StreamPart) -> bytes:
    """32 bytes from seed and parts, the same in every process (Python's own hash() of a string is not)."""
    return hashlib.sha256(repr((seed, *parts)).encode()).digest()


def _rng(seed: int, *parts: StreamPart) -> random.Random:
    return random.Random(_digest(seed, *parts))
