"""Deletes models, revisions and leftovers: first a plan that tells what comes back, then the deed.

The deed walks from the store's root by descriptors, never through a link and never onto another file system, so that
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
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from spark_tui.domain.errors import RefusedError, SparkError
from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.models.store import (
    Deleted,
    DeletePlan,
    Extent,
    Payload,
    StoredModel,
    StoredRevision,
    freed_by,
)
from spark_tui.domain.text import clean_line
from spark_tui.services.files import is_locked
from spark_tui.services.store.scan import (
    Repo,
    Survey,
    chown_command,
    is_shared_store,
    payload_of,
    read_repo,
    reason,
    repo_id,
    shared_target,
    user_name,
    walk,
)

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Deletion:
    """One model of one store. `path` and `root` are without links; `hub` is empty for a folder of the store's own."""

    def __init__(self, root: str, path: str, hub: str, uid: int, now: float) -> None:
        self._root = root
        self._path = path
        self._hub = hub
        self._survey = Survey(root, path, uid, now)

    # --- the plan -------------------------------------------------------------------------------------

    def plan(self, model: StoredModel, extent: Extent, revision: StoredRevision | None = None) -> DeletePlan:
        """What goes. The last revision of a repository takes the repository with it."""
        if extent is Extent.REVISION and (not self._hub or len(model.revisions) < 2):
            extent, revision = Extent.MODEL, None
        if not self._hub:
            return self._checked(self._folder_plan(model, extent))
        repo = read_repo(self._survey, hub=self._hub)
        if extent is Extent.MODEL:
            return self._checked(self._repo_plan(model, repo))
        if extent is Extent.REVISION and revision is not None:
            return self._checked(self._revision_plan(model, repo, revision))
        return self._checked(self._leftovers_plan(model, repo))

    def _folder_plan(self, model: StoredModel, extent: Extent) -> DeletePlan:
        base = self._inside(self._path)
        if extent is Extent.LEFTOVERS:
            found = [
                (entry.path, _payload(entry))
                for _, entry in walk(self._survey, f"{self._path}/.cache/huggingface/download")
                if entry.name.endswith(".incomplete")
            ]
            return self._of(model, extent, [path for path, _ in found], [each for _, each in found if each], ())
        if os.path.isfile(self._path):
            payloads = [payload_of(os.lstat(self._path))]
        else:
            payloads = [each for _, entry in walk(self._survey, self._path) if (each := _payload(entry)) is not None]
        plan = self._of(model, extent, [], payloads, ())
        return replace(plan, removes=(base,))

    def _repo_plan(self, model: StoredModel, repo: Repo) -> DeletePlan:
        payloads = [each for _, entry in walk(self._survey, self._path) if (each := _payload(entry)) is not None]
        locks = f"{self._hub}/.locks/{os.path.basename(self._path)}"
        paths = [self._path, *([locks] if os.path.isdir(locks) else [])]
        return self._of(model, Extent.MODEL, paths, payloads, tuple(repo.blobs))

    def _revision_plan(self, model: StoredModel, repo: Repo, revision: StoredRevision) -> DeletePlan:
        kept = {file.blob for commit, files in repo.files.items() if commit != revision.commit for file in files}
        going = repo.files.get(revision.commit, ())
        blobs = tuple(dict.fromkeys(file.blob for file in going if file.blob and file.blob not in kept))
        base = self._path
        optional = (f"{base}/trees/{revision.commit}.json", f"{base}/.no_exist/{revision.commit}")
        paths = [f"{base}/refs/{ref}" for ref in revision.refs]
        paths += [f"{base}/snapshots/{revision.commit}", *(path for path in optional if os.path.lexists(path))]
        plain = [file.payload for file in going if not file.blob and file.payload is not None]
        plain += _papers(path for path in paths if not path.endswith(revision.commit))
        paths += [f"{base}/blobs/{blob}" for blob in blobs]
        own = [found.payload for blob in blobs if (found := repo.blobs.get(blob)) and found.payload is not None]
        payloads = [*plain, *(each for each in own if not each.shared)]
        plan = self._of(model, Extent.REVISION, paths, payloads, blobs)
        return replace(plan, revision=revision.commit, refs=revision.refs, name=revision.short)

    def _leftovers_plan(self, model: StoredModel, repo: Repo) -> DeletePlan:
        used = {file.blob for files in repo.files.values() for file in files}
        blobs = tuple(name for name in repo.blobs if name not in used)
        folder = f"{self._path}/blobs"
        loose = [entry for _, entry in walk(self._survey, folder) if entry.name.endswith(".incomplete")]
        own = [repo.blobs[blob].payload for blob in blobs]
        payloads = [each for each in own if each is not None and not each.shared]
        payloads += [each for entry in loose if (each := _payload(entry)) is not None]
        paths = [*(entry.path for entry in loose), *(f"{folder}/{blob}" for blob in blobs)]
        return self._of(model, Extent.LEFTOVERS, paths, payloads, blobs)

    def _of(
        self, model: StoredModel, extent: Extent, paths: list[str], payloads: list[Payload], blobs: Iterable[str]
    ) -> DeletePlan:
        """The plan for these paths, with the shared data behind these blobs that nobody else uses."""
        targets = self._targets(blobs)
        kept = self._kept(targets)
        behind = [payload_of(os.stat(target), shared=True) for target in targets if os.path.isfile(target)]
        behind += _papers(f"{target}.refs" for target in targets if target not in kept)
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

    def _targets(self, blobs: Iterable[str]) -> tuple[str, ...]:
        """The shared data behind blobs."""
        if not self._hub or not is_shared_store(self._hub):
            return ()
        store = f"{self._hub}/blobs/"
        found = (shared_target(f"{self._path}/blobs/{blob}", store) for blob in blobs)
        return tuple(dict.fromkeys(target for target in found if target is not None))

    def _kept(self, targets: tuple[str, ...]) -> set[str]:
        """Those of them to which a link of this or another repository leads that is not going: the list of
        references beside the data is a hint, the links are the truth."""
        return set(targets) & self._links_elsewhere() if targets else set()

    def _links_elsewhere(self) -> set[str]:
        store = f"{self._hub}/blobs/"
        found = set()
        for name in os.listdir(self._hub):
            path = f"{self._hub}/{name}"
            if repo_id(name) is None or path == self._path:
                continue
            with _listing(f"{path}/blobs") as entries:
                found |= {target for entry in entries if (target := shared_target(entry.path, store)) is not None}
        return found

    def _inside(self, path: str) -> str:
        return path[len(self._root) + 1 :]

    def _checked(self, plan: DeletePlan) -> DeletePlan:
        """With what stands in its way."""
        obstacles = [each for each in (self._linked(), self._writing(plan), self._denied(plan)) if each is not None]
        if not plan.removes:
            obstacles.append(Finding("nothing_to_delete", Severity.ERROR, "nothing to delete"))
        return replace(plan, obstacles=tuple(obstacles))

    def _linked(self) -> Finding | None:
        if self._hub and os.path.realpath(self._hub) != self._hub:
            target = os.path.dirname(os.path.realpath(self._hub))
            words = f"{clean_line(self._hub)} is a link that leads out of the store"
            remedy = f"Set `store` to {clean_line(target)} to work there."
            return Finding("outside_store", Severity.ERROR, words, remedy=remedy, subject=self._hub)
        return None

    def _writing(self, plan: DeletePlan) -> Finding | None:
        locks = f"{self._hub}/.locks/{os.path.basename(self._path)}" if self._hub else self._path
        with _listing(locks) as entries:
            if any(entry.name.endswith(".lock") and is_locked(entry.path) for entry in entries):
                summary, remedy = "a download is writing to it", "Wait for it, or pause it."
                return Finding("downloading", Severity.ERROR, summary, remedy=remedy, subject=plan.path)
        return None

    def _denied(self, plan: DeletePlan) -> Finding | None:
        """A folder of somebody else's: nothing is begun that cannot be ended."""
        reachable = _may_change(self._path) or os.path.isfile(self._path)
        denied = self._denied_below(plan) if reachable else self._path
        if denied is None:
            return None
        owner = clean_line(user_name(os.lstat(denied).st_uid))
        words = f"{clean_line(denied)} belongs to {owner}: no permission to delete in it"
        return Finding("no_permission", Severity.ERROR, words, remedy=chown_command(plan.path), subject=denied)

    def _denied_below(self, plan: DeletePlan) -> str | None:
        for removed in plan.removes:
            path = f"{self._root}/{removed}"
            above = os.path.dirname(path)
            if not _may_change(above):
                return above
            for folder, _, _ in os.walk(path):
                if not _may_change(folder):
                    return folder
        return None

    # --- the deed -------------------------------------------------------------------------------------

    def carry_out(self, now: DeletePlan, shown: DeletePlan) -> Deleted:
        """Does `now`, the plan made anew, if it takes no more than the one that was `shown` to a person."""
        if now.obstacles:
            first = now.obstacles[0]
            raise RefusedError(f"{now.model} is not deleted: {first.summary}.", first.remedy or "Nothing was changed.")
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
        """Shared data that nobody leads to any more, under its own lock and looked at once more."""
        target = f"{self._root}/{path}"
        with _lock(f"{target}.lock") as held:
            if not held or target in self._links_elsewhere() | self._own_links():
                return 0
            count = _remove(root, path, device)
            _remove(root, f"{path}.refs", device)
        _remove(root, f"{path}.lock", device)
        return count

    def _own_links(self) -> set[str]:
        with _listing(f"{self._path}/blobs") as entries:
            found = (shared_target(entry.path, f"{self._hub}/blobs/") for entry in entries)
            return {target for target in found if target is not None}

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


@contextmanager
def _listing(folder: str) -> Iterator[list[os.DirEntry[str]]]:
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except OSError:
        entries = []
    yield entries


def _may_change(folder: str) -> bool:
    """Whether what is in a folder can be listed and removed."""
    return os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True)


def _papers(paths: Iterable[str]) -> list[Payload]:
    """The small files beside the data: references, listings."""
    return [payload_of(status) for path in paths if (status := _plain(path)) is not None]


def _plain(path: str) -> os.stat_result | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _payload(entry: os.DirEntry[str]) -> Payload | None:
    """What a name itself takes: a link takes nothing."""
    try:
        return None if entry.is_symlink() else payload_of(entry.stat(follow_symlinks=False))
    except OSError:
        return None
