"""Placeholders of a launch text: `{python} {port} {url} {prefill_port}` are filled in, all other braces stay.

A placeholder is one word in braces: vLLM's JSON (`{"method": "mtp"}`) is none, nor are `{{word}}` and `${NAME}`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

_PORT_FLAG = re.compile(r"--(?:[a-z0-9]+[-_])*port", re.I)
_URL_PORT = re.compile(r"(?<=[\w.\]]:)\d{2,5}(?![\w.])")
_HERE = re.compile(r"//(?:127\.0\.0\.1|localhost):(\d{2,5})\b")
_PLACEHOLDER = re.compile(r"\{\{\w+\}\}|\$\{\w+\}|\{(?P<name>[A-Za-z_]\w*)\}")


def fill(text: str, values: Mapping[str, str | int]) -> str:
    """`text` with each `{name}` that `values` has replaced by its value."""

    def value(found: re.Match[str]) -> str:
        name = found.group("name")
        return str(values[name]) if name is not None and name in values else found.group()

    return _PLACEHOLDER.sub(value, text)


def placeholders(text: str) -> list[str]:
    """The names in braces of a text, in their order."""
    return [m.group("name") for m in _PLACEHOLDER.finditer(text) if m.group("name") is not None]


def known_names(roles: Iterable[str]) -> list[str]:
    """The placeholders of a configuration: its own, and those of its roles."""
    return ["python", "port", "url", *(f"{role}_{what}" for role in roles for what in ("port", "url"))]


def portless(words: Iterable[str], ports: Collection[str] = ()) -> list[str]:
    """The words of a command with `{port}` in place of each port: after a flag of that name, or one of `ports`."""
    found: list[str] = []
    for word in words:
        after_flag = bool(found) and _PORT_FLAG.fullmatch(found[-1]) is not None and word.isdigit()
        flag, is_pair, value = word.partition("=")
        if after_flag or word in ports:
            word = "{port}"
        elif is_pair and _PORT_FLAG.fullmatch(flag) and value.isdigit():
            word = f"{flag}={{port}}"
        elif ports:
            word = _URL_PORT.sub(lambda m: "{port}" if m.group() in ports else m.group(), word)
        found.append(word)
    return found


def local_ports(words: Iterable[str]) -> set[str]:
    """The ports of URLs of this host that a command names: of other processes of the same launch."""
    return {port for word in words for port in _HERE.findall(word)}
