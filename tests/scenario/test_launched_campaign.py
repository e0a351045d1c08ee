"""A launched campaign's file is read whole or refused with file, line, key and what was expected there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.scenario.launched import ConfigSpec, LaunchedCampaign, ServerSpec
from dsv4bench.scenario.launched_reading import command_of, is_launched, read_launched
from dsv4bench.scenario.launched_text import fill, known_names, placeholders

SCENARIOS = Path(__file__).resolve().parent.parent.parent / "scenarios"
SHIPPED = sorted(p for p in SCENARIOS.glob("*.yaml") if p.name not in ("chat_slo.yaml", "decode.yaml"))

BASE = """\
name: c
levels: {concurrency: [1, 16]}
configs:
  - name: baseline
    launch: "{python} -m serve --port {port}"
"""
ROLES = """\
name: c
configs:
  - name: pd
    roles:
      prefill: {launch: "serve --port {port}", port: 8100}
      decode: {launch: "serve --port {port} --peer {prefill_url}"}
      router: {launch: "route {prefill_port} {decode_url} --port {port}"}
"""


def read(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> LaunchedCampaign:
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    return read_launched(path, {} if env is None else env)


def refusal(tmp_path: Path, text: str) -> UsageError:
    with pytest.raises(UsageError) as refused:
        read(tmp_path, text)
    return refused.value


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_every_shipped_campaign_validates(path: Path) -> None:
    assert is_launched(path)
    campaign = read_launched(path, {})
    assert campaign.name == path.stem
    assert f"dsv4bench campaign scenarios/{path.name}" in path.read_text(encoding="utf-8")
    values = {name: 1 for c in campaign.configs for name in known_names(c.roles)}
    for config in campaign.configs:
        for launch in [config.launch, *(r.launch for r in config.roles.values())]:
            words = [] if launch is None else command_of(launch, values)
            assert launch is None or words
            assert not any(placeholders(w) or "${" in w for w in words)


def test_the_examples_of_the_reference_validate(tmp_path: Path) -> None:
    text = (SCENARIOS.parent / "docs" / "scenarios.md").read_text(encoding="utf-8")
    whole, roles = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[1:3]
    campaign = read(tmp_path, whole, {"MODEL": "m"})
    told = set(re.findall(r"^ *(?:- )?(\w+):", whole, re.MULTILINE))
    for kind in (LaunchedCampaign, ServerSpec, ConfigSpec):
        assert told | {"roles"} >= set(kind.__struct_encode_fields__)
    extended = whole.split("profile: {with")[0] + roles
    assert read(tmp_path, extended, {"MODEL": "m"}).configs[-1].name == "pd-nixl" and len(campaign.configs) == 2


def test_the_shipped_campaigns_are_there() -> None:
    assert {p.stem for p in SHIPPED} >= {
        "embedded-cpu",
        "embedded-cuda",
        "flash-layers-h200",
        "llama-cpp",
        "sglang-rtx-pro-6000",
        "vllm-cpu",
        "vllm-rtx-pro-6000",
    }


def test_levers_of_the_large_campaigns_are_compared_one_by_one() -> None:
    for name in ("sglang-rtx-pro-6000", "vllm-rtx-pro-6000"):
        campaign = read_launched(SCENARIOS / f"{name}.yaml", {})
        parents = {c.name: c.parent for c in campaign.configs}
        for lever in ("fp8-configs", "nccl-ll", "mtp", "pd-nixl", "fp8+nccl+mtp"):
            assert parents[lever] == "baseline"
        pd = next(c for c in campaign.configs if c.name == "pd-nixl")
        assert set(pd.roles) == {"prefill", "decode", "router"}
        assert "--membind=1" in pd.roles["decode"].launch
        assert {"{prefill_url}", "{decode_url}"} <= set(pd.roles["router"].launch.split())


def test_defaults(tmp_path: Path) -> None:
    c = read(tmp_path, BASE)
    assert c.baseline.name == "baseline"
    assert (c.blocks, c.server.port, c.server.ready_timeout_s) == (4, 0, 1800)
    assert c.profile is None and c.parity.prompts == 4 and c.baseline.profile


@pytest.mark.parametrize(
    ("profile", "cubins"), [("{}", None), ("{cubins: false}", False), ("{cubins: '${C}/x'}", "/c/x")]
)
def test_where_a_profile_finds_compiled_kernels(tmp_path: Path, profile: str, cubins: str | bool | None) -> None:
    found = read(tmp_path, BASE + f"profile: {profile}\n", {"C": "/c"}).profile
    assert found is not None and found.cubins == cubins


def test_roles(tmp_path: Path) -> None:
    c = read(tmp_path, ROLES)
    assert set(c.baseline.roles) == {"prefill", "decode", "router"}
    assert read(tmp_path, BASE.replace("launch:", "roles: {server: {launch:").rstrip() + "}}\n").baseline.roles


ERRORS = [
    # names and levers
    (BASE + "  - {name: baseline, launch: 's {port}'}\n", 6, "config baseline stands there twice"),
    (BASE + "  - {name: b, parent: a, launch: 's {port}'}\n", 6, "parent a of b is no config above it (baseline)"),
    (BASE + "  - name: b\n    parent: b\n    launch: 's {port}'\n", 7, "parent b of b is itself"),
    (BASE + "  - name: b\n    launch: 's {port}'\n    lever: x\n", 8, "b has the lever x and no parent"),
    (BASE + "    lever_keys: [a]\n", 6, "baseline has lever_keys and names no lever"),
    (BASE + "    touches: [moe]\n", 6, "baseline has touches and names no lever"),
    (BASE + "    touches: [experts]\n", 6, "Expected a component (moe, router,"),
    (BASE.replace("baseline", "a b"), 4, "Expected a name of letters, digits and . _ + -"),
    (BASE.replace("name: c", "name: ''"), 1, "Expected a name of letters"),
    # processes
    (BASE.replace("    launch:", "    about:"), 4, "baseline has neither launch nor roles"),
    (BASE + "    roles: {server: {launch: 's {port}'}}\n", 6, "baseline has both launch and roles"),
    (
        ROLES.replace("      router:", "      server:"),
        4,
        "server; expected prefill, decode and router",
    ),
    (ROLES.replace("router", "routers"), 4, "'routers'"),
    (ROLES + "    port: 8000\n", 8, "pd has roles: port belongs to each of them"),
    (ROLES + "    health: /ready\n", 8, "pd has roles: health belongs to each of them"),
    (
        ROLES.replace('{prefill_url}"}', '{prefill_url}", port: 8100}'),
        6,
        "port 8100 of decode is that of prefill, too",
    ),
    (BASE.replace("{port}", "{prot}"), 5, "{prot} is no placeholder; did you mean port?"),
    (BASE.replace("{port}", "{prefill_port}"), 5, "{prefill_port} is no placeholder"),
    (ROLES.replace("{prefill_url}", "{server_url}"), 6, "launch of pd, decode: {server_url} is no placeholder"),
    (BASE.replace("{port}", "8000"), 5, "has no {port} and no port is set"),
    (BASE.replace("-m serve", "-m 'serve"), 5, "cannot be split into words: no closing quotation"),
    (BASE.replace("{python} -m serve --port {port}", " "), 5, "launch of baseline is empty"),
    (BASE.replace("{python}", "HF_TOKEN=abc {python}"), 5, "begins with HF_TOKEN=…: no shell runs it"),
    (BASE.replace("{python}", "cd /x && {python}"), 5, "has &&: no shell runs it"),
    (BASE.replace("-m serve", "-m serve $MODEL"), 5, "has $MODEL: no shell runs it"),
    (BASE.replace("-m serve", "-m serve ${MODEL}"), 5, "the environment variable MODEL is not set"),
    (BASE + "    env: {A: 1}\n", 6, 'Expected `str`, got `int` - at `$.configs[0].env[...]` (quote the value: "1")'),
    (BASE + "    env:\n      A: '{prot}'\n", 7, "env of baseline, A: {prot} is no placeholder; did you mean port?"),
    # live checks
    (BASE + "    live:\n      log: ['ok', '(']\n", 7, "'(' is no regular expression"),
    (BASE + "    live: {kernels: [moe]}\n", 6, "kernels are looked for in a trace, and this campaign has no profile"),
    (
        BASE + "    live: {kernels_absent: [moe]}\nprofile: {with: pm}\n",
        6,
        "kernels are looked for in a trace, and pm records no kernels",
    ),
    (BASE + "    profile: false\n    live: {kernels: [moe]}\nprofile: {}\n", 7, "it has profile: false"),
    # levels, δ, expectations
    (BASE.replace("]}", "], rates_req_s: [1]}"), 2, "rates_req_s and concurrency cannot both be given"),
    (BASE.replace("]}", "], requests: 8, duration_s: 5}"), 2, "requests and duration_s cannot both be given"),
    (BASE.replace("[1, 16]", "[1, 1]"), 2, "a value of concurrency stands twice"),
    (BASE.replace("[1, 16]", "[]"), 2, "concurrency is empty"),
    (BASE.replace("]}", "], slo: {ttft: soon}}"), 2, "Expected a duration such as 50ms"),
    (BASE + "workload:\n  isl: [64, 64]\n", 7, "a value of isl stands twice"),
    (BASE + "server:\n  endpoint: chat\n", 7, "the chat endpoint takes none"),
    (BASE + "delta:\n  output_toks: 0.03\n", 7, "output_toks is no metric; did you mean output_tok_s?"),
    (BASE + "delta: {dram_frac: 0.03}\n", 6, "dram_frac has no better or worse"),
    (BASE + "delta: {output_tok_s: 3}\n", 6, "Expected `float` < 1"),
    (BASE + "gpu: RTX 6001\n", 6, "gpu RTX 6001 is none of the known ones"),
    (BASE + "target: {output_tok_s: 1, concurrency: 16, config: x}\n", 6, "target config x is none of baseline"),
    (BASE + "target: {output_tok_s: 1, concurrency: 8}\n", 6, "concurrency 8, which is not measured (1, 16)"),
    (
        BASE.replace("concurrency: [1, 16]", "rates_req_s: [1]") + "target: {output_tok_s: 1, concurrency: 8}\n",
        6,
        "this campaign measures request rates",
    ),
    # the file
    (BASE + "blocks: 0\n", 6, "Expected `int` >= 1"),
    (BASE + "block: 2\n", 6, "unknown field `block`"),
    (BASE + "    launches: x\n", 6, "unknown field `launches`"),
    (BASE + "    env: {A: 'x'}\n    env: {B: 'y'}\n", 7, "env stands there twice, and only the last one would count"),
    (BASE + "profile: {with: perf}\n", 6, "Invalid enum value 'perf'"),
    (BASE + "profile: {cubins: true}\n", 6, "cubins is a folder of compiled kernels, or false"),
    (BASE + "profile: {cubins: ''}\n", 6, "Expected `str` of length >= 1"),
    (BASE + "profile: {cubins: '${NOWHERE}'}\n", 6, "the environment variable NOWHERE is not set"),
    (BASE + "  - [\n", 7, "not YAML"),
    ("name: c\nconfigs: []\n", 2, "Expected `array` of length >= 1"),
]


@pytest.mark.parametrize(("text", "line", "said"), ERRORS, ids=[said[:40] for _, _, said in ERRORS])
def test_an_error_names_file_line_and_what_was_expected(tmp_path: Path, text: str, line: int, said: str) -> None:
    error = refusal(tmp_path, text)
    assert error.message.startswith(f"{tmp_path / 'c.yaml'}:{line}: "), error.message
    assert said in error.message
    assert "\n" not in error.message and "regex" not in error.message and error.hint


PREDICTED = BASE + "  - {name: b, parent: baseline, lever: x, launch: 's {port}'}\npredictions:\n"


@pytest.mark.parametrize(
    ("prediction", "said"),
    [
        ("{config: x, concurrency: 1, low_ratio: 1, high_ratio: 2, why: w}", "for x, which is none of baseline, b"),
        ("{config: baseline, concurrency: 1, low_ratio: 1, high_ratio: 2, why: w}", "which has no parent"),
        ("{config: b, concurrency: 8, low_ratio: 1, high_ratio: 2, why: w}", "not measured (1, 16)"),
        ("{config: b, concurrency: 1, low_ratio: 3, high_ratio: 2, why: w}", "low_ratio 3 is above high_ratio 2"),
        ("{config: b, concurrency: 1, low_ratio: 1, high_ratio: 2, why: w, metric: tps}", "tps is no metric"),
        ("{config: b, concurrency: 1, low_ratio: 1, high_ratio: 2}", "missing required field `why`"),
    ],
)
def test_a_prediction_is_about_what_is_measured(tmp_path: Path, prediction: str, said: str) -> None:
    error = refusal(tmp_path, PREDICTED + f"  - {prediction}\n")
    assert error.message.startswith(f"{tmp_path / 'c.yaml'}:8: ") and said in error.message
    good = "{config: b, concurrency: 1, low_ratio: 1.1, high_ratio: 1.5, why: w}"
    assert read(tmp_path, PREDICTED + f"  - {good}\n").predictions[0].high_ratio == 1.5


def test_a_shell_is_taken_at_its_word(tmp_path: Path) -> None:
    text = BASE.replace("{python} -m serve --port {port}", "bash -c 'cd /x && exec serve $A --port {port}'")
    launch = read(tmp_path, text).baseline.launch
    assert launch is not None
    assert command_of(launch, {"port": 5}) == ["bash", "-c", "cd /x && exec serve $A --port 5"]


def test_variables_come_from_the_environment(tmp_path: Path) -> None:
    text = """\
