"""`dsv4bench serve`: a small DeepSeek-V4-shaped decoder with random weights, as an OpenAI-compatible server."""

from __future__ import annotations

import os
from typing import Literal

import typer


def serve(
    device: Literal["cpu", "cuda"] = typer.Option("cpu", help="Where the model runs."),
    kernels: Literal["fallback", "optimized"] = typer.Option(
        "fallback", help="Decode kernels: slot by slot as the slow ones work, or grouped by expert and head."
    ),
    moe_kernel: Literal["fallback", "optimized"] | None = typer.Option(
        None, help="The MoE kernel alone, instead of that of --kernels."
    ),
    attention_kernel: Literal["fallback", "optimized"] | None = typer.Option(
        None, help="The attention kernel alone, instead of that of --kernels."
    ),
    cuda_graphs: bool = typer.Option(
        True, help="With --device cuda: decode steps from CUDA graphs; without, layers and components show in traces."
    ),
    preset: Literal["tiny", "flash-layers"] = typer.Option(
        "tiny", help="Dimensions: small ones, or the first layers of DeepSeek-V4-Flash at their real size."
    ),
    layers: int | None = typer.Option(None, min=1, help="How many layers, with --preset flash-layers."),
    host: str = typer.Option("127.0.0.1", help="Address to listen on; there is no authentication."),
    port: int = typer.Option(8000, min=0, max=65535, help="Port to listen on; 0 picks a free one."),
    max_running: int = typer.Option(64, min=1, help="Requests that hold a slot at the same time."),
    max_model_len: int | None = typer.Option(
        None, min=2, help="Prompt and output tokens of a request, together.  [default: 16384; 4096 on cuda]"
    ),
    queue_limit: int = typer.Option(1024, min=0, help="Requests that may wait; more get status 429."),
    spec_tokens: int = typer.Option(
        0, min=0, help="Synthetic speculation: positions verified a step and request, 2 or more; 0 for none."
    ),
    spec_accept: float = typer.Option(
        0.7, min=0, max=1, help="Chance that a draft is accepted once those before it were."
    ),
    seed: int = typer.Option(0, min=0, help="Seed of the weights, and of requests that bring none."),
    threads: int | None = typer.Option(None, min=1, help="CPU threads of the model.  [default: cores - 1]"),
    served_model_name: str | None = typer.Option(
        None, help="Model name that requests use.  [default: dsv4- and the preset]"
    ),
) -> None:
    """Serve a small DeepSeek-V4-shaped decoder with random weights.

    An OpenAI-compatible server whose decode kernels can be switched; its text means nothing.
    """
    from dsv4bench.errors import UsageError

    try:
        from dsv4bench.engine.config import DEFAULT_MAX_MODEL_LEN, EngineConfig
        from dsv4bench.engine.server import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dsv4bench"):
            raise
        raise UsageError(f"serve needs {error.name}", "pip install 'dsv4bench[serve]'") from None

    config = EngineConfig(
        preset=preset,
        layers=layers,
        kernels=kernels,
        moe_kernel=moe_kernel,
        attention_kernel=attention_kernel,
        cuda_graphs=cuda_graphs,
        device=device,
        max_running=max_running,
        max_model_len=max_model_len or DEFAULT_MAX_MODEL_LEN[device],
        queue_limit=queue_limit,
        spec_tokens=spec_tokens,
        spec_accept=spec_accept,
        seed=seed,
        threads=threads or max(1, (os.cpu_count() or 2) - 1),
        served_model_name=served_model_name or f"dsv4-{preset}",
    )
    run(config, host, port)
