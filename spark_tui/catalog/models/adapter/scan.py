"""One folder, or one repository of the Hub's cache (`models--ORG--NAME/{refs,snapshots,blobs,trees}`), as it is.

Nothing here raises: what cannot be read is a finding.
"""

# A store has tens of thousands of names, and Path objects take several times as long as strings.
# ruff: noqa: PTH207, PTH112, PTH113, PTH115, PTH116, PTH118, PTH119, PTH120

from __future__ import annotations

import errno
import glob
import os
import pwd
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointProblem
from spark_tui.base.files import is_locked
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.quantities import human_bytes
from spark_tui.base.text import clean_line
from spark_tui.catalog.models.model.config import MOST_BYTES, BadJson, read_object
from spark_tui.catalog.models.model.store import (
    PARTIAL_FOLDER,
    Completeness,
    ExpectedFile,
    FileProblem,
    Layout,
    Partial,
    Payload,
    RepoKind,
    StoredFile,
    StoredModel,
    StoredRevision,
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
from spark_tui.catalog.models.model.weights import LENGTH_BYTES, SafetensorsHeader, header_length, parse_header

MOST_ENTRIES: Final = 200_000
"""Of one model: a folder with more is not looked into any further, and the finding says so."""
MOST_DEPTH: Final = 24
BIG: Final = 1 << 20
"""Files from here on are looked at one by one when a kept result is checked: weights, which may be cut short."""
_BLOCK: Final = 512
_ENDS: Final = re.compile(rb'"data_offsets"\s*:\s*\[\s*\d+\s*,\s*(\d{1,18})\s*\]')

Mark = tuple[str, int, int]
"""A path below the model's own, its ctime in nanoseconds, its size (-1 for a folder)."""


class ModelScan(Struct):
    """What is collected while one model is read. `marks` decide later whether anything has changed; `settled` is false
    when the result must not be kept.

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
        size = -1 if stat.S_ISDIR(status.st_mode) else status.st_size
        self.marks.append((path[len(self.base) + 1 :], status.st_ctime_ns, size))
        self.newest = max(self.newest, status.st_ctime_ns)

    def owned(self, status: os.stat_result) -> None:
        """Counts what belongs to another user."""
        if status.st_uid != self.uid and self.uid != 0:
            self.foreign += 1
            self.owner = status.st_uid

    def finding(self, id_: str, summary: str, remedy: str = "", path: str = "") -> None:
        """Adds a warning, once."""
        found = Finding(id_, Severity.WARNING, summary, remedy=remedy, subject=path)
        if found not in self.findings:
            self.findings.append(found)

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
            remedy = chown_command(folder) if error.errno in (errno.EACCES, errno.EPERM) else ""
            self.finding("unreadable", f"{self.words(folder)} cannot be read: {reason(error)}", remedy, folder)
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


def walk(survey: ModelScan, folder: str, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything below a folder that is no folder itself, with its path relative to it. Links are not followed."""
    for entry in survey.list(folder):
        if entry.is_dir(follow_symlinks=False):
            if depth < MOST_DEPTH:
                yield from walk(survey, entry.path, f"{prefix}{entry.name}/", depth + 1)
            else:
                survey.finding("too_deep", f"folders deeper than {MOST_DEPTH} levels are skipped", path=entry.path)
        else:
            yield prefix + entry.name, entry


def entries_of(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def data_behind(survey: ModelScan, path: str, *, is_link: bool) -> tuple[Payload | None, FileProblem]:
    """The data that a name leads to, and what is wrong with it. A big file is remembered.

    Only a name that is still there can have lost its data: one that has gone since it was listed is absent.
    """
    try:
        status = os.stat(path) if is_link else os.lstat(path)
        if is_link and not inside(os.path.realpath(path), survey.root):
            return None, FileProblem.OUTSIDE
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None, FileProblem.LOOP
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None, FileProblem.LOST if os.path.lexists(path) else FileProblem.ABSENT
        return None, FileProblem.UNREADABLE
    if not stat.S_ISREG(status.st_mode):
        folder = stat.S_ISDIR(status.st_mode)
        words = "is a link to a folder (not followed)" if folder else "is not a regular file"
        survey.finding("folder_link" if folder else "not_a_file", f"{survey.words(path)} {words}", path=path)
        return None, FileProblem.UNREADABLE
    survey.owned(status)
    if status.st_size >= BIG:
        survey.mark(path, status)
    return payload_of(status), FileProblem.NONE


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


@contextmanager
def opened(path: str) -> Iterator[int]:
    """A descriptor of a plain file: a pipe or a device is refused, not waited for. The time of the last use stays as it
    is where that is allowed: looking at a model is no use of it. Raises OSError."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_NOATIME)
    except PermissionError:  # another user's file
        descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a file")
        yield descriptor
    finally:
        os.close(descriptor)


def read_up_to(descriptor: int, most: int) -> bytes:
    """Up to `most` bytes from the descriptor's place on."""
    parts: list[bytes] = []
    while most > 0 and (part := os.read(descriptor, min(most, 1 << 20))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def read_small(path: str, most: int) -> bytes | None:
    """A plain file's beginning; None where there is none, or it is no file, or it may not be read."""
    try:
        with opened(path) as descriptor:
            return read_up_to(descriptor, most)
    except OSError:
        return None


def read_header(descriptor: int, file: str = "") -> SafetensorsHeader | CheckpointProblem:
    """The header of a safetensors file. Raises OSError."""
    first = os.read(descriptor, LENGTH_BYTES)
    length = header_length(first, file)
    if isinstance(length, CheckpointProblem):
        return length
    return parse_header(first + read_up_to(descriptor, length), file=file, file_size=os.fstat(descriptor).st_size)


def cut_files(files: Sequence[StoredFile], folder: str) -> tuple[StoredFile, ...]:
    """Files with those marked that are shorter than their safetensors header says, where no listing has their size."""
    found = []
    for file in files:
        known = file.expected or ExpectedFile(None)
        plain = file.payload is not None and not file.trouble and file.name.endswith(".safetensors")
        if plain and known.size is None and (size := _whole_size(f"{folder}/{file.name}")) > (file.size or 0) > 0:
            file = replace(file, expected=replace(known, size=size), trouble=FileProblem.SIZE)  # noqa: PLW2901
        found.append(file)
    return tuple(found)


def _whole_size(path: str) -> int:
    """The size that a safetensors file's header gives, in bytes; 0 where it gives none."""
    try:
        with opened(path) as descriptor:
            length = header_length(os.read(descriptor, LENGTH_BYTES))
            header = read_up_to(descriptor, length) if isinstance(length, int) else b""
    except OSError:
        return 0
    if not isinstance(length, int):
        return 0
    ends = (int(end) for end in _ENDS.findall(header)) if len(header) == length else ()
    return LENGTH_BYTES + length + max(ends, default=0)


def inside(path: str, root: str) -> bool:
    """Whether a path without links is the root or below it."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def reason(error: OSError) -> str:
    """Why, in the system's words."""
    return clean_line(error.strerror or str(error)).lower()


def chown_command(path: str) -> str:
    """The command that gives a folder back to the person."""
    if not path.isprintable():
        return "Its name holds control codes: rename it as root, then give it to yourself with chown."
    return f'sudo chown -R "$(id -u):$(id -g)" {shlex.quote(path)}'


@cache
def user_name(uid: int) -> str:
    """A user's name, or `user 1234` where it has none; for the screen."""
    try:
        return clean_line(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return f"user {uid}"


KINDS: Final = {"models": RepoKind.MODEL, "datasets": RepoKind.DATASET, "spaces": RepoKind.SPACE}
SHARED_MARKER: Final = ".huggingface-shared-blobs"
INCOMPLETE: Final = ".incomplete"
_WRITING_SECONDS: Final = 60.0
_SHARED_PATH: Final = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}")
_MOST_REF_BYTES: Final = 256


class Repo(Struct, frozen=True):
    """All that is read of one repository: `files` by commit, `blobs` by name, `refs` as branch or tag -> commit."""

    files: Mapping[str, tuple[StoredFile, ...]]
    blobs: Mapping[str, StoredFile]
    refs: Mapping[str, str]
    trees: Mapping[str, Mapping[str, ExpectedFile]]
    partials: tuple[Partial, ...]


def repo_id(name: str) -> tuple[RepoKind, str] | None:
    """`models--org--name` -> (model, `org/name`); None for a folder that is no repository."""
    prefix, found, rest = name.partition("--")
    kind = KINDS.get(prefix)
    return (kind, rest.replace("--", "/")) if found and rest and kind is not None else None


def read_repo(survey: ModelScan, *, hub: str, digests: bool = True) -> Repo:
    """Reads one repository. With `digests`, files without a listing get theirs from the names of their blobs."""
    base = survey.base
    survey.list(base)
    refs: dict[str, str] = {}
    for name, entry in walk(survey, f"{base}/refs"):
        commit = (read_small(entry.path, _MOST_REF_BYTES) or b"").decode("utf-8", "replace").strip()
        if not is_commit(commit):
            survey.finding("bad_reference", f"reference {shown(name)} does not name a commit", path=entry.path)
            continue
        refs[name] = commit
        try:
            survey.mark(entry.path, entry.stat(follow_symlinks=False))
        except OSError:
            survey.settled = False
    snapshots = []
    for entry in survey.list(f"{base}/snapshots"):
        if entry.is_dir(follow_symlinks=False):
            snapshots.append((entry.name, list(walk(survey, entry.path))))
        else:
            survey.finding("not_a_folder", f"snapshots/{shown(entry.name)} is not a folder", path=entry.path)
    blobs, partials = _blobs(survey, hub)
    files = {commit: tuple(_file(survey, blobs, name, entry) for name, entry in found) for commit, found in snapshots}
    trees = {commit: tree for commit in files if (tree := read_tree(f"{base}/trees/{commit}.json")) is not None}
    survey.list(f"{base}/trees")
    known = {
        commit: cut_files(
            with_expected(found, trees.get(commit)) if digests or commit in trees else found,
            f"{base}/snapshots/{commit}",
        )
        for commit, found in files.items()
    }
    return Repo(known, blobs, refs, trees, partials)


def _blobs(survey: ModelScan, hub: str) -> tuple[dict[str, StoredFile], tuple[Partial, ...]]:
    """Everything in `blobs` by name: data, links into the cache's shared blobs, and what is being downloaded."""
    blobs: dict[str, StoredFile] = {}
    partials = []
    shared = is_shared_store(hub)
    for entry in survey.list(f"{survey.base}/blobs"):
        if entry.name.endswith(INCOMPLETE):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it has just been completed
            survey.settled = False  # it grows without its folder changing
            survey.owned(status)
            name = entry.name.removesuffix(INCOMPLETE).partition(".")[0]
            lock = f"{hub}/.locks/{os.path.basename(survey.base)}/{name}.lock"
            writing = is_locked(lock) or survey.now - status.st_mtime < _WRITING_SECONDS
            partials.append(Partial(name, status.st_blocks * _BLOCK, writing))
        elif not entry.is_dir(follow_symlinks=False):
            payload, trouble = data_behind(survey, entry.path, is_link=entry.is_symlink())
            if payload is not None and shared and shared_target(entry.path, f"{hub}/blobs/") is not None:
                payload = replace(payload, shared=True)
            blobs[entry.name] = StoredFile(entry.name, payload, trouble=trouble)
    for _, entry in walk(survey, f"{survey.base}/blobs/{PARTIAL_FOLDER}"):
        payload, _ = data_behind(survey, entry.path, is_link=False)
        if payload is not None:
            partials.append(_copying(survey, entry.name, payload))
    return blobs, tuple(partials)


def _copying(survey: ModelScan, name: str, payload: Payload) -> Partial:
    """What has arrived of a file from another node."""
    survey.settled = False
    return Partial(name, payload.disk, survey.now - payload.modified < _WRITING_SECONDS)


def shared_target(path: str, store: str) -> str | None:
    """Where a blob's link leads within the shared blobs (`hub/blobs/`), None when it leads elsewhere."""
    target = _target(path)
    inside = target.removeprefix(store)
    return target if inside != target and _SHARED_PATH.fullmatch(inside) else None


def _target(path: str) -> str:
    """Where a link leads, that one alone; empty for what is no link."""
    try:
        return os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    except OSError:
        return ""


def is_shared_store(hub: str) -> bool:
    """Whether a cache has shared blobs: the folder counts only with its marker (huggingface_hub 1.33 and later)."""
    return read_small(f"{hub}/blobs/{SHARED_MARKER}", 16) == b"1\n"


def _file(survey: ModelScan, blobs: Mapping[str, StoredFile], name: str, entry: os.DirEntry[str]) -> StoredFile:
    blob = _blob_name(entry.path, survey.base) if entry.is_symlink() else ""
    found = blobs.get(blob)
    if found is not None:
        return StoredFile(name, found.payload, blob, None, found.trouble)
    payload, trouble = data_behind(survey, entry.path, is_link=entry.is_symlink())
    return StoredFile(name, payload, "", None, trouble)


def _blob_name(path: str, base: str) -> str:
    """The blob that a snapshot's link leads to; empty when it leads elsewhere."""
    head, _, name = _target(path).rpartition("/")
    return name if head == f"{base}/blobs" else ""


def read_tree(path: str) -> dict[str, ExpectedFile] | None:
    """What the Hub lists for a commit, as its client keeps it; None where it does not."""
    data = read_small(path, MOST_BYTES + 1)
    if data is None:
        return None
    try:
        return expected_files(read_object(data))
    except BadJson:
        return None


def scan_repo(survey: ModelScan, *, kind: RepoKind, name: str, hub: str) -> StoredModel:
    repo = read_repo(survey, hub=hub, digests=False)
    found = []
    for commit, files in repo.files.items():
        refs = tuple(sorted(ref for ref, target in repo.refs.items() if target == commit))
        path = f"{survey.base}/snapshots/{commit}"
        found.append(_revision(commit, path, refs, files, repo.trees.get(commit), kind))
    revisions = without_reference(found)
    commit = current_commit(revisions)
    current = next((each for each in revisions if each.commit == commit), None)
    gone = sorted(ref for ref, target in repo.refs.items() if target not in repo.files)
    if current is not None:
        state = current.completeness, current.reasons
        if gone and current.completeness is Completeness.COMPLETE:
            state = Completeness.PARTIAL, (f"{', '.join(map(shown, gone))} names a missing revision",)
    elif repo.partials:
        state = Completeness.PARTIAL, ("unfinished download",)
    elif repo.blobs:
        state = Completeness.UNREFERENCED, ("unused data only (no revision)",)
    elif not survey.settled:
        state = Completeness.UNKNOWN, ("cannot be read",)
    else:
        state = Completeness.PARTIAL, ("download not started",)
    used = {file.blob for files in repo.files.values() for file in files}
    unused = unique(blob.payload for name, blob in repo.blobs.items() if name not in used and blob.payload is not None)
    _report_owner(survey)
    idle = [each.have for each in repo.partials if not each.writing]
    if idle:
        words = f"unfinished download ({human_bytes(sum(idle))})"
        survey.finding("interrupted_download", words, "Resume the download, or delete the unfinished files.")
    held = [*repo.blobs.values(), *(file for files in repo.files.values() for file in files)]
    model = StoredModel(name, Layout.CACHE, survey.base, kind, revisions, commit, *state, partials=repo.partials)
    return _summed(survey, model, held, loose=sum(each.disk for each in unused))


def _revision(
    commit: str,
    path: str,
    refs: tuple[str, ...],
    files: Sequence[StoredFile],
    tree: Mapping[str, ExpectedFile] | None,
    kind: RepoKind,
) -> StoredRevision:
    completeness, reasons, missing = judge(files, tree=tree, kind=kind)
    payloads = unique(file.payload for file in files if file.payload is not None)
    return StoredRevision(
        commit,
        path,
        refs,
        len(files),
        sum(each.size for each in payloads),
        sum(tree[name].size or 0 for name in needed(tree, [file.name for file in files])) if tree else None,
        completeness,
        reasons,
        missing,
        max((each.modified for each in payloads), default=0.0),
    )


def _report_owner(survey: ModelScan) -> None:
    if survey.foreign:
        words = f"{survey.foreign:,} files and folders belong to {user_name(survey.owner)} (downloaded by a container)"
        survey.finding("foreign_files", words, chown_command(survey.base), survey.base)


def _summed(
    survey: ModelScan, model: StoredModel, files: Iterable[StoredFile], *, loose: int = 0, more: int = 0
) -> StoredModel:
    """A model with the sums over its files and what the survey has found. `more`: bytes of disk besides."""
    payloads = unique(file.payload for file in files if file.payload is not None)
    return replace(
        model,
        size=sum(each.size for each in payloads),
        disk=sum(each.disk for each in payloads) + model.partial_bytes + more,
        loose=loose,
        shared=tuple(each for each in payloads if each.shared or each.links > 1),
        used=max((each.used for each in payloads if each.size), default=None),
        foreign=survey.foreign,
        owner=user_name(survey.owner) if survey.foreign else "",
        findings=tuple(survey.findings),
    )


# --- a folder ---------------------------------------------------------------------------------------------

CONTAINER_ROOT: Final = "/models"
_PAPERS: Final = ".cache/huggingface/"
_DOWNLOADS: Final = _PAPERS + "download/"
_METADATA: Final = ".metadata"
_GIT: Final = ".git/"
_TELLING: Final = ("config.json", "params.json", "model_index.json", "adapter_config.json")
_MOST_METADATA_BYTES: Final = 1024


def is_model_folder(names: Iterable[str]) -> bool:
    """Whether a folder is a checkpoint, or was going to be one, by the names in it."""
    return any(name in _TELLING or is_weights(name) for name in names)


def has_papers(path: str) -> bool:
    """Whether `hf download --local-dir` has been at work in a folder."""
    return os.path.isdir(f"{path}/{_DOWNLOADS}")


def scan_folder(survey: ModelScan, name: str) -> tuple[StoredModel, tuple[StoredFile, ...]]:
    """One folder, or one file, as the store shows it, with its files; `name` is its path within the store."""
    files, papers, partials = [], [], []
    git = paper_bytes = 0
    if os.path.isfile(survey.base):
        payload, trouble = data_behind(survey, survey.base, is_link=False)
        files.append(StoredFile(os.path.basename(survey.base), payload, trouble=trouble))
    for path, entry in walk(survey, survey.base):
        payload, trouble = data_behind(survey, entry.path, is_link=entry.is_symlink())
        if payload is not None and f"/{PARTIAL_FOLDER}/" in f"/{path}":
            partials.append(_copying(survey, entry.name, payload))
        elif path.startswith(_GIT):
            git += payload.disk if payload else 0
        elif not path.startswith(_PAPERS):
            files.append(StoredFile(path, payload, trouble=trouble))
        elif not path.endswith(INCOMPLETE):
            paper_bytes += payload.disk if payload else 0
            papers.append(path)
        elif payload is not None:
            survey.settled = False
            folder, _, etag = entry.path.removesuffix(INCOMPLETE).rpartition("/")
            locks = glob.iglob(f"{glob.escape(folder)}/*.lock")
            writing = survey.now - payload.modified < _WRITING_SECONDS or any(is_locked(lock) for lock in locks)
            parts = etag.split(".")
            partials.append(Partial(parts[min(1, len(parts) - 1)], payload.disk, writing))

    etags = _metadata(survey, papers)
    commit = next((commit for commit, _ in etags.values()), "")
    tree = read_tree(f"{survey.base}/{_PAPERS}trees/{commit}.json") if commit else None
    expected = (
        tree if tree is not None else {path: ExpectedFile(None, *digest_of(etag)) for path, (_, etag) in etags.items()}
    )
    known, edited = [], []
    for file in cut_files(with_expected(files, expected), survey.base):
        if file.trouble is FileProblem.SIZE and not is_weights(file.name):  # small files of a folder may be edited
            edited.append(shown(file.name))
            known.append(replace(file, trouble=FileProblem.NONE))
        else:
            known.append(file)
    if edited:
        survey.finding("edited", f"edited since download: {', '.join(edited[:5])}", path=survey.base)

    revision = _revision(commit, survey.base, (), known, tree, RepoKind.MODEL)
    if partials and revision.completeness is Completeness.COMPLETE:
        revision = replace(revision, completeness=Completeness.PARTIAL, reasons=("unfinished download",))
    _report_owner(survey)
    if git > 1 << 30:
        words = f".git holds {human_bytes(git)}, usually a second copy of the weights"
        survey.finding("git_copy", words, "Delete .git if you no longer pull into it.", f"{survey.base}/.git")
    model = StoredModel(
        f"{CONTAINER_ROOT}/{name}",
        Layout.FOLDER,
        survey.base,
        RepoKind.MODEL,
        (revision,),
        commit,
        revision.completeness,
        revision.reasons,
        partials=tuple(partials),
    )
    return _summed(survey, model, known, more=paper_bytes + git), tuple(known)


def _metadata(survey: ModelScan, papers: Iterable[str]) -> dict[str, tuple[str, str]]:
    """File name -> (commit, etag), as `hf download --local-dir` writes them."""
    found = {}
    for name in papers:
        if name.startswith(_DOWNLOADS) and name.endswith(_METADATA):
            text = (read_small(f"{survey.base}/{name}", _MOST_METADATA_BYTES) or b"").decode("utf-8", "replace")
            commit, more, rest = text.partition("\n")
            if is_commit(commit.strip()) and more:
                found[name[len(_DOWNLOADS) : -len(_METADATA)]] = (commit.strip(), rest.partition("\n")[0].strip())
    return found
