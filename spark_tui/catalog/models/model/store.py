"""The model store as values: which checkpoints lie on the disk, how whole they are, and what they take.

A store holds the Hub's cache (`hub/models--ORG--NAME`) and folders of its own (`NAME`, one checkpoint each). Sizes
are in bytes: `size` is what a reader of the files gets, `disk` what the file system gives for them. Data that several
names lead to (links, the Hub's shared blobs) counts once wherever sizes are added up.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from posixpath import dirname, join
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.container import HUB_TARGET, Mount, hub_of, repository_folder
from spark_tui.base.errors import RefusedError
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.quantities import human_bytes, human_duration
from spark_tui.base.settings import Settings, SettingSource
from spark_tui.base.text import clean_line, lazy_pattern, same_name, truncate

PARTIAL_FOLDER: Final = ".spark-tui-partial"
"""Beside the files of a model: what has arrived of a file whose copy from another node was interrupted."""


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


class FileProblem(StrEnum):
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


class Payload(Struct, frozen=True):
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


class ExpectedFile(Struct, frozen=True):
    """What the Hub says of a file: its size (None: unknown) and the digest of its content."""

    size: int | None
    digest: str = ""
    algorithm: Algorithm = Algorithm.NONE


class StoredFile(Struct, frozen=True):
    """One file of a revision. `name` is its path in the repository, as it is: clean it where it is shown. `blob` is
    the name of the cache's blob that holds it, empty for a plain file. `payload` None: there is no data."""

    name: str
    payload: Payload | None = None
    blob: str = ""
    expected: ExpectedFile | None = None
    trouble: FileProblem = FileProblem.NONE

    @property
    def size(self) -> int | None:
        """None without data."""
        return None if self.payload is None else self.payload.size


class Partial(Struct, frozen=True):
    """A download that has not ended. `name` is the blob's, `have` bytes of it are on the disk. `writing`: a process
    holds its lock now, or has written to it within the last minute."""

    name: str
    have: int
    writing: bool = False


class StoredRevision(Struct, frozen=True):
    """One state of a repository, or the whole of a folder. `commit` is empty where it is unknown.

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


class StoredModel(Struct, frozen=True):
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
    foreign: int = 0
    owner: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def readable(self) -> str:
        """What a CheckpointSource reads: the id, of a single file its path."""
        return self.path if is_gguf(self.path) else self.id

    @property
    def current(self) -> StoredRevision | None:
        """The revision that an engine gets when it names none."""
        found = (each for each in self.revisions if each.commit == self.commit)
        return next(found, next(iter(self.revisions), None))

    @property
    def writing(self) -> bool:
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


class OtherCache(Struct, frozen=True):
    """Another Hub cache on this machine, or the folder of `tool`, another program. `disk` in bytes. `mine`: this
    person's, which launches read; another user's is only reported."""

    path: str
    models: tuple[StoredModel, ...]
    disk: int
    findings: tuple[Finding, ...] = ()
    mine: bool = True
    tool: str = ""

    @property
    def folder(self) -> str:
        """What the setting `store` would name for downloads to go here; empty where no store can be made of it."""
        return dirname(self.path) if self.mine and self.path.endswith("/hub") else ""

    @property
    def sentence(self) -> str:
        """What it holds."""
        return f"Models already lie in {clean_line(self.folder)} ({len(self.models)}, {human_bytes(self.disk)})."


class StoreContents(Struct, frozen=True):
    """Everything in a store, models in name order. `orphans` is shared data that no repository uses. `free` is the
    space left on the file system of `total` bytes, None when that is not known."""

    root: str
    models: tuple[StoredModel, ...] = ()
    orphans: tuple[Payload, ...] = ()
    others: tuple[OtherCache, ...] = ()
    findings: tuple[Finding, ...] = ()
    free: int | None = None
    seconds: float = 0.0
    total: int | None = None

    @property
    def _kept(self) -> tuple[object, ...]:
        return self.root, self.models, self.orphans, self.others, self.findings

    def __eq__(self, other: object) -> bool:
        """Two scans of one store are equal, however long they took and whatever else is on its disk."""
        return isinstance(other, StoreContents) and self._kept == other._kept

    def __hash__(self) -> int:
        return hash(self._kept)

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
        meant = same_name(name, [each.id for each in self.models])
        exact = next((each for each in self.models if each.id == meant), None)
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


def lying_twice(models: Iterable[StoredModel], others: Iterable[OtherCache]) -> Iterator[Finding]:
    """A finding for each model that is complete in several places of this person, with what deleting each frees."""
    places: dict[str, list[StoredModel]] = {}
    for model in (*models, *(each for other in others if other.mine for each in other.models)):
        if model.layout is Layout.CACHE and model.completeness is Completeness.COMPLETE:
            places.setdefault(model.id, []).append(model)
    for id_, found in places.items():
        if len(found) > 1:
            alone = ((dirname(each.path), each.disk - sum(part.disk for part in each.shared)) for each in found)
            where = ", ".join(f"{place} (deleting frees {human_bytes(size)})" for place, size in alone)
            words, last = f"{id_} lies in {len(found)} places: {where}", dirname(found[-1].path).removesuffix("/hub")
            remedy = f"Keep one: {shlex.join(('spark-tui', 'models', 'rm', id_, '--store', last))}"
            yield Finding("lies_twice", Severity.WARNING, clean_line(words), remedy=remedy, subject=found[-1].path)


Checked = TypeVar("Checked", StoredRevision, StoredModel)
MOST_NAMES: Final = 100
MOVING: Final = "changed during the scan"
_MOST_REASONS: Final = 8
_SHARD: Final = lazy_pattern(r"(?P<stem>.+)-(?P<at>\d{5})-of-(?P<of>\d{5})\.(?P<kind>safetensors|gguf|bin|pt)")
_WEIGHTS: Final = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".npz", ".onnx", ".nemo")
_SECOND_COPY: Final = lazy_pattern(r"consolidated|original/|onnx/|openvino/|metal/|flax_|tf_model|rust_model|coreml/")
_SMALL: Final = ("config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "tekken.json")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_BROKEN: Final = (FileProblem.LOST, FileProblem.LOOP, FileProblem.OUTSIDE, FileProblem.SIZE)


class Integrity(NamedTuple):
    """How whole a set of files is, why, and what is to be fetched (again)."""

    completeness: Completeness
    reasons: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def shown(name: str) -> str:
    """A file's name for the screen."""
    return truncate(clean_line(name), 80)


