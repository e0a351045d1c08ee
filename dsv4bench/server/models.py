"""Which model to ask for: the server's list (`GET /v1/models`), and the choice among what it lists.

A list may be missing, HTML, an error, or of entries without an id; then the name must come from the user or from
what else the server told. A name that the list does not hold is refused with the served names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dsv4bench.errors import UsageError
from dsv4bench.records.server import Engine
from dsv4bench.server.calls import Reply


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One served model. `root` is a path or a hub id."""

    id: str
    aliases: list[str] = field(default_factory=list)
    owned_by: str | None = None
    root: str | None = None
    max_model_len: int | None = None
    vocab_size: int | None = None


@dataclass(frozen=True, slots=True)
class ModelList:
    """The served models in the server's order, or why they are not known."""

    cards: list[ModelCard] = field(default_factory=list)
    why_none: str | None = None

    @property
    def ids(self) -> list[str]:
        return [c.id for c in self.cards]

    @property
    def owned_by(self) -> str | None:
        return next((c.owned_by for c in self.cards if c.owned_by), None)

    def card(self, name: str) -> ModelCard | None:
        """The entry that answers to `name`, by id or alias."""
        by_id = next((c for c in self.cards if c.id == name), None)
        return by_id or next((c for c in self.cards if name in c.aliases), None)


def read_models(reply: Reply) -> ModelList:
    """The list that `/v1/models` gave; never raises."""
    if not reply.ok or reply.failure:
        return ModelList(why_none=reply.why_not())
    found = reply.json()
    entries = found.get("data") if isinstance(found, dict) else found
    if not isinstance(entries, list):
        return ModelList(why_none=reply.why_not())
    cards = [_card(e) for e in entries if isinstance(e, dict) and isinstance(e.get("id"), str) and e["id"]]
    if not cards:
        return ModelList(why_none=f"{reply.path} lists no model with an id")
    return ModelList(cards=cards)


def choose_model(
    asked: str | None, listed: ModelList, elsewhere: str | None, engine: Engine
) -> tuple[str, list[str]]:
    """The model's name to send, and what to note about the choice.

    `elsewhere` is a name that the server gave outside its list. Raises UsageError when the name is not served, or
    when nothing tells a name.
    """
    if asked:
        if listed.cards and listed.card(asked) is None and engine is not Engine.TRANSFORMERS:
            raise UsageError(
                f"the server does not serve {asked!r}; it serves {_names(listed.ids)}", _pick(listed.ids)
            )
        return asked, []
    if not listed.cards:
        if elsewhere:
            return elsewhere, [f"model name {elsewhere!r} is not from the model list ({listed.why_none})"]
        raise UsageError(
            f"the server does not tell which model it serves ({listed.why_none})", "name it with --model"
        )
    first = listed.ids[0]
    if len(listed.ids) == 1:
        return first, []
    if engine is Engine.TRANSFORMERS:  # it lists what is on disk, not what is loaded
        raise UsageError(f"the server can load several models: {_names(listed.ids)}", "choose one with --model")
    return first, [
        f"the server lists {len(listed.ids)} models ({_names(listed.ids)}); {first!r} was taken, --model chooses"
    ]


def whole(value: Any) -> int | None:
    """A positive whole number, or None (llama.cpp's router says 0 for unknown)."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _card(entry: dict[str, Any]) -> ModelCard:
    found = entry.get("meta")
    meta = found if isinstance(found, dict) else {}
    aliases = entry.get("aliases")
    return ModelCard(
        id=entry["id"],
        aliases=[a for a in aliases if isinstance(a, str)] if isinstance(aliases, list) else [],
        owned_by=_text(entry.get("owned_by")),
        root=_text(entry.get("root")),
        max_model_len=whole(entry.get("max_model_len")) or whole(meta.get("n_ctx")),
        vocab_size=whole(meta.get("n_vocab")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _names(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:5])
    return shown if len(ids) <= 5 else f"{shown} and {len(ids) - 5} more"


def _pick(ids: Sequence[str]) -> str:
    return f"use --model {ids[0]}, or leave --model out"
