"""What the tests of live profiles share: options for small quick windows, and what a run said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dsv4bench.capture import rank_files, torch_http
from dsv4bench.runs import profile_live, profile_windows, steady
from dsv4bench.runs.live_options import LiveOptions
from dsv4bench.runs.profile import ProfileOptions
from dsv4bench.runs.profile_live import LiveProfile, run_profile_live


@contextmanager
def quick_windows(folder: Path) -> Iterator[None]:
    """No waiting for what a test's server does at once; nothing of a test under /tmp."""
    patch = pytest.MonkeyPatch()
    for module, name, value in (
        (torch_http, "QUIET_S", 0.3),
        (torch_http, "LATE_S", 0.5),
        (torch_http, "ABORT_S", 1.0),
        (torch_http, "LOOK_S", 0.2),
        (rank_files, "TORN_S", 0.5),
        (steady, "GAUGE_S", (0.2, 0.5)),
        (steady, "SLACK_S", 2.0),
        (profile_live, "REFERENCE_S", 0.1),
        (profile_windows, "SHARED_TMP", folder),
    ):
        patch.setattr(module, name, value)
    yield
    patch.undo()


class Said(list[str]):
    """What the run said."""

    def __call__(self, line: str) -> None:
        self.append(line)

    def has(self, part: str) -> bool:
        return any(part in line for line in self)


def capture(url: str, root: Path, said: Said | None = None, **fields: Any) -> LiveProfile:
    base = {k: fields.pop(k) for k in list(fields) if k in ("accept_length", "target_tok_s", "model")}
    config = fields.get("name")
    o = LiveOptions(
        **{"url": url, "concurrency": [1, 4], "steps": 12, "isl": 16, "vocab": 1000, "root": str(root), **fields}
    )
    return run_profile_live(
        o, ProfileOptions(traces=[], config=config, root=str(root), **base), Said() if said is None else said
    )
