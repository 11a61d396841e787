"""Where a file of a download lies: while it arrives, once it is whole, and under which name engines find it.

In the Hub's cache a file is `blobs/DIGEST` with a link from `snapshots/COMMIT/PATH`; while it arrives it is
`blobs/DIGEST.incomplete`, as huggingface_hub had it up to version 0.36 (later ones throw parts away), so that a part
left by an older one is resumed. In a folder it is `PATH`, with its part below `.cache/huggingface/download`.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.domain.models import hub_errors
from spark_tui.domain.models.download import DownloadRequest
from spark_tui.domain.models.hub import RepoFile

PART: Final = ".incomplete"


@dataclass(frozen=True, slots=True)
class Place:
    """One file. `link` is the name in the cache's snapshot, None elsewhere. `lock` is what the library locks too."""

    whole: Path
    part: Path
    link: Path | None = None
    lock: Path | None = None

    def here(self, size: int | None) -> int:
        """Bytes that are on the disk. A file of another size than the Hub's is none of it."""
        for path in (self.link, self.whole):
            found = _size(path)
            if found is not None and (size is None or found == size):
                return found
        part = _size(self.part) or 0
        return part if size is None else min(part, size)

    def is_whole(self, size: int | None) -> bool:
        """The file is there, with its size."""
        return any((found := _size(path)) is not None and (size is None or found == size)
                   for path in (self.link, self.whole))  # fmt: skip


class Places:
    """Where the files of one request lie, once its commit is known."""

    def __init__(self, store: Path, request: DownloadRequest, commit: str) -> None:
        self._store = store
        self._request = request
        self._commit = commit
        self.hub = store / "hub"

    @property
    def in_cache(self) -> bool:
        """It goes into the Hub's cache."""
        return not self._request.target

    @property
    def folder(self) -> Path:
        """The repository's folder of the cache, or the request's own. Raises UsageError for one outside the store."""
        if self.in_cache:
            return self.hub / f"models--{self._request.repo.replace('/', '--')}"
        target = _inside(self._store, self._request.target)
        return target.parent if self._request.single else target

    def of(self, file: RepoFile) -> Place:
        """The places of one file of the repository."""
        if self.in_cache:
            blob = self.folder / "blobs" / file.digest
            return Place(
                blob,
                blob.with_name(file.digest + PART),
                self.folder / "snapshots" / self._commit / file.path,
                self.hub / ".locks" / self.folder.name / f"{file.digest}.lock",
            )
        if self._request.single:
            return self.single()
        # The library's own folder, and a name that says what is in it, however long the path is.
        name = f"{file.path.replace('/', '--')[-120:]}.{file.digest[:64]}{PART}"
        return Place(_inside(self.folder, file.path), self.folder / ".cache/huggingface/download" / name)

    def single(self) -> Place:
        """The place of the one file that the target itself names."""
        whole = _inside(self._store, self._request.target)
        return Place(whole, whole.with_name(f".{whole.name}{PART}"))

    # --- what engines and the library read --------------------------------------------------------------

    def write_metadata(self, file: RepoFile) -> None:
        """Tells the library what a folder's file is, by commit, ETag and time: it hashes others. Raises OSError."""
        path = self.folder / ".cache/huggingface/download" / f"{file.path}.metadata"
        path.parent.mkdir(parents=True, exist_ok=True)
        _put(path, f"{self._commit}\n{file.digest}\n{time.time()}\n")

    def is_named(self) -> bool:
        """Whether the branch or tag that was asked for leads to this commit; always, outside of the cache."""
        if not self.in_cache or self._request.revision == self._commit:
            return True
        try:
            return _inside(self.folder / "refs", self._request.revision).read_text("utf-8").strip() == self._commit
        except (OSError, ValueError):
            return False

    def write_ref(self) -> None:
        """Says which commit a branch or tag means: at the end, so that an engine never finds half a model by its name.

        Raises OSError.
        """
        revision = self._request.revision
        if revision != self._commit:
            path = _inside(self.folder / "refs", revision)
            path.parent.mkdir(parents=True, exist_ok=True)
            _put(path, self._commit)


def _put(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    beside.write_text(text, "utf-8")
    beside.replace(path)


def _inside(root: Path, path: str) -> Path:
    """`root/path`, which must stay below `root`: names come from recipes and repositories of strangers."""
    parts = Path(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise UsageError(f"{path!r} is not a place within the model store.", "Name a folder or file below it.")
    return root.joinpath(*parts)


def _size(path: Path | None) -> int | None:
    try:
        return path.stat().st_size if path is not None and path.is_file() else None
    except OSError:
        return None


def free_bytes(path: Path) -> int:
    """Free on the file system that holds `path`, or its nearest parent. Raises OSError."""
    while not path.exists() and path != path.parent:
        path = path.parent
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def made(path: Path) -> Path:
    """A folder, made where it is absent. Raises the store's errors."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise io_error(error, path) from error
    return path


def io_error(error: OSError, path: Path) -> SparkError:
    """What a failed write means."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return hub_errors.disk_full(str(path))
    where = error.filename if isinstance(error.filename, str) else str(path)
    return hub_errors.not_writable(where, error.strerror or str(error))