def is_commit(name: str) -> bool:
    return _COMMIT.fullmatch(name) is not None


def digest_of(blob: str) -> tuple[str, Algorithm]:
    """What a blob's name says of its content: the Hub names LFS files by SHA-256 and all others as git does."""
    name = blob.lower()
    if _SHA256.fullmatch(name):
        return name, Algorithm.SHA256
    return (name, Algorithm.GIT_SHA1) if _COMMIT.fullmatch(name) else ("", Algorithm.NONE)


def expected_files(tree: Mapping[str, object]) -> dict[str, ExpectedFile] | None:
    """A tree listing that the Hub's client keeps (`trees/COMMIT.json`, format 1) by file name; None for another
    format. What has the wrong shape is left out."""
    files = tree.get("files")
    if tree.get("format_version") != 1 or not isinstance(files, dict):
        return None
    found = {}
    for name, entry in files.items():
        if isinstance(entry, dict):
            sha = entry.get("lfs_sha256")
            size = entry.get("lfs_size") if sha is not None else entry.get("size")
            blob = sha if sha is not None else entry.get("blob_id")
            known = size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None
            found[str(name)] = ExpectedFile(known, *digest_of(blob if isinstance(blob, str) else ""))
    return found


def with_expected(files: Iterable[StoredFile], expected: Mapping[str, ExpectedFile] | None) -> tuple[StoredFile, ...]:
    """Files with what is known of their content: by the tree listing, else by the name of their blob; with the sizes
    compared."""
    found = []
    for file in files:
        known = (expected or {}).get(file.name)
        if known is not None:
            differs = known.size is not None and file.size is not None and known.size != file.size
            trouble = FileProblem.SIZE if differs and not file.trouble else file.trouble
            file = replace(file, expected=known, trouble=trouble)  # noqa: PLW2901
        elif file.expected is None and (digest := digest_of(file.blob))[0]:
            file = replace(file, expected=ExpectedFile(None, *digest))  # noqa: PLW2901
        found.append(file)
    return tuple(found)


# --- completeness -----------------------------------------------------------------------------------------


_GGUF: Final = re.compile(r"(?:.*\.gguf|(?:.*/)?sha256-[0-9a-f]{64})", re.DOTALL)


def is_gguf(path: str) -> bool:
    """By its name: of Ollama's blobs it is a digest."""
    return _GGUF.fullmatch(path) is not None


def is_weights(name: str) -> bool:
    return name.endswith(_WEIGHTS)


