"""Checks of each fused kernel against the CPU engine's own code; run by `cuda_checks` under the interpreter."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4bench.engine import compress as plain
from dsv4bench.engine import ops
from dsv4bench.engine.batch import ForwardBatch
from dsv4bench.engine.cache import CompressorCache
from dsv4bench.engine.cuda.cache import ring_length
from dsv4bench.engine.cuda.fused import compressor, indexer, mhc, router, rows, sampling
from dsv4bench.engine.cuda.fused.addressing import Where, fixed_rows, step_tokens
from dsv4bench.engine.weights import CompressorWeights, HyperWeights
from dsv4bench.kernels import mla_cache

PAGE = 256
BF16 = 2.0**-8  # relative: half a unit in the last place, and a little
ROPE = ops.Rope(600, 64, 1e4)
ANGLES = rows.Angles(*ROPE.tables)
# Two requests of two positions: 5, 6 on page 1; 300, 301 on page 3, the second of its own.
START, TABLES = [5, 300], [[1, 0], [2, 3]]
POSITIONS = torch.tensor([5, 6, 300, 301])
ROWS = torch.tensor([PAGE + 5, PAGE + 6, 3 * PAGE + 44, 3 * PAGE + 45])


def ints(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def where(active: int = 2, start: list[int] = START, new: int = 2) -> Where:
    return Where(ints([1, 0]), ints(start), ints([active]), ints(TABLES), new)


def half(*shape: int, seed: int = 0, std: float = 1.0) -> Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * std).bfloat16()


def close(got: Tensor, truth: Tensor, relative: float = BF16, absolute: float = 1e-6) -> None:
    excess = ((got.float() - truth).abs() - relative * truth.abs()).max().item()
    assert excess <= absolute, f"off by {excess:.3e} beyond {relative:.1e} relative"


def check_latent_norm_and_cache_write() -> None:
    projected = half(4, 64 + 512)
    projected[1, 64:128] = 0  # a block of zeros has the smallest scale
    projected[2, 64:] *= 1000.0  # the norm takes it out again
    q_norm, kv_norm = 1 + 0.1 * torch.randn(64), 1 + 0.1 * torch.randn(512)
    cache, expected = mla_cache.empty(4, PAGE), mla_cache.empty(4, PAGE)
    latent = rows.q_and_kv(projected, q_norm, kv_norm, cache, PAGE, ANGLES, where(), 1e-6)
    close(latent, ops.rms_norm(projected[:, :64].float(), q_norm, 1e-6))
    kv = ROPE.turn_(ops.rms_norm(projected[:, 64:].float(), kv_norm, 1e-6), POSITIONS)
    mla_cache.write(expected, PAGE, ROWS, kv)
    # A last bit of float32 may round to another code; one unit of E4M3 then, and that seldom.
    assert (cache != expected).sum().item() <= 3
    got, truth = (mla_cache.gather(c, PAGE, ROWS) for c in (cache, expected))
    close(got, truth, relative=0.125)


def check_heads_are_normed_and_turned_and_turned_back() -> None:
    q = half(4, 5, 512)
    turned = rows.turn_heads(q, ANGLES, where(), 1e-6)
    close(turned, ROPE.turn_(ops.rms_norm(q.float(), None, 1e-6), POSITIONS), absolute=1e-3)
    back = rows.turn_back_(turned.clone(), ANGLES, where())
    close(back, ROPE.turn_(turned.float(), POSITIONS, inverse=True), absolute=1e-3)


def check_swiglu_clamps() -> None:
    gate_up = half(3, 2 * 96, std=8.0)
    gate, up = gate_up.float().chunk(2, dim=-1)
    truth = torch.nn.functional.silu(gate.clamp(max=10.0)) * up.clamp(-10.0, 10.0)
    close(rows.swiglu(gate_up, 10.0), truth)


def check_hyper_connections() -> None:
    width, tokens = 160, 3  # one block and a piece of one
    mix, base = half(24, 4 * width, std=(4 * width) ** -0.5), torch.randn(24) * 0.5
    padded = torch.nn.functional.pad(mix, (0, 0, 0, 8))
    plain_weights = HyperWeights(mix.float(), base)
    table, ids, norm = half(50, width), ints([3, 49, 0]), 1 + 0.1 * torch.randn(width)
    streams = mhc.Streams(tokens, width, torch.device("cpu"))
    truth = table[ids.long()].float().unsqueeze(1).repeat(1, 4, 1)
    streams.embed(table, ids, padded)
    for more in (half(tokens, width, seed=3), None):
        x = streams.fold(base, norm, 1e-6, rounds=5)
        folded, post, comb = ops.hc_pre(truth, plain_weights, 5, 1e-6)
        close(x, ops.rms_norm(folded, norm, 1e-6), absolute=1e-3)
        y = half(tokens, width, seed=2)
        streams.spread(y, more, padded)
        whole = y.float() if more is None else y.float() + more.float()
        truth = ops.hc_post(truth, whole, post, comb).bfloat16().float()  # the streams are kept in bf16
    head = HyperWeights(mix[:4].float(), base[:4])
    streams.spread(y, None, torch.nn.functional.pad(mix[:4], (0, 0, 0, 28)))
    # `post` and `comb` are still those of the last fold.
    truth = ops.hc_post(truth, y.float(), post, comb).bfloat16().float()
    x = streams.fold(base, norm, 1e-6, rounds=0, first=2)
    assert x.shape == (1, width)
    close(x, ops.rms_norm(ops.hc_head(truth, head, 1e-6)[2:], norm, 1e-6), absolute=2e-3)


def check_router_by_score_by_table_and_forced() -> None:
    logits, bias = torch.randn(4, 10, generator=torch.Generator().manual_seed(4)), torch.randn(10) * 0.3
    score = torch.nn.functional.softplus(logits).sqrt()

    def shares(ids: Tensor) -> Tensor:
        chosen = score.gather(1, ids.long())
        return chosen / chosen.sum(dim=1, keepdim=True)

    ids, share = router.choose(logits, 3, where(), bias=bias)
    assert torch.equal(ids.long(), (score + bias).topk(3, dim=1).indices)
    close(share, shares(ids), relative=1e-5)
    table, tokens = ints([[0, 1, 2], [7, 8, 9]]), ints([1, 0, 1, 1])
    ids, share = router.choose(logits, 3, where(), by_token=(table, tokens))
    assert torch.equal(ids, table[tokens.long()])
    close(share, shares(ids), relative=1e-5)
    forced = ints([[3, 1, 4], [1, 5, 9], [2, 6, 5], [0, 1, 2]])
    ids, share = router.choose(logits, 3, where(), bias=bias, forced=forced, by_token=(table, tokens))
    assert torch.equal(ids, forced)
    close(share, shares(ids), relative=1e-5)
    padded, _ = router.choose(logits, 3, where(active=1), bias=bias)
    assert (padded[:2] >= 0).all() and (padded[2:] == -1).all()


def _draw(**changes: Tensor) -> sampling.Draw:
    two = dict.fromkeys(("accepted", "barred", "drawn"), ints([0, 0]))
    plain_draw = sampling.Draw(slots=ints([2, 0]), temperature=torch.zeros(2), seed=ints([7, 8]), **two)
    return plain_draw._replace(**changes)


def check_greedy_tokens_of_the_accepted_row_into_the_slot() -> None:
    logits, last = torch.randn(4, 5000, generator=torch.Generator().manual_seed(5)), ints([9, 9, 9])
    drawn = sampling.sample(logits, _draw(accepted=ints([1, 0])), last, eos_id=4999)
    assert drawn.tolist() == [logits[1].argmax(), logits[2].argmax()]
    assert last.tolist() == [drawn[1], 9, drawn[0]]
    eos = int(logits[2].argmax())
    drawn = sampling.sample(logits, _draw(barred=ints([0, 1])), last, eos_id=eos)
    assert drawn.tolist() == [logits[0].argmax(), logits[2].topk(2).indices[1]]


def check_drawn_tokens_follow_the_distribution_and_the_seed_alone() -> None:
    logits, last = torch.log(torch.tensor([[0.5, 0.3, 0.2]])).repeat(2, 1), ints([0, 0, 0])
    hot, draws = torch.ones(2), 400
    counts, pairs = torch.zeros(3), []
    for n in range(draws):
        token = sampling.sample(logits, _draw(temperature=hot, seed=ints([7, n]), drawn=ints([n, 3])), last, 9)
        counts[token[0]] += 1
        pairs.append(token.tolist())
    deviation = (torch.tensor([0.5, 0.3, 0.2]) * draws).sqrt()
    assert ((counts - torch.tensor([0.5, 0.3, 0.2]) * draws).abs() <= 4 * deviation).all(), counts
    again = sampling.sample(logits, _draw(temperature=hot, seed=ints([5, 7]), drawn=ints([1, 11])), last, 9)
    assert again[1] == pairs[11][0], "the same seed and count in another row of another batch"
    assert len({a for a, _ in pairs}) == 3 and len({b for _, b in pairs}) == 3


def check_fixed_rows_and_tokens() -> None:
    index, length = fixed_rows(where(), 8, 0, PAGE)
    assert length.tolist() == [6, 7, 8, 8]
    assert index[0].tolist() == [*range(PAGE, PAGE + 6), -1, -1]
    assert index[2].tolist() == list(range(3 * PAGE + 37, 3 * PAGE + 45))
    across, _ = fixed_rows(where(start=[5, 257], new=1), 8, 0, PAGE)
    assert across[1].tolist() == [*range(3 * PAGE - 6, 3 * PAGE), 3 * PAGE, 3 * PAGE + 1]
    index, length = fixed_rows(where(active=2, start=[127, 300], new=1), 64, 128, PAGE)
    assert length.tolist() == [1, 2] and index[:, :3].tolist() == [[2, -1, -1], [4, 5, -1]]
    _, length = fixed_rows(where(active=1), 8, 0, PAGE)
    assert length.tolist() == [6, 7, 0, 0]
    assert step_tokens(ints([4, 5, 6]), ints([2, 0]), ints([[7], [8]]), 2).tolist() == [6, 7, 4, 8]
    assert step_tokens(ints([4, 5, 6]), ints([2, 0]), ints([[], []]), 1).tolist() == [6, 4]


def check_indexer_keeps_the_best() -> None:
    heads, dim = 3, 16
    query, head_weight, keys = half(4, heads, dim), half(4, heads + 2, seed=1)[:, 1:4], half(4 * 64, dim, seed=2)
    at = where(start=[40, 300])
    for topk in (8, 100):
        index, length = indexer.best_entries(query, head_weight, keys, 96, topk, PAGE, at)
        for token, position in enumerate((40, 41, 300, 301)):
            visible, table = (position + 1) // 4, TABLES[token // 2]
            entries = torch.tensor([table[j // 64] * 64 + j % 64 for j in range(visible)])
            match = torch.relu(query[token].float() @ keys[entries].float().T)
            score = (match * head_weight[token].float()[:, None]).sum(0)
            best = entries[score.topk(min(topk, visible)).indices].sort().values
            count = int(length[token])
            assert count == min(topk, visible)
            assert index[token, :count].tolist() == best.tolist(), (topk, token)
            assert (index[token, count:] == -1).all()
    _, length = indexer.best_entries(query, head_weight, keys, 96, 8, PAGE, where(active=1, start=[40, 300]))
    assert length.tolist() == [8, 8, 0, 0]


def check_indexer_takes_equal_scores_oldest_first() -> None:
    query, head_weight = torch.ones(1, 1, 16).bfloat16(), torch.ones(1, 1).bfloat16()
    keys = torch.zeros(4 * 64, 16).bfloat16()
    keys[64 + 20] = keys[64 + 30] = 1.0  # the best two of page 1; all others score 0
    at = Where(ints([0]), ints([160]), ints([1]), ints([[1, 0]]), 1)
    index, _ = indexer.best_entries(query, head_weight, keys, 64, 5, PAGE, at)
    assert index.tolist() == [[64, 65, 66, 64 + 20, 64 + 30]]
    index, _ = indexer.best_entries(query, -head_weight, keys, 64, 5, PAGE, at)
    assert index.tolist() == [[64, 65, 66, 67, 68]]


def _compress_both(ratio: int, entry: int, steps: list[tuple[int, int]], *, positions: int, fp8: bool) -> None:
    """The same projections through the CPU engine's compressor and the fused one, in passes of (start, new).

    The ring is made for decode steps of `positions`, as a server's is.
    """
    overlap = ratio == 4
    width, end = entry * (1 + overlap), steps[-1][0] + steps[-1][1]
    values = half(end, 2 * width, seed=6)
    weights = CompressorWeights(
        ratio, overlap, torch.eye(width), torch.eye(width), torch.randn(ratio, width), 1 + 0.1 * torch.randn(entry)
    )
    ring = torch.full((3, ring_length(ratio, positions), 2 * width), 77.0).bfloat16()  # not written: must not count
    per_page = PAGE // ratio
    entries = mla_cache.empty(4, per_page) if fp8 else torch.zeros(4 * per_page, entry).bfloat16()
    cpu = CompressorCache(raw=torch.zeros(4, PAGE, 2 * width), entries=torch.zeros(4, per_page, entry))
    table = [3, 1]
    for start, new in steps:
        part = values[start : start + new]
        at = Where(ints([1]), ints([start]), ints([1]), ints([table]), new)
        compressor.compress(part, ring, weights.position, weights.norm, entries, PAGE, ANGLES, at, 1e-6)
        batch = ForwardBatch(torch.zeros(1, new, dtype=torch.int64), [start], torch.tensor([table]), PAGE)
        _pool_plainly(part.float(), weights, cpu, batch)
    count = end // ratio
    index = torch.tensor([table[j // per_page] * per_page + j % per_page for j in range(count)])
    got = mla_cache.gather(entries, per_page, index) if fp8 else entries[index].float()
    truth = cpu.entries.flatten(0, 1)[index]
    if fp8:
        expected = mla_cache.empty(4, per_page)
        mla_cache.write(expected, per_page, index, ROPE.turn_(truth.clone(), torch.arange(count) * ratio))
        truth = mla_cache.gather(expected, per_page, index)
    assert count
    close(got, truth, relative=0.125 if fp8 else BF16, absolute=1e-3)
    if fp8:  # the same codes, but where the last bit of a float32 tips a rounding
        assert ((got - truth).abs() > 1e-3).float().mean() <= 0.002


def _pool_plainly(part: Tensor, weights: CompressorWeights, cache: CompressorCache, batch: ForwardBatch) -> None:
    """`engine.compress.compress` behind its projections."""
    entries = batch.entries(weights.ratio, weights.overlap)
    cache.raw.flatten(0, 1)[batch.token_rows] = part
    if len(entries.done_target):
        raw = cache.raw.flatten(0, 1)[entries.done_source]
        pooled = ops.rms_norm(plain._pool(raw, weights, entries.done_exists), weights.norm, 1e-6)
        cache.entries.flatten(0, 1)[entries.done_target] = pooled


def check_entries_of_ratio_4_in_prefill_verification_and_decode() -> None:
    # The last but one verification is repeated behind a rejected draft.
    passes = [(0, 6), (6, 3), (9, 1), (10, 1), (11, 1), (12, 2), (13, 2), (15, 30), (45, 2), (47, 1)]
    _compress_both(4, 512, passes, positions=3, fp8=True)


def check_index_keys() -> None:
    _compress_both(4, 16, [(0, 9), (9, 1), (10, 1), (11, 1)], positions=1, fp8=False)


def check_entries_of_ratio_128_across_a_page() -> None:
    _compress_both(128, 512, [(0, 100), (100, 27), (127, 1), (128, 126), (254, 2)], positions=2, fp8=True)


def check_padding_completes_no_entry() -> None:
    width, table = 32, ints([[1], [0]])
    raw, keys = torch.zeros(2, 8, 2 * width).bfloat16(), torch.zeros(2 * 64, 16).bfloat16()
    at = Where(ints([0, 1]), ints([3, 3]), ints([1]), table, 1)
    bias, norm = torch.zeros(4, width), torch.ones(16)
    compressor.compress(half(2, 2 * width), raw, bias, norm, keys, PAGE, ANGLES, at, 1e-6)
    assert keys[64].abs().sum() > 0 and keys[0].abs().sum() == 0
