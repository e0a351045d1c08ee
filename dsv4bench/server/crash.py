"""Why a server did not come up, or went down: from its log's lines and its exit code to one sentence with the remedy.

`RULES` is the whole knowledge, root causes before their consequences: of all rules that match, the first one speaks.
Lines that a server marks as information or warning are skipped, for many warn of what they then do without. The log's
end is read before the rest. None: nothing known was found, which is an answer.
"""

from __future__ import annotations

import re
import signal
from typing import NamedTuple

from dsv4bench.host.redact import redact_text

_TAIL_LINES = 250  # a few tracebacks of a server with several processes
_HARMLESS = re.compile(r"\b(WARNING|INFO|DEBUG)\b|\b\w*Warning: ")
_LONGEST_LINE = 2000  # of a dumped configuration nothing is learned


class Rule(NamedTuple):
    """A pattern of one line, and what it means; `{0}` is its first group."""

    pattern: re.Pattern[str]
    meaning: str


def _rule(pattern: str, meaning: str) -> Rule:
    return Rule(re.compile(pattern, re.I | re.M), meaning)


RULES: tuple[Rule, ...] = (
    _rule(
        r"Exec format error",
        "the program is not one for this machine: built for another architecture, damaged, or a script whose first "
        "line names no interpreter (#!)",
    ),
    _rule(
        r"cannot start (\S+): Permission denied",
        "{0} may not be executed; check its mode, and that it is the program",
    ),
    _rule(
        r"^error: .{1,80} needs \S+\s*^hint: (pip install .{1,80})$",
        "a package that it needs is not installed where it started: {0}",
    ),
    _rule(
        r"error while attempting to bind|address already in use|EADDRINUSE|port \d+ is (?:already )?in use|"
        r"couldn't bind (?:HTTP server )?(?:socket|to)|bind\(\) failed.*98",
        "a port that it needs is in use (its own, or one for its processes among themselves); "
        "end what listens there, or choose another port",
    ),
    _rule(
        r"unrecognized arguments?: (.{1,80})",
        "it does not know the arguments {0}; this version spells them otherwise or lacks them: see its --help",
    ),
    _rule(r"no such option: (\S+)", "it does not know the option {0}; see its --help"),
    _rule(r"error: invalid argument: (\S+)", "it does not know the argument {0}; see its --help"),
    _rule(
        r"error: (?:the following arguments are required|argument \S+: |one of the arguments)(.{0,100})",
        "its command line is not as it expects{0}; see its --help",
    ),
    _rule(
        r"(?:NIXL is not available|NIXL is not installed|No module named '?nixl|nixl.*ImportError|"
        r"ucp_init.*failed|libuc[pts]\.so|UCX.*(?:no usable|no active|not found|cannot open)|NIXL_ERR_BACKEND)",
        "NIXL or UCX is missing or cannot start, which prefill and decode need between them; install nixl for this "
        "CUDA version, and see that UCX_TLS names what the host has",
    ),
    _rule(
        r"(?:ModuleNotFoundError|python[\d.]*): No module named '?([\w.]+)",
        "the Python module {0} is missing in the environment that started; install it there, or start with that "
        "environment's python",
    ),
    _rule(
        r"ImportError: (lib[\w.+-]+\.so[\w.]*): cannot open shared object file",
        "the library {0} is not found; is it installed, and in LD_LIBRARY_PATH?",
    ),
    _rule(
        r"ImportError: .*(?:undefined symbol|cannot import name)",
        "two of its packages do not fit each other (built against other versions); reinstall them as one set",
    ),
    _rule(
        r"driver (?:on your system )?is too old|driver version is insufficient|"
        r"forward compatibility was attempted on non supported HW",
        "the GPU driver is too old for the CUDA version that it was built with; update the driver, or use a build "
        "for the older CUDA",
    ),
    _rule(
        r"no kernel image is available for execution|PTX was compiled with an unsupported toolchain|"
        r"is not compatible with the current PyTorch installation|no kernel found for .*sm_?\d+",
        "a library has no code for this GPU's architecture; install a build that lists it (sm_120 for RTX PRO 6000)",
    ),
    _rule(
        r"no CUDA GPUs are available|no CUDA-capable device is detected|found no NVIDIA driver|"
        r"CUDA is not available|Failed to infer device type|Torch not compiled with CUDA|invalid device ordinal|"
        r"CUDA driver initialization failed|could not find (?:any )?NVIDIA GPU",
        "it sees no GPU, or not that one: check nvidia-smi, CUDA_VISIBLE_DEVICES against the parallel size, and that "
        "its PyTorch is a CUDA build",
    ),
    _rule(
        r"larger than the maximum number of tokens that can be stored in KV cache|"
        r"No available memory for the cache blocks|KV cache is needed, which is larger than the available|"
        r"estimated maximum model length|context (?:length|size).*(?:exceeds|larger).*(?:kv|pool)|"
        r"max_total_num_tokens.*(?:too small|<= ?0)|Not enough memory\. Please try to increase --mem-fraction-static",
        "the KV cache does not hold one context of the longest length; lower --max-model-len (--context-length), or "
        "give it more memory (--gpu-memory-utilization, --mem-fraction-static)",
    ),
    _rule(
        r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError|CUDA error: out of memory|"
        r"CUDA_ERROR_OUT_OF_MEMORY|cudaMalloc failed: out of memory|cudaErrorMemoryAllocation|"
        r"Free memory on device .* is less than desired GPU memory utilization",
        "GPU memory ran out; see with nvidia-smi whether another process holds some, or lower "
        "--gpu-memory-utilization (--mem-fraction-static), batch size or context length",
    ),
    _rule(
        r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)|std::bad_alloc|Cannot allocate memory|"
        r"^.*\bMemoryError\b|oom-kill|Out of memory: Killed process",
        "the host's memory ran out; free some, or raise the container's limit",
    ),
    _rule(
        r"/dev/shm.*(?:No space left|too small)|insufficient shared memory|No space left on device.*/dev/shm|"
        r"error while creating shared memory segment|Bus error",
        "shared memory (/dev/shm) is too small; start the container with --shm-size=32g or --ipc=host",
    ),
    _rule(
        r"No space left on device|Disk quota exceeded|Errno 28\b|ENOSPC",
        "a disk is full (model cache, compile cache or /tmp); free space, or move HF_HOME, TRITON_CACHE_DIR or "
        "TMPDIR",
    ),
    _rule(
        r"GatedRepoError|gated repo|Access to model .* is restricted|401 Client Error.*huggingface|"
        r"403 Client Error.*huggingface|Invalid user token|Repository Not Found for url",
        "the model hub refuses the download (gated, private or misspelt); accept its licence there and set HF_TOKEN, "
        "or give a local folder",
    ),
    _rule(
        r"PermissionError: .*'([^']+)'|Permission denied: '?([^'\s]+)",
        "it may not read or write {0}; check the owner, and the user that a container runs as",
    ),
    _rule(
        r"is not a local folder and is not a valid model identifier|Repo id must be|LocalEntryNotFoundError|"
        r"does not appear to have a file named config\.json|OfflineModeIsEnabled|model path .* does not exist|"
        r"Cannot find the requested files in the (?:disk|local) cache|failed to load model|failed to open GGUF file|"
        r"Unable to load (?:vocabulary|weights) from|Incorrect path_or_model_id",
        "the model is not found where it looks: check the path or name, and whether HF_HUB_OFFLINE keeps it from "
        "downloading",
    ),
    _rule(
        r"(?:AssertionError|ValueError|RuntimeError).*(?:block_n|block_k|block_size|weight_block_size|block_shape|"
        r"divisible by (?:weight )?(?:quantization )?block|fp8.*(?:divisible|shape|multiple))|"
        r"(?:output|input)_size_per_partition = \d+ is not divisible",
        "an FP8 weight's shape does not fit its quantisation blocks at this parallel size; take a --tp that divides "
        "the model's layers into whole blocks of 128 (or expert parallelism)",
    ),
    _rule(
        r"illegal memory access|cudaErrorIllegalAddress|CUDA error: misaligned address|an illegal instruction|"
        r"device-side assert triggered|CUBLAS_STATUS_EXECUTION_FAILED|unspecified launch failure",
        "a GPU kernel read or wrote where it may not: a fault of a kernel, not of the load; try it without CUDA "
        "graphs, or with CUDA_LAUNCH_BLOCKING=1 to have its name, and another backend for attention or experts",
    ),
    _rule(
        r"Watchdog caught collective operation timeout|ncclUnhandledCudaError|ncclSystemError|ncclInternalError|"
        r"ncclRemoteError|NCCL error|NCCL WARN.*(?:timed? ?out|connect.*refused|failed)|DistBackendError|"
        r"unhandled (?:system|cuda) error.*NCCL|DistNetworkError|store.*timed out after|"
        r"Timed out after \d+ seconds waiting for clients",
        "its GPUs did not find or lost each other (NCCL); start it with NCCL_DEBUG=INFO, and check "
        "NCCL_SOCKET_IFNAME, NCCL_P2P_DISABLE and whether another rank died first",
    ),
    _rule(
        r"watchdog timeout|Scheduler watchdog|scheduler (?:is )?(?:hung|stuck)|Health check failed.*(?:detokenizer|"
        r"scheduler)|timed? ?out.*(?:EngineCore|engine core|execute_model|sample_tokens)|RPC call to .* timed out",
        "one step took longer than its watchdog allows: a hang, or a compile in the first request; raise "
        "--watchdog-timeout, and look at what it did before",
    ),
)

