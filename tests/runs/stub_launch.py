"""A server for campaigns to launch: the fake of `openai_server` in a process of its own, with faults of real ones.

    python stub_launch.py --port N [--itl SECONDS] [--fault crash|hang|later] [--say TEXT] [--args NAME=VALUE]

`crash` ends at once with an error on its log, `hang` never listens, `later` ends in the middle of the load.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from openai_server import Behaviour, OpenAIServer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--itl", type=float, default=0.002)
    parser.add_argument("--fault", choices=("crash", "hang", "later"))
    parser.add_argument("--after", type=int, default=8, help="Streamed requests, with --fault later.")
    parser.add_argument("--say", default="")
    asked = parser.parse_args()
    print(asked.say, flush=True)
    if asked.fault == "crash":
        sys.exit("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
    if asked.fault == "hang":
        time.sleep(600)
    behaviour = Behaviour(itl_s=asked.itl, ttft_s=asked.itl, vocab=1000, start_time=time.time())
    streamed = []

    def count(body: dict[str, Any]) -> None:
        streamed.append(body.get("stream"))
        if asked.fault == "later" and sum(map(bool, streamed)) > asked.after:
            print("CUDA error: an illegal memory access was encountered", flush=True)
            os._exit(7)

    behaviour.on_request = count
    OpenAIServer(behaviour).start(asked.port)
    print(f"listening on http://127.0.0.1:{asked.port}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
