"""Every id is readable, and text made of word pieces comes back as the same ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.engine.tokenizer import ToyTokenizer


@pytest.mark.parametrize("vocab_size", [258, 1024, 129_280])
def test_every_id_has_text_of_its_own(vocab_size: int) -> None:
    tokenizer = ToyTokenizer(vocab_size)
    texts = [tokenizer.decode_one(token) for token in range(vocab_size)]
    assert all(texts)
    assert len(set(texts)) == vocab_size


@given(st.lists(st.integers(256, 1022), max_size=30))
def test_word_pieces_round_trip(ids: list[int]) -> None:
    tokenizer = ToyTokenizer(1024)
    assert tokenizer.encode(tokenizer.decode(ids)) == ids


@given(st.text(max_size=40))
def test_any_text_encodes_to_ids_of_the_vocabulary(text: str) -> None:
    ids = ToyTokenizer(1024).encode(text)
    assert all(0 <= token < 1023 for token in ids)
    assert bool(ids) == bool(text)


def test_bytes_and_size() -> None:
    assert ToyTokenizer(1024).encode("hé") == [0x68, 0xC3, 0xA9]
    with pytest.raises(ValueError, match="at least 258"):
        ToyTokenizer(257)
