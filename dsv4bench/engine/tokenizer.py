"""A toy tokeniser with documented ids, so that the server needs no download.

    id 0..255      the byte of that value (text is encoded as UTF-8 bytes where no word piece fits)
    id 256..V-2    a word piece: a blank and n syllables, the digits of (id - 256) in base 80
    id V-1         end of sequence, "<eos>"

Every id decodes to non-empty text, and text made of word pieces encodes to the ids it came from. Bytes that
are not printable ASCII decode to "<0xNN>", which is for reading only and encodes to six bytes.
"""

from __future__ import annotations

import re

_CONSONANTS = "bcdfghjklmnprstv"
_VOWELS = "aeiou"
_BASE = len(_CONSONANTS) * len(_VOWELS)
_BYTES = 256


class ToyTokenizer:
    """Text <-> ids for a vocabulary of `vocab_size` (at least 258)."""

    def __init__(self, vocab_size: int) -> None:
        if vocab_size < _BYTES + 2:
            raise ValueError(f"the toy tokeniser needs at least {_BYTES + 2} ids, got {vocab_size}")
        self.vocab_size = vocab_size
        self.eos_id = vocab_size - 1
        self._syllables = 1
        while _BASE**self._syllables < vocab_size - _BYTES - 1:
            self._syllables += 1
        self._piece = re.compile(rf" (?:[{_CONSONANTS}][{_VOWELS}]){{{self._syllables}}}(?![a-z])")

    def encode(self, text: str) -> list[int]:
        """UTF-8 bytes, except where a whole word piece stands."""
        ids: list[int] = []
        at = 0
        for match in self._piece.finditer(text):
            piece = self._piece_id(match.group())
            if piece is not None:
                ids += text[at : match.start()].encode("utf-8", "replace")
                ids.append(piece)
                at = match.end()
        ids += text[at:].encode("utf-8", "replace")
        return ids

    def encode_chat(self, messages: list[tuple[str, str]]) -> list[int]:
        """(role, content) pairs -> ids, in a plain template that ends with the assistant's turn."""
        return self.encode("".join(f"{role}: {content}\n" for role, content in messages) + "assistant:")

    def decode(self, ids: list[int]) -> str:
        return "".join(self.decode_one(token) for token in ids)

    def decode_one(self, token: int) -> str:
        """Never empty."""
        if token == self.eos_id:
            return "<eos>"
        if token < _BYTES:
            return chr(token) if 32 <= token < 127 or token == 10 else f"<0x{token:02X}>"
        number, text = token - _BYTES, ""
        for _ in range(self._syllables):
            number, digit = divmod(number, _BASE)
            text = _CONSONANTS[digit // len(_VOWELS)] + _VOWELS[digit % len(_VOWELS)] + text
        return " " + text

    def _piece_id(self, piece: str) -> int | None:
        number = 0
        for consonant, vowel in zip(piece[1::2], piece[2::2], strict=True):
            number = number * _BASE + _CONSONANTS.index(consonant) * len(_VOWELS) + _VOWELS.index(vowel)
        token = number + _BYTES
        return token if token < self.eos_id else None
