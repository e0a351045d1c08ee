"""How to make a trace of a server without this tool's capture: on a host where it is not, or in an odd setup."""

from __future__ import annotations

_BY_HAND = """dsv4bench profile URL --kernel-breakdown --concurrency 1,16 captures a running server; or, by hand,
keep the server decoding, record a trace beside it, then name the files with --trace
  load:    dsv4bench sweep URL --concurrency 16 --duration 120s
  SGLang:  curl -X POST URL/start_profile -H 'Content-Type: application/json' -d '{"num_steps": 30,
             "activities": ["CPU", "GPU"], "with_stack": false, "record_shapes": false, "output_dir": "traces"}'
  vLLM:    start it with --profiler-config '{"profiler": "torch", "torch_profiler_dir": "traces"}', then
           curl -X POST URL/start_profile; sleep 2; curl -X POST URL/stop_profile
  any:     nsys profile -t cuda,nvtx --sample=none --cpuctxsw=none --trace-fork-before-exec=true \\
             --cuda-graph-trace=node -o decode SERVER COMMAND
           nsys export --type sqlite -o decode.sqlite decode.nsys-rep
  then:    dsv4bench profile --trace c16=FILE --kernel-breakdown"""


def how_to_trace(url: str) -> str:
    """The commands that make a trace of a server while it decodes: first ours, then those of each engine."""
    return _BY_HAND.replace("URL", url)