def judge(files: Sequence[StoredFile], *, tree: Mapping[str, ExpectedFile] | None, kind: RepoKind) -> Integrity:
    """How whole a revision is. `tree` is what the Hub lists for it, where that is known.

    A file of the listing that was not asked for (a second copy of the weights, pictures) is not missed: weights, the
    config and the tokenizer are.
    """
    broken = [file for file in files if file.trouble in _BROKEN]
    if broken:
        reasons = []
        for file in broken:
            whole = file.expected.size if file.expected is not None else None
            cut = file.trouble is FileProblem.SIZE and whole is not None and file.size is not None
            why = f"has {human_bytes(file.size or 0)} of {human_bytes(whole or 0)}" if cut else file.trouble
            reasons.append(f"{shown(file.name)} {why}")
        return Integrity(Completeness.CORRUPT, _some(reasons), tuple(file.name for file in broken[:MOST_NAMES]))
    if any(file.trouble is FileProblem.UNREADABLE for file in files):
        return Integrity(
            Completeness.UNKNOWN, _some(f"{shown(each.name)} {each.trouble}" for each in files if each.trouble)
        )
    if kind is not RepoKind.MODEL:
        return Integrity(Completeness.COMPLETE)
    here = {file.name for file in files if file.payload is not None}
    # Without a listing by the shards' own names, and an index whose weights are absent.
    missing = sorted((needed(tree, here) if tree else _shards_of(here)) - here)
    if missing:
        size = sum(tree[name].size or 0 for name in missing if name in tree) if tree else 0
        first, bytes_ = shown(missing[0]), f" ({human_bytes(size)})" if size else ""
        why = f"{len(missing)} files missing{bytes_}: {first} ..." if missing[1:] else f"{first} is missing{bytes_}"
        return Integrity(Completeness.PARTIAL, (why,), tuple(missing[:MOST_NAMES]))
    weights = sorted(name for name in here if is_weights(name))
    if not weights:
        return Integrity(Completeness.PARTIAL, ("no weights downloaded",))
    sizes = {file.name: file.size for file in files}
    empty = [name for name in weights if sizes[name] == 0]
    if empty:
        return Integrity(Completeness.CORRUPT, _some(f"{shown(name)} is empty" for name in empty), tuple(empty))
    return Integrity(Completeness.COMPLETE)


def in_motion(model: StoredModel) -> StoredModel:
    """A model that changed during every scan: nothing of it is called corrupt, for what a single moment shows as damage
    may be a download or a deletion at work. It counts as partial until a scan succeeds."""

    def doubted(each: Checked) -> Checked:
        corrupt = each.completeness is Completeness.CORRUPT
        return replace(each, completeness=Completeness.PARTIAL, reasons=(MOVING,)) if corrupt else each

    moving = Finding("changing", Severity.INFO, MOVING)
    revisions = tuple(doubted(each) for each in model.revisions)
    return replace(doubted(model), revisions=revisions, findings=(*model.findings, moving))


def _some(reasons: Iterable[str]) -> tuple[str, ...]:
    found = list(reasons)
    return tuple(found[:_MOST_REASONS]) + ((f"and {len(found) - _MOST_REASONS} more",) * (len(found) > _MOST_REASONS))


def needed(names: Iterable[str], here: Iterable[str] = ()) -> set[str]:
    """The files of a listing that an engine needs: config, tokenizer, and one set of weights.

    Where weights are here already, those of their kind; else the safetensors, else whatever weights there are. Of
    GGUF files, which a repository holds in many sizes, only the shards of those that are here.
    """
    listed = {name for name in names if not _SECOND_COPY.search(name)}
    present = {name.rpartition(".")[2] for name in here if is_weights(name)}
    kinds = [kind for kind in ("safetensors", "gguf", "bin") if any(name.endswith("." + kind) for name in listed)]
    kind = next((kind for kind in kinds if kind in present), next(iter(kinds), ""))
    wanted = {name for name in listed if name in _SMALL}
    if kind == "gguf":
        return wanted & {"config.json"} | _shards_of(here)
    return wanted | {name for name in listed if kind and name.endswith("." + kind)}


def _shards_of(names: Iterable[str]) -> set[str]:
    """All shards of the sets of which some are here: `model-00002-of-00009.safetensors` -> nine names."""
    sets = {(found["stem"], found["of"], found["kind"]) for name in names if (found := _SHARD.fullmatch(name))}
    return {
        f"{stem}-{at:05d}-of-{of}.{kind}"
        for stem, of, kind in sets
        if not _SECOND_COPY.search(stem)
        for at in range(1, min(int(of), 10_000) + 1)
    }


# --- of several revisions ---------------------------------------------------------------------------------


def current_commit(revisions: Sequence[StoredRevision]) -> str:
    """The revision that an engine gets when it names none: `main`, else the only one, else the newest."""
    newest = max(revisions, key=lambda each: each.modified, default=None)
    found = next((each for each in revisions if "main" in each.refs), newest)
    return found.commit if found is not None else ""


