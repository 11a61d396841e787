"""Results of earlier scans on the disk: a model is looked into again only when a folder or weight file of it has
changed. The file is a convenience: whatever is wrong with it, the store is read anew."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from spark_tui.domain.models.store import (
    Completeness,
    Layout,
    Payload,
    RepoKind,
    StoredModel,
    StoredRevision,
    StoreFinding,
)
from spark_tui.services.model_store_disk import Mark, unchanged

VERSION: Final = 1
_MOST_BYTES: Final = 64 << 20
_SETTLED_NS: Final = 2_000_000_000
"""A folder that changed less than two seconds before it was read may change again within the clock's step."""


class PrivateFiles(Protocol):
    """Private files, as `services.files.PrivateFolder` keeps them."""

    def file(self, name: str, suffix: str = "") -> Path:
        """Where the file for `name` is, or would be."""

    def read(self, path: Path, most: int = ...) -> bytes | None:
        """A file directly in the folder, or None; raises OSError."""

    def write(self, path: Path, chunks: Iterable[bytes]) -> Path:
        """Puts a private file in place; raises OSError."""


class KeptScans:
    """Models by their path, with the marks that tell whether they still hold."""

    def __init__(self, files: PrivateFiles | None, root: str, uid: int) -> None:
        self._files = files
        name = f"store-{hashlib.sha256(f'{root}:{uid}'.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
        self._name = name
        self._kept: dict[str, tuple[list[Mark], StoredModel]] | None = None
        self._changed = False

    def get(self, path: str) -> StoredModel | None:
        """The model at a path as it was, when nothing of it has changed; with when it was last used."""
        kept = self._all().get(path)
        if kept is None:
            return None
        used = unchanged(path, kept[0])
        if used is None:
            return None
        model = kept[1]
        return replace(model, used=used) if used > (model.used or 0.0) else model

    def put(self, path: str, model: StoredModel, marks: list[Mark], newest: int, now: float) -> None:
        """Keeps a model, unless it has changed just now."""
        if newest > now * 1e9 - _SETTLED_NS:
            self.drop(path)
            return
        self._all()[path] = (marks, model)
        self._changed = True

    def drop(self, path: str) -> None:
        """Forgets a model."""
        self._changed = self._all().pop(path, None) is not None or self._changed

    def save(self, paths: set[str]) -> None:
        """Writes what has changed, without models that are gone. Raises OSError."""
        for path in set(self._all()) - paths:
            self.drop(path)
        if not self._changed or self._files is None:
            return
        entries = {path: [marks, _packed(model)] for path, (marks, model) in self._all().items()}
        text = json.dumps({"version": VERSION, "models": entries}, separators=(",", ":"))
        self._files.write(self._files.file(self._name, ".json"), [text.encode("ascii")])
        self._changed = False

    def _all(self) -> dict[str, tuple[list[Mark], StoredModel]]:
        if self._kept is None:
            self._kept = self._load()
        return self._kept

    def _load(self) -> dict[str, tuple[list[Mark], StoredModel]]:
        try:
            if self._files is None:
                return {}
            data = self._files.read(self._files.file(self._name, ".json"), _MOST_BYTES)
            found = json.loads(data) if data else {}
            if not isinstance(found, dict) or found.get("version") != VERSION:
                return {}
            return {path: _unpacked(path, entry) for path, entry in found["models"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}  # an older version's, or damaged: it is written anew


def _packed(model: StoredModel) -> dict[str, Any]:
    """As short as can be read back: a store of hundreds of models is loaded before the first list is shown."""
    return {
        "id": model.id,
        "layout": model.layout.value,
        "kind": model.kind.value,
        "revisions": [_packed_revision(each) for each in model.revisions],
        "commit": model.commit,
        "state": model.completeness.value,
        "reasons": model.reasons,
        "sizes": (model.size, model.disk, model.loose),
        "shared": [(p.key, p.size, p.disk, p.links, p.modified, p.used, p.owner, p.shared) for p in model.shared],
        "times": (model.used, model.modified),
        "foreign": (model.foreign, model.owner),
        "findings": [(each.what, each.remedy, each.path) for each in model.findings],
    }


def _packed_revision(revision: StoredRevision) -> tuple[Any, ...]:
    return (
        revision.commit, revision.path, revision.refs, revision.files, revision.size, revision.expected,
        revision.completeness.value, revision.reasons, revision.missing, revision.modified,
    )  # fmt: skip


def _unpacked(path: str, entry: Any) -> tuple[list[Mark], StoredModel]:
    marks, found = entry
    size, disk, loose = found["sizes"]
    used, modified = found["times"]
    foreign, owner = found["foreign"]
    model = StoredModel(
        id=str(found["id"]),
        layout=Layout(found["layout"]),
        path=path,
        kind=RepoKind(found["kind"]),
        revisions=tuple(_unpacked_revision(each) for each in found["revisions"]),
        commit=str(found["commit"]),
        completeness=Completeness(found["state"]),
        reasons=_texts(found["reasons"]),
        size=int(size),
        disk=int(disk),
        loose=int(loose),
        shared=tuple(Payload(*each) for each in found["shared"]),
        used=None if used is None else float(used),
        modified=None if modified is None else float(modified),
        foreign=int(foreign),
        owner=str(owner),
        findings=tuple(StoreFinding(str(what), str(remedy), str(where)) for what, remedy, where in found["findings"]),
    )
    return [(str(name), int(changed), int(size)) for name, changed, size in marks], model


def _unpacked_revision(found: Any) -> StoredRevision:
    commit, path, refs, files, size, expected, state, reasons, missing, modified = found
    return StoredRevision(
        commit=str(commit),
        path=str(path),
        refs=_texts(refs),
        files=int(files),
        size=int(size),
        expected=None if expected is None else int(expected),
        completeness=Completeness(state),
        reasons=_texts(reasons),
        missing=_texts(missing),
        modified=float(modified),
    )


def _texts(found: Any) -> tuple[str, ...]:
    return tuple(str(each) for each in found)
