"""Deletes models, revisions and leftovers: first a plan that says what comes back, then the deletion.

It walks from the store's root by descriptors, never through a link and never onto another file system, so that
nothing outside the store can be reached, whatever is put in the way meanwhile. References go first, data last: an
interrupted deletion leaves a store that is whole.
"""

# Descriptors and flags: Path has nothing for them.
# ruff: noqa: PTH112, PTH113, PTH116, PTH119, PTH120, PTH208

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from msgspec.structs import replace

from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.base.files import is_locked
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.text import clean_line
from spark_tui.catalog.models.adapter.scan import (
    INCOMPLETE,
    ModelScan,
    Repo,
    chown_command,
    entries_of,
    is_shared_store,
    payload_of,
    read_repo,
    reason,
    repo_id,
    shared_target,
    user_name,
    walk,
)
from spark_tui.catalog.models.model.store import (
    Deleted,
    DeleteExtent,
    DeletePlan,
    Payload,
    StoredModel,
    StoredRevision,
    freed_by,
)

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Deletion:
    """One model of one store. `path` and `root` are without links; `hub` is empty for a folder of the store's own."""

    def __init__(self, root: str, path: str, hub: str, uid: int, now: float) -> None:
        self._root = root
        self._path = path
        self._hub = hub
        self._survey = ModelScan(root, path, uid, now)

    # --- the plan -------------------------------------------------------------------------------------

    def plan(self, model: StoredModel, extent: DeleteExtent, revision: StoredRevision | None = None) -> DeletePlan:
        """What goes, and what forbids it. The last revision of a repository takes the repository with it."""
        if extent is DeleteExtent.REVISION and (not self._hub or len(model.revisions) < 2):
            extent, revision = DeleteExtent.MODEL, None
        base = self._path
        blobs: tuple[str, ...] = ()
        repo = read_repo(self._survey, hub=self._hub) if self._hub else Repo({}, {}, {}, {}, ())
        if extent is DeleteExtent.REVISION and revision is not None:
            return self._checked(self._revision_plan(model, repo, revision))
        if extent is DeleteExtent.MODEL:
            paths, blobs = [base], tuple(repo.blobs)
            if self._hub and os.path.isdir(locks := f"{self._hub}/.locks/{os.path.basename(base)}"):
                paths.append(locks)
            payloads = _plain([base, *(entry.path for _, entry in walk(self._survey, base))])
        else:
            used = {file.blob for files in repo.files.values() for file in files}
            blobs = tuple(name for name in repo.blobs if name not in used)
            folder = f"{base}/blobs" if self._hub else f"{base}/.cache/huggingface/download"
            parts = [entry.path for _, entry in walk(self._survey, folder) if entry.name.endswith(INCOMPLETE)]
            paths = [*parts, *(f"{folder}/{blob}" for blob in blobs)]
            payloads = [*self._own(repo, blobs), *_plain(parts)]
        return self._checked(self._of(model, extent, paths, payloads, blobs))

    def _revision_plan(self, model: StoredModel, repo: Repo, revision: StoredRevision) -> DeletePlan:
        kept = {file.blob for commit, files in repo.files.items() if commit != revision.commit for file in files}
        going, base = repo.files.get(revision.commit, ()), self._path
        blobs = tuple(dict.fromkeys(file.blob for file in going if file.blob and file.blob not in kept))
        listing, absences = f"{base}/trees/{revision.commit}.json", f"{base}/.no_exist/{revision.commit}"
        paths = [f"{base}/refs/{ref}" for ref in revision.refs]
        small = _plain([*paths, listing])
        paths += [f"{base}/snapshots/{revision.commit}", *filter(os.path.lexists, (listing, absences))]
        paths += [f"{base}/blobs/{blob}" for blob in blobs]
        plain = [file.payload for file in going if not file.blob and file.payload is not None]
        plan = self._of(model, DeleteExtent.REVISION, paths, [*plain, *small, *self._own(repo, blobs)], blobs)
        return replace(plan, revision=revision.commit, refs=revision.refs, name=revision.short)

    def _own(self, repo: Repo, blobs: Iterable[str]) -> list[Payload]:
        """The data of these blobs that lies in the repository itself."""
        found = (repo.blobs[blob].payload for blob in blobs if blob in repo.blobs)
        return [payload for payload in found if payload is not None and not payload.shared]

    def _of(
        self, model: StoredModel, extent: DeleteExtent, paths: list[str], payloads: list[Payload], blobs: Iterable[str]
    ) -> DeletePlan:
        """The plan for these paths, with the shared data behind these blobs that no other model uses."""
        targets: tuple[str, ...] = ()
        if self._hub and is_shared_store(self._hub):
            links = (shared_target(f"{self._path}/blobs/{blob}", f"{self._hub}/blobs/") for blob in blobs)
            targets = tuple(dict.fromkeys(target for target in links if target is not None))
        # The list of references beside the data is a hint; the links of other repositories are the truth.
        kept = set(targets) & self._links_elsewhere() if targets else set()
        behind = [payload_of(os.stat(target), shared=True) for target in targets if os.path.isfile(target)]
        behind += _plain(f"{target}.refs" for target in targets if target not in kept)
        alone = tuple(self._inside(target) for target in targets if target not in kept)
        keys = {payload_of(os.stat(target)).key for target in kept if os.path.isfile(target)}
        freed, stays = freed_by([*payloads, *behind], keys)
        return DeletePlan(
            model=model.id,
            extent=extent,
            name=model.id,
            path=model.path,
            freed=freed,
            stays=stays,
            files=len(payloads) + len(behind),
            removes=tuple(self._inside(path) for path in paths),
            shared=alone,
        )

    def _links_elsewhere(self) -> set[str]:
        """Shared data to which another repository leads."""
        names = (name for name in os.listdir(self._hub) if repo_id(name) is not None)
        others = (path for name in names if (path := f"{self._hub}/{name}") != self._path)
        return {target for path in others for target in self._links(path)}

    def _links(self, repo: str) -> set[str]:
        found = (shared_target(entry.path, f"{self._hub}/blobs/") for entry in entries_of(f"{repo}/blobs"))
        return {target for target in found if target is not None}

    def _inside(self, path: str) -> str:
        return path[len(self._root) + 1 :]

    def _checked(self, plan: DeletePlan) -> DeletePlan:
        found: list[Finding] = []

        def add(id_: str, words: str, remedy: str = "", subject: str = "") -> None:
            found.append(Finding(id_, Severity.ERROR, words, remedy=remedy, subject=subject))

        if self._hub and os.path.realpath(self._hub) != self._hub:
            remedy = f"Set `store` to {clean_line(os.path.dirname(os.path.realpath(self._hub)))} to work there."
            add("outside_store", f"{clean_line(self._hub)} is a link that leads out of the store", remedy, self._hub)
        locks = f"{self._hub}/.locks/{os.path.basename(self._path)}" if self._hub else self._path
        if any(entry.name.endswith(".lock") and is_locked(entry.path) for entry in entries_of(locks)):
            add("downloading", "a download is writing to it", "Wait for it, or pause it.", plan.path)
        denied = self._denied(plan)
        if denied is not None:
            words = (
                f"{clean_line(denied)} belongs to {user_name(os.lstat(denied).st_uid)}: no permission to delete in it"
            )
            add("no_permission", words, chown_command(plan.path), denied)
        if not plan.removes:
            add("nothing_to_delete", "nothing to delete")
        return replace(plan, obstacles=tuple(found))

    def _denied(self, plan: DeletePlan) -> str | None:
        """The first folder that may not be changed: no deletion starts that cannot be finished."""

        def fixed(folder: str) -> bool:
            return not os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True)

        if fixed(self._path) and not os.path.isfile(self._path):
            return self._path
        for path in (f"{self._root}/{removed}" for removed in plan.removes):
            if fixed(above := os.path.dirname(path)):
                return above
            if (within := next((folder for folder, _, _ in os.walk(path) if fixed(folder)), None)) is not None:
                return within
        return None

    # --- the deed -------------------------------------------------------------------------------------

    def carry_out(self, now: DeletePlan, shown: DeletePlan) -> Deleted:
        """Does `now`, the current plan, if it takes no more than the one that was `shown` to a person."""
        now.check()
        if set(now.removes) - set(shown.removes):
            raise RefusedError(f"{now.model} has changed meanwhile.", "Review the new state, then decide.")
        files = 0
        root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            device = os.fstat(root).st_dev
            for path in now.removes:
                files += _remove(root, path, device)
            for path in now.shared:
                files += self._sweep(root, path, device)
            self._tidy(root, now)
        except OSError as error:
            where = clean_line(str(error.filename or now.path))
            remedy = chown_command(now.path) if error.errno in (errno.EACCES, errno.EPERM) else "See what holds it."
            words = f"{now.model} is not wholly deleted: {where}: {reason(error)}."
            raise SparkError(words, remedy, detail=f"{files} files were removed.") from error
        finally:
            os.close(root)
        return Deleted(now, now.freed, files)

    def _sweep(self, root: int, path: str, device: int) -> int:
        """Shared data that no link leads to any more, under its own lock and checked once more."""
        target = f"{self._root}/{path}"
        with _lock(f"{target}.lock") as held:
            if not held or target in self._links_elsewhere() | self._links(self._path):
                return 0
            count = _remove(root, path, device)
            _remove(root, f"{path}.refs", device)
        _remove(root, f"{path}.lock", device)
        return count

    def _tidy(self, root: int, plan: DeletePlan) -> None:
        """Folders of references that are empty now (`refs/pr`)."""
        for ref in plan.refs:
            parts = ref.split("/")[:-1]
            while parts:
                with _parent(root, f"{self._inside(self._path)}/refs/{'/'.join(parts)}") as (folder, name):
                    if folder is None or os.listdir(f"{self._path}/refs/{'/'.join(parts)}"):
                        break
                    os.rmdir(name, dir_fd=folder)
                parts.pop()


