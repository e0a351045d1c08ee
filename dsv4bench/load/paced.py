"""A server with a known pace: what `dsv4bench selftest`, the tests and CI measure the client against.

    python -m dsv4bench.load.paced --port 0 --ttft-ms 50 --itl-ms 20 [--tokens-per-chunk 1] [--align]

It answers like an OpenAI-compatible server, streams `max_tokens` tokens on an absolute schedule (`paced_loop.py`) and
stamps each event with the monotonic nanosecond of its send, so that a client on the same host can tell its own error
event by event. The first line on stdout is `listening on http://127.0.0.1:PORT`. It has no model and no tokenizer: a
list of token ids counts as long as it is, a text by its words. `/stats` says whether the server kept its own pace.
Standard library only, so that it starts at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import subprocess
import sys
from types import TracebackType
from urllib.request import urlopen

from dsv4bench.errors import BenchError
from dsv4bench.load.paced_loop import Loop, Pace, PacedStats

_MODULE = "dsv4bench.load.paced"  # not __name__, which is __main__ in the server's own process
_SAYS = "listening on "
_STOP_S = 5.0


class PacedServer:
    """The server in a process of its own, as a context manager; it ends with this process, however that ends."""

    def __init__(self, *, ttft_s: float, itl_s: float, tokens_per_chunk: int = 1, align: bool = False) -> None:
        self._args = [
            f"--ttft-ms={ttft_s * 1e3!r}",
            f"--itl-ms={itl_s * 1e3!r}",
            f"--tokens-per-chunk={tokens_per_chunk}",
        ]
        self._args += ["--align"] if align else []
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        """Return once it listens; `url` is then http://127.0.0.1:PORT. Raises BenchError with what it said if not."""
        command = [sys.executable, "-m", _MODULE, "--port=0", "--until-stdin-ends", *self._args]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith(_SAYS):
            process.kill()
            _, said = process.communicate()
            raise BenchError(
                f"the paced server did not start: {said.strip() or 'it said nothing'}",
                f"try: {' '.join(command[:3])}",
            )
        self._process = process
        self.url = line.removeprefix(_SAYS).strip()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with process:  # waits, and closes its pipes
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def stats(self, *, reset: bool = False) -> PacedStats:
        """Its own rate and lateness since the start or the last reset."""
        with urlopen(f"{self.url}/stats{'?reset' if reset else ''}", timeout=_STOP_S) as reply:
            return PacedStats(**json.load(reply))

    def __enter__(self) -> PacedServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def main(argv: list[str] | None = None) -> int:
    """Serve until interrupted."""
    args = _parser().parse_args(argv)
    _raise_file_limit()
    pace = Pace(round(args.ttft_ms * 1e6), round(args.itl_ms * 1e6), args.tokens_per_chunk, args.align)
    with socket.create_server((args.host, args.port), backlog=4096) as listener:
        host, port = listener.getsockname()[:2]
        print(f"{_SAYS}http://{host}:{port}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            Loop(listener, pace, watch_stdin=args.until_stdin_ends).run()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {_MODULE}", description="an OpenAI-like server with a known pace"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--ttft-ms", type=_not_negative, default=50.0, help="request to first token")
    parser.add_argument("--itl-ms", type=_not_negative, default=20.0, help="token to token; 0 is as fast as it can")
    parser.add_argument("--tokens-per-chunk", type=_positive, default=1)
    parser.add_argument("--align", action="store_true", help="all streams emit together, as in one decode step")
    parser.add_argument("--until-stdin-ends", action="store_true", help="stop when standard input is closed")
    return parser


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not a time of 0 or more milliseconds")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def _raise_file_limit() -> None:
    """One file a stream: the soft limit is often 1024."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
