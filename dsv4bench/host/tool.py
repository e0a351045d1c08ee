"""The measuring side's own provenance: this tool's version and commit, its libraries, and the environment.

The environment is taken by allow-list; a name that holds a key, token, secret or password shows `***`, and a home
folder is `~`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import dsv4bench
from dsv4bench.host.redact import HIDDEN, redact_text, without_home
from dsv4bench.records.experiment import Tool

_PREFIXES = ("NCCL_", "SGLANG_", "SGL_", "VLLM_", "CUDA_", "TORCH_", "TRITON_", "OMP_", "DSV4BENCH_")
_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_PACKAGES = (
    *(
        "httpx",
        "msgspec",
        "pandas",
        "rich",
        "typer",
        "prometheus-client",
        "nvtx",
        "nvidia-ml-py",
        "cupti-python",
    ),
    *(
        "torch",
        "triton",
        "vllm",
        "sglang",
        "flashinfer-python",
        "deep-gemm",
        "transformers",
        "starlette",
        "uvicorn",
    ),
)


def tool() -> Tool:
    """Version, commit (only when run from a checkout) and the libraries that can change a number."""
    root = Path(dsv4bench.__file__).resolve().parent.parent
    commit, dirty = _git_state(root)
    return Tool(version=dsv4bench.__version__, git=commit, dirty=dirty, packages=_versions())


def environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that steer engines and libraries, by allow-list, without secrets.

    A path keeps its place, which cache and which CUDA it was, but for a home folder, which is `~`.
    """
    home = env.get("HOME")
    kept = {}
    for name in sorted(env):
        if not name.startswith(_PREFIXES):
            continue
        if _holds_secret(name, env[name]):
            if not name.startswith("DSV4BENCH_"):
                kept[name] = HIDDEN
            continue
        kept[name] = without_home(redact_text(env[name]), home)
    return kept


def _holds_secret(name: str, value: str) -> bool:
    """A number is no secret: SGLANG_…_MAX_DISPATCH_TOKENS_PER_RANK is a lever that a comparison must see."""
    return any(word in name.upper() for word in _SECRET_WORDS) and not value.strip().isdigit()


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _git_state(root: Path) -> tuple[str | None, bool | None]:
    """Commit and dirtiness of the checkout that `root` is; (None, None) for an installed package."""
    if not (root / ".git").exists():
        return None, None
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return None, None
    status = _git(root, "status", "--porcelain", "--untracked-files=no")
    return commit, None if status is None else status != ""


def _git(root: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *args], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
