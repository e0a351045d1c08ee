"""How busy this machine is at the moment is not what these tests are about (test_checks.py has the limits)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def patient_client() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    for name, value in (("LAG_FLOOR_S", 60.0), ("CPU_FRAC", 2.0), ("HELD_FRAC", 0.0)):
        patch.setattr(f"dsv4bench.load.checks.{name}", value)
    yield
    patch.undo()
