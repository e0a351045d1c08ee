"""Secrets leave what is written, and nothing else does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.host.redact import HIDDEN, hide_values, is_secret_name, redact, redact_text, secret_values

SECRET = "s3cr3tvalue"


@pytest.mark.parametrize(
    "key",
    [
        *("api_key", "admin_api_key", "apiKey", "API-KEY", "x-api-key", "OPENAI_API_KEY", "api_keys"),
        *("token", "hf_token", "HUGGING_FACE_HUB_TOKEN", "auth-token", "tokens"),
        *("Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie"),
        *("password", "ssl_keyfile_password", "secret", "client_secret", "aws_secret_access_key"),
    ],
)
def test_values_under_secret_keys_are_hidden(key: str) -> None:
    assert redact({"server": {key: SECRET}}) == {"server": {key: HIDDEN}}
    assert SECRET not in str(redact([{key: [SECRET, "other"]}]))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_tokens", 64),
        ("tokens", 12),
        ("prompt_tokens", "12"),
        ("num_tokens", [1, 2, 3]),
        ("token", 1234),
        ("tokenizer", "org/model"),
        ("tokenizer_path", "/models/m"),
        ("eos_token", "</s>"),
        ("bos_token", "<s>"),
        ("stop_token_ids", [1, 2]),
        ("api_key", None),
        ("keyboard", "qwerty"),
        ("ssl_keyfile", "/etc/key.pem"),
        ("skip_tokenizer_init", False),
        ("speculative_token_map", "map.pt"),
        ("disable_token_check", True),
    ],
)
def test_what_is_no_secret_stays(key: str, value: Any) -> None:
    assert redact({key: value}) == {key: value}


@pytest.mark.parametrize(
    "command",
    [
        ["vllm", "serve", "m", "--api-key", SECRET, "--port", "8000"],
        ["vllm", "serve", "m", "--api-key", SECRET, SECRET, "--port", "8000"],
        ["vllm", "serve", "m", f"--api-key={SECRET}", "--port", "8000"],
        ["dsv4bench", "sweep", "--header", f"X-Key: {SECRET}", "--port", "8000"],
        ["curl", "-H", f"Authorization:Bearer {SECRET}", "--port", "8000"],
        ["env", f"HF_TOKEN={SECRET}", "vllm", "--port", "8000"],
        ["server", f"http://user:{SECRET}@host:8000/v1", "--port", "8000"],
    ],
)
def test_commands_keep_all_but_the_secret(command: list[str]) -> None:
    clean = redact(command)
    assert SECRET not in str(clean)
    assert clean[0] == command[0]
    assert clean[-2:] == ["--port", "8000"]
    assert len(clean) == len(command)


def test_a_secret_flag_in_a_string_hides_one_word_and_keeps_the_rest() -> None:
    clean = redact_text(f"vllm serve --api-key {SECRET} m --admin-api-key='{SECRET} x' -H X-Key:{SECRET} --port 8000")
    assert clean == f"vllm serve --api-key {HIDDEN} m --admin-api-key={HIDDEN} -H X-Key:{HIDDEN} --port 8000"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"headers={{'Authorization': 'Bearer {SECRET}'}}",
        f'{{"api_key": "{SECRET}", "port": 1}}',
        f"ServerArgs(api_key='{SECRET}', port=1)",
        f"args: {{'api_key': ['first', '{SECRET}'], 'port': 8111}}",
        f"hf_token = '{SECRET}'",
        f"GET http://h/v1/models?api_key={SECRET}&x=1",
        f"export VLLM_API_KEY='{SECRET}'; run",
        f"redis://:{SECRET}@cache:6379/0",
        f"--admin-api-key {SECRET}",
        f'curl -H "X-Api-Key: {SECRET}" http://h',
    ],
)
def test_secrets_inside_text(text: str) -> None:
    assert SECRET not in redact_text(text)
    assert HIDDEN in redact_text(text)


def test_well_known_token_shapes() -> None:
    for token in ("hf_" + "a" * 30, "sk-" + "b" * 40, "nvapi-" + "c" * 40, "ghp_" + "d" * 36):
        assert redact_text(f"found {token} in the log") == f"found {HIDDEN} in the log"


@pytest.mark.parametrize(
    "text",
    [
        "num_tokens=64 max_tokens: 128",
        "eos_token='</s>'",
        "http://127.0.0.1:8000/v1",
        "mail me@example.org",
        "--max-tokens 64 --tokenizer org/model",
        "basic block size",
    ],
)
def test_plain_text_stays(text: str) -> None:
    assert redact_text(text) == text


def test_a_tokenizer_special_is_no_secret_name() -> None:
    assert not is_secret_name("eos_token")
    assert is_secret_name("hfToken")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)


@given(_json)
def test_any_json_keeps_its_shape_and_its_input(value: Any) -> None:
    before = copy.deepcopy(value)
    clean = redact(value)
    assert value == before
    assert redact(clean) == clean
    assert isinstance(clean, type(value))


@pytest.mark.parametrize(
    "text",
    [
        f"argv: ['serve', '--api-key', '{SECRET}', '--port', '8000']",
        f'argv: ["serve", "--api-key", "{SECRET}", "--port", "8000"]',
        f"['--api-key','first-one','{SECRET}', '--port', '8000']",
        f'{{"msg": "argv [\\"--api_key\\", \\"{SECRET}\\", \\"--port\\", \\"8000\\"]"}}',
        f"'--hf-token',\n '{SECRET}', '--port', '8000'",
        f"Namespace(api_key='{SECRET}', port=8000)",
        f"Namespace(port=8000, api_key=['{SECRET}'])",
    ],
)
def test_a_command_that_is_printed_as_a_list(text: str) -> None:
    clean = redact_text(text)
    assert SECRET not in clean and "first-one" not in clean
    assert HIDDEN in clean and "8000" in clean
    assert redact_text(clean) == clean


def test_a_list_keeps_what_follows_other_flags() -> None:
    text = "['--api-key', '--port', '8000', '--max-tokens', '64', '--tokenizer', 'org/model']"
    assert redact_text(text) == text


def test_known_values_are_those_of_secret_flags_headers_and_variables() -> None:
    command = [
        *("serve", "--api-key", "first-key", "second-key", "--port", "123456", "--hf-token=in-a-pair"),
        *("--header", "Authorization: Bearer of-a-header"),
        *("sh", "-c", "X_API_KEY=of-the-shell run --api-key 'a b c d'"),
        *("--admin-api-key", "short", "--max-tokens", "100000"),
    ]
    env = {"MY_TOKEN": "of-the-environment", "MAX_TOKENS": "4096000", "MODE": "production", "A_SECRET": "${OTHER}"}
    values = secret_values(command, env)
    wanted = {"first-key", "second-key", "in-a-pair", "of-a-header", "of-the-shell", "a b c d", "of-the-environment"}
    assert wanted <= set(values)
    assert [len(v) for v in values] == sorted(map(len, values), reverse=True)  # one that holds another goes first
    plain = ["123456", "production", "short", "100000", "4096000"]
    text = " | ".join([*wanted, *plain])
    assert hide_values(text, values) == " | ".join([HIDDEN] * len(wanted) + plain)


def test_a_known_value_is_found_as_json_spells_it() -> None:
    assert hide_values(r'{"k": "a\"quoted\\one"}', ['a"quoted\\one']) == f'{{"k": "{HIDDEN}"}}'


def test_a_placeholder_is_no_secret() -> None:
    for text in (
        "HF_TOKEN=${MYKEY} serve",
        "serve --api-key ${MYKEY} --port 1",
        "serve --api-key=${MYKEY}",
        "api_key: '${MYKEY}'",
        'export API_KEY="${MYKEY}"',
    ):
        assert redact_text(text) == text
    whole = {"env": {"HF_TOKEN": "${MYKEY}"}, "command": ["serve", "--api-key", "${MYKEY}"]}
    assert redact(whole) == whole
    assert redact_text("HF_TOKEN=${MYKEY:-s3cr3tvalue} serve") == f"HF_TOKEN={HIDDEN} serve"
    assert redact({"HF_TOKEN": "${A}s3cr3tvalue"}) == {"HF_TOKEN": HIDDEN}