_CODES = {
    0: "it ended by itself and without an error: a campaign needs a command that stays in the foreground",
    126: "the program may not be executed; check its mode and its first line",
    127: "the program was not found; is it installed, and on the PATH?",
}
_SIGNALS = {
    signal.SIGKILL: "it was killed from outside: most often the kernel, because the host's memory (or a container's "
    "limit) ran out; `dmesg | grep -i kill` tells",
    signal.SIGTERM: "somebody asked it to end (SIGTERM): a scheduler's time limit, or another user",
    signal.SIGINT: "it was interrupted (SIGINT)",
    signal.SIGSEGV: "it crashed in compiled code (SIGSEGV): most often libraries that do not fit each other",
    signal.SIGILL: "this CPU lacks an instruction that it was built with (SIGILL); use a build for this CPU",
    signal.SIGBUS: "shared memory (/dev/shm) or a mapped file ran out (SIGBUS); start the container with "
    "--shm-size=32g or --ipc=host",
    signal.SIGABRT: "it aborted itself (SIGABRT): the lines above its end name the check that failed",
}


def likely_cause(log_text: str, exit_code: int | None) -> str | None:
    """One sentence: the likely cause and its remedy. `exit_code`: None while it runs; -n or 128 + n for signal n."""
    lines = [line[:_LONGEST_LINE] for line in log_text.splitlines()]
    lines = [line for line in lines if not _HARMLESS.search(line)]
    return (
        _said("\n".join(lines[-_TAIL_LINES:]))
        or _said("\n".join(lines[:-_TAIL_LINES]))
        or (None if exit_code is None else _of_code(exit_code))
    )


def ended_how(code: int) -> str:
    """An exit code in words, for after "the server": "exited with code 3", "was ended by SIGKILL"."""
    number = _signal_of(code)
    if number is None:
        return f"exited with code {code}" if code >= 0 else f"was ended by signal {-code}"
    return f"was ended by {number.name}"


def _said(text: str) -> str | None:
    """The first rule of the table that a line of the text matches, filled with what it names."""
    for rule in RULES:
        if found := rule.pattern.search(text):
            named = next((g for g in found.groups() if g is not None), "").strip()
            return rule.meaning.format(redact_text(named))
    return None


def _of_code(code: int) -> str | None:
    number = _signal_of(code)
    return _CODES.get(code) if number is None else _SIGNALS.get(number)


def _signal_of(code: int) -> signal.Signals | None:
    """The signal of -n, or of 128 + n as a shell or a leash tells it."""
    try:
        return signal.Signals(-code) if code < 0 else signal.Signals(code - 128) if code > 128 else None
    except ValueError:
        return None