def without_reference(revisions: Sequence[StoredRevision]) -> tuple[StoredRevision, ...]:
    """Revisions with those marked that a newer one has replaced: they have no branch or tag, others have.

    The only revision of a repository may well have none: it was asked for by its commit.
    """
    if not any(each.refs for each in revisions):
        return tuple(revisions)
    old, why = Completeness.UNREFERENCED, ("old revision (no branch or tag)",)
    return tuple(
        each
        if each.refs or each.completeness is not Completeness.COMPLETE
        else replace(each, completeness=old, reasons=why)
        for each in revisions
    )


class MoveWay(StrEnum):
    """How a repository gets into another cache. KEEP_ONE: it is there already, and the source goes once both are found
    equal. FINISH: a move was killed after it had arrived."""

    RENAME = "rename"
    COPY = "copy"
    KEEP_ONE = "keep one"
    FINISH = "finish"


class MovePlan(Struct, frozen=True):
    """One move, prepared. `source` and `target` are the repository's folder in each cache, `size` the bytes to copy: 0
    on one file system."""

    model: str
    source: str
    target: str
    way: MoveWay
    size: int = 0

    @property
    def command(self) -> str:
        """The command that does it."""
        return shlex.join(("spark-tui", "models", "move", self.model, dirname(self.target)))

    @property
    def sentence(self) -> str:
        """What it does."""
        places = f"from {dirname(self.source)} to {dirname(self.target)}"
        if self.way is MoveWay.KEEP_ONE:
            return f"Compares both copies of {self.model}, then deletes the one in {dirname(self.source)}."
        if self.way is MoveWay.FINISH:
            return f"Finishes the move of {self.model} {places}."
        how = (
            f"Copies and verifies {human_bytes(self.size)}, then deletes the source."
            if self.size
            else "Copies nothing."
        )
        return f"Moves {self.model} {places}. {how}"


class MoveProgress(Struct, frozen=True):
    """A move so far: `step` in words, bytes of that step, and the file at work. `over` with the last one."""

    model: str
    step: str
    done: int
    total: int
    name: str = ""
    over: bool = False

    @property
    def fraction(self) -> float:
        """0 to 1."""
        return 1.0 if self.over else self.done / self.total if self.total else 0.0


class FileVerdict(StrEnum):
    """Of one file. Words for the screen, after its name."""

    MATCHES = "matches"
    DIFFERS = "differs from the Hub"
    SIZE = "has another size"
    ABSENT = "is missing"
    UNREADABLE = "cannot be read"
    CHANGED = "changed during the check"
    UNTOLD = "has no digest to compare"
    DAMAGED = "is damaged"

    @property
    def wrong(self) -> bool:
        """It is to be fetched again."""
        return self in (FileVerdict.DIFFERS, FileVerdict.SIZE, FileVerdict.ABSENT, FileVerdict.DAMAGED)


class FileCheck(Struct, frozen=True):
    """One file compared. `size` in bytes; `detail` is the evidence: digests, sizes, the system's words."""

    name: str
    verdict: FileVerdict
    size: int = 0
    algorithm: Algorithm = Algorithm.NONE
    detail: str = ""


class VerifyProgress(Struct, frozen=True):
    """A verification so far: bytes hashed of all that are to be hashed, and the files that are done, in the order in
    which they ended. `name` is a file that is being read. `over` with the last one."""

    model: str
    revision: str
    done: int
    total: int
    name: str = ""
    checks: tuple[FileCheck, ...] = ()
    seconds: float = 0.0
    over: bool = False

    @property
    def fraction(self) -> float:
        """0 to 1."""
        return 1.0 if self.over else self.done / self.total if self.total else 0.0

    @property
    def rate(self) -> float | None:
        """Bytes per second so far; None before there is a figure."""
        return self.done / self.seconds if self.seconds > 0.05 and self.done else None

    @property
    def left_seconds(self) -> float | None:
        """Time to go at that rate; None before there is a figure."""
        return (self.total - self.done) / self.rate if self.rate else None

    @property
    def wrong(self) -> tuple[FileCheck, ...]:
        """Files to fetch again."""
        return tuple(check for check in self.checks if check.verdict.wrong)

    @property
    def unsure(self) -> tuple[FileCheck, ...]:
        """Files of which nothing can be said: not readable, changed meanwhile, or without a digest to compare."""
        matches = FileVerdict.MATCHES
        return tuple(check for check in self.checks if not check.verdict.wrong and check.verdict is not matches)

    @property
    def matching(self) -> int:
        """How many files are as the Hub has them."""
        return sum(check.verdict is FileVerdict.MATCHES for check in self.checks)

    @property
    def sentence(self) -> str:
        many = len(self.checks)
        took = f" ({human_bytes(self.done)} in {human_duration(self.seconds)})" if self.done else ""
        if self.wrong:
            return f"{len(self.wrong)} of {many} files differ from the Hub{took}."
        if not many:
            return "No files to compare."
        if all(check.verdict is FileVerdict.UNTOLD for check in self.checks):
            return f"No digests to compare: the structure of all {many} files is valid."
        if self.unsure:
            return f"{self.matching} of {many} files match, {len(self.unsure)} could not be checked{took}."
        return f"All {many} files match the Hub{took}."


