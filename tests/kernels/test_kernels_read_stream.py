"""The read stream reads everything, once, in every launch shape; and it notices when it does not."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from interpreter import run

CODE = """
import torch
from dsv4bench.kernels.gpu import read_stream
from dsv4bench.kernels.gpu.read_stream import SHAPES, programs, read, reads_everything

# Small numbers: the interpreter adds int32 in NumPy, which does not wrap around.
words = torch.randint(-9, 9, (3 * max(s.words for s in SHAPES),), dtype=torch.int32)
complete = [reads_everything(words, shape, sms) for shape in SHAPES for sms in (1, 4)]

shape = SHAPES[0]
sums = torch.zeros(16, dtype=torch.int32)
read(words, sums, shape, 1)
each = [int(sums[:n].sum()) == int(words.sum()) for n in (programs(shape, words.numel(), 1),)]

def half(words, sums, shape, sms, whole=read_stream.read):
    whole(words[: shape.words], sums, shape, sms)
words[shape.words :] = 1
read_stream.read = half
answer = {"complete": complete, "each": each, "half": reads_everything(words, shape, 1)}
"""


def test_every_word_is_read_and_a_missing_one_is_noticed() -> None:
    found = run(CODE)
    assert found == {"complete": [True] * 12, "each": [True], "half": False}


def test_a_launch_has_no_more_programs_than_turns() -> None:
    from dsv4bench.kernels.gpu.read_stream import Shape, programs

    shape = Shape(1024, 4, 4, 16)
    assert programs(shape, 1 << 30, 132) == 132 * 16
    assert programs(shape, 3 * 4096, 132) == 3
    assert programs(shape, 4096, 132) == 1
