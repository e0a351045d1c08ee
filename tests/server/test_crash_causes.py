"""What a server's last lines mean: one line a rule, as SGLang, vLLM and llama.cpp write it, and what it leads to."""

# ruff: noqa: E501 (a server's lines are long)
from __future__ import annotations

import pytest

from dsv4bench.server.crash import RULES, ended_how, likely_cause

LINES = [
    # a program that does not start at all
    ("leash: cannot start /opt/vllm/bin/vllm: Exec format error", "another architecture"),
    ("leash: cannot start /opt/model/README: Permission denied", "/opt/model/README may not be executed"),
    ("error: serve needs torch\nhint: pip install 'dsv4bench[serve]'", "started: pip install 'dsv4bench[serve]'"),
    # a port
    ("[Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use", "port"),
    ("OSError: [Errno 98] Address already in use", "choose another port"),
    ("torch.distributed.DistNetworkError: The server socket has failed to bind. port: 29500, errno: 98, "
     "message: EADDRINUSE", "port that it needs is in use"),
    ("couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8102", "port that it needs is in use"),
    # arguments
    ("launch_server.py: error: unrecognized arguments: --cuda-graph-max-bs-decode 32", "--cuda-graph-max-bs-decode 32"),
    ("Error: No such option: --moe-kernels Did you mean --moe-kernel?", "does not know the option --moe-kernels"),
    ("error: invalid argument: --sloots", "does not know the argument --sloots"),
    ("vllm serve: error: argument --kv-cache-dtype: invalid choice: 'fp9' (choose from 'auto', 'fp8')", "--help"),
    ("launch_server.py: error: the following arguments are required: --model-path", ": --model-path"),
    # modules and libraries
    ("(APIServer pid=41) ModuleNotFoundError: No module named 'sglang_router'", "module sglang_router is missing"),
    ("/usr/bin/python3: No module named sglang.launch_server", "module sglang.launch_server is missing"),
    ("ImportError: libcudart.so.13: cannot open shared object file: No such file or directory", "libcudart.so.13"),
    ("ImportError: /opt/vllm/_C.abi3.so: undefined symbol: _ZN3c106detail", "do not fit each other"),
    ("ImportError: cannot import name 'get_flashmla_metadata' from 'flash_mla'", "do not fit each other"),
    # NIXL, UCX
    ("(EngineCore pid=77) RuntimeError: NIXL is not available", "install nixl"),
    ("ModuleNotFoundError: No module named 'nixl'", "NIXL or UCX is missing"),
    ("ImportError: libucp.so.0: cannot open shared object file: No such file or directory", "NIXL or UCX"),
    ("nixl_cu12._bindings.nixlBackendError: NIXL_ERR_BACKEND", "NIXL or UCX"),
    ("[1719312345.1] [node:88:0] ucp_context.c:1234 UCX ERROR no usable transports/devices", "UCX_TLS"),
    # GPU and driver
    ("RuntimeError: The NVIDIA driver on your system is too old (found version 12020).", "driver is too old"),
    ("Error 803: system has unsupported display driver / cuda driver combination; CUDA driver version is insufficient "
     "for CUDA runtime version", "driver is too old"),
    ("torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device", "architecture"),
    ("RuntimeError: No CUDA GPUs are available", "sees no GPU"),
    ("RuntimeError: CUDA error: invalid device ordinal", "CUDA_VISIBLE_DEVICES"),
    ("RuntimeError: Failed to infer device type, please set the environment variable", "sees no GPU"),
    ("AssertionError: Torch not compiled with CUDA enabled", "CUDA build"),
    # memory
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 94.97 GiB",
     "GPU memory ran out"),
    ("(EngineCore pid=9) ValueError: Free memory on device (3.1/94.97 GiB) on startup is less than desired GPU memory "
     "utilization (0.9, 85.5 GiB).", "GPU memory ran out"),
    ("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 900 MiB on device 0: cudaMalloc failed: out of memory",
     "GPU memory ran out"),
    ("ValueError: The model's max seq len (1048576) is larger than the maximum number of tokens that can be stored in "
     "KV cache (390112).", "--max-model-len"),
    ("ValueError: To serve at least one request, 9.1 GiB KV cache is needed, which is larger than the available KV "
     "cache memory (2.2 GiB).", "KV cache does not hold"),
    ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "KV cache"),
    ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. self.mem_fraction=0.7", "KV cache"),
    ("RuntimeError: [enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried to "
     "allocate 16777216 bytes.", "host's memory ran out"),
    ("terminate called after throwing an instance of 'std::bad_alloc'", "host's memory ran out"),
    ("MemoryError", "host's memory ran out"),
    ("node:1:90 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-Xy to 9637892 bytes, error: "
     "No space left on device (28)", "--shm-size"),
    ("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
     "--shm-size"),
    # disk, hub, files
    ("OSError: [Errno 28] No space left on device: '/home/u/.cache/huggingface/hub/tmp_x'", "a disk is full"),
    ("huggingface_hub.errors.GatedRepoError: 403 Client Error. Cannot access gated repo for url", "HF_TOKEN"),
    ("requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/api/models/x",
     "HF_TOKEN"),
    ("PermissionError: [Errno 13] Permission denied: '/opt/cache/triton'", "/opt/cache/triton"),
    ("OSError: ./tinymodle is not a local folder and is not a valid model identifier listed on the hub", "not found"),
    ("huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache", "not found"),
    ("gguf_init_from_file: failed to open GGUF file 'model.gguf' (No such file or directory)", "model is not found"),
    # shapes
    ("ValueError: Weight output_size_per_partition = 192 is not divisible by weight quantization block_n = 128.", "FP8"),
    ("AssertionError: FP8 block_k must divide the weight's shape", "quantisation blocks"),
    # kernels, NCCL, watchdogs
    ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", "CUDA_LAUNCH_BLOCKING=1"),
    ("RuntimeError: CUDA error: device-side assert triggered", "fault of a kernel"),
    ("[rank2]:[E] ProcessGroupNCCL.cpp:685] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
     "OpType=ALLREDUCE)", "NCCL_DEBUG=INFO"),
    ("torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, unhandled system error", "NCCL"),
    ("torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined.", "NCCL"),
    ("[2026-06-01 10:00:00 TP0] Watchdog timeout (self.watchdog_timeout=300)", "--watchdog-timeout"),
    ("TimeoutError: RPC call to sample_tokens timed out.", "--watchdog-timeout"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "said"), LINES, ids=[line[:50] for line, _ in LINES])
