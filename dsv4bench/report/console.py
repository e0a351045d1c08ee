"""The console for tables: wider than any table, whatever the terminal is, so that a copy reads the same anywhere."""

from __future__ import annotations

import sys

from rich.console import Console

WIDTH = 200


def wide_console() -> Console:
    """On stdout. A terminal that is narrower wraps the lines; nothing is cut or folded by us."""
    return Console(file=sys.stdout, width=WIDTH)
