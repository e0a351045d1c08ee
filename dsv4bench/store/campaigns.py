"""results/<UTC>-<campaign>-<4 hex>/: campaign.json, the scenario it was made from, and the logs of its launches.

campaign.json is written whole after every change, so that a killed campaign goes on from its last launch. One
process writes at a time (the lock of `store.lock`); a campaign that says "running" while nobody holds its lock was
killed, and reads as aborted. `logs/` says itself that git shall not keep it.
"""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from dsv4bench.errors import BenchError, StoreError
from dsv4bench.host.redact import redact
from dsv4bench.records.campaign import Campaign, CampaignEntry, CampaignStatus, LaunchNote, LaunchStatus
from dsv4bench.records.codec import decode, encode
from dsv4bench.store import files
from dsv4bench.store import lock as locks
from dsv4bench.store.lock import Lock, held
from dsv4bench.store.naming import iso, slug, utc_now
from dsv4bench.store.store import MIN_PREFIX

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
            new._make_logs()
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
            resumed._make_logs()
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

    def stem(self, config: str) -> str:
        """A configuration's name in the names of files: its slug, with a hash where another one's is the same."""
        alike = [c for c in self.campaign.configs if c != config and slug(c).lower() == slug(config).lower()]
        return f"{slug(config)}-{sha256_of(config)[:6]}" if alike else slug(config)

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

    def _make_logs(self) -> None:
        with files.failing_as("create", self.logs):
            self.logs.mkdir(exist_ok=True)
        files.write_whole(self.logs / ".gitignore", b"*\n")

    def _outputs(self, config: str) -> Path:
        return self.path / f"outputs-{self.stem(config)}.json"

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
    """The folder that an id or a path names, or the newest campaign of this name; None for any other name."""
    for path in (Path(name), Path(root) / name):
        if name and is_campaign_run(path):
            return path
    called = sorted(p.parent for p in Path(root).glob(f"*-{slug(name)}-*/{CAMPAIGN}")) if name else []
    return next((p for p in reversed(called) if _called(p, name)), None)


def _called(path: Path, name: str) -> bool:
    try:
        return _read(path).name == name
    except BenchError:
        return False


def named(root: Path | str, name: str) -> Path | None:
    """As `find`, also for the beginning of an id, where nothing else in the folder begins so."""
    found = find(root, name)
    if found is not None or len(name) < MIN_PREFIX or "/" in name:
        return found
    with files.failing_as("read", Path(root)):
        begins = [p for p in Path(root).glob("*/") if p.name.startswith(name)]
    return begins[0] if len(begins) == 1 and is_campaign_run(begins[0]) else None


def entry_of(c: Campaign) -> CampaignEntry:
    """Its line in a list."""
    return CampaignEntry(
        id=c.id,
        status=c.status,
        configs=list(c.configs),
        n_complete=sum(n.status is LaunchStatus.COMPLETE for n in c.launches),
        n_launches=len(c.launches),
        started_utc=c.started_utc,
    )


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


def others_running(root: Path | str, own: str) -> list[tuple[str, int]]:
    """The campaigns that other processes of this machine are running here: id and process."""
    found = []
    for path in sorted(Path(root).glob(f"*/{locks.NAME}")):
        holder = locks.read(path)
        if path.parent.name == own or holder is None or not is_campaign_run(path.parent):
            continue
        if locks.liveness(holder) == "alive":
            found.append((path.parent.name, holder.pid))
    return found


def _read(path: Path) -> Campaign:
    return decode(files.read_bytes(path / CAMPAIGN), Campaign, str(path / CAMPAIGN))
