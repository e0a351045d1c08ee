"""What this process holds, and what it may still take: of the system, and within a container's limit."""

from __future__ import annotations

from pathlib import Path

from dsv4bench.host.memory import free_bytes, resident_bytes

GIB = 1 << 30


def test_what_this_process_holds(tmp_path: Path) -> None:
    if Path("/proc/self/statm").exists():
        assert 1 << 20 < (resident_bytes() or 0) < 1 << 40
    assert resident_bytes(str(tmp_path / "none")) is None


def test_the_system_or_the_containers_limit(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000000 kB\nMemAvailable:    8388608 kB\n")
    assert free_bytes(str(meminfo), str(tmp_path)) == 8 * GIB
    for name, text in (
        ("memory.max", "max\n"),
        ("memory.current", f"{GIB}\n"),
        ("memory.stat", f"anon 5\ninactive_file {GIB // 2}\n"),
    ):
        (tmp_path / name).write_text(text)
    assert free_bytes(str(meminfo), str(tmp_path)) == 8 * GIB  # no limit
    (tmp_path / "memory.max").write_text(f"{2 * GIB}\n")
    assert free_bytes(str(meminfo), str(tmp_path)) == GIB + GIB // 2
    old = tmp_path / "old" / "memory"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text(str(3 * GIB))
    (old / "memory.usage_in_bytes").write_text(str(GIB))
    (old / "memory.stat").write_text("inactive_file 3\ntotal_inactive_file 0\n")
    assert free_bytes(str(meminfo), str(old.parent)) == 2 * GIB + 3
    assert free_bytes(str(tmp_path / "none"), str(tmp_path / "none")) is None
