"""The model store as values: which checkpoints lie on the disk, how whole they are, and what they take.

A store holds the Hub's cache (`hub/models--ORG--NAME`) and folders of its own (`NAME`, one checkpoint each). Sizes
are in bytes: `size` is what a reader of the files gets, `disk` what the file system gives for them. Data that several
names lead to (links, the Hub's shared blobs) counts once wherever sizes are added up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class Layout(StrEnum):
    """How a checkpoint lies in the store."""

    CACHE = "Hub cache"
    FOLDER = "folder"


class RepoKind(StrEnum):
    """What the Hub calls it."""

    MODEL = "model"
    DATASET = "dataset"
    SPACE = "space"


class Completeness(StrEnum):
    """How whole a checkpoint is. UNREFERENCED: whole or not, no branch or tag leads to it. UNKNOWN: it could not be
    looked into."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    CORRUPT = "corrupt"
    UNREFERENCED = "unreferenced"
    UNKNOWN = "unknown"


class Trouble(StrEnum):
    """What is wrong with one file. Words for the screen, after the file's name."""

    NONE = ""
    ABSENT = "is not here"
    LOST = "leads to data that is gone"
    LOOP = "is a link that leads to itself"
    OUTSIDE = "is a link that leads out of the store"
    SIZE = "has another size than the Hub says"
    UNREADABLE = "cannot be read"


class Algorithm(StrEnum):
    """How the Hub names content: LFS files by their SHA-256, all others as git does."""

    SHA256 = "sha256"
    GIT_SHA1 = "git-sha1"
    NONE = ""


@dataclass(frozen=True, slots=True)
class Payload:
    """Data on the disk, whatever names lead to it. `links` counts its hard links, `used` and `modified` are seconds
    since the epoch. `shared`: it lies in the cache's shared blobs, for any repository."""

    key: str
    size: int
    disk: int
    links: int = 1
    modified: float = 0.0
    used: float = 0.0
    owner: int = 0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """What the Hub says of a file: its size (None: not told) and the digest of its content."""

    size: int | None
    digest: str = ""
    algorithm: Algorithm = Algorithm.NONE


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a revision. `name` is its path in the repository, as it is: clean it where it is shown. `blob` is
    the name of the cache's blob that holds it, empty for a plain file. `payload` None: there is no data."""

    name: str
    payload: Payload | None = None
    blob: str = ""
    expected: Expected | None = None
    trouble: Trouble = Trouble.NONE

    @property
    def size(self) -> int | None:
        """Bytes that are there; None when nothing is."""
        return None if self.payload is None else self.payload.size


@dataclass(frozen=True, slots=True)
class Partial:
    """A download that has not ended. `name` is the blob's, `have` bytes of it are on the disk. `writing`: somebody
    holds its lock now, or has written to it within the last minute."""

    name: str
    have: int
    modified: float
    writing: bool = False


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """Something a person should know about the store. `remedy` is a command or an action, empty when there is none."""

    what: str
    remedy: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """One state of a repository, or the whole of a folder. `commit` is empty where nothing tells it.

    `expected` is the size that the Hub states for all files that are needed, None when it is not known here.
    `reasons` say why it is not complete; `missing` are names of files to fetch (again), at most a hundred.
    """

    commit: str
    path: str
    refs: tuple[str, ...] = ()
    files: int = 0
    size: int = 0
    expected: int | None = None
    completeness: Completeness = Completeness.COMPLETE
    reasons: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    modified: float = 0.0

    @property
    def short(self) -> str:
        """The commit as people write it: its first seven digits."""
        return self.commit[:7]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One repository of the cache, or one folder.

    `id` is what recipes call it: `ORG/NAME`, or `/models/NAME` for a folder. `path` is its place on this machine.
    `commit` names the current revision: what `main` leads to, else the only one, else the newest. `loose` is the disk
    space of blobs that no revision uses, `partials` are unfinished downloads. `shared` is data that other names lead
    to as well. `foreign` counts files and folders of another user, named `owner`. `used` is when its weights were
    last read, as far as the file system keeps it (once a day, as a rule).
    """

    id: str
    layout: Layout
    path: str
    kind: RepoKind = RepoKind.MODEL
    revisions: tuple[StoredRevision, ...] = ()
    commit: str = ""
    completeness: Completeness = Completeness.COMPLETE
    reasons: tuple[str, ...] = ()
    size: int = 0
    disk: int = 0
    loose: int = 0
    partials: tuple[Partial, ...] = ()
    shared: tuple[Payload, ...] = ()
    used: float | None = None
    modified: float | None = None
    foreign: int = 0
    owner: str = ""
    findings: tuple[StoreFinding, ...] = ()

    @property
    def current(self) -> StoredRevision | None:
        """The revision that an engine gets when it names none."""
        found = (each for each in self.revisions if each.commit == self.commit)
        return next(found, next(iter(self.revisions), None))

    @property
    def writing(self) -> bool:
        """A download writes to it now."""
        return any(each.writing for each in self.partials)

    @property
    def partial_bytes(self) -> int:
        """Disk space of unfinished downloads."""
        return sum(each.have for each in self.partials)

    def revision(self, name: str) -> StoredRevision | None:
        """By commit, by the beginning of a commit (four digits or more), by branch or tag; empty is the current one."""
        if not name:
            return self.current
        exact = [each for each in self.revisions if name == each.commit or name in each.refs]
        near = [each for each in self.revisions if len(name) >= 4 and each.commit.startswith(name)]
        return exact[0] if exact else near[0] if len(near) == 1 else None


@dataclass(frozen=True, slots=True)
class OtherCache:
    """Another tool's Hub cache on this machine, which engines here do not see. `disk` in bytes."""

    path: str
    models: tuple[StoredModel, ...]
    disk: int
    findings: tuple[StoreFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreContents:
    """Everything in a store, models in name order. `orphans` is shared data that no repository uses. `free` is the
    space left on the file system, None when that is not known."""

    root: str
    models: tuple[StoredModel, ...] = ()
    orphans: tuple[Payload, ...] = ()
    others: tuple[OtherCache, ...] = ()
    findings: tuple[StoreFinding, ...] = ()
    free: int | None = field(default=None, compare=False)
    seconds: float = field(default=0.0, compare=False)

    @property
    def disk(self) -> int:
        """Disk space of all of it, data that is shared counted once."""
        return disk_of(self.models) + sum(each.disk for each in self.orphans)

    @property
    def size(self) -> int:
        """The same in the sizes that files show."""
        shared = unique(payload for model in self.models for payload in model.shared)
        own = sum(model.size - sum(each.size for each in model.shared) for model in self.models)
        return own + sum(each.size for each in (*shared, *self.orphans))

    def find(self, name: str) -> StoredModel | None:
        """By id; a folder also by its name alone or by its path."""
        exact = next((each for each in self.models if each.id == name), None)
        if exact is not None:
            return exact
        wanted = name.rstrip("/")
        return next((each for each in self.models if wanted in (each.path, each.id.removeprefix("/models/"))), None)


def unique(payloads: Iterable[Payload]) -> tuple[Payload, ...]:
    """Each payload once."""
    return tuple({each.key: each for each in payloads}.values())


def disk_of(models: Iterable[StoredModel]) -> int:
    """Disk space of several models, data that they share counted once."""
    given = tuple(models)
    shared = unique(payload for model in given for payload in model.shared)
    own = sum(model.disk - sum(each.disk for each in model.shared) for model in given)
    return own + sum(each.disk for each in shared)