def test_a_line_leads_to_its_cause(line: str, said: str) -> None:
    log = f"loading weights\n{line}\nTraceback ends\n"
    cause = likely_cause(log, 1)
    assert cause is not None and said in cause
    assert ";" in cause or ":" in cause, "a cause comes with its remedy"


def test_every_rule_has_a_line() -> None:
    hit = {
        next(i for i, rule in enumerate(RULES) if rule.pattern.search(line))
        for line, _ in LINES
        if any(rule.pattern.search(line) for rule in RULES)
    }
    assert hit == set(range(len(RULES)))


@pytest.mark.parametrize(
    "line",
    [
        "INFO 06-01 10:00:00 [core.py:55] Initializing an engine with config: num_spec_tokens=2",
        "WARNING 06-01 10:00:00 [utils.py:1] No module named 'deep_ep'; expert parallelism is off",
        "UserWarning: CUDA is not available, so that some checks are skipped",
        "Loading safetensors checkpoint shards: 100% Completed",
        "generation finished, 16 tokens, watchdog idle",
        "",
    ],
)
def test_harmless_lines_lead_nowhere(line: str) -> None:
    assert likely_cause(line, 1) is None
    assert likely_cause(line, None) is None


def test_a_root_cause_wins_over_its_consequences() -> None:
    log = "\n".join(
        [
            "[rank1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            *["  File x.py, line 3, in forward"] * 40,
            "[rank0] torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, remote process exited",
            "RuntimeError: Engine core initialization failed. See root cause above.",
        ]
    )
    cause = likely_cause(log, 1)
    assert cause is not None and "GPU memory ran out" in cause


def test_the_end_of_a_log_is_read_before_its_beginning() -> None:
    early = "OSError: [Errno 28] No space left on device: '/tmp/x'"
    late = "RuntimeError: No CUDA GPUs are available"
    filler = "\n".join(f"step {i}" for i in range(1000))
    said = likely_cause(f"{early}\n{filler}\n{late}", 1)
    assert said is not None and "sees no GPU" in said
    only_early = likely_cause(f"{early}\n{filler}", 1)
    assert only_early is not None and "disk is full" in only_early


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (-9, "host's memory"),
        (137, "host's memory"),
        (-15, "SIGTERM"),
        (143, "SIGTERM"),
        (-11, "SIGSEGV"),
        (132, "instruction"),
        (135, "/dev/shm"),
        (-6, "SIGABRT"),
        (0, "foreground"),
        (126, "may not be executed"),
        (127, "was not found"),
    ],
)
def test_without_a_known_line_the_exit_code_speaks(code: int, said: str) -> None:
    cause = likely_cause("nothing known", code)
    assert cause is not None and said in cause
    line = "RuntimeError: No CUDA GPUs are available"
    assert likely_cause(line, code) == likely_cause(line, None)


@pytest.mark.parametrize("why", ["Exec format error", "Permission denied"])
def test_a_program_that_is_there_is_not_called_missing(why: str) -> None:
    cause = likely_cause(f"leash: cannot start /opt/x: {why}\n", 127)
    assert cause is not None and "not found" not in cause
    missing = likely_cause("leash: cannot start x: No such file or directory\n", 127)
    assert missing is not None and "not found" in missing


def test_an_unknown_end_is_not_guessed_at() -> None:
    assert likely_cause("something new", 3) is None
    assert likely_cause("", None) is None
    assert likely_cause("", 200) is None


def test_what_a_line_names_is_redacted() -> None:
    cause = likely_cause("x: error: unrecognized arguments: --api-key sk-0123456789abcdef0123", 2)
    assert cause is not None and "sk-0123" not in cause and "--api-key" in cause


def test_a_line_of_braces_and_of_great_length() -> None:
    cause = likely_cause("error: unrecognized arguments: {port} {0} --x\n" + "y" * 3_000_000, 2)
    assert cause is not None and "{port} {0} --x" in cause


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (3, "exited with code 3"),
        (0, "exited with code 0"),
        (-9, "was ended by SIGKILL"),
        (137, "was ended by SIGKILL"),
        (-99, "was ended by signal 99"),
        (250, "exited with code 250"),
    ],
)
def test_an_end_in_words(code: int, said: str) -> None:
    assert ended_how(code) == said
