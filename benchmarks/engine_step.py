"""The embedded server's decode step on a GPU, without the server: how long, how many launches, do the sets agree?

    python benchmarks/engine_step.py [--layers 8] [--batch 1,4,16,32] [--positions 1,2] [--json]

Three statements, each from one model with both kernel sets prepared (the step itself takes either):
    times       median of replayed steps at each batch, with the host's share of one
    launches    kernels of one step, counted in its trace; host waits, by torch's own check: none but the tokens' copy
    agreement   teacher-forced logits of both sets, the routing of the first forced on the second
Needs a GPU with about 8 GB free a layer. Context 1000; all requests decode, nobody is prefilling.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections import Counter
from typing import Any

import torch

from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.cuda import agreement, device, weights
from dsv4bench.engine.cuda.executor import CudaExecutor
from dsv4bench.engine.cuda.sets import Choice, CudaKernels, load
from dsv4bench.engine.sequence import Sampling, Sequence
from dsv4bench.engine.spans import Spans
from dsv4bench.errors import BenchError

CONTEXT, WARM, TIMED = 1000, 3, 11
PROMPTS = (300, 130, 64, 7)  # tokens, of the agreement
STEPS = 16


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--layers", type=int, default=8)
    options.add_argument("--batch", default="1,4,16,32")
    options.add_argument("--positions", default="1", help="verified a step and request; 1: no speculation")
    options.add_argument("--json", action="store_true")
    o = options.parse_args()
    batches, positions = ([int(n) for n in text.split(",")] for text in (o.batch, o.positions))
    try:
        found = measure(o.layers, batches, positions)
    except BenchError as error:
        raise SystemExit(f"error: {error.message}\nhint: {error.hint}") from None
    if o.json:
        print(json.dumps(found))
        return
    print(f"{found['device']}, {o.layers} layers, {found['gpu_gb']:.1f} GB allocated")
    for row in found["steps"]:
        print(
            f"{row['kernels']:10} m={row['positions']} B={row['batch']:3} {row['ms']:9.3f} ms a step, "
            f"{row['tok_s']:7.0f} positions/s, {row['launches']} launches, host {row['host_ms']:.3f} ms"
        )
    print(" ".join(f"{name} {value}" for name, value in found["agreement"].items()))


def measure(layers: int, batches: list[int], positions: list[int]) -> dict[str, Any]:
    """Raises UsageError where there is no GPU, or too little memory."""
    sets = {}
    config = _config(layers, "fallback", 1, max(batches))
    device.require(config)
    for name in ("fallback", "optimized"):
        sets[name] = load(name, name)  # type: ignore[arg-type]
    gpu = torch.device("cuda")
    runners = {kernels.moe_name: kernels.moe_runner for kernels in sets.values()}
    model = weights.draw(config.dims, 0, gpu, runners)
    steps = [
        row
        for name in sets
        for m in positions
        for row in _steps(name, sets, model, _config(layers, name, m, max(batches)), batches)
    ]
    rng = torch.Generator().manual_seed(1)
    prompts = [torch.randint(0, config.dims.vocab_size - 1, (n,), generator=rng).tolist() for n in PROMPTS]
    agreed = agreement.compare(
        config.dims,
        sets["fallback"],
        sets["optimized"],
        sets["optimized"],
        model,
        prompts=prompts,
        steps=STEPS,
        seed=1,
        device=gpu,
    )
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "layers": layers,
        "context": CONTEXT,
        "gpu_gb": torch.cuda.memory_allocated() / 1e9,
        "steps": steps,
        "agreement": dataclasses.asdict(agreed) | {"holds": agreed.holds},
    }


def _config(layers: int, kernels: Any, positions: int, most: int) -> EngineConfig:
    return EngineConfig(
        device="cuda",
        preset="flash-layers",
        layers=layers,
        kernels=kernels,
        max_running=most,
        max_model_len=4096,
        spec_tokens=0 if positions == 1 else positions,
    )


def _steps(
    name: str, sets: dict[str, CudaKernels], model: Any, config: EngineConfig, batches: list[int]
) -> list[dict[str, Any]]:
    choice = Choice(decode=sets[name], prefill=sets["optimized"])
    executor = CudaExecutor(config, Spans(), kernels=choice, drawn=model)
    executor.warm_up()
    m = config.positions_a_step
    rows = []
    for batch in batches:
        running = [_sequence(number, executor, config) for number in range(batch)]
        for _ in range(WARM):
            _step(executor, running, m).tokens()
        host_s, step_s = [], []
        for _ in range(TIMED):
            begun = time.perf_counter()
            torch.cuda.set_sync_debug_mode("error")  # raises where torch would wait for the GPU
            pending = _step(executor, running, m)
            torch.cuda.set_sync_debug_mode("default")
            host_s.append(time.perf_counter() - begun)
            pending.tokens()
            step_s.append(time.perf_counter() - begun)
        ms = 1e3 * statistics.median(step_s)
        row = {"kernels": name, "positions": m, "batch": batch, "ms": ms, "tok_s": 1e3 * batch * m / ms}
        row |= {"host_ms": 1e3 * statistics.median(host_s), "launches": _launches(executor, running, m)}
        rows.append(row)
    return rows


def _sequence(number: int, executor: CudaExecutor, config: EngineConfig) -> Sequence:
    """A request that stands at CONTEXT, with pages of its own; its cache holds zeros."""
    seq = Sequence(str(number), [0], Sampling(max_tokens=1000, temperature=0.0, ignore_eos=True), number, 0.0)
    each = -(-(CONTEXT + 200 * config.positions_a_step) // config.page_size)
    seq.computed, seq.slot, seq.launched = CONTEXT, number, 1
    seq.pages = [1 + number * each + page for page in range(each)]
    return seq


def _step(executor: CudaExecutor, running: list[Sequence], m: int) -> Any:
    pending = executor.decode(running, [[7] * (m - 1)] * len(running), [0] * len(running))
    for seq in running:
        seq.computed += 1
        seq.launched += 1
    return pending


def _launches(executor: CudaExecutor, running: list[Sequence], m: int) -> int:
    """Kernels of one step; copies and memsets are none."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        _step(executor, running, m).tokens()
        torch.cuda.synchronize()
    names = Counter(event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA)
    return sum(count for name, count in names.items() if not name.startswith(("Memcpy", "Memset")))


if __name__ == "__main__":
    main()
