"""A campaign folder as arms, kernel shares, claims and a goal: what `compare` needs of numbers measured elsewhere.

    scenario.yaml   configurations, their parents and levers, target and plan
    cells.jsonl     one `Cell` a line, beside the name of its `config`
    kernels.json    published kernel shares; may be absent
    claims.yaml     what the text claims; may be absent

The folder was written by hand, so nothing is dropped quietly: a damaged line is an error with its number.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.metrics import BY_NAME
from dsv4bench.records.arm import Arm
from dsv4bench.records.cell import Cell
from dsv4bench.records.claims import Claim
from dsv4bench.records.codec import decode
from dsv4bench.records.goal import Goal
from dsv4bench.records.shares import SharesDocument
from dsv4bench.scenario.campaign import CLAIMS, SCENARIO, CampaignFile, ConfigData, read_campaign, read_claims
from dsv4bench.scenario.reading import read_text

CELLS, KERNELS = "cells.jsonl", "kernels.json"
PUBLISHED = "published"
HINT = "docs/findings.md shows a campaign folder"


class CampaignCell(Cell, frozen=True, kw_only=True):
    """A `Cell` beside the name of its configuration."""

    config: str


class CampaignData(msgspec.Struct, frozen=True, kw_only=True):
    """A folder, read and checked. The first configuration is the baseline unless another has no parent before it."""

    name: str
    folder: str
    source: str
    arms: list[Arm]
    shares: SharesDocument | None
    claims: list[Claim]
    goal: Goal | None
    setup: list[str]
    notes: list[str]
    run: str | None = None  # the name of a campaign that was run here
    cautions: list[str] = []  # what a reader of its verdicts must know
    deltas_frac: dict[str, float] = {}
    gpu: str | None = None
    tp: int | None = None


def is_campaign(folder: Path | str) -> bool:
    """Whether a folder holds a campaign as data."""
    return (Path(folder) / SCENARIO).is_file() and (Path(folder) / CELLS).is_file()


def load_campaign(folder: Path | str) -> CampaignData:
    """Raises UsageError with file, line and key, SchemaError for a kernels.json of another kind."""
    folder = Path(folder)
    head = read_campaign(folder / SCENARIO)
    cells = read_cells(folder / CELLS, [c.name for c in head.configs])
    claims = folder / CLAIMS
    return CampaignData(
        name=head.name,
        folder=str(folder),
        source=head.source,
        arms=[_arm(head, config, cells) for config in head.configs],
        shares=_shares(folder / KERNELS, head),
        claims=read_claims(claims, head) if claims.exists() else [],
        goal=head.goal,
        setup=head.setup,
        notes=head.notes,
    )


def read_cells(path: Path, configs: list[str]) -> list[CampaignCell]:
    """Every line. Raises UsageError naming the line."""
    decoder = msgspec.json.Decoder(CampaignCell)
    found: list[CampaignCell] = []
    seen: dict[tuple[str, str, str], int] = {}
    for number, line in enumerate(read_text(path, HINT).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            cell = decoder.decode(line)
        except msgspec.MsgspecError as e:
            raise UsageError(f"{where}: {e}", "each line is one cell, and names its config") from e
        if cell.config not in configs:
            raise UsageError(f"{where}: config {cell.config} is none of {', '.join(configs)}", HINT)
        strange = sorted((set(cell.rounding) | set(cell.approximate)) - set(BY_NAME))
        if strange:
            raise UsageError(f"{where}: rounding or approximate names {strange[0]}, which is no metric", HINT)
        before = seen.setdefault((cell.config, cell.launch, cell.cell), number)
        if before != number:
            raise UsageError(f"{where}: {cell.config} {cell.cell} stands on line {before} already", HINT)
        found.append(cell)
    if not found:
        raise UsageError(f"{path}: no cells", "each line is one cell, and names its config")
    return found


def _arm(head: CampaignFile, config: ConfigData, cells: list[CampaignCell]) -> Arm:
    return Arm(
        name=config.name,
        ids=[f"{head.name}/{config.name}"],
        source=PUBLISHED,
        parent=config.parent,
        levers=list(config.levers),
        touches={lever: list(components) for lever, components in config.touches.items()},
        cells=[_plain(c) for c in cells if c.config == config.name],
        workload=dict(head.workload),
        hardware=dict(head.hardware) if head.hardware is not None else None,
        notes=[head.source],
    )


def _plain(cell: CampaignCell) -> Cell:
    fields = msgspec.structs.asdict(cell)
    del fields["config"]
    return Cell(**fields)


def _shares(path: Path, head: CampaignFile) -> SharesDocument | None:
    if not path.exists():
        return None
    try:
        raw = path.read_bytes()
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}", HINT) from e
    found = decode(raw, SharesDocument, str(path))
    names = [c.name for c in head.configs]
    for share in found.shares:
        if share.config not in names:
            raise UsageError(f"{path}: {share.kernel}: config {share.config} is none of {', '.join(names)}", HINT)
        if not 0 <= share.share_frac <= 1:
            raise UsageError(f"{path}: {share.kernel}: share {share.share_frac} lies outside 0 to 1", HINT)
    return found
