"""One repository of the Hub's cache: `models--ORG--NAME/{refs,snapshots,blobs,trees}` becomes a StoredModel."""

# A store has tens of thousands of names, and Path objects take several times as long as strings.
# ruff: noqa: PTH112, PTH113, PTH115, PTH116, PTH118, PTH119, PTH120, PTH208

from __future__ import annotations

import errno
import os
import pwd
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.models.config import MOST_BYTES, BadJson, read_object
from spark_tui.domain.models.store import (
    Completeness,
    Expected,
    Layout,
    Partial,
    Payload,
    RepoKind,
    StoredFile,
    StoredModel,
    StoredRevision,
    Trouble,
    current_commit,
    digest_of,
    expected_files,
    is_commit,
    is_weights,
    judge,
    needed,
    shown,
    unique,
    with_expected,
    without_reference,
)
from spark_tui.domain.quantities import human_bytes
from spark_tui.domain.text import clean_line
from spark_tui.services.files import is_locked

MOST_ENTRIES: Final = 200_000
"""Of one model: a folder with more is not looked into any further, and the finding says so."""
MOST_DEPTH: Final = 24
BIG: Final = 1 << 20
"""Files from here on are looked at one by one when a kept result is checked: weights, which may be cut short."""
_BLOCK: Final = 512

Mark = tuple[str, int, int]
"""A path below the model's own, its ctime in nanoseconds, its size (-1 for a folder)."""


@dataclass(slots=True)
class Survey:
    """What is collected while one model is looked at. `marks` tell later whether anything has changed; `settled` is
    false when the result must not be kept.

    `root` is the store and `base` the model's own place, both without links; `now` in seconds since the epoch."""

    root: str
    base: str
    uid: int
    now: float = 0.0
    marks: list[Mark] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    foreign: int = 0
    owner: int = 0
    entries: int = 0
    settled: bool = True
    newest: int = 0

    def mark(self, path: str, status: os.stat_result) -> None:
        """Remembers a path as it is now."""
        size = -1 if stat.S_ISDIR(status.st_mode) else status.st_size
        self.marks.append((path[len(self.base) + 1 :], status.st_ctime_ns, size))
        self.newest = max(self.newest, status.st_ctime_ns)

    def owned(self, status: os.stat_result) -> None:
        """Counts what belongs to somebody else."""
        if status.st_uid != self.uid and self.uid != 0:
            self.foreign += 1
            self.owner = status.st_uid

    def finding(self, id_: str, summary: str, remedy: str = "", path: str = "") -> None:
        """Adds a warning, once."""
        found = Finding(id_, Severity.WARNING, summary, remedy=remedy, subject=path)
        if found not in self.findings:
            self.findings.append(found)

    def finding_of_owner(self) -> None:
        """Adds a warning when files belong to somebody else."""
        if self.foreign:
            words = f"{self.foreign:,} files and folders belong to {clean_line(user_name(self.owner))}"
            self.finding("foreign_files", f"{words} (downloaded by a container)", chown_command(self.base), self.base)

    def list(self, folder: str) -> list[os.DirEntry[str]]:
        """A folder's entries in name order, the folder remembered; none where there is no such folder, and a finding
        where it cannot be read. A link to a folder is not one."""
        try:
            status = os.lstat(folder)
            if not stat.S_ISDIR(status.st_mode):
                return []
            self.mark(folder, status)
            self.owned(status)
            with os.scandir(folder) as found:
                entries = list(found)
        except FileNotFoundError:
            return []
        except OSError as error:
            self.settled = False
            self.finding(
                "unreadable", f"{self.words(folder)} cannot be read: {reason(error)}", remedy_for(error, folder), folder
            )
            return []
        self.entries += len(entries)
        if self.entries > MOST_ENTRIES:
            self.settled = False
            self.finding("too_many_files", f"more than {MOST_ENTRIES:,} entries: some are not counted", path=self.base)
            return []
        return sorted(entries, key=lambda entry: entry.name)

    def words(self, path: str) -> str:
        """A path for the screen: below the model's own."""
        return clean_line(path[len(self.base) + 1 :] or path)


