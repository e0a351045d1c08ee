"""Peers for `dsv4bench kernels bench --peers benchmarks/vllm_parts.py`: vLLM's kernels without vLLM.

Where the whole of vLLM cannot be installed beside the GPU's torch, its extension modules can be loaded one by one.
This file knows how to call them; the loading itself is done by scripts in a folder of yours, named by
DSV4BENCH_PEER_PARTS (with MINI naming where its archive was unpacked):

    common.py   load_real(module, file), ROOT
    moe.py      load_libs, prep_marlin, scalar_id, marlin; tk_setup, tk_unfused, tk_fused

They are made for E = 256, top 6, D = 4096, I = 2048, limit 10, and for torch 2.11 on sm_90. All six peers were run in
this way on an H200, with parts of vLLM 0.25.1 and sgl-flash-mla 1.0.0. Marlin's first call compiles PTX for tens of
seconds. `vllm_tk_fused` is not what vLLM does: DeepSeek-V4's activation is plugged into the epilogue of its GEMM.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from dsv4bench.errors import UsageError
from dsv4bench.kernels.calls import AttentionCall, Lse
from dsv4bench.kernels.peers.external import ExternalPeer
from dsv4bench.kernels.peers.flash_mla import FlashMla, paged
from dsv4bench.kernels.sets import Experts

PARTS = "DSV4BENCH_PEER_PARTS"
SHAPE = (256, 4096, 4096 // 2)  # w13: experts, twice the inner width, half the width
LIMIT = 10.0


def part(name: str) -> Any:
    """A script of the folder as a module. Raises UsageError where the folder or its archive is missing."""
    folder = Path(os.environ.get(PARTS, ""))
    if not os.environ.get(PARTS) or not (folder / f"{name}.py").is_file():
        raise UsageError(f"{PARTS} names no folder with {name}.py", "see the head of this file")
    if not (Path(os.environ.get("MINI", "./mini")) / "so").is_dir():
        raise UsageError("MINI names no folder with the unpacked parts", "it must hold so/ and real/")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def weights(experts: Experts) -> tuple[Any, Any, Any, Any]:
    """What the scripts call W. Raises UsageError for a shape that they are not made for."""
    if tuple(experts.w13.shape) != SHAPE or experts.swiglu_limit != LIMIT or experts.route_scale != 1:
        found = f"w13 {tuple(experts.w13.shape)}, limit {experts.swiglu_limit:g}"
        raise UsageError(f"the parts are made for w13 {SHAPE}, limit {LIMIT:g}, not {found}")
    return experts.w13, experts.s13, experts.w2, experts.s2


class Marlin:
    """Align, GEMM, clamped SwiGLU, GEMM, sum: the operators of vLLM's fused_marlin_moe in its order."""

    def __init__(self) -> None:
        self._moe = part("moe")
        self._moe.load_libs()
        self._fp4 = self._moe.scalar_id()

    def prepare(self, experts: Experts) -> Any:
        import torch

        sms = torch.cuda.get_device_properties(0).multi_processor_count
        workspace = torch.zeros(4 * sms, dtype=torch.int, device="cuda")
        return self._moe.prep_marlin(weights(experts)), workspace

    def __call__(self, x: Any, ids: Any, weights: Any, prepared: Any) -> Any:
        return self._moe.marlin(prepared[0], x, ids, weights, prepared[1], self._fp4)


class TritonKernels:
    """matmul_ogs: vLLM's unfused sequence, or with activation and sum inside of the GEMMs."""

    def __init__(self, fused: bool) -> None:
        self._moe, self._fused = part("moe"), fused
        self._moe.load_libs()
        self._module: Any = None

    def prepare(self, experts: Experts) -> Any:
        packed = w13, s13, w2, s2 = weights(experts)
        self._module, swizzle = self._moe.tk_setup(packed)
        if self._fused:
            w13, s13 = _interleaved(w13), _interleaved(s13)
        return (*swizzle(w13, s13), *swizzle(w2, s2))

    def __call__(self, x: Any, ids: Any, weights: Any, prepared: Any) -> Any:
        run = self._moe.tk_fused if self._fused else self._moe.tk_unfused
        return run(self._module, prepared, x, ids, weights)


class SglFlashMla:
    """The legacy operator of sgl-flash-mla 1.0.0, its plan kept for calls of one shape."""

    lse: Lse = "plain"

    def __init__(self) -> None:
        import torch

        torch.ops.load_library(f"{part('common').ROOT}/sgl/flash_mla/_C_legacy.abi3.so")
        self._decode = torch.ops.flash_mla_legacy.sparse_decode_fwd
        self._rest = {
            a.name: False if "batch" in a.name else None
            for a in self._decode.default._schema.arguments[12:]
            if not a.has_default_value()
        }
        self._plans: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def __call__(self, call: AttentionCall) -> tuple[Any, Any]:
        window, extra = call.window, call.extra
        if window.length is not None or (extra is not None and extra.length is not None):
            raise UsageError("sgl_flash_mla is called without lengths here: its plan is kept")
        shape = (*call.q.shape, window.index.shape[1], 0 if extra is None else extra.index.shape[1])
        plan = self._plans.get(shape, (None, None))
        out, lse, *made = self._decode(
            *(call.q.unsqueeze(1), paged(window), window.index.unsqueeze(1), None, call.sink, *plan),
            None if extra is None else paged(extra),
            None if extra is None else extra.index.unsqueeze(1),
            *(None, call.q.shape[2], call.scale),
            **self._rest,
        )
        self._plans.setdefault(shape, (made[0], made[1]))
        return out.squeeze(1), lse.squeeze(-1)


def _interleaved(tensor: Any) -> Any:
    """Rows of gate and up in turn: [E, 2I, n] -> the same shape."""
    experts, rows, width = tensor.shape
    return tensor.view(experts, 2, rows // 2, width).transpose(1, 2).reshape(experts, rows, width).contiguous()


def _flash_mla(keep_plan: bool) -> FlashMla:
    import torch

    common = part("common")
    torch.ops.load_library(f"{common.ROOT}/so/_flashmla_C.abi3.so")
    common.install_stub()
    interface = "vllm.third_party.flashmla.flash_mla_interface"
    return FlashMla(common.load_real(interface, "flash_mla_interface.py"), keep_plan)


PEERS = [
    ExternalPeer("vllm_marlin", "moe", Marlin, "vLLM 0.25.1's Marlin operators"),
    ExternalPeer("vllm_tk_unfused", "moe", lambda: TritonKernels(False), "vLLM 0.25.1's triton_kernels sequence"),
    ExternalPeer("vllm_tk_fused", "moe", lambda: TritonKernels(True), "the same with a fused activation and sum"),
    ExternalPeer("vllm_flash_mla", "attention", lambda: _flash_mla(True), "vLLM 0.25.1's FlashMLA, plan kept"),
    ExternalPeer("vllm_flash_mla+planner", "attention", lambda: _flash_mla(False), "the same, planned in each call"),
    ExternalPeer("sgl_flash_mla", "attention", SglFlashMla, "sgl-flash-mla 1.0.0's legacy operator"),
]
