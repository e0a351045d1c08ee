"""A model's config.json, where this host can read it: a directory that the server named, or the hub's local cache.

Only its vocabulary size is used: prompts of random token ids need it, and most servers do not tell it. A relative
path is tried as the server wrote it and may then be another directory than the server's; so may a cached snapshot
of another revision. The source is therefore kept beside the number.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dsv4bench.server.models import whole


def vocab_size(name: str) -> tuple[int, Path] | None:
    """The vocabulary size of a model path or hub id, and the file that says so."""
    path = _find(name)
    if path is None:
        return None
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    size = _size(config)
    return None if size is None else (size, path)


def _size(config: Any) -> int | None:
    if not isinstance(config, dict):
        return None
    inner = config.get("text_config")
    return whole(config.get("vocab_size")) or (whole(inner.get("vocab_size")) if isinstance(inner, dict) else None)


def _find(name: str) -> Path | None:
    try:
        beside = Path(name) / "config.json"
        if beside.is_file():
            return beside
        if name.count("/") != 1 or name.startswith(("/", ".")):
            return None
        cached = _hub_cache() / f"models--{name.replace('/', '--')}"
        revision = (cached / "refs" / "main").read_text().strip()
        snapshot = cached / "snapshots" / revision / "config.json"
        return snapshot if snapshot.is_file() else None
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None


def _hub_cache() -> Path:
    """Where Hugging Face's libraries keep downloads (HF_HUB_CACHE, HF_HOME, else ~/.cache/huggingface)."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache)
    home = os.environ.get("HF_HOME")
    return (Path(home) if home else Path.home() / ".cache" / "huggingface") / "hub"
