"""Compiles a build for a GPU that need not be here: Triton's own compiler and assembler, no driver and no device.

    compile_build(build, "sm_120")  →  the cubin, the function's name, its shared memory, which Triton made it

Triton's cache is used where TRITON_CACHE_DIR names one; else a temporary folder is, so that nothing compiled for a
foreign GPU is left behind. What the instructions are is for `trace` to say.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dsv4bench.errors import Unanswerable, UsageError
from dsv4bench.kernels.build import Build

# Bytes of shared memory that one block can have (CUDA C++ Programming Guide, technical specifications per compute
# capability; what a device reports as its opt-in maximum). Triton compiles a kernel that needs more and refuses to
# launch it.
SHARED_LIMIT_BYTES = {
    "sm_80": 163 * 1024,
    "sm_86": 99 * 1024,
    "sm_87": 163 * 1024,
    "sm_89": 99 * 1024,
    "sm_90": 227 * 1024,
    "sm_100": 227 * 1024,
    "sm_103": 227 * 1024,
    "sm_120": 99 * 1024,
    "sm_121": 99 * 1024,
}
ARCHS = tuple(SHARED_LIMIT_BYTES)
_TENSOR_MEMORY_COLUMNS = 512  # where there is any; Triton puts a trap in place of a kernel that needs more
_NEEDS_TRITON = "pip install 'dsv4bench[kernels]'"
_CACHE = "TRITON_CACHE_DIR"


@dataclass(frozen=True, slots=True)
class Compiled:
    """One build for one architecture. The cubin is for its feature set where it has one (sm_90a, sm_120a)."""

    function: str
    arch: str
    cubin: bytes
    ptx: str
    smem_bytes: int  # a block; the 1024 bytes that the system reserves from sm_90 on are not in it
    tmem_columns: int  # of Blackwell's tensor memory
    triton: str

    @property
    def too_large(self) -> str | None:
        """Why Triton refuses to launch it on any GPU of its architecture; None: it fits."""
        if self.tmem_columns > _TENSOR_MEMORY_COLUMNS:
            return f"needs {self.tmem_columns} columns of tensor memory, {self.arch} has {_TENSOR_MEMORY_COLUMNS}"
        limit = SHARED_LIMIT_BYTES[self.arch]
        if self.smem_bytes > limit:
            return f"needs {self.smem_bytes} bytes of shared memory, a block of {self.arch} has {limit}"
        return None


def parse_archs(text: str) -> tuple[str, ...]:
    """`sm_90,sm_120`, each once. Raises UsageError for what is no architecture, or none that Triton compiles for."""
    found = []
    for word in (part.strip() for part in text.split(",")):
        if word and word not in ARCHS:
            raise UsageError(
                f"--arch {word}: not an architecture that Triton compiles for", f"any of {','.join(ARCHS)}"
            )
        if word and word not in found:
            found.append(word)
    if not found:
        raise UsageError(f"--arch {text!r} names no architecture", f"any of {','.join(ARCHS)}")
    return tuple(found)


def triton_version() -> str:
    """Raises UsageError where Triton is not installed, or interprets instead of compiling."""
    try:
        import triton
    except ImportError as e:
        raise UsageError(f"compiling kernels needs triton ({e})", _NEEDS_TRITON) from None
    if triton.knobs.runtime.interpret:
        raise UsageError("TRITON_INTERPRET is set: Triton would interpret kernels, not compile them", "unset it")
    return str(triton.__version__)


def compile_build(build: Build, arch: str) -> Compiled:
    """Raises UsageError for a build that contradicts its function, Unanswerable where it does not compile."""
    version = triton_version()
    (arch,) = parse_archs(arch)
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = jit_function(build.function)
    constants = dict(build.constants)
    source = ASTSource(function, _signature(build, function), constants, _alignment(build, function))
    options = {"num_warps": build.num_warps, "num_stages": build.num_stages}
    target = GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)
    try:
        with cache_folder(), contextlib.redirect_stdout(io.StringIO()):  # Triton prints the whole PTX of an error
            made = triton.compile(source, target=target, options=options)
    except Exception as e:  # whatever the compiler's many passes raise
        raise Unanswerable(f"{function.__name__} does not compile for {arch}: {reason(e)}") from e
    return Compiled(
        function=str(made.metadata.name),
        arch=arch,
        cubin=made.asm["cubin"],
        ptx=made.asm["ptx"],
        smem_bytes=int(made.metadata.shared),
        tmem_columns=int(getattr(made.metadata, "tmem_size", None) or 0),
        triton=version,
    )


def jit_function(function: Any) -> Any:
    """The jitted function below autotuners and heuristics. Raises UsageError where there is none."""
    from triton.runtime.jit import JITFunction

    found = function
    while not isinstance(found, JITFunction):
        if not hasattr(found, "fn"):
            raise UsageError(f"{function!r} is no function that Triton compiles")
        found = found.fn
    return found


def reason(error: BaseException) -> str:
    """The one line of a compiler's error that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" \t^=")]
    assembler = [line for line in lines if re.match(r"ptxas\S* .*(error|fatal)\s*:", line)]
    if assembler:
        return assembler[0]
    while error.__cause__ is not None:  # Triton wraps the error of a called function in one of the caller
        error = error.__cause__
        lines = [line.strip() for line in str(error).splitlines() if line.strip(" \t^=")] or lines
    return lines[-1] if lines else type(error).__name__


def _signature(build: Build, function: Any) -> dict[str, str]:
    """Types in the order of the arguments, constants marked as such."""
    named = (*build.signature, *build.constants, *build.divisible_by_16)
    unknown = [name for name in named if name not in function.arg_names]
    if unknown:
        raise UsageError(f"build of {function.__name__}: it has no argument {unknown[0]!r}")
    types = {}
    for name in function.arg_names:
        if name not in build.constants and name not in build.signature:
            raise UsageError(f"build of {function.__name__}: argument {name!r} has no type and no value")
        types[name] = "constexpr" if name in build.constants else build.signature[name]
    return types


def _alignment(build: Build, function: Any) -> dict[tuple[int], list[list[object]]]:
    return {(function.arg_names.index(name),): [["tt.divisibility", 16]] for name in build.divisible_by_16}


@contextlib.contextmanager
def cache_folder() -> Iterator[None]:
    """A cache folder in the environment, where workers find it too; ours goes away again."""
    if os.environ.get(_CACHE):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="dsv4bench-triton-") as folder:
        os.environ[_CACHE] = folder
        try:
            yield
        finally:
            del os.environ[_CACHE]
