"""Expert weights repacked once, at load time, so that a decode kernel can stream them: tiles, planes and bits.

    tiles   [E, N, K/2] bytes -> int16 [E, N / rows, K / 128, rows, 32]: each tile is one contiguous block, and the
            tiles of a strip of rows follow each other
    planes  half h of a tile's row holds k = 128 t + 32 j + h for j = 0..3, so that plane j of a row is one block of
            32 that shares one scale, and a dot over plane j needs 32 consecutive activations
    bits    the planes of a 32-bit word w (two halves) are the bits MASK of  w,  w << 4,  rotl(w, 10)  and
            (w << 6) ^ (w >> 2)

MASK picks sign 15 and magnitude 8..6 of each half: a bfloat16 of E2M1's value * 2**-126, subnormals included. Four
ANDs and four shifts so decode eight weights. No four shifts alone can (the 16 positions of a half cannot be tiled by
four copies of 15, 8, 7, 6), hence the XOR; the word for eight codes follows from a linear system over GF(2). The
bytes stay what they were: 4 bits a weight and 8 a scale.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable

import torch
from torch import Tensor

TILE_K = 128  # elements of a row in one tile: four planes of one scale block each
PLANES, PLANE = 4, 32
PAIR = 8  # rows of gate, then as many of up, that stand together in an interleaved w13
_WORD_BITS = 32
_TARGETS = (15, 8, 7, 6, 31, 24, 23, 22)  # sign and magnitude of the low half's code, then of the high half's
_EXPERTS_A_PASS = 8  # bounds the memory that repacking needs beside input and output


def pack(weight: Tensor, scales: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """uint8 [E, N, K/2], [E, N, K/32] -> int16 [E, N/rows, T, rows, 32], int32 [E, N/rows, T, rows], T = K/128.

    K that is no multiple of 128 and N that is none of `rows` are filled up with zeros. An int32 holds the four scale
    bytes of a row's tile, plane 0 lowest.
    """
    experts, n, half_k = weight.shape
    strips, tiles = -(-n // rows), -(-half_k * 2 // TILE_K)
    packed = torch.empty(experts, strips, tiles, rows, PLANE, dtype=torch.int16, device=weight.device)
    words = torch.empty(experts, strips, tiles, rows, dtype=torch.int32, device=weight.device)
    for start in range(0, experts, _EXPERTS_A_PASS):
        part = slice(start, start + _EXPERTS_A_PASS)
        filled = _filled(weight[part], strips * rows, tiles * TILE_K // 2)
        packed[part] = _tiles(_halves(filled), strips, rows)
        scale = _filled(scales[part], strips * rows, tiles * PLANES).view(torch.int32)
        words[part] = _tiles(scale.unsqueeze(-1), strips, rows).squeeze(-1)
    return packed, words


def tiles(weight: Tensor, scales: Tensor, rows: int, halves: bool) -> tuple[Tensor, Tensor]:
    """uint8 [E, N, K/2], [E, N, K/32] -> uint8 [E, N/rows, T, rows, 64], uint8 [E, N/rows, T, rows, 4], T = K/128.

    The tiles of `pack` with bytes that block-scaled MMAs take: as they came, or with k = i in the low and k = 64 + i
    in the high nibble of byte i (`halves`).
    """
    strips, count = -(-weight.shape[1] // rows), -(-weight.shape[2] * 2 // TILE_K)
    codes = _filled(weight, strips * rows, count * TILE_K // 2).view(weight.shape[0], strips * rows, count, -1)
    if halves:
        even, odd = codes & 0xF, codes >> 4
        wide = torch.stack((even, odd), -1).flatten(-2)
        codes = wide[..., : TILE_K // 2] | (wide[..., TILE_K // 2 :] << 4)
    scale = _filled(scales, strips * rows, count * PLANES).view(*codes.shape[:3], PLANES)
    return _tiles(codes, strips, rows).contiguous(), _tiles(scale, strips, rows).contiguous()


def interleave(rows: Tensor, multiple: int = PAIR) -> Tensor:
    """[E, 2I, c], gate first -> 8 rows of gate, the 8 of up that belong to them, and so on; filled up with zeros."""
    experts, n, width = rows.shape
    padded = -(-n // 2 // multiple) * multiple
    halves = rows.view(experts * 2, n // 2, width)
    parts = _filled(halves, padded, width).view(experts, 2, padded // PAIR, PAIR, width)
    return parts.transpose(1, 2).reshape(experts, 2 * padded, width)


def ordinary(scales: Tensor) -> bool:
    """Whether every scale is within 2**-40 and 2**40, so that the kernels need no care for the ends of float32.

    Waits for the device: for load time.
    """
    low, high = torch.aminmax(scales)
    return bool(low >= 127 - 40) and bool(high <= 127 + 40)


def _filled(t: Tensor, rows: int, width: int) -> Tensor:
    """[E, N, c] -> [E, rows, width], contiguous, zeros beyond."""
    if t.shape[1:] == (rows, width):
        return t.contiguous()
    out = t.new_zeros(t.shape[0], rows, width)
    out[:, : t.shape[1], : t.shape[2]] = t
    return out


def _halves(weight: Tensor) -> Tensor:
    """uint8 [E, N, K/2] -> int16 [E, N, K/128, 32], four codes each; two neighbours are one word."""
    experts, n, half_k = weight.shape
    codes = torch.stack((weight & 0xF, weight >> 4), -1).view(experts, n, half_k * 2 // TILE_K, PLANES, PLANE // 2, 2)
    table = torch.tensor(_code_words(), dtype=torch.int64, device=weight.device).to(torch.int32)
    word = torch.zeros(codes.shape[:3] + codes.shape[4:5], dtype=torch.int32, device=weight.device)
    for plane in range(PLANES):
        for half in range(2):
            word ^= (
                table[2 * plane + half].index_select(0, codes[..., plane, :, half].reshape(-1).int()).view_as(word)
            )
    return word.view(torch.int16)


def _tiles(t: Tensor, strips: int, rows: int) -> Tensor:
    """[E, N, T, c] -> [E, strips, T, rows, c]."""
    experts, _, tiles, width = t.shape
    return t.view(experts, strips, rows, tiles, width).transpose(2, 3)


@functools.cache
def _code_words() -> list[list[int]]:
    """[plane and half][code] -> the word whose planes are that code there and zero elsewhere; words add by XOR."""
    equations = [_sources(plane)[i] for plane in range(PLANES) for i in range(len(_TARGETS))]
    columns = _inverse(equations)
    words = []
    for place in range(2 * PLANES):
        # Equations of one code: sign, then the magnitude's bits from the highest.
        bits = columns[4 * place : 4 * place + 4]
        words.append([_xor(bits[i] for i in range(4) if code >> (3 - i) & 1) for code in range(16)])
    return words


def _xor(words: Iterable[int]) -> int:
    return functools.reduce(operator.xor, words, 0)


def _sources(plane: int) -> list[int]:
    """For each target bit, the mask of the word's bits whose XOR it is."""

    def bit(at: int) -> int:
        return 1 << at if 0 <= at < _WORD_BITS else 0

    if plane == 0:
        return [bit(t) for t in _TARGETS]
    if plane == 1:
        return [bit(t - 4) for t in _TARGETS]
    if plane == 2:
        return [bit((t - 10) % _WORD_BITS) for t in _TARGETS]
    return [bit(t - 6) ^ bit(t + 2) for t in _TARGETS]


def _inverse(equations: list[int]) -> list[int]:
    """For each equation the word that makes it 1 and all others 0."""
    rows = [(mask, 1 << i) for i, mask in enumerate(equations)]
    for column in range(_WORD_BITS):
        pivot = next(i for i in range(column, _WORD_BITS) if rows[i][0] >> column & 1)
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for i in range(_WORD_BITS):
            if i != column and rows[i][0] >> column & 1:
                rows[i] = (rows[i][0] ^ rows[column][0], rows[i][1] ^ rows[column][1])
    # rows[b] now says which equations bit b is the XOR of.
    return [sum(1 << b for b in range(_WORD_BITS) if rows[b][1] >> i & 1) for i in range(_WORD_BITS)]
