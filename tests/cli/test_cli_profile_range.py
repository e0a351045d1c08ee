"""`--range` as a user types it: what it goes with is said before anything is started."""

from __future__ import annotations

import pytest
from command import Call


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["http://127.0.0.1:9", "--range", "server"], "--range server with --with torch"),
        (["--trace", "x.json", "--range", "server"], "--range beside --trace"),
        (["--with", "ncu", "--kernels", "slot_gemv", "--range", "server"], "--range with --with ncu"),
        (["--launch", "vllm serve M", "--with", "nsys", "--range", "server"], "does not call cudaProfilerStart"),
        (["--launch", "dsv4bench serve", "--with", "nsys", "--range", "server"], "without a GPU"),
    ],
)
def test_what_it_does_not_go_with(call: Call, args: list[str], said: str) -> None:
    done = call("profile", *args)
    assert done.code == 2 and said in done.error


def test_the_flag_that_is_missing_is_printed(call: Call) -> None:
    done = call("profile", "--launch", "vllm serve M", "--with", "nsys", "--range", "server", "--json")
    assert done.code == 2 and """--profiler-config '{"profiler": "cuda"}'""" in done.err
    assert "--profiler-config" in done.out  # the one document has it, too


def test_only_the_two_are_known(call: Call) -> None:
    done = call("profile", "--launch", "x", "--with", "nsys", "--range", "inside")
    assert done.code == 2 and "outside" in done.err
