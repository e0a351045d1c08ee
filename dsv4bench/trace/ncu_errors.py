"""Why an ncu run left no kernel, from the `==ERROR==` and `==WARNING==` lines it wrote where rows should be.

Each known line has one remedy. `explain` never guesses: an unknown error is repeated as ncu wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsv4bench.errors import Unanswerable
from dsv4bench.host.profiling import REMEDY

_PERMISSION = f"GPU counters are for administrators here: {REMEDY}"
_NO_KERNEL = "check the -k filter and the launch counts, and add --target-processes all --graph-profiling node"

# (fragment of the line, remedy); the first that is found in any line wins, so the cause stands before its consequence
_REMEDIES = (
    ("ERR_NVGPUCTRPERM", _PERMISSION),
    ("permission to access NVIDIA GPU Performance Counters", _PERMISSION),
    (
        "driver resource was unavailable",
        "another profiler holds the counters: stop it (`dcgmi profile --pause`)",
    ),
    ("did not match any section", "name a set instead (`--set full`), or take a name from `ncu --list-sections`"),
    ("did not match any metrics", "take names from `ncu --query-metrics --chip …`; they differ from chip to chip"),
    ("Failed to find metric", "take names from `ncu --query-metrics --chip …`; they differ from chip to chip"),
    ("unrecognised option", "run `ncu --help`: options differ between its versions"),
    ("Cuda driver is not compatible", "use an ncu that is at least as new as the driver"),
    ("not supported on this device", "use an ncu that knows this GPU"),
    ("UnsupportedGpu", "use an ncu that knows this GPU"),
    ("No kernels were profiled", _NO_KERNEL),
    ("The application returned an error code", "run the command without ncu first; it fails by itself"),
)
_DEFAULT = "run ncu again and read its own message; the CSV must hold rows: ncu --csv --page raw --log-file x.csv …"


def explain(file: str, messages: Sequence[str]) -> Unanswerable:
    """The error of a file that has ncu's messages and no rows."""
    for fragment, remedy in _REMEDIES:
        for message in messages:
            if fragment.lower() in message.lower():
                return Unanswerable(f"{file}: ncu profiled nothing: {message}", remedy)
    if messages:
        return Unanswerable(f"{file}: ncu profiled nothing: {messages[0]}", _DEFAULT)
    return Unanswerable(f"{file}: an ncu header and no kernel below it", _NO_KERNEL)
