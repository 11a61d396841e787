"""Who uses a stored model: presets by what they name, containers by what they name and what they can see."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.finding import Reading, value_of
from spark_tui.catalog.models.model.store import Layout, StoreContents, StoredModel, VerifyProgress
from spark_tui.catalog.presets.model.preset import Preset

_STORE = "/models"


class User(StrEnum):
    """What uses it. An ended engine needs it again when it is started."""

    PRESET = "preset"
    ENGINE = "engine"
    ENDED_ENGINE = "ended engine"


class ModelUse(Struct, frozen=True):
    """One user. `sure` is false for a container that can read the model without naming the one it reads."""

    kind: User
    name: str
    sure: bool = True

    @property
    def words(self) -> str:
        """`qwen36 runs with it`, `qwen36 may use it`."""
        if self.kind is User.PRESET:
            return f"the preset {self.name} serves it"
        if not self.sure:
            return f"{self.name} mounts the store; its model is unknown"
        return f"{self.name} {'runs with it' if self.kind is User.ENGINE else 'needs it when it is started again'}"


class LibraryEntry(Struct, frozen=True):
    """One model and who uses it: running engines first, presets last. `check` is the verification that runs now, or
    the last one of this session; `failure` why it ended early."""

    model: StoredModel
    uses: tuple[ModelUse, ...] = ()
    check: VerifyProgress | None = None
    failure: str = ""

    @property
    def engines(self) -> tuple[ModelUse, ...]:
        """Engines that run with it, or may."""
        return tuple(use for use in self.uses if use.kind is User.ENGINE)

    @property
    def presets(self) -> tuple[str, ...]:
        return tuple(use.name for use in self.uses if use.kind is User.PRESET)


class LibraryView(Struct, frozen=True):
    """Everything that a Models screen shows. `elsewhere` are models of this person's other caches. `engines_unknown` is
    why nothing can be said of engines, empty when it can. Equal views need no repaint."""

    contents: StoreContents
    entries: tuple[LibraryEntry, ...] = ()
    engines_unknown: str = ""
    elsewhere: tuple[LibraryEntry, ...] = ()

    def get(self, model: str) -> LibraryEntry | None:
        """The entry of that id, or of the folder of that name; else that of a file which another tool has, by its path
        too."""
        found = self.contents.find(model)
        if found is not None:
            return next((entry for entry in self.entries if entry.model.id == found.id), None)
        files = (entry for entry in self.elsewhere if entry.model.layout is Layout.FOLDER)
        return next((entry for entry in files if model in (entry.model.id, entry.model.path)), None)


def stored_commit(library: Reading[LibraryView], model: str) -> str:
    """The model's current commit in the store; empty where that is unknown."""
    found = value_of(library)
    stored = found.contents.find(model) if found is not None and model else None
    return stored.commit if stored is not None else ""


class PresetUses:
    """Which presets name a model: to serve it, to draft with it, or as files that they need."""

    def __init__(self, presets: Iterable[Preset]) -> None:
        self._named = [
            (preset.name, _files(preset), "\n".join((preset.model, preset.command, *_texts(preset))))
            for preset in presets
        ]

    def of(self, model: StoredModel, root: str, home: str = "") -> list[ModelUse]:
        """In the order of the presets."""
        ways = _ways(model, root, home)
        return [
            ModelUse(User.PRESET, name)
            for name, files, text in self._named
            if model.id in files or (any(way in text for way in ways) and _names((text,), ways))
        ]


def container_use(model: StoredModel, container: ContainerFacts, named: str = "") -> ModelUse | None:
    """Whether a container uses the model. `named` is the model that its server reports, empty when unknown.

    It must see the model through a mount: a name alone may mean a copy elsewhere.
    """
    kind = User.ENGINE if container.running else User.ENDED_ENGINE
    seen = _seen(model.path, container)
    if seen is None:
        return None
    texts = (*container.argv, container.model, named)
    ways = (seen, model.id) if model.layout is Layout.CACHE else (seen,)
    whole = any(f"{mount.source.rstrip('/')}/".startswith(f"{model.path}/") for mount in container.mounts)
    if whole or _names(texts, ways):
        return ModelUse(kind, container.name)
    if named or container.model or not container.running:
        return None
    return ModelUse(kind, container.name, sure=False)


def _files(preset: Preset) -> frozenset[str]:
    files = preset.facts.required_files
    return frozenset(name for file in files for name in (file.repo, posixpath.join(_STORE, file.target)))


def _texts(preset: Preset) -> Iterable[str]:
    values = (value for _, value in (*preset.defaults, *preset.env))
    return (value if isinstance(value, str) else json.dumps(value) for value in values)


def _ways(model: StoredModel, root: str, home: str) -> tuple[str, ...]:
    """How a preset may spell it: as the container sees it, or by its path on this machine."""
    inside = posixpath.relpath(model.path, root) if model.path.startswith(root.rstrip("/") + "/") else ""
    ways = [model.id, model.path, *([f"{_STORE}/{inside}"] if inside else [])]
    if home and model.path.startswith(home.rstrip("/") + "/"):
        ways.append("~" + model.path[len(home.rstrip("/")) :])
    return tuple(ways)


def _seen(path: str, container: ContainerFacts) -> str | None:
    """Where the container sees a path of the host; None when it does not."""
    for mount in sorted(container.mounts, key=lambda mount: -len(mount.source)):
        source = mount.source.rstrip("/") or "/"
        if path == source or path.startswith(source.rstrip("/") + "/"):
            return posixpath.join(mount.target, path[len(source) :].lstrip("/")).rstrip("/")
        if source.startswith(path + "/"):
            return mount.target
    return None


def _names(texts: Iterable[str], ways: Iterable[str]) -> bool:
    """Whether one of the texts holds one of the spellings as a whole word, or a path below it."""
    pattern = "|".join(re.escape(way) for way in ways if way)
    word = re.compile(rf"(?<![\w./~-])(?:{pattern})(?=/|[^\w.-]|$)")
    return any(word.search(text) for text in texts if text)
