"""The CheckpointSource port: configs and headers of checkpoints in the model store. No tensor is ever read.

A checkpoint is a folder: `hub/models--ORG--NAME/snapshots/REVISION` of the Hugging Face cache, or one of the store's
own. What others put there may be hostile: reads are bounded, links are followed by the kernel (which ends a loop), and
nothing that is not a plain file is opened.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from spark_tui.base.checkpoint import CheckpointFacts, CheckpointProblem, licence_in
from spark_tui.base.engine.container import repository_folder
from spark_tui.base.finding import Missing, Reading, value_of
from spark_tui.base.settings import gguf_folders, hub_caches
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.models.adapter.scan import opened, read_header, read_small, read_up_to
from spark_tui.catalog.models.model.gguf import read_gguf
from spark_tui.catalog.models.model.store import is_gguf
from spark_tui.catalog.models.model.weights import CONFIG, SafetensorsHeader, read_checkpoint

MOST_FILES: Final = 4_000
_MOST_README_BYTES: Final = 256 * 1024
_REPO: Final = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_REVISION: Final = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)
_STORE_TARGET: Final = "/models"


def model_checkpoints(ports: Any) -> StoreCheckpoints:
    """This machine's."""
    environ, home = ports.environ, ports.folders.home
    return StoreCheckpoints(
        ports.settings.store, hub_caches(ports.settings, environ, home), tuple(gguf_folders(environ, home))
    )


class StoreCheckpoints:
    """Reads checkpoints of one store, and of the person's other Hub caches those that the store has not; GGUF files in
    `tools` too, by their paths. Answers are kept until a file of theirs changes."""

    def __init__(self, store: Path, hubs: Sequence[str] = (), tools: Sequence[str] = ()) -> None:
        self._store = store
        self._tools = tools
        self._hubs = (store / "hub", *map(Path, hubs))
        self._kept: dict[Path, tuple[tuple[tuple[str, int, int], ...], Reading[CheckpointFacts]]] = {}

    def read(self, model: str, revision: str = "") -> Reading[CheckpointFacts]:
        """One checkpoint: by its Hub name, or by a path within the store (`/models/NAME` as containers see it)
        or a model root.

        Missing says why: not in the store, without its config, unreadable. A checkpoint with some of its files is
        there, with `weights.complete` false and findings that name the missing ones. A path to a GGUF file is that
        file with its other parts. Never raises.
        """
        path, _, file = model.rpartition("/") if is_gguf(model) else (model, "", "")
        found: list[Reading[CheckpointFacts]] = []
        try:
            folders = self._folders(path + "/" * bool(file), revision)
            if isinstance(folders, Missing):
                return folders
            for folder in folders:
                found.append(self._facts(folder, file))
                facts = value_of(found[-1])
                if facts is not None and facts.weights is not None and facts.weights.complete:
                    return found[-1]
        except (OSError, RuntimeError) as error:  # pathlib raises RuntimeError for a loop of links
            return Missing(f"the checkpoint cannot be read: {_words(error)}")
        return found[0]

    def _facts(self, folder: Path, file: str) -> Reading[CheckpointFacts]:
        stamp, files, place = _stamp(folder), FolderFiles(folder), folder / file
        kept = self._kept.get(place)
        if kept is None or kept[0] != stamp:
            if file:
                found = read_gguf(files, {name: size for name, size, _ in stamp}, file, str(place))
            else:
                licence = licence_in(_text(folder / "README.md", _MOST_README_BYTES) or "")
                found = read_checkpoint(files, str(folder), licence=licence)
            kept = self._kept[place] = (stamp, found)
        return kept[1]

    def _folders(self, model: str, revision: str) -> list[Path] | Missing:
        """Where it lies, the store first; at least one."""
        if "\0" in model:
            return Missing("the model's name is not one")
        if model.startswith(("/", "~")):
            root = self._store.resolve()
            inside = model.removeprefix(_STORE_TARGET + "/")
            folder = (Path(model).expanduser() if inside == model else root / inside.lstrip("/")).resolve()
            places = (root, *self._hubs, *map(Path, self._tools))
            if not any(folder.is_relative_to(each.resolve()) for each in places):
                return Missing("outside of the model store")
            return [folder] if folder.is_dir() else Missing("not in the model store")
        if _REPO.fullmatch(model) is None or ".." in model:
            return Missing("the model's name is not that of a repository")
        own = self._store / model.rpartition("/")[2]  # downloaded with --local-dir
        repos = [repo for hub in self._hubs if (repo := hub / repository_folder(model)).is_dir()]
        found = [_snapshot(repo, revision) for repo in repos]
        folders = [each for each in found if isinstance(each, Path)]
        if not folders and (own / CONFIG).is_file():
            return [own]
        return folders or next((each for each in found if isinstance(each, Missing)), Missing("not in the model store"))


def _snapshot(repo: Path, revision: str) -> Path | Missing:
    """The folder of a revision: a commit by itself, a branch by its ref. Without one, `main`, else the only one."""
    snapshots = repo / "snapshots"
    wanted = revision or "main"
    if _REVISION.fullmatch(wanted) is None or ".." in wanted:
        return Missing("the revision's name is not one")
    ref = _text(repo / "refs" / wanted)
    commit = ref.strip() if ref is not None and _REVISION.fullmatch(ref.strip()) else wanted
    folder = snapshots / commit
    if folder.is_dir() and ".." not in commit:
        return folder
    if not revision and snapshots.is_dir():
        found = [entry for entry in _entries(snapshots) if entry.is_dir()]
        if len(found) == 1:
            return found[0]
    return Missing("download not started" if not snapshots.is_dir() else f"revision {wanted} is not downloaded")


class FolderFiles:
    """The CheckpointFiles of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> Iterator[str]:
        return (entry.name for entry in _entries(self._folder))

    def head(self, path: str, most: int) -> bytes | CheckpointProblem | None:
        try:
            with opened(str(self._folder / path)) as descriptor:
                return read_up_to(descriptor, most)
        except FileNotFoundError:
            return None
        except OSError as error:
            return CheckpointProblem(path, f"cannot be read: {_words(error)}")

    def headers(self, paths: Sequence[str]) -> list[SafetensorsHeader | CheckpointProblem]:
        found: list[SafetensorsHeader | CheckpointProblem] = []
        for path in paths:
            name = truncate(clean_line(path), 80)
            try:
                with opened(str(self._folder / path)) as descriptor:
                    found.append(read_header(descriptor, name))
            except FileNotFoundError:
                found.append(CheckpointProblem(name, "is not downloaded"))
            except OSError as error:
                found.append(CheckpointProblem(name, f"cannot be read: {_words(error)}"))
        return found


def _text(path: Path, most: int = 256) -> str | None:
    data = read_small(str(path), most)
    return None if data is None else data.decode("utf-8", "replace")


def _entries(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as found:
        for entry in itertools.islice(found, MOST_FILES):
            yield folder / entry.name


def _stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of its files, links followed: equal while nothing has changed."""
    found = []
    for path in _entries(folder):
        try:
            status = path.stat()
        except OSError:
            found.append((path.name, -1, -1))
        else:
            found.append((path.name, status.st_size, status.st_mtime_ns))
    return tuple(sorted(found))


def _words(error: Exception) -> str:
    return clean_line(getattr(error, "strerror", None) or str(error)) or type(error).__name__
