"""What the model is made of, and what one decode step must move and compute. Pure arithmetic, no tensors.

`dims` holds the published dimensions and the presets, `weights` every weight tensor with its storage format and
the parameter counts that follow, `step` the bytes and FLOPs of a decode step and of one kernel call.
"""

from dsv4bench.dsv4.dims import FLASH, PRESETS, ModelDims, flash_layers, preset, tiny
from dsv4bench.dsv4.step import (
    ComponentCost,
    MathType,
    Sharding,
    StepComponent,
    Variant,
    attention_call,
    expected_distinct_experts,
    moe_call,
    step_costs,
)
from dsv4bench.dsv4.weights import (
    Format,
    ParameterCount,
    Weight,
    activated_parameters,
    expert_bytes,
    index_key_bytes,
    kv_entry_bytes,
    parameters,
    weights,
)

__all__ = [
    "FLASH",
    "PRESETS",
    "ComponentCost",
    "Format",
    "MathType",
    "ModelDims",
    "ParameterCount",
    "Sharding",
    "StepComponent",
    "Variant",
    "Weight",
    "activated_parameters",
    "attention_call",
    "expected_distinct_experts",
    "expert_bytes",
    "flash_layers",
    "index_key_bytes",
    "kv_entry_bytes",
    "moe_call",
    "parameters",
    "preset",
    "step_costs",
    "tiny",
    "weights",
]