# --- by descriptors -------------------------------------------------------------------------------------------


@contextmanager
def _parent(root: int, path: str) -> Iterator[tuple[int | None, str]]:
    """The folder that holds a path, opened step by step from the root without following a link; None when it is not
    there. Raises OSError (ELOOP, ENOTDIR) for a link on the way."""
    *folders, name = path.split("/")
    if not name or any(part in ("", ".", "..") for part in (*folders, name)):
        raise OSError(errno.EINVAL, "not a path within the store", path)
    current = os.dup(root)
    try:
        for part in folders:
            try:
                inner = os.open(part, _FOLDER, dir_fd=current)
            except FileNotFoundError:
                yield None, name
                return
            os.close(current)
            current = inner
        yield current, name
    finally:
        os.close(current)


def _remove(root: int, path: str, device: int) -> int:
    """Removes a file, a link or a whole folder; returns how many files and links went. One that is gone is none."""
    with _parent(root, path) as (folder, name):
        return 0 if folder is None else _remove_at(folder, name, device)


def _remove_at(folder: int, name: str, device: int) -> int:
    try:
        status = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return 0
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=folder)
        return 1
    if status.st_dev != device:
        raise OSError(errno.EXDEV, "another file system is mounted there", name)
    inner = os.open(name, _FOLDER, dir_fd=folder)
    try:
        count = sum(_remove_at(inner, each, device) for each in os.listdir(inner))
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=folder)
    return count


@contextmanager
def _lock(path: str) -> Iterator[bool]:
    """The lock that the Hub's client takes for the same data; False when it is held."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)


def _plain(paths: Iterable[str]) -> list[Payload]:
    """What these take by themselves: of a link, a folder or what is gone, nothing."""
    found = []
    for path in paths:
        with suppress(OSError):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                found.append(payload_of(status))
    return found
