"""results/baselines.yaml: which experiment a name is pinned to. Read here, edited by hand or by `baseline set`.

baseline: {id: 20261129T231500Z-c16-baseline-7f3a, reason: first tuned launch}
nightly: 20261130T020000Z-c16-baseline-01bc
"""

from __future__ import annotations

from pathlib import Path

from dsv4bench.errors import StoreError
from dsv4bench.store import files

NAME = "baselines.yaml"


def read(root: Path) -> dict[str, str]:
    """Name to experiment id; empty when there is no file. Raises StoreError for a file of another shape."""
    path = root / NAME
    if not path.exists():
        return {}
    import yaml

    try:
        found = yaml.safe_load(files.read_bytes(path))
    except yaml.YAMLError as e:
        raise StoreError(f"{path}: not YAML ({e})".replace("\n", " "), "mend it by hand") from e
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise StoreError(f"{path}: expected names, each with an id", "mend it by hand")
    return {str(name): _id(path, name, pin) for name, pin in found.items()}


def _id(path: Path, name: object, pin: object) -> str:
    wanted = pin.get("id") if isinstance(pin, dict) else pin
    if not isinstance(wanted, str):
        raise StoreError(f"{path}: {name} names no experiment id", "dsv4bench baseline set NAME ID --reason …")
    return wanted
