"""Secrets out of anything that is about to be written: server arguments, commands, environments, error texts.

`redact(value)` walks a JSON-like value and returns a copy in which every secret reads `***`: values under
secret keys (`api_key`, `hf_token`, `Authorization`, …), what follows a secret flag in a command, bearer tokens,
credentials in URLs, and strings of a well-known token shape. Numbers under token-like keys are counts
(`max_tokens`) and stay, and so do placeholders (`${NAME}`). It errs on the side of hiding; a secret that nothing
marks as one is not found, unless its value is known: `secret_values` of a launch's command and environment, for
`hide_values`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

HIDDEN = "***"

_SECRET_STEMS = (
    r"api_?key|secret(?:_?key)?|private_?key|access_?key|password|passwd|passphrase|authorization|credentials?"
)
_SECRET_KEY = re.compile(rf"(?:^|_)(?:{_SECRET_STEMS}|cookie)s?$|^secret_|_secret_(?!key)")
_TOKEN_KEY = re.compile(r"(?:^|_)tokens?$")
# A tokenizer's special tokens are part of a model's description, not secrets.
_SPECIAL_TOKENS = re.compile(
    r"(?:bos|eos|eot|eom|pad|unk|cls|sep|mask|stop|start|end|image|video|audio|boi|eoi|think|special|added)_tokens?$"
)
_HEADER_FLAGS = ("-H", "--header", "--headers")

_FLAG_NAME = r"(?<!-)--[a-z0-9_-]*(?:api[-_]?key|token|password|passwd|secret|secret[-_]key|passphrase)"
_FLAG = re.compile(rf"^{_FLAG_NAME}$", re.I)
_PLACEHOLDER = re.compile(r"\$\{\w+\}")
_NO_PLACEHOLDER = r"(?!['\"]?\$\{\w+\}['\"]?(?![\w$-]))"
_WORD = rf"{_NO_PLACEHOLDER}(?:\"[^\"]*\"|'[^']*'|\$\{{[^}}]*\}}[^\s\"',;}})\]]*|[^\s\"',;}})\]]+)"
_QUOTE = r"\\{0,7}['\"]"  # also within a string of JSON, where it is escaped
_ITEM = rf"{_QUOTE}{_NO_PLACEHOLDER}[^'\"\\]*(?:\\+[^'\"\\][^'\"\\]*)*{_QUOTE}"
_HOME = re.compile(r"(?<![\w.-])(?:(?:/home|/Users)/[^/:;,\s'\"]+|/root(?=[/:;,\s'\"]|$))")
_LEAST_CHARS = 6  # of a value that is looked for wherever it stands; a shorter one would hide other words

_TO_NEXT = r"(?:(?!\s-)[^'\"\n])+"  # a header's value: up to a quote, the line's end or the next option

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b(Bearer)\s+[A-Za-z0-9._~+/=-]{6,}", re.I), rf"\1 {HIDDEN}"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://)[^\s/@'\"]+@", re.I), rf"\1{HIDDEN}@"),
    (re.compile(rf"({_FLAG_NAME})(=|\s+)(?!-){_WORD}", re.I), rf"\1\2{HIDDEN}"),
    # a command as a list, in Python's or JSON's spelling: "--api-key", "value", "another value"
    (
        re.compile(
            rf"({_QUOTE}{_FLAG_NAME}{_QUOTE}\s*,\s*)(?!{_QUOTE}-){_ITEM}(?:\s*,\s*(?!{_QUOTE}-){_ITEM})*", re.I
        ),
        rf"\1'{HIDDEN}'",
    ),
    (re.compile(rf"((?:-H|--headers?)[= ]\s*['\"]?[\w-]+:\s*){_TO_NEXT}", re.I), rf"\1{HIDDEN}"),
    (
        re.compile(rf"((?:authorization|cookie|(?<![\w-])[\w-]*api-?key)['\"]?:\s*)(?!\s*['\"{{\[]){_TO_NEXT}", re.I),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"([?&][\w-]*(?:key|token|secret|password|sig)=)[^&\s'\"]+", re.I), rf"\1{HIDDEN}"),
    # name = "value", in Python's or JSON's spelling
    (
        re.compile(
            rf"(\b\w*(?:{_SECRET_STEMS}|(?<!_)token|(?:hf|hub|auth|access|api)_token)s?['\"]?\s*[:=]\s*)"
            rf"{_NO_PLACEHOLDER}(?:\[\s*['\"][^\]]*\]|'[^']+'|\"[^\"]+\")",
            re.I,
        ),
        rf"\1'{HIDDEN}'",
    ),
    # NAME=value, the shell's assignment
    (re.compile(rf"\b([A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD)=){_WORD}"), rf"\1{HIDDEN}"),
    (re.compile(r"\b(?:hf_|sk-|nvapi-|gh[opusr]_|glpat-)[A-Za-z0-9_-]{16,}"), HIDDEN),
)


def redact(value: Any) -> Any:
    """A copy of a JSON-like value without its secrets."""
    if isinstance(value, dict):
        return {k: HIDDEN if _hides(k, v) else redact(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return _redact_list(value)
    if isinstance(value, str):
        return redact_text(value)
    return value


def redact_text(text: str) -> str:
    """A string without the secrets that it marks as such."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def secret_values(command: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The values of secret flags, headers and variables of a launch, longest first; those of 6 characters or more."""
    found = {value for name, value in env.items() if _hides(name, value)}
    found |= set(_in_command(command))
    known = {value.strip() for value in found if not _PLACEHOLDER.fullmatch(value.strip()) and HIDDEN not in value}
    return sorted((v for v in known if len(v) >= _LEAST_CHARS), key=lambda v: (-len(v), v))


