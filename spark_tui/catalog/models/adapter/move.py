"""Moves a repository from one Hub cache into another: renamed on one file system, else linked or copied and verified.

At each moment one cache has all of it under its name. What is under way lies beside it, under a name that no client
of the Hub reads: the copy in the target's cache until it is whole, what is left in the source's until it is deleted. A
move that was killed is finished by the next one.
"""

# Links, descriptors and renames: Path has the same, slower, under other names.
# ruff: noqa: PTH103, PTH104, PTH108, PTH113, PTH114, PTH115, PTH119, PTH120, PTH123, PTH202, PTH211

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.base.executors import ThreadQueue
from spark_tui.base.text import clean_line
from spark_tui.catalog.models.adapter.delete import Deletion
from spark_tui.catalog.models.adapter.scan import INCOMPLETE, ModelScan, inside, opened, read_repo, shared_target
from spark_tui.catalog.models.adapter.verify import CHUNK, Verification
from spark_tui.catalog.models.model.store import (
    DeleteExtent,
    FileCheck,
    FileVerdict,
    Layout,
    MovePlan,
    MoveProgress,
    MoveWay,
    StoredModel,
    VerifyProgress,
    shown,
)

COMING: Final = ".spark-tui-coming-"
LEAVING: Final = ".spark-tui-leaving-"
_PART: Final = ".part"


def beside(path: str, prefix: str) -> str:
    """Where a repository lies while it is under way."""
    folder, name = os.path.split(path)
    return f"{folder}/{prefix}{name}"


class Move:
    """A producer of MoveProgress for `StreamThreads`. The plan's paths are without links."""

    def __init__(self, plan: MovePlan, uid: int, now: float) -> None:
        self._plan = plan
        self._uid = uid
        self._now = now
        self._done = 0
        self._work: Verification | None = None
        self._checks: tuple[FileCheck, ...] = ()
        self._cancelled = threading.Event()

    def run(self, handover: ThreadQueue[MoveProgress]) -> None:
        """Reports until it is done. Raises RefusedError where another move is at work, SparkError for what failed."""
        plan, self._handover = self._plan, handover
        try:
            os.makedirs(os.path.dirname(plan.target), exist_ok=True)
            with _alone(beside(plan.target, COMING) + ".lock"):
                if plan.way is MoveWay.COPY:
                    self._bring(beside(plan.target, COMING))
                elif plan.way is MoveWay.KEEP_ONE:
                    self._compare(plan.target)
                self._leave()
        except OSError as error:
            where = clean_line(str(error.filename or plan.source))
            words = f"{plan.model} is not moved: {where}: {clean_line(error.strerror or str(error)).lower()}."
            raise SparkError(words, f"Nothing is lost. Try again: {plan.command}") from error
        handover.replace(MoveProgress(plan.model, "moved", plan.size, plan.size, over=True))

    def cancel(self) -> None:
        """Ends it at the next chunk; the next move continues there."""
        self._cancelled.set()
        if self._work is not None:
            self._work.cancel()

    # --- arriving -------------------------------------------------------------------------------------

    def _bring(self, staging: str) -> None:
        """Fills the copy, and gives it its name once it is whole."""
        source = self._plan.source
        for folder, folders, files in os.walk(source):
            inside = staging + folder[len(source) :]
            os.makedirs(inside, exist_ok=True)
            for name in (*folders, *files):
                path, place = f"{folder}/{name}", f"{inside}/{name}"
                shared = shared_target(path, f"{os.path.dirname(source)}/blobs/")
                kept = os.path.lexists(place) and not inside.startswith(
                    f"{staging}/refs"
                )  # they may lead elsewhere now
                if kept or name.endswith(INCOMPLETE):
                    self._done += os.path.getsize(place) if os.path.isfile(place) and not os.path.islink(place) else 0
                elif shared is not None:
                    self._transfer(shared, place)
                elif os.path.islink(path):
                    os.symlink(_relative(path, source), place)
                elif os.path.isfile(path):
                    self._transfer(path, place)
        self._compare(staging)
        os.rename(staging, self._plan.target)
        os.sync()  # before the source goes

    def _transfer(self, source: str, place: str) -> None:
        """A link to the same data where the file system allows one, else a copy that is whole under its name."""
        with suppress(OSError):
            os.link(source, place)
            return
        with opened(source) as reading, open(place + _PART, "wb") as writing:
            while data := os.read(reading, CHUNK):
                writing.write(data)
                self._done += len(data)
                name, most = os.path.basename(place), self._plan.size
                self._handover.replace(MoveProgress(self._plan.model, "copying", min(self._done, most), most, name))
            writing.flush()
            os.fsync(writing.fileno())
            for each in (reading, writing.fileno()):  # on a Spark the page cache is the GPU's memory
                os.posix_fadvise(each, 0, 0, os.POSIX_FADV_DONTNEED)
        os.rename(place + _PART, place)

    def _compare(self, place: str) -> None:
        """Hashes what is to stay; raises SparkError where it is not all that the source has."""
        plan, hub = self._plan, os.path.dirname(place)
        wanted = read_repo(
            ModelScan(os.path.dirname(plan.source), plan.source, self._uid), hub=os.path.dirname(plan.source)
        )
        found = read_repo(ModelScan(hub, place, self._uid), hub=hub)
        for commit, files in wanted.files.items():
            sizes = {file.name: file.size for file in found.files.get(commit, ())}
            base = f"{place}/snapshots/{commit}"
            borrowed = (each.name for each in files if inside(os.path.realpath(f"{base}/{each.name}"), plan.source))
            other = next((file.name for file in files if sizes.get(file.name) != file.size), None) or next(
                borrowed, None
            )
            if other is not None:
                self._differs(place, other)
            self._work = Verification(plan.model, commit, base, found.files[commit])
            self._work.run(self)  # type: ignore[arg-type]
            bad = next(
                (each.name for each in self._checks if each.verdict not in (FileVerdict.MATCHES, FileVerdict.UNTOLD)),
                None,
            )
            if bad is not None:
                self._differs(place, bad)

    def replace(self, progress: VerifyProgress) -> None:
        """Takes a verification's progress in its queue's place."""
        self._checks = progress.checks
        self._handover.replace(MoveProgress(progress.model, "verifying", progress.done, progress.total, progress.name))

    def _differs(self, place: str, name: str) -> None:
        if place != self._plan.target:
            shutil.rmtree(place)
        raise SparkError(
            f"The copies of {self._plan.model} differ ({shown(name)}): none was deleted.",
            f"Find the damaged one: spark-tui models verify {self._plan.model}",
        )

    # --- leaving --------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Takes the source's name away at once, then its files, and shared data that no other repository uses."""
        plan = self._plan
        hub, left = os.path.dirname(plan.source), beside(plan.source, LEAVING)
        if plan.way is MoveWay.RENAME:
            os.rename(plan.source, plan.target)
            return
        if plan.way is not MoveWay.FINISH:
            os.rename(plan.source, left)
        deletion = Deletion(hub, left, hub, self._uid, self._now)
        going = deletion.plan(StoredModel(plan.model, Layout.CACHE, left), DeleteExtent.MODEL)
        deletion.carry_out(going, going)


def _relative(path: str, root: str) -> str:
    """Where a link leads: within the repository by a relative path, so that it still does at another place."""
    target = os.readlink(path)
    return os.path.relpath(target, os.path.dirname(path)) if target.startswith(f"{root}/") else target


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """One move into a place at a time; the lock ends with its process."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise RefusedError("This model is being moved already.", "Wait for it.") from None
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(path)
        os.close(descriptor)
