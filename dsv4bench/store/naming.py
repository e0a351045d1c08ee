"""Names of experiments: `<UTC>-<scenario>-<config>-<4 hex>`, safe as a folder name on every system."""

from __future__ import annotations

import hashlib
import re
import secrets
import unicodedata
from datetime import UTC, datetime

SLUG_MAX = 40


def utc_now() -> datetime:
    return datetime.now(UTC)


def iso(moment: datetime) -> str:
    """2026-11-29T23:15:00.250Z; the milliseconds order what began in one second."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def experiment_id(moment: datetime, scenario: str, config: str) -> str:
    """A new name; the four hex digits are drawn at random."""
    stamp = moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{stamp}-{slug(scenario)}-{slug(config)}-{secrets.token_hex(2)}"


def slug(name: str) -> str:
    """Letters, digits, dot and underscore of a name, at most `SLUG_MAX`, all else a hyphen, no dot or hyphen outside.

    A name of which nothing is left (another script, `..`) becomes a short hash of itself.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    kept = re.sub(r"[^A-Za-z0-9._]+", "-", plain)
    kept = re.sub(r"\.{2,}", ".", kept)[:SLUG_MAX].strip("-._")
    return kept or "x" + hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:6]