def fetch_again(model: StoredModel, names: Sequence[str], settings: Settings, *, revision: str = "") -> str:
    """The command that fetches these files again; `revision` empty is the current one. It names the store where that
    was typed as an option.

    Empty where it is not known which repository they are from.
    """
    if not names or model.layout is not Layout.CACHE:
        return ""
    store = ("--store", str(settings.store)) if settings.origin("store").source is SettingSource.OPTION else ()
    files = (word for name in names for word in ("--file", name))
    commit = revision or model.commit
    pinned = ("--revision", commit) if commit else ()
    return shlex.join(("spark-tui", *store, "models", "pull", model.id, *pinned, *files, "--again"))


class DeleteExtent(StrEnum):
    """How much goes. LEFTOVERS: unfinished downloads, and blobs that no revision uses."""

    MODEL = "model"
    REVISION = "revision"
    LEFTOVERS = "leftovers"


class DeletePlan(Struct, frozen=True):
    """One deletion, prepared. `removes` are paths within the store's root, in the order in which they go.

    `freed` is the disk space that comes back; `stays` that of data which other names lead to and which is kept.
    `name` is what a person types to confirm. `obstacles` are why it cannot be done; none when it can.
    """

    model: str
    extent: DeleteExtent
    name: str
    path: str
    revision: str = ""
    freed: int = 0
    stays: int = 0
    files: int = 0
    refs: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    obstacles: tuple[Finding, ...] = ()

    @property
    def sentence(self) -> str:
        what = {
            DeleteExtent.MODEL: f"{self.model} and all its files",
            DeleteExtent.REVISION: f"revision {self.revision[:7]} of {self.model}",
            DeleteExtent.LEFTOVERS: f"unused data of {self.model}",
        }[self.extent]
        kept = f" Keeps {human_bytes(self.stays)} used by other models." if self.stays else ""
        return f"Deletes {what}. Frees {human_bytes(self.freed)}.{kept}"

    def check(self) -> None:
        """Raises RefusedError for the first obstacle."""
        if self.obstacles:
            first = self.obstacles[0]
            remedy = first.remedy or "Nothing was changed."
            raise RefusedError(f"{self.model} is not deleted: {first.summary}.", remedy)


class Deleted(Struct, frozen=True):
    """A deletion that has been done. `freed` in bytes of disk space."""

    plan: DeletePlan
    freed: int
    files: int


def freed_by(names: Iterable[Payload], kept: Collection[str]) -> tuple[int, int]:
    """Disk space that comes back, and that which stays, when these names go; one payload per name.

    Data goes with its last name: `kept` are keys of data that another name in the store leads to, and a hard link
    more than are removed leads there from elsewhere. Shared blobs have one hard link, whatever repositories use them.
    """
    given = tuple(names)
    count = Counter(payload.key for payload in given)
    freed = stays = 0
    for payload in unique(given):
        last = payload.shared or count[payload.key] >= payload.links
        if payload.key in kept or not last:
            stays += payload.disk
        else:
            freed += payload.disk
    return freed, stays


def repository_mounts(store: str, elsewhere: Mapping[str, StoredModel | None]) -> tuple[Mount, ...]:
    """All of a launch's models as mounts of single repositories: those that are complete elsewhere from there, the
    others from the store. None where all of them are the store's, or where two caches have shared data of their own."""
    mounts, shared = [], set()
    for repo, model in elsewhere.items():
        folder = repository_folder(repo)
        source = model.path if model is not None else join(hub_of(store), folder)
        mounts.append(Mount(source, join(HUB_TARGET, folder), model is not None))
        if model is not None and any(each.shared for each in model.shared):
            shared.add(dirname(source))
    if not any(elsewhere.values()) or len(shared) > 1:
        return ()
    return (
        *mounts,
        *(Mount(join(hub, "blobs"), join(HUB_TARGET, "blobs"), True) for hub in shared),
    )
