"""Counts, bytes and FLOPs of the model, against published totals and against arithmetic done another way."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4bench.dsv4 import (
    FLASH,
    PRESETS,
    ComponentCost,
    Format,
    ModelDims,
    activated_parameters,
    attention_call,
    expected_distinct_experts,
    expert_bytes,
    flash_layers,
    index_key_bytes,
    kv_entry_bytes,
    moe_call,
    parameters,
    preset,
    step_costs,
    tiny,
    weights,
)
from dsv4bench.errors import UsageError

# The layer order of transformers' DeepseekV4Config(), whose parameters were counted on the meta device.
TRANSFORMERS_ORDER = msgspec.structs.replace(FLASH, ratios=(128, 128, 128, *((4, 128) * 20)))

sizes = st.integers(min_value=1, max_value=512)
contexts = st.integers(min_value=1, max_value=200_000)


def by_name(costs: tuple[ComponentCost, ...]) -> dict[str, ComponentCost]:
    assert len({c.component for c in costs}) == len(costs)
    return {c.component: c for c in costs}


def test_flash_layer_types_follow_the_checkpoint() -> None:
    assert FLASH.layers == 43
    assert [FLASH.layer_ratio(i) for i in (0, 1, 2, 3, 4, 41, 42)] == [0, 0, 4, 128, 4, 128, 4]
    assert (FLASH.layers_of(0), FLASH.layers_of(4), FLASH.layers_of(128)) == (2, 21, 20)


@pytest.mark.parametrize("layer", [-1, 43])
def test_layer_outside_the_model_is_refused(layer: int) -> None:
    with pytest.raises(UsageError, match="0 to 42"):
        FLASH.layer_ratio(layer)


@pytest.mark.parametrize(
    ("group", "billions"),
    [
        ("experts", 277.025),
        ("attention", 5.097),
        ("shared_experts", 1.082),
        ("embed_head", 1.059),
        ("router", 0.045),
        ("other", 0.017),
        ("total", 284.326),
    ],
)
def test_parameters_match_the_published_count(group: str, billions: float) -> None:
    assert round(getattr(parameters(TRANSFORMERS_ORDER), group) / 1e9, 3) == billions


def test_checkpoint_order_differs_by_its_compressors_alone() -> None:
    ours, theirs = parameters(FLASH), parameters(TRANSFORMERS_ORDER)
    pool4 = 2 * 1024 * 4096 + 4 * 1024 + 512
    index = 8192 * 1024 + 64 * 4096 + 2 * 256 * 4096 + 4 * 256 + 128
    pool128 = 2 * 512 * 4096 + 128 * 512 + 512
    assert ours.total - theirs.total == pool4 + index - 3 * pool128
    assert ours.total / 1e9 == pytest.approx(284.326, abs=0.01)


def test_activated_parameters() -> None:
    assert activated_parameters(FLASH) / 1e9 == pytest.approx(13.8, abs=0.05)
    every = msgspec.structs.replace(tiny(), experts_per_token=32)
    assert activated_parameters(every) == parameters(every).total


def test_bytes_of_an_expert_a_kv_entry_and_an_index_key() -> None:
    assert expert_bytes(FLASH) / 1e6 == pytest.approx(13.37, abs=0.005)
    assert expert_bytes(FLASH, scale_bytes=4) / expert_bytes(FLASH) == pytest.approx(20 / 17)
    assert kv_entry_bytes(FLASH) == 584
    assert index_key_bytes(FLASH) == 132


def test_stored_bytes_of_the_formats() -> None:
    each = {w.name: w.bytes_each / (w.rows * w.cols) for w in weights(FLASH)}
    assert each["experts w2"] == 0.53125
    assert each["wo_b"] == 1 + 1 / 128**2
    assert each["head"] == 2
    assert each["hc_attn"] == 4
    assert {w.format for w in weights(FLASH) if w.group == "experts"} == {Format.MXFP4}


def test_checkpoint_size_is_what_four_gpus_hold() -> None:
    """About 44.7 GB a GPU at TP4 is reported, with what a server adds; the weights alone are below it."""
    stored = sum(w.bytes_each * w.count for w in weights(FLASH))
    assert 38e9 < stored / 4 < 44.7e9


@pytest.mark.parametrize(
    ("tokens", "distinct"),
    [(1, 6.0), (2, 11.9), (4, 23.2), (8, 44.2), (16, 80.8), (32, 136.1), (64, 199.9)],
)
def test_distinct_experts_of_a_batch(tokens: int, distinct: float) -> None:
    assert round(expected_distinct_experts(256, 6, tokens), 1) == distinct


@given(experts=st.integers(1, 512), tokens=st.integers(1, 5000), share=st.floats(0.0, 1.0, allow_nan=False))
def test_distinct_experts_lie_between_one_token_and_all(experts: int, tokens: int, share: float) -> None:
    chosen = max(1, round(share * experts))
    distinct = expected_distinct_experts(experts, chosen, tokens)
    assert distinct <= experts * (1 + 1e-12)
    assert distinct <= chosen * tokens * (1 + 1e-9)
    assert distinct >= chosen * (1 - 1e-9)


def test_weights_that_every_step_reads() -> None:
    """7.75 GB was estimated for dense FP8, compressors and LM head; with router and mHC it is 7.77."""
    costs = by_name(step_costs(FLASH, 1, 8192))
    always = sum(costs[c].bytes_read for c in ("dense", "compressor", "indexer", "router", "mhc"))
    assert always / 1e9 == pytest.approx(7.75, rel=0.01)


@pytest.mark.parametrize(
    ("batch", "unique_gb", "slots_gb"),
    [
        (1, 3.45, 3.45),
        (2, 6.82, 6.90),
        (4, 13.3, 13.8),
        (8, 25.4, 27.6),
        (16, 46.5, 55.2),
        (32, 78.3, 110.4),
        (64, 114.9, 220.8),
    ],
)
def test_routed_bytes_of_a_step(batch: int, unique_gb: float, slots_gb: float) -> None:
    assert by_name(step_costs(FLASH, batch, 1024))["moe"].bytes_read / 1e9 == pytest.approx(unique_gb, rel=0.005)
    # The fallback reads a slot's expert whole, and with fp32 scales 20 bytes where 17 suffice.
    fallback = by_name(step_costs(FLASH, batch, 1024, variant="fallback"))["moe"].bytes_read
    assert fallback / 1e9 == pytest.approx(slots_gb * 20 / 17, rel=0.005)


def test_kv_traffic_at_8k() -> None:
    assert by_name(step_costs(FLASH, 1, 8192))["attention"].bytes_kv / 1e6 == pytest.approx(10.24, abs=0.01)
    assert by_name(step_costs(FLASH, 16, 8192))["attention"].bytes_kv / 1e6 == pytest.approx(164, abs=0.5)


def test_kv_written_in_128_tokens() -> None:
    """A window entry a layer and token; 32 entries and index keys a ratio-4 layer, one a ratio-128 layer."""
    written = by_name(step_costs(FLASH, 128, 8192))["kv_write"].bytes_written
    assert written == 43 * 128 * 584 + 21 * 32 * (584 + 132) + 20 * 584


def test_attention_heads_are_split_over_the_gpus() -> None:
    one, four = (by_name(step_costs(FLASH, 2, 8192, tp=tp))["attention"].flops for tp in (1, 4))
    assert one == 4 * 64 * 512 * 2 * (43 * 128 + 21 * 512 + 20 * 64)
    assert four == one / 4


def test_attention_of_one_layer_at_batch_one() -> None:
    call = attention_call(FLASH, 1, extra=512)
    assert call.flops / 1e6 == pytest.approx(84, abs=0.5)
    assert call.bytes_kv / 1e6 == pytest.approx(0.37, abs=0.005)
    assert call.flops / (640 * 584) == pytest.approx(224, abs=1)  # FLOP a byte of KV
    assert attention_call(FLASH, 1, heads=16, extra=512).flops == call.flops / 4
    assert attention_call(FLASH, 1, extra=512, variant="fallback").bytes_kv == 64 * call.bytes_kv


def test_moe_call_is_a_layer_of_the_step() -> None:
    step = by_name(step_costs(FLASH, 16, 1024, tp=4))["moe"]
    call = moe_call(FLASH, 16, tp=4)
    inputs = 16 * 4096 * 2
    assert (call.bytes_read - inputs) * 43 == pytest.approx(step.bytes_read)
    assert call.flops * 43 == pytest.approx(step.flops)
    # The published peer table: 80.0 experts at M=16 are 1069.5 MB.
    assert (moe_call(FLASH, 16, distinct=80).bytes_read - inputs) / 1e6 == pytest.approx(1069.5, abs=0.1)


@pytest.mark.parametrize("distinct", [0, 257, math.nan])
def test_moe_call_refuses_impossible_routing(distinct: float) -> None:
    with pytest.raises(UsageError, match="distinct"):
        moe_call(FLASH, 16, distinct=distinct)


def test_dense_flops_follow_from_the_parameters() -> None:
    costs = by_name(step_costs(FLASH, 3, 1024))
    gemms = sum(w.parameters for w in weights(FLASH) if w.use == "gemm")
    counted = sum(costs[c].flops for c in ("dense", "compressor", "router", "mhc"))
    scores = 2 * 64 * 128 * (1024 // 4) * 21 * 3
    assert counted + costs["indexer"].flops - scores == 2 * gemms * 3
    assert costs["moe"].flops == 2 * 6 / 256 * parameters(FLASH).experts * 3


def test_fallback_attention_marches_through_the_padded_topk() -> None:
    """At 64 tokens of context no entry exists beyond the window, and the fallback reads 512 all the same."""
    ideal = by_name(step_costs(FLASH, 1, 64))["attention"]
    fallback = by_name(step_costs(FLASH, 1, 64, tp=4, variant="fallback"))["attention"]
    assert ideal.bytes_kv == 584 * (43 * 64 + 21 * 16)
    assert fallback.bytes_kv == 64 * 584 * (43 * 128 + 21 * 512 + 20)


def test_even_sharding_divides_everything_and_replication_keeps_some() -> None:
    one, even = by_name(step_costs(FLASH, 8, 4096)), by_name(step_costs(FLASH, 8, 4096, tp=4))
    real = by_name(step_costs(FLASH, 8, 4096, tp=4, sharding="replicated"))
    for name, cost in one.items():
        assert even[name].bytes_memory == pytest.approx(cost.bytes_memory / 4)
        assert even[name].flops == pytest.approx(cost.flops / 4)
        assert even[name].bytes_memory <= real[name].bytes_memory <= cost.bytes_memory
    assert real["attention"].bytes_kv == one["attention"].bytes_kv  # one KV head cannot be split
    assert real["compressor"].bytes_read == one["compressor"].bytes_read
    assert "comm" not in one
    assert even["comm"].bytes_link == 2 * 43 * 8 * 4096 * 2 * 1.5


def test_speculation_shares_reads_and_multiplies_flops() -> None:
    one, four = by_name(step_costs(FLASH, 16, 8192)), by_name(step_costs(FLASH, 16, 8192, verified=4))
    assert four["attention"].flops == 4 * one["attention"].flops
    assert four["attention"].bytes_kv - one["attention"].bytes_kv == 16 * 43 * 3 * 584
    assert four["indexer"].bytes_kv == one["indexer"].bytes_kv
    assert four["moe"].bytes_read == pytest.approx(43 * 199.9 * expert_bytes(FLASH), rel=1e-3)
    slow = by_name(step_costs(FLASH, 16, 8192, verified=4, variant="fallback"))
    once = by_name(step_costs(FLASH, 16, 8192, variant="fallback"))
    assert slow["moe"].bytes_read == 4 * once["moe"].bytes_read
    assert slow["attention"].bytes_kv == 4 * once["attention"].bytes_kv


@settings(max_examples=40, deadline=None)
@given(batch=sizes, context=contexts, dims=st.sampled_from([FLASH, tiny(), flash_layers(4)]))
def test_costs_grow_with_batch_and_context(batch: int, context: int, dims: ModelDims) -> None:
    base = by_name(step_costs(dims, batch, context))
    for wider in (step_costs(dims, batch + 1, context), step_costs(dims, batch, context + 1)):
        for name, cost in by_name(wider).items():
            assert cost.bytes_memory >= base[name].bytes_memory
            assert cost.flops >= base[name].flops
    slow = by_name(step_costs(dims, batch, context, variant="fallback"))
    assert slow["moe"].bytes_read > base["moe"].bytes_read
    assert slow["attention"].bytes_kv >= base["attention"].bytes_kv


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"context": 0}, {"tp": 0}, {"verified": 0}, {"tp": 3}, {"tp": 128}])
def test_step_refuses_impossible_sizes(sizes: dict[str, int]) -> None:
    args = {"batch": 1, "context": 1, **sizes}
    with pytest.raises(UsageError, match=next(iter(sizes))):
        step_costs(FLASH, args.pop("batch"), args.pop("context"), **args)  # type: ignore[arg-type]


def test_presets() -> None:
    assert preset("flash") is FLASH
    assert preset("tiny") == tiny()
    assert set(preset("flash-layers").ratios) == {0, 4, 128}
    assert preset("flash-layers", 7).ratios == FLASH.ratios[:7]
    assert set(tiny().ratios) == {0, 4, 128}
    assert all(parameters(preset(name)).total > 0 for name in PRESETS)


def test_flash_layers_keep_the_real_layer() -> None:
    one, two = parameters(flash_layers(2)), parameters(flash_layers(1))
    assert one.experts - two.experts == 256 * 3 * 4096 * 2048
    assert one.embed_head == parameters(FLASH).embed_head
    assert flash_layers(43).ratios == FLASH.ratios
    assert flash_layers(2).hash_layers == 2


@pytest.mark.parametrize(
    ("name", "layers", "hint"),
    [
        ("big", None, "tiny, flash, flash-layers"),
        ("flash", 4, "--preset flash-layers"),
        ("tiny", 4, "--preset flash-layers"),
        ("flash-layers", 0, "1 to 43"),
        ("flash-layers", 44, "1 to 43"),
    ],
)
def test_presets_refuse_what_they_cannot_do(name: str, layers: int | None, hint: str) -> None:
    with pytest.raises(UsageError) as e:
        preset(name, layers)
    assert name in e.value.message
    assert hint in e.value.hint


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ratios", ()),
        ("ratios", (0, 4, 8)),
        ("hash_layers", 5),
        ("hash_layers", -1),
        ("rope_dim", 64),
        ("rope_dim", 15),
        ("o_groups", 3),
        ("experts_per_token", 33),
        ("hidden", 250),
        ("expert_hidden", 100),
        ("window", 0),
        ("vocab_size", 0),
    ],
)
def test_impossible_dimensions_are_refused(field: str, value: object) -> None:
    with pytest.raises(UsageError) as e:
        msgspec.structs.replace(tiny(), **{field: value})
    assert field in e.value.message
    assert e.value.hint
