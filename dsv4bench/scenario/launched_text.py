"""Placeholders of a launch text: `{python} {port} {url} {prefill_port}` are filled in, all other braces stay.

A placeholder is one word in braces: vLLM's JSON (`{"method": "mtp"}`) is none, nor are `{{word}}` and `${NAME}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
