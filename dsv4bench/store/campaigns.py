"""results/<UTC>-<campaign>-<4 hex>/: campaign.json, the scenario it was made from, and the logs of its launches.

campaign.json is written whole after every change, so that a killed campaign goes on from its last launch. One
process writes at a time (the lock of `store.lock`); a campaign that says "running" while nobody holds its lock was
killed, and reads as aborted. `logs/` is not kept in git.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from dsv4bench.errors import BenchError, StoreError
from dsv4bench.host.redact import redact
from dsv4bench.records.campaign import Campaign, CampaignStatus, LaunchNote
from dsv4bench.records.codec import decode, encode
from dsv4bench.store import files
from dsv4bench.store.lock import Lock, held
from dsv4bench.store.naming import iso, slug, utc_now

CAMPAIGN, SCENARIO, LOGS = "campaign.json", "scenario.yaml", "logs"
KILLED = "killed: it says running, and no process holds its lock"
UNFINISHED = (CampaignStatus.ABORTED, CampaignStatus.PAUSED, CampaignStatus.PARTIAL)


class CampaignDir:
    """The folder of one campaign, open for reading, or for writing by the one process that holds its lock."""

    def __init__(self, path: Path, campaign: Campaign, lock: Lock | None = None) -> None:
        self.path, self.campaign = path, campaign
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> Self:
        """For reading. Raises StoreError, or SchemaError for a damaged or newer campaign.json."""
        campaign = _read(path)
        if campaign.status is CampaignStatus.RUNNING and not held(path):
            campaign = _read(path)  # it may have ended between the two looks
            if campaign.status is CampaignStatus.RUNNING:
                campaign = msgspec.structs.replace(campaign, status=CampaignStatus.ABORTED, reason=KILLED)
        return cls(path, campaign)

    @classmethod
    def begin(cls, root: Path | str, campaign: Campaign, scenario: str) -> Self:
        """A new folder, on disk and locked. `scenario` is the text that the copy shall hold. Raises StoreError."""
        path = Path(root) / campaign.id
        with files.failing_as("create", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir()
            files.sync_folder(path.parent)
        new = cls(path, campaign, Lock(path))
        try:
            files.write_whole(path / SCENARIO, scenario.encode())
            new._save(campaign)
            with files.failing_as("create", new.logs):
                new.logs.mkdir(exist_ok=True)
        except StoreError:
            new.close()
            for left in (path / SCENARIO, path / CAMPAIGN):
                left.unlink(missing_ok=True)
            with suppress(OSError):
                path.rmdir()
            raise
        return new

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Go on writing. Raises StoreError when another process does."""
        lock = Lock(path)
        try:
            resumed = cls(path, _read(path), lock)
            for leftover in path.glob(f".*{files.TEMPORARY}"):
                leftover.unlink(missing_ok=True)
            with files.failing_as("create", resumed.logs):
                resumed.logs.mkdir(exist_ok=True)
        except BaseException:
            lock.release()
            raise
        return resumed

    @property
    def id(self) -> str:
        return self.campaign.id

    @property
    def logs(self) -> Path:
        return self.path / LOGS

    @property
    def scenario(self) -> Path:
        return self.path / SCENARIO

    def write(self, campaign: Campaign) -> None:
        """Another state of the same campaign. Raises StoreError and leaves the file as it was."""
        self._save(campaign)

    def update(self, **fields: Any) -> None:
        """Replace fields of campaign.json. Raises StoreError and leaves the file as it was."""
        self._save(msgspec.structs.replace(self.campaign, **fields))

    def change_launch(self, order: int, **fields: Any) -> LaunchNote:
        """Replace fields of one launch; the launch as it is now."""
        launches = [
            msgspec.structs.replace(note, **fields) if note.order == order else note
            for note in self.campaign.launches
        ]
        self.update(launches=launches)
        return next(note for note in self.campaign.launches if note.order == order)

    def add_notes(self, *notes: str) -> None:
        """Each once."""
        new = [note for note in dict.fromkeys(notes) if note not in self.campaign.notes]
        if new:
            self.update(notes=[*self.campaign.notes, *new])

    def write_outputs(self, config: str, raw: bytes) -> None:
        """The greedy outputs of a configuration."""
        files.write_whole(self._outputs(config), raw)

    def read_outputs(self, config: str) -> bytes | None:
        """What `write_outputs` wrote; None when there is nothing."""
        path = self._outputs(config)
        return files.read_bytes(path) if path.is_file() else None

    def close(self) -> None:
        """Give the lock back; a status of running will read as aborted."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _outputs(self, config: str) -> Path:
        return self.path / f"outputs-{slug(config)}.json"

    def _save(self, campaign: Campaign) -> None:
        if self._lock is None:
            raise StoreError(f"{self.path} is open for reading only", "open it with CampaignDir.resume")
        clean = msgspec.convert(redact(msgspec.to_builtins(campaign)), Campaign)
        raw = encode(clean, indent=True) + b"\n"
        files.write_whole(self.path / CAMPAIGN, raw, lambda: "the launches that ended are safe in their experiments")
        self.campaign = clean


def campaign_id(name: str, now: datetime | None = None) -> str:
    """A new name; the four hex digits are drawn at random."""
    return f"{(now or utc_now()).strftime('%Y%m%dT%H%M%SZ')}-{slug(name)}-{secrets.token_hex(2)}"


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def now_utc() -> str:
    return iso(utc_now())


def is_campaign_run(folder: Path | str) -> bool:
    """Whether a folder holds a campaign that was run here."""
    return (Path(folder) / CAMPAIGN).is_file()


def find(root: Path | str, name: str) -> Path | None:
    """The folder that an id or a path names; None for any other name."""
    for path in (Path(name), Path(root) / name):
        if name and is_campaign_run(path):
            return path
    return None


def list_all(root: Path | str, warnings: list[str]) -> list[CampaignDir]:
    """Every campaign, oldest first; one that cannot be read is left out and added to `warnings`."""
    found = []
    with files.failing_as("read", Path(root)):
        paths = sorted(p.parent for p in Path(root).glob(f"*/{CAMPAIGN}"))
    for path in paths:
        try:
            found.append(CampaignDir.open(path))
        except BenchError as e:
            warnings.append(f"left out: {e.message}")
    return sorted(found, key=lambda d: (d.campaign.started_utc, d.id))


def newest(found: list[CampaignDir], wanted: Callable[[Campaign], bool]) -> CampaignDir | None:
    return next((d for d in reversed(found) if wanted(d.campaign)), None)


def _read(path: Path) -> Campaign:
    return decode(files.read_bytes(path / CAMPAIGN), Campaign, str(path / CAMPAIGN))
