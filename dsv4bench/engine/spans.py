"""Names on the timeline: steps, layers and components, for nsys (nvtx) or for the torch profiler.

The names of components are those of the design (`moe`, `attention`, ...), a step is `step[DECODE bs=N]` or
`step[EXTEND bs=N toks=M]`, as SGLang writes them. While the torch profiler records, a span is one of its
annotations; otherwise it is an nvtx range (domain `dsv4bench`), or nothing where nvtx is not installed. The two
never record at once: both need CUPTI for themselves. Of a step that is replayed from a CUDA graph only the step's own
range is seen, around the launch; layers and components show with `--no-cuda-graphs`, and in prefill.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


class Spans:
    """Call it with a name: `with spans("moe"): ...`."""

    def __init__(self) -> None:
        self.recording = False  # set by the profiler while it records
        self._ranges: dict[str, AbstractContextManager[Any]] = {}
        try:
            import nvtx

            self._annotate: Any = nvtx.annotate
        except ImportError:
            self._annotate = None

    def __call__(self, name: str) -> AbstractContextManager[Any]:
        if self.recording:
            return torch.profiler.record_function(name)
        span = self._ranges.get(name)
        if span is None:
            span = self._annotate(name, domain="dsv4bench") if self._annotate else nullcontext()
            self._ranges[name] = span
        return span
