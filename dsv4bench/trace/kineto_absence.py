"""Why a Kineto file shows no kernels: one line of cause, one of remedy. An empty trace is the normal failure.

The causes are told apart by what the file does hold: nothing, the host only, calls that launched kernels which
nobody recorded, counters in place of a timeline, another accelerator, a graph under capture. A file with few kernels
for its launches gets a warning.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsv4bench.errors import Unanswerable

_CAPTURE_CALLS = ("BeginCapture", "EndCapture")
_ACCELERATORS = ("mtia", "npu", "hpu", "xla", "mlu", "musa", "async_npu")
_AGAIN = "capture again with ProfilerActivity.CUDA, in the process that runs the model, while it decodes"


@dataclass(frozen=True, slots=True)
class Contents:
    """What was found in a file."""

    kernels: int
    work: int  # kernels, copies, memsets
    launches: int
    categories: dict[str, int]
    calls: dict[str, int]
    meta: dict[str, object]
    lists: int
    damaged: bool


def refuse_if_empty(file: str, found: Contents, warnings: list[str]) -> None:
    """Raises Unanswerable when there is no work on a device."""
    if found.work:
        return
    cause, remedy = _cause(found)
    said = f" ({warnings[0]})" if warnings and found.damaged else ""
    raise Unanswerable(f"{file}: {cause}{said}", remedy)


def warn_if_partial(found: Contents) -> list[str]:
    """Lines on a file that shows work, and less than was launched."""
    if not found.kernels:
        return [f"no kernel, only {found.work} copies and memsets: nothing can be said of the decode step"]
    if _captures_a_graph(found) and found.launches > 4 * found.work:
        return [
            f"a CUDA graph was captured here, not replayed: {found.launches} launches and only {found.work} of them "
            "ran; profile the server while it decodes for the times"
        ]
    return []


def _cause(found: Contents) -> tuple[str, str]:
    if not found.lists and "traceEvents" not in found.meta:
        return "this JSON is no torch-profiler trace: it has no traceEvents", "give a file that torch.profiler wrote"
    if not found.categories:
        if found.damaged:
            return "no event can be read from this trace", "copy or capture it again: the file is damaged"
        return (
            "the trace is empty: its rank ran nothing while it was profiled",
            "profile while requests are served, and give the files of the ranks that ran",
        )
    accelerator = next((c for c in sorted(found.categories) if c.lower().startswith(_ACCELERATORS)), None)
    if accelerator is not None:
        return (
            f"the trace is of another accelerator (category {accelerator}); it has no GPU kernels",
            "give a trace of an NVIDIA GPU; other accelerators are not read",
        )
    if "cuda_profiler_range" in found.categories:
        return (
            "the trace holds CUPTI counters of kernel ranges (cuda_profiler_range) and no timeline",
            "capture without the CUPTI range profiler for the times; give ncu output for the counters",
        )
    return _cause_on_a_gpu(found)


def _cause_on_a_gpu(found: Contents) -> tuple[str, str]:
    if _captures_a_graph(found):
        return (
            f"the trace is of a graph capture: {found.launches} launches were recorded into a graph, none ran",
            "profile the server while it replays the graph (start the profile after the warm-up)",
        )
    if found.launches:
        return (
            f"{found.launches} launches and not one kernel: the GPU side of the capture is lost",
            "stop other profilers (nsys, DCGM, a second CUPTI user), check that PyTorch's CUPTI is no older than "
            "the driver, and capture again",
        )
    if found.meta.get("deviceProperties") == []:
        return "the host only: the profiled process saw no GPU (deviceProperties is empty)", _AGAIN
    return "the host only: the capture recorded no GPU activity", _AGAIN


def _captures_a_graph(found: Contents) -> bool:
    return any(call.endswith(_CAPTURE_CALLS) for call in found.calls)
