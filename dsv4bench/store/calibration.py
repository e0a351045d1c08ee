"""results/calibration.json: this rig's noise floor, as `dsv4bench calibrate` found it. Written whole."""

from __future__ import annotations

from pathlib import Path

from dsv4bench.records.calibration import Calibration
from dsv4bench.records.codec import decode, encode
from dsv4bench.store import files

NAME = "calibration.json"


def read(root: Path) -> Calibration | None:
    """None when the rig was never calibrated. Raises SchemaError for a file of another kind."""
    path = root / NAME
    return decode(files.read_bytes(path), Calibration, str(path)) if path.exists() else None


def write(root: Path, calibration: Calibration) -> Path:
    """Raises StoreError and leaves the old file as it was."""
    path = root / NAME
    files.write_whole(path, encode(calibration, indent=True) + b"\n")
    return path