def hide_values(text: str, values: Iterable[str]) -> str:
    """`text` without these values, wherever they stand, also as a string of JSON spells them."""
    for value in values:
        text = text.replace(value, HIDDEN).replace(json.dumps(value)[1:-1], HIDDEN)
    return text


def without_home(text: str, home: str | None = None) -> str:
    """`text` with `~` in place of home folders: anybody's below /home and /Users, root's, and `home`."""
    if home is not None and len(home.rstrip("/")) > 1:
        text = re.sub(rf"(?<![\w.-]){re.escape(home.rstrip('/'))}(?=[/:;,\s'\"]|$)", "~", text)
    return _HOME.sub("~", text)


def is_secret_name(name: str) -> bool:
    """Whether a setting of this name may hold a secret; a tokenizer's `eos_token` does not."""
    plain = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()).strip("_")
    if _SECRET_KEY.search(plain):
        return True
    return bool(_TOKEN_KEY.search(plain)) and not _SPECIAL_TOKENS.search(plain)


def _in_command(words: Sequence[str]) -> Iterator[str]:
    """What a command gives to secret flags, headers and variables; a shell's text within it is read, too."""
    after = ""
    for word in words:
        name, is_pair, value = word.partition("=")
        if word.startswith("-"):
            after = word
            if is_pair and (_FLAG.match(name) or _hides(name.lstrip("-"), value)):
                yield value
        elif _FLAG.match(after) or (after.startswith("--") and _hides(after.lstrip("-"), word)):
            yield word
        elif after in _HEADER_FLAGS:
            yield re.sub(r"^\s*(?:Bearer|Basic)\s+", "", word.partition(":")[2], flags=re.I)
            after = ""
        else:
            if re.fullmatch(r"\w+", name) and is_pair and _hides(name, value):
                yield value
            if re.search(r"\s", word):
                yield from _in_command(_shell_words(word))


def _shell_words(text: str) -> list[str]:
    try:
        found = shlex.split(text)
    except ValueError:
        found = text.split()
    return found if len(found) > 1 else []


def _hides(key: Any, value: Any) -> bool:
    if not isinstance(key, str) or value is None or value == "" or isinstance(value, bool):
        return False
    if not is_secret_name(key) or (isinstance(value, str) and _PLACEHOLDER.fullmatch(value.strip())):
        return False
    # token counts are numbers, also when a shell spells them: MAX_TOKENS=4096
    if _TOKEN_KEY.search(re.sub(r"\W+", "_", key.lower())):
        return not _is_count(value)
    return not isinstance(value, dict)


def _is_count(value: Any) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"[-+]?\d+(?:\.\d+)?", value.strip()) is not None
    if isinstance(value, (list, tuple)):
        return all(_is_count(v) for v in value)
    return isinstance(value, (int, float, dict))


def _redact_list(items: Sequence[Any]) -> list[Any]:
    """A list, read as a command line: what follows a secret flag is hidden up to the next flag."""
    out: list[Any] = []
    after = ""
    for item in items:
        if not isinstance(item, str):
            out.append(redact(item))
            continue
        if item.startswith("-"):
            after = item
            out.append(redact_text(item))
        elif _FLAG.match(after):
            out.append(item if _PLACEHOLDER.fullmatch(item) else HIDDEN)
        elif after in _HEADER_FLAGS:
            out.append(f"{item.partition(':')[0]}: {HIDDEN}")
            after = ""
        else:
            out.append(redact_text(item))
    return out