name: c
server: {model: "${MODEL}"}
env: {ALL: "${MODEL}/x"}
configs:
  - name: baseline
    launch: "serve ${MODEL} ${FLAGS:-} --dir ${DIR:-/tmp/d} --raw $${MODEL} --port {port}"
    env: {ONE: "${DIR:-}"}
    live: {env: {ONE: "${MODEL}"}}
  - name: pd
    roles:
      server: {launch: "serve ${MODEL} {port}", env: {TWO: "${MODEL}"}}
"""
    c = read(tmp_path, text, {"MODEL": "m", "FLAGS": "--a --b"})
    assert c.server.model == "m" and c.env == {"ALL": "m/x"}
    assert c.baseline.launch == "serve m --a --b --dir /tmp/d --raw ${MODEL} --port {port}"
    assert c.baseline.env == {"ONE": ""} and c.baseline.live.env == {"ONE": "m"}
    assert c.configs[1].roles["server"].launch == "serve m {port}"
    assert c.configs[1].roles["server"].env == {"TWO": "m"}
    error = refusal(tmp_path, text)
    assert error.message.endswith("c.yaml:2: the environment variable MODEL is not set")
    assert "export MODEL=…" in error.hint


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{python} --port {port}", "/py --port 80"),
        ('--config \'{"method": "mtp", "n": {port}}\'', '--config \'{"method": "mtp", "n": 80}\''),
        ('{"a":{"b":{port}}}', '{"a":{"b":80}}'),
        ("{} {unknown} { port } {{port}} ${port}", "{} {unknown} { port } {{port}} ${port}"),
        ("{port}{port}", "8080"),
    ],
)
def test_fill_leaves_other_braces_alone(text: str, filled: str) -> None:
    assert fill(text, {"python": "/py", "port": 80}) == filled


def test_a_value_is_never_filled_again_nor_split() -> None:
    values: dict[str, str | int] = {"python": "/my venv/{port}/python", "port": 1}
    assert command_of("{python} -p {port}", values) == ["/my venv/{port}/python", "-p", "1"]


@pytest.mark.parametrize(
    ("text", "launched"),
    [
        (BASE, True),
        (ROLES, True),
        (BASE + "  - [\n", True),
        ("name: x\nconfigs:\n  - {name: baseline}\n", False),
        ("name: x\nconfig: {name: baseline}\n", False),
        ("name: x\n  bad: [\n", False),
        ("[1, 2]\n", False),
        ("configs: {a: 1}\n", False),
        ("", False),
    ],
)
def test_what_is_a_launched_campaign(tmp_path: Path, text: str, launched: bool) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    assert is_launched(path) is launched


def test_what_is_no_file_is_no_campaign(tmp_path: Path) -> None:
    assert not is_launched(tmp_path) and not is_launched(tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe")
    assert not is_launched(tmp_path / "b.yaml")
    assert not is_launched(SCENARIOS / "campaign_2026" / "scenario.yaml")
    with pytest.raises(UsageError, match=r"none\.yaml: No such file"):
        read_launched(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("launch:", "lunch:", "c.yaml:5: .*unknown field `lunch`.*; did you mean launch?"),
        ("concurrency:", "concurency:", "c.yaml:2: .*; did you mean concurrency?"),
        ("name: c\n", "name: c\nprofile: {wiht: nsys}\n", "c.yaml:2: .*; did you mean with?"),
    ],
)
def test_a_key_that_is_misspelt_is_guessed(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert re.search(said.replace("?", r"\?"), refusal(tmp_path, BASE.replace(old, new)).message)


def test_a_sweep_s_scenario_is_sent_to_its_own_command(tmp_path: Path) -> None:
    for name in ("decode.yaml", "chat_slo.yaml"):
        text = (SCENARIOS / name).read_text(encoding="utf-8")
        assert f"dsv4bench sweep --scenario {tmp_path / 'c.yaml'}" in refusal(tmp_path, text).message
    for text in ("", "name: c\nconfigs: []\n"):
        assert "dsv4bench sweep" not in refusal(tmp_path, text).message
