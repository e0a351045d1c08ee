"""A scenario file is read whole or refused with its name, the line and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.scenario.file import Scenario, read_scenario

WHOLE = """\
name: decode
server:
  url: http://127.0.0.1:8000
  endpoint: completions
  model: tiny
  timeout_s: 90
workload:
  isl: [1024, 8192]
  osl: 256
  dataset: random
  prefix_share: 0.5
  seed: 7
  vocab: 129280
  temperature: 0.6
levels:
  concurrency: [1, 8, 16]
  requests: 48
  repeat: 5
  slo: {ttft: 2s, tpot: 50ms, e2e: 30}
  warmup: false
config: {name: baseline, parent: stock, lever: none}
"""


def read(tmp_path: Path, text: str) -> Scenario:
    path = tmp_path / "s.yaml"
    path.write_text(text, encoding="utf-8")
    return read_scenario(path)


def test_every_key(tmp_path: Path) -> None:
    s = read(tmp_path, WHOLE)
    assert (s.name, s.server.url, s.server.endpoint, s.server.model, s.server.timeout_s) == (
        "decode",
        "http://127.0.0.1:8000",
        "completions",
        "tiny",
        90.0,
    )
    w = s.workload
    assert (w.isl, w.osl, w.dataset, w.prefix_share) == ([1024, 8192], 256, "random", 0.5)
    assert (w.seed, w.vocab, w.temperature) == (7, 129280, 0.6)
    assert (s.levels.concurrency, s.levels.requests, s.levels.repeat) == ([1, 8, 16], 48, 5)
    assert s.levels.slo is not None and (s.levels.slo.ttft, s.levels.slo.tpot, s.levels.slo.e2e) == ("2s", "50ms", 30)
    assert s.levels.warmup is False and s.levels.rates_req_s is None and s.levels.duration_s is None
    assert (s.config.name, s.config.parent, s.config.lever) == ("baseline", "stock", "none")


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_leaves_everything_to_the_options(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == Scenario()


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("name: x\nlevel: {}\n", 2, "unknown field `level`"),
        ("levels:\n  concurrency: [1]\n  repeats: 5\n", 3, "unknown field `repeats`"),
        ("levels:\n  slo:\n    ttft: 1s\n    p99: 2s\n", 4, "unknown field `p99`"),
        ("name: x\nlevels:\n  concurrency: [1, 8]\n  repeat: five\n", 4, "got `str` - at `$.levels.repeat`"),
        ("workload:\n  isl: 1024\n", 2, "Expected `array | null`, got `int` - at `$.workload.isl`"),
        ("workload:\n  isl: [1.5]\n", 2, "$.workload.isl"),
        ("server:\n  url: x\n  endpoint: chats\n", 3, "Invalid enum value 'chats' - at `$.server.endpoint`"),
        ("levels:\n  warmup: maybe\n", 2, "$.levels.warmup"),
        ("name: 3\n", 1, "Expected `str`, got `int` - at `$.name`"),
        ("name: x\nworkload: random\n", 2, "$.workload"),
        ("levels:\n  repeat: 0\n", 2, "Expected `int` >= 1 - at `$.levels.repeat`"),
        ("levels:\n  concurrency: [1, 0]\n", 2, ">= 1"),
        ("levels:\n  rates_req_s: [.nan]\n", 2, "> 0"),
        ("levels:\n  rates_req_s: [.inf]\n", 2, "$.levels.rates_req_s[0]"),
        ("levels:\n  duration_s: -5\n", 2, "> 0"),
        ("levels:\n  arrivals: sometimes\n", 2, "'sometimes'"),
        (
            "levels:\n  slo:\n    tpot: fast\n",
            3,
            "Expected a duration such as 50ms, 2s or 1.5m - at `$.levels.slo.tpot`",
        ),
        ("workload:\n  prefix_share: 1.0\n", 2, "< 1"),
        ("workload:\n  osl: 0\n", 2, ">= 1"),
        ("name: x\nlevels: [\n", 3, "not YAML"),
        ("name: x\n\tlevels: 1\n", 2, "not YAML"),
        ("[1, 2]\n", 1, "Expected `object`, got `array`"),
        ("1: x\n", 1, "Expected `str`"),
    ],
)
def test_an_error_names_file_line_and_key(tmp_path: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(tmp_path, text)
    message = refused.value.message
    assert message.startswith(f"{tmp_path / 's.yaml'}:{line}: ") and said in message
    assert "\n" not in message and refused.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.yaml: No such file or directory"):
        read_scenario(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="Is a directory"):
        read_scenario(tmp_path)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"s\.yaml: not UTF-8"):
        read_scenario(tmp_path / "s.yaml")
    (tmp_path / "s.yaml").write_bytes(b"name: \x00\n")
    with pytest.raises(UsageError, match=r"s\.yaml: not YAML"):
        read_scenario(tmp_path / "s.yaml")


def test_a_file_runs_no_code(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not YAML"):
        read(tmp_path, f"name: !!python/object/apply:os.system ['touch {tmp_path}/x']\n")
    assert not (tmp_path / "x").exists()
