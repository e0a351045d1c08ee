"""Where other people's trace files lie, and the independent numbers for them. They are read, never copied."""

from __future__ import annotations

import os
from pathlib import Path

_BESIDE = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "traces"
TRACES = Path(os.environ.get("DSV4BENCH_TRACES", _BESIDE))
