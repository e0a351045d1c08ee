"""Who may read GPU counters: the driver's parameter, the capability, and what follows of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4bench.host import nvml
from dsv4bench.host.profiling import REMEDY, CounterRights, counter_rights


@pytest.mark.parametrize(
    ("params", "capabilities", "restricted", "admin", "allowed"),
    [
        ("EnableMSI: 1\nRmProfilingAdminOnly: 1\n", "0000000000000000", True, False, False),
        ("RmProfilingAdminOnly: 1\n", "0000000000200000", True, True, True),
        ("RmProfilingAdminOnly: 0\n", "0000000000000000", False, False, True),
        ("SomethingElse: 1\n", "0000000000000000", None, False, None),
        (None, "000001ffffffffff", None, True, True),
        ("RmProfilingAdminOnly: 1\n", "00000000a80425fb", True, False, False),  # a container's root
    ],
)
def test_rights(
    params: str | None, capabilities: str, restricted: bool | None, admin: bool, allowed: bool | None, tmp_path: Path
) -> None:
    told, status = tmp_path / "params", tmp_path / "status"
    if params is not None:
        told.write_text(params)
    status.write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    rights = counter_rights(str(told), str(status))
    assert rights == CounterRights(restricted=restricted, admin=admin) and rights.allowed is allowed


def test_the_remedy_names_the_setting_and_the_capability() -> None:
    assert "NVreg_RestrictProfilingToAdminUsers=0" in REMEDY and "CAP_SYS_ADMIN" in REMEDY and "root" in REMEDY


def test_without_nvml_nothing_is_known_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "open_reader", lambda: "the NVML binding is not installed")
    assert nvml.gpus_in_use() == "the NVML binding is not installed"
    assert nvml.compute_capability(0) is None and nvml.cuda_version() is None