def payload_of(status: os.stat_result, *, shared: bool = False) -> Payload:
    """The data that a stat is of."""
    return Payload(
        key=f"{status.st_dev}:{status.st_ino}",
        size=status.st_size,
        disk=status.st_blocks * _BLOCK,
        links=status.st_nlink,
        modified=status.st_mtime,
        used=status.st_atime,
        owner=status.st_uid,
        shared=shared,
    )


def walk(survey: Survey, folder: str, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything below a folder that is no folder itself, with its path relative to it. Links are not followed."""
    for entry in survey.list(folder):
        if entry.is_dir(follow_symlinks=False):
            if depth < MOST_DEPTH:
                yield from walk(survey, entry.path, f"{prefix}{entry.name}/", depth + 1)
            else:
                survey.finding("too_deep", f"folders deeper than {MOST_DEPTH} levels are skipped", path=entry.path)
        else:
            yield prefix + entry.name, entry


def data_behind(survey: Survey, path: str, *, is_link: bool) -> tuple[Payload | None, Trouble]:
    """The data that a name leads to, and what is wrong with it. A big file is remembered.

    Only a name that is still there can have lost its data: one that has gone since it was listed is absent.
    """
    try:
        status = os.stat(path) if is_link else os.lstat(path)
        if is_link and not inside(os.path.realpath(path), survey.root):
            return None, Trouble.OUTSIDE
    except OSError as error:
        trouble = trouble_of(error)
        return None, Trouble.ABSENT if trouble is Trouble.LOST and not os.path.lexists(path) else trouble
    if not stat.S_ISREG(status.st_mode):
        if stat.S_ISDIR(status.st_mode):
            survey.finding("folder_link", f"{survey.words(path)} is a link to a folder (not followed)", path=path)
        else:
            survey.finding("not_a_file", f"{survey.words(path)} is not a regular file", path=path)
        return None, Trouble.UNREADABLE
    survey.owned(status)
    if status.st_size >= BIG:
        survey.mark(path, status)
    return payload_of(status), Trouble.NONE


def trouble_of(error: OSError) -> Trouble:
    """What an error of `stat` says of a name."""
    if error.errno == errno.ELOOP:
        return Trouble.LOOP
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Trouble.LOST
    return Trouble.UNREADABLE


def unchanged(base: str, marks: list[Mark]) -> float | None:
    """When the big files among the marks were last read, if everything is as it was; None when something is not."""
    used = 0.0
    try:
        for path, changed, size in marks:
            status = os.stat(f"{base}/{path}" if path else base)
            if status.st_ctime_ns != changed or (size >= 0 and status.st_size != size):
                return None
            if size >= BIG and status.st_atime > used:
                used = status.st_atime
    except OSError:
        return None
    return used


def open_quietly(path: str) -> int:
    """A descriptor for reading that leaves the time of the last use as it is, where that is allowed: looking at a
    model is no use of it. Raises OSError."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:  # somebody else's file
        return os.open(path, flags)


def read_small(path: str, most: int) -> bytes | None:
    """A plain file's beginning; None where there is none, or it is no file, or it may not be read."""
    try:
        descriptor = open_quietly(path)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        parts: list[bytes] = []
        left = most
        while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def inside(path: str, root: str) -> bool:
    """Whether a path without links is the root or below it."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def reason(error: OSError) -> str:
    """Why, in the system's words."""
    return clean_line(error.strerror or str(error)).lower()


def remedy_for(error: OSError, path: str) -> str:
    """What to type where permission lacks."""
    return chown_command(path) if error.errno in (errno.EACCES, errno.EPERM) else ""


def chown_command(path: str) -> str:
    """The command that gives a folder back to the person."""
    if not path.isprintable():
        return "Its name holds control codes: rename it as root, then give it to yourself with chown."
    return f'sudo chown -R "$(id -u):$(id -g)" {shlex.quote(path)}'


@cache
def user_name(uid: int) -> str:
    """A user's name, or `user 1234` where it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


KINDS: Final = {"models": RepoKind.MODEL, "datasets": RepoKind.DATASET, "spaces": RepoKind.SPACE}
SHARED_MARKER: Final = ".huggingface-shared-blobs"
INCOMPLETE: Final = ".incomplete"
_WRITING_SECONDS: Final = 60.0
_SHARED_PATH: Final = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}")
_MOST_REF_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class Blob:
    """One entry of `blobs`."""

    payload: Payload | None
    trouble: Trouble = Trouble.NONE


@dataclass(frozen=True, slots=True)
class Repo:
    """Everything that is read of one repository; `files` by commit."""

    files: Mapping[str, tuple[StoredFile, ...]]
    blobs: Mapping[str, Blob]
    refs: Mapping[str, str]
    trees: Mapping[str, Mapping[str, Expected]]
    partials: tuple[Partial, ...]


def repo_id(name: str) -> tuple[RepoKind, str] | None:
    """`models--org--name` -> (model, `org/name`); None for a folder that is no repository."""
    prefix, found, rest = name.partition("--")
    kind = KINDS.get(prefix)
    return (kind, rest.replace("--", "/")) if found and rest and kind is not None else None


def read_repo(survey: Survey, *, hub: str, digests: bool = True) -> Repo:
    """Looks at one repository. Never raises: what cannot be read is a finding.

    Without `digests`, files are not told by the names of their blobs what their content must be.
    """
    base = survey.base
    survey.list(base)
    refs = _refs(survey)
    names = _snapshots(survey)
    blobs, partials = _blobs(survey, hub)
    files = {commit: tuple(_file(survey, blobs, name, entry) for name, entry in found) for commit, found in names}
    trees = {commit: tree for commit in files if (tree := read_tree(f"{base}/trees/{commit}.json")) is not None}
    survey.list(f"{base}/trees")
    told = {
        commit: with_expected(found, trees.get(commit)) if digests or commit in trees else found
        for commit, found in files.items()
    }
    return Repo(told, blobs, refs, trees, partials)


def _refs(survey: Survey) -> dict[str, str]:
    """Branch or tag -> commit."""
    refs: dict[str, str] = {}
    for name, entry in walk(survey, f"{survey.base}/refs"):
        data = read_small(entry.path, _MOST_REF_BYTES)
        commit = (data or b"").decode("utf-8", "replace").strip()
        if not is_commit(commit):
            survey.finding("bad_reference", f"reference {shown(name)} does not name a commit", path=entry.path)
            continue
        refs[name] = commit
        try:
            survey.mark(entry.path, entry.stat(follow_symlinks=False))
        except OSError:
            survey.settled = False
    return refs


def _snapshots(survey: Survey) -> list[tuple[str, list[tuple[str, os.DirEntry[str]]]]]:
    found = []
    for entry in survey.list(f"{survey.base}/snapshots"):
        if entry.is_dir(follow_symlinks=False):
            found.append((entry.name, list(walk(survey, entry.path))))
        else:
            survey.finding("not_a_folder", f"snapshots/{shown(entry.name)} is not a folder", path=entry.path)
    return found


def _blobs(survey: Survey, hub: str) -> tuple[dict[str, Blob], tuple[Partial, ...]]:
    blobs: dict[str, Blob] = {}
    partials = []
    store = f"{hub}/blobs/" if is_shared_store(hub) else None
    for entry in survey.list(f"{survey.base}/blobs"):
        if entry.name.endswith(INCOMPLETE):
            partials.append(_partial(survey, entry, hub))
        elif entry.is_symlink():
            blobs[entry.name] = _shared(survey, entry, store)
        elif entry.is_file(follow_symlinks=False):
            blobs[entry.name] = Blob(*data_behind(survey, entry.path, is_link=False))
    return blobs, tuple(each for each in partials if each is not None)


def _shared(survey: Survey, entry: os.DirEntry[str], store: str | None) -> Blob:
    """A blob that is a link: into the cache's shared blobs, or a stray one."""
    payload, trouble = data_behind(survey, entry.path, is_link=True)
    if payload is None or store is None:
        return Blob(payload, trouble)
    target = shared_target(entry.path, store)
    return Blob(replace(payload, shared=target is not None), trouble)


def shared_target(path: str, store: str) -> str | None:
    """Where a blob's link leads within the shared blobs (`hub/blobs/`), None when it leads elsewhere."""
    try:
        target = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    except OSError:
        return None
    inside = target.removeprefix(store)
    return target if inside != target and _SHARED_PATH.fullmatch(inside) else None


def is_shared_store(hub: str) -> bool:
    """Whether a cache has shared blobs: the folder counts only with its marker (huggingface_hub 1.33 and later)."""
    return read_small(f"{hub}/blobs/{SHARED_MARKER}", 16) == b"1\n"


def _partial(survey: Survey, entry: os.DirEntry[str], hub: str) -> Partial | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None  # it has just been completed
    survey.settled = False  # it grows without its folder changing
    survey.owned(status)
    name = entry.name.removesuffix(INCOMPLETE).partition(".")[0]
    lock = f"{hub}/.locks/{os.path.basename(survey.base)}/{name}.lock"
    writing = is_locked(lock) or survey.now - status.st_mtime < _WRITING_SECONDS
    return Partial(name, status.st_blocks * 512, status.st_mtime, writing)


def _file(survey: Survey, blobs: Mapping[str, Blob], name: str, entry: os.DirEntry[str]) -> StoredFile:
    if not entry.is_symlink():
        payload, trouble = data_behind(survey, entry.path, is_link=False)
        return StoredFile(name, payload, "", None, trouble)
    blob = _blob_name(entry.path, survey.base)
    found = blobs.get(blob) if blob else None
    if found is not None:
        return StoredFile(name, found.payload, blob, None, found.trouble)
    payload, trouble = data_behind(survey, entry.path, is_link=True)
    return StoredFile(name, payload, "", None, trouble)


def _blob_name(path: str, base: str) -> str:
    """The blob that a snapshot's link leads to; empty when it leads elsewhere."""
    try:
        link = os.readlink(path)
    except OSError:
        return ""
    ups, found, name = link.partition("blobs/")
    if found and "/" not in name and ups == "../" * (path.count("/", len(base)) - 1):  # as the Hub's client makes them
        return name
    head, _, name = os.path.normpath(os.path.join(os.path.dirname(path), link)).rpartition("/")
    return name if head == f"{base}/blobs" else ""


def read_tree(path: str) -> dict[str, Expected] | None:
    """What the Hub lists for a commit, as its client keeps it; None where it does not."""
    data = read_small(path, MOST_BYTES + 1)
    if data is None:
        return None
    try:
        return expected_files(read_object(data))
    except BadJson:
        return None


# --- the model --------------------------------------------------------------------------------------------


def scan_repo(survey: Survey, *, kind: RepoKind, name: str, hub: str) -> StoredModel:
    """One repository as the store shows it."""
    repo = read_repo(survey, hub=hub, digests=False)
    revisions = without_reference([_revision(survey, repo, commit, kind) for commit in repo.files])
    commit = current_commit(revisions)
    current = next((each for each in revisions if each.commit == commit), None)
    payloads = unique(
        [blob.payload for blob in repo.blobs.values() if blob.payload is not None]
        + [file.payload for files in repo.files.values() for file in files if file.payload is not None]
    )
    completeness, reasons = _whole(repo, current, survey)
    used = max((each.used for each in payloads if each.size), default=None)
    idle = sum(each.have for each in repo.partials if not each.writing)
    survey.finding_of_owner()
    if any(not each.writing for each in repo.partials):
        words = f"unfinished download ({human_bytes(idle)})"
        survey.finding("interrupted_download", words, "Resume the download, or delete the unfinished files.")
    return StoredModel(
        id=name,
        layout=Layout.CACHE,
        path=survey.base,
        kind=kind,
        revisions=revisions,
        commit=commit,
        completeness=completeness,
        reasons=reasons,
        size=sum(each.size for each in payloads),
        disk=sum(each.disk for each in payloads) + sum(each.have for each in repo.partials),
        loose=_loose(repo),
        partials=repo.partials,
        shared=tuple(each for each in payloads if each.shared or each.links > 1),
        used=used,
        modified=max((each.modified for each in payloads), default=None),
        foreign=survey.foreign,
        owner=clean_line(user_name(survey.owner)) if survey.foreign else "",
        findings=tuple(survey.findings),
    )


def _revision(survey: Survey, repo: Repo, commit: str, kind: RepoKind) -> StoredRevision:
    files, tree = repo.files[commit], repo.trees.get(commit)
    found = judge(files, tree=tree, kind=kind)
    payloads = unique(file.payload for file in files if file.payload is not None)
    here = [file.name for file in files]
    return StoredRevision(
        commit=commit,
        path=f"{survey.base}/snapshots/{commit}",
        refs=tuple(sorted(ref for ref, target in repo.refs.items() if target == commit)),
        files=len(files),
        size=sum(each.size for each in payloads),
        expected=sum(tree[name].size or 0 for name in needed(tree, here)) if tree else None,
        completeness=found.completeness,
        reasons=found.reasons,
        missing=found.missing,
        modified=max((each.modified for each in payloads), default=0.0),
    )


def _whole(repo: Repo, current: StoredRevision | None, survey: Survey) -> tuple[Completeness, tuple[str, ...]]:
    """How whole the repository is: as its current revision, or by what there is without one."""
    if current is not None:
        gone = sorted(ref for ref, commit in repo.refs.items() if commit not in repo.files)
        if gone and current.completeness is Completeness.COMPLETE:
            return Completeness.PARTIAL, (f"{', '.join(map(shown, gone))} names a missing revision",)
        return current.completeness, current.reasons
    if repo.partials:
        return Completeness.PARTIAL, ("unfinished download",)
    if repo.blobs:
        return Completeness.UNREFERENCED, ("unused data only (no revision)",)
    if not survey.settled:
        return Completeness.UNKNOWN, ("cannot be read",)
    return Completeness.PARTIAL, ("download not started",)


def _loose(repo: Repo) -> int:
    """Disk space of blobs that no revision uses."""
    used = {file.blob for files in repo.files.values() for file in files}
    blobs = (blob.payload for name, blob in repo.blobs.items() if name not in used)
    return sum(each.disk for each in unique(payload for payload in blobs if payload is not None))


CONTAINER_ROOT: Final = "/models"
_PAPERS: Final = ".cache/huggingface/"
_DOWNLOADS: Final = _PAPERS + "download/"
_METADATA: Final = ".metadata"
_GIT: Final = ".git/"
_TELLING: Final = ("config.json", "params.json", "model_index.json", "adapter_config.json")
_MOST_METADATA_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Folder:
    """Everything that is read of one folder."""

    files: tuple[StoredFile, ...]
    commit: str
    tree: Mapping[str, Expected] | None
    partials: tuple[Partial, ...]
    papers: int
    git: int


def is_model_folder(names: Iterable[str]) -> bool:
    """Whether a folder is a checkpoint, or was going to be one, by the names in it."""
    return any(name in _TELLING or is_weights(name) for name in names)


def has_papers(path: str) -> bool:
    """Whether `hf download --local-dir` has been at work in a folder."""
    return os.path.isdir(f"{path}/{_DOWNLOADS}")


def read_folder(survey: Survey) -> Folder:
    """Looks at one folder. Never raises: what cannot be read is a finding."""
    if os.path.isfile(survey.base):
        return _single(survey)
    files, papers, partials = [], [], []
    git = paper_bytes = 0
    for name, entry in walk(survey, survey.base):
        payload, trouble = data_behind(survey, entry.path, is_link=entry.is_symlink())
        if name.startswith(_GIT):
            git += payload.disk if payload else 0
        elif not name.startswith(_PAPERS):
            files.append(StoredFile(name, payload, "", None, trouble))
        else:
            paper_bytes += payload.disk if payload and not name.endswith(INCOMPLETE) else 0
            papers.append(name)
            if name.endswith(INCOMPLETE) and payload is not None:
                partials.append(_folder_partial(survey, entry.path, payload.disk, payload.modified))
    told = _metadata(survey, papers)
    commit = next((commit for commit, _ in told.values()), "")
    tree = read_tree(f"{survey.base}/{_PAPERS}trees/{commit}.json") if commit else None
    known = tree if tree is not None else {name: _expected(etag) for name, (_, etag) in told.items()}
    found = tuple(_forgiven(file) for file in with_expected(files, known))
    _tell_changed(survey, with_expected(files, known))
    return Folder(found, commit, tree, tuple(partials), paper_bytes, git)


def _single(survey: Survey) -> Folder:
    payload, trouble = data_behind(survey, survey.base, is_link=False)
    file = StoredFile(os.path.basename(survey.base), payload, "", None, trouble)
    return Folder((file,), "", None, (), 0, 0)


def _metadata(survey: Survey, papers: Iterable[str]) -> dict[str, tuple[str, str]]:
    """File name -> (commit, etag), from the papers."""
    found = {}
    for name in papers:
        if not (name.startswith(_DOWNLOADS) and name.endswith(_METADATA)):
            continue
        lines = (
            (read_small(f"{survey.base}/{name}", _MOST_METADATA_BYTES) or b"").decode("utf-8", "replace").split("\n")
        )
        if len(lines) >= 2 and is_commit(lines[0].strip()):
            found[name[len(_DOWNLOADS) : -len(_METADATA)]] = (lines[0].strip(), lines[1].strip())
    return found


def _expected(etag: str) -> Expected:
    digest, algorithm = digest_of(etag)
    return Expected(None, digest, algorithm)


def _forgiven(file: StoredFile) -> StoredFile:
    """Small files of an own folder are there to be edited; weights are not."""
    if file.trouble is Trouble.SIZE and not is_weights(file.name):
        return replace(file, trouble=Trouble.NONE)
    return file


def _tell_changed(survey: Survey, files: Iterable[StoredFile]) -> None:
    changed = [shown(file.name) for file in files if file.trouble is Trouble.SIZE and not is_weights(file.name)]
    if changed:
        survey.finding("edited", f"edited since download: {', '.join(changed[:5])}", path=survey.base)


def _folder_partial(survey: Survey, path: str, have: int, modified: float) -> Partial:
    survey.settled = False
    folder, _, name = path.rpartition("/")
    etag = name.removesuffix(INCOMPLETE).split(".")
    locks = (f"{folder}/{entry}" for entry in _names(folder) if entry.endswith(".lock"))
    writing = survey.now - modified < _WRITING_SECONDS or any(is_locked(lock) for lock in locks)
    return Partial(etag[1] if len(etag) > 1 else etag[0], have, modified, writing)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


# --- the model --------------------------------------------------------------------------------------------


def scan_folder(survey: Survey, name: str) -> StoredModel:
    """One folder as the store shows it; `name` is its path within the store."""
    found = read_folder(survey)
    judged = judge(found.files, tree=found.tree, kind=RepoKind.MODEL)
    completeness, reasons = judged.completeness, judged.reasons
    if found.partials and completeness is Completeness.COMPLETE:
        completeness, reasons = Completeness.PARTIAL, ("unfinished download",)
    payloads = unique(file.payload for file in found.files if file.payload is not None)
    here = [file.name for file in found.files]
    size = sum(each.size for each in payloads)
    revision = StoredRevision(
        commit=found.commit,
        path=survey.base,
        files=len(found.files),
        size=size,
        expected=sum(found.tree[each].size or 0 for each in needed(found.tree, here)) if found.tree else None,
        completeness=completeness,
        reasons=reasons,
        missing=judged.missing,
        modified=max((each.modified for each in payloads), default=0.0),
    )
    extra = found.papers + found.git + sum(each.have for each in found.partials)
    survey.finding_of_owner()
    if found.git > 1 << 30:
        words = f".git holds {human_bytes(found.git)}, usually a second copy of the weights"
        survey.finding("git_copy", words, "Delete .git if you no longer pull into it.", f"{survey.base}/.git")
    return StoredModel(
        id=f"{CONTAINER_ROOT}/{name}",
        layout=Layout.FOLDER,
        path=survey.base,
        revisions=(revision,),
        commit=found.commit,
        completeness=completeness,
        reasons=reasons,
        size=size,
        disk=sum(each.disk for each in payloads) + extra,
        partials=found.partials,
        shared=tuple(each for each in payloads if each.links > 1),
        used=max((each.used for each in payloads if each.size), default=None),
        modified=max((each.modified for each in payloads), default=None),
        foreign=survey.foreign,
        owner=clean_line(user_name(survey.owner)) if survey.foreign else "",
        findings=tuple(survey.findings),
    )
