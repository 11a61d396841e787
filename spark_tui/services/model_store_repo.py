"""One repository of the Hub's cache: `models--ORG--NAME/{refs,snapshots,blobs,trees}` becomes a StoredModel.

Snapshots are listed before blobs: the Hub's client makes a blob before the link to it, so that a download which goes
on meanwhile never looks like a blob that is gone.
"""

# A store has tens of thousands of names, and Path objects take several times as long as strings.
# ruff: noqa: PTH115, PTH118, PTH119, PTH120

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from spark_tui.domain.models.json_keys import MOST_BYTES, BadJson, read_object
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
    StoreFinding,
    Trouble,
    unique,
)
from spark_tui.domain.models.store_rules import (
    current_commit,
    expected_files,
    is_commit,
    judge,
    needed,
    shown,
    with_expected,
    without_reference,
)
from spark_tui.domain.quantities import human_bytes
from spark_tui.domain.text import clean_line
from spark_tui.services.files import is_locked
from spark_tui.services.model_store_disk import (
    Survey,
    chown_command,
    data_behind,
    read_small,
    user_name,
    walk,
)

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
            survey.finding(f"the reference {shown(name)} names no commit", path=entry.path)
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
            survey.finding(f"snapshots/{shown(entry.name)} is no folder", path=entry.path)
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
        findings=(*survey.findings, *_findings(repo, survey)),
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
            return Completeness.PARTIAL, (f"{', '.join(map(shown, gone))} leads to a revision that is not here",)
        return current.completeness, current.reasons
    if repo.partials:
        return Completeness.PARTIAL, ("its download has not ended",)
    if repo.blobs:
        return Completeness.UNREFERENCED, ("it holds data that no revision leads to",)
    if not survey.settled:
        return Completeness.UNKNOWN, ("it could not be looked into",)
    return Completeness.PARTIAL, ("its download has not begun",)


def _loose(repo: Repo) -> int:
    """Disk space of blobs that no revision uses."""
    used = {file.blob for files in repo.files.values() for file in files}
    blobs = (blob.payload for name, blob in repo.blobs.items() if name not in used)
    return sum(each.disk for each in unique(payload for payload in blobs if payload is not None))


def _findings(repo: Repo, survey: Survey) -> list[StoreFinding]:
    found = []
    if survey.foreign:
        words = f"{survey.foreign:,} of its files and folders belong to {clean_line(user_name(survey.owner))}"
        remedy = chown_command(survey.base)
        found.append(StoreFinding(f"{words}: a container has fetched them", remedy, survey.base))
    idle = [each for each in repo.partials if not each.writing]
    if idle:
        size = human_bytes(sum(each.have for each in idle))
        found.append(
            StoreFinding(f"an interrupted download has left {size}", "Fetch it again, or remove what is left.")
        )
    return found
