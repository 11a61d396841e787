"""The ModelStore port: the folder of the settings, with the Hub's cache in it and folders of its own."""

# A store has tens of thousands of names, and Path objects take several times as long as strings.
# ruff: noqa: PTH207, PTH111, PTH116, PTH121, PTH112, PTH113, PTH114, PTH119, PTH120, PTH208

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shlex
import shutil
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.container import repository_folder
from spark_tui.base.errors import RefusedError, UsageError
from spark_tui.base.executors import CallPool, StreamThreads
from spark_tui.base.files import PrivateFolder
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.quantities import human_bytes
from spark_tui.base.settings import gguf_folders, hub_caches, suggestion
from spark_tui.base.text import clean_line
from spark_tui.base.untrusted import decode
from spark_tui.catalog.models.adapter.delete import Deletion
from spark_tui.catalog.models.adapter.move import LEAVING, Move, beside
from spark_tui.catalog.models.adapter.scan import (
    Mark,
    ModelScan,
    entries_of,
    has_papers,
    is_model_folder,
    is_shared_store,
    payload_of,
    read_repo,
    reason,
    repo_id,
    scan_folder,
    scan_repo,
    unchanged,
)
from spark_tui.catalog.models.adapter.tools import tool_models
from spark_tui.catalog.models.adapter.verify import Verification
from spark_tui.catalog.models.model.hub import KEEP_FREE, no_room
from spark_tui.catalog.models.model.store import (
    Completeness,
    Deleted,
    DeleteExtent,
    DeletePlan,
    FileProblem,
    Layout,
    MovePlan,
    MoveProgress,
    MoveWay,
    OtherCache,
    Payload,
    StoreContents,
    StoredFile,
    StoredModel,
    StoredRevision,
    VerifyProgress,
    disk_of,
    in_motion,
    lying_twice,
)

VERSION: Final = 3
_MOST_BYTES: Final = 64 << 20
_SETTLED_NS: Final = 2_000_000_000
"""A folder that changed less than two seconds before it was read may change again within the clock's step."""


class _SavedScan(msgspec.Struct, frozen=True):
    version: int
    models: dict[str, tuple[list[Mark], StoredModel]]


class KeptScans:
    """Models by their path, with the marks that decide whether they still hold."""

    def __init__(self, files: PrivateFolder | None, root: str, uid: int) -> None:
        self._files = files
        self._name = f"store-{hashlib.sha256(f'{root}:{uid}'.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
        self._changed = False

    @cached_property
    def _models(self) -> dict[str, tuple[list[Mark], StoredModel]]:
        if self._files is not None:
            with suppress(OSError, ValueError):  # an older version's, or damaged: replaced
                data = self._files.read(self._files.file(self._name, ".json"), _MOST_BYTES)
                found = decode(data or b"", _SavedScan)
                return found.models if found.version == VERSION else {}
        return {}

    def get(self, path: str) -> StoredModel | None:
        """The model at a path as it was, when nothing of it has changed; with when it was last used."""
        kept = self._models.get(path)
        used = unchanged(path, kept[0]) if kept is not None else None
        if kept is None or used is None:
            return None
        model = kept[1]
        return replace(model, used=used) if used > (model.used or 0.0) else model

    def put(self, survey: ModelScan, model: StoredModel | None) -> None:
        """Keeps a model under the survey's path, unless it changes or has changed just now: then it is dropped."""
        if model is None or not survey.settled or survey.newest > survey.now * 1e9 - _SETTLED_NS:
            self.drop(survey.base)
        else:
            self._models[survey.base] = (survey.marks, model)
            self._changed = True

    def drop(self, path: str) -> None:
        self._changed = self._models.pop(path, None) is not None or self._changed

    def save(self, paths: set[str]) -> None:
        """Writes what has changed, without models that are gone. Raises OSError."""
        for path in set(self._models) - paths:
            self.drop(path)
        if self._changed and self._files is not None:
            data = msgspec.json.encode(_SavedScan(VERSION, self._models))
            self._files.write(self._files.file(self._name, ".json"), [data])
            self._changed = False


_NOT_MODELS: Final = ("hub", "xet", "blobs", "assets", "datasets", "modules", "token", "stored_tokens", "lost+found")
_TRIES: Final = 3
_HUB: Final = "hub"
_ROOTS: Final = "model_roots"
_STORE: Final = "store"


class ModelPlace(Struct, frozen=True):
    """Where one model lies. `hub` is its cache's folder, empty for a folder of the store's own."""

    path: str
    name: str
    hub: str = ""


def model_store(ports: Any) -> FolderModelStore:
    """This machine's; what a scan found is kept in the cache folder."""
    kept = PrivateFolder(ports.folders.cache / "models")
    hubs = hub_caches(ports.settings, ports.environ, ports.folders.home)
    strangers = (f"{ports.folders.home.parent}/*/.cache/huggingface/hub", "/root/.cache/huggingface/hub")
    tools = gguf_folders(ports.environ, ports.folders.home)
    return FolderModelStore(ports.settings.store, kept, hubs=hubs, strangers=strangers, tools=tools)


class FolderModelStore:
    """One store. `kept` is where results of scans are kept; `hubs` are the person's other Hub caches, `strangers`
    patterns of where other users have theirs, `tools` folders of other tools, with their names."""

    def __init__(
        self,
        root: Path,
        kept: PrivateFolder | None = None,
        *,
        hubs: Sequence[str] = (),
        strangers: Sequence[str] = (),
        tools: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._given = str(root)
        self._root = os.path.realpath(root)
        self._other_hubs = hubs
        self._strangers = strangers
        self._tools = tools or {}
        self._now = now
        self._uid = os.geteuid()
        self._kept = KeptScans(kept, self._root, self._uid)
        self._calls = CallPool("models", 2)
        self._streams = StreamThreads()
        self._busy = threading.Lock()

    # --- the port -------------------------------------------------------------------------------------

    async def scan(self, *, others: bool = True) -> StoreContents:
        return await self._calls.run(self.scan_now, others=others)

    async def files(self, model: str, revision: str = "", *, anywhere: bool = False) -> tuple[StoredFile, ...]:
        return (await self._calls.run(self._look, model, revision, anywhere=anywhere))[2]

    async def verify(self, model: str, revision: str = "") -> AsyncGenerator[VerifyProgress, None]:
        place, found, files = await self._calls.run(self._look, model, revision)
        named = f"{model}@{found.commit}" if found.commit else model
        work = Verification(model, found.commit, found.path, files, single=place.path.endswith(".gguf"))
        async with aclosing(self._streams.read(work, f"verify {named}"[:40])) as batches:
            async for batch in batches:
                for progress in batch:
                    yield progress

    async def plan_delete(self, model: str, extent: DeleteExtent, revision: str = "") -> DeletePlan:
        return (await self._calls.run(self._plan, model, extent, revision))[1]

    async def delete(self, plan: DeletePlan) -> Deleted:
        return await self._calls.run(self._delete, plan)

    async def plan_move(self, model: str, folder: str = "") -> MovePlan:
        return await self._calls.run(self._plan_move, model, folder)

    async def move(self, plan: MovePlan) -> AsyncGenerator[MoveProgress, None]:
        work = Move(plan, self._uid, self._now())
        async with aclosing(self._streams.read(work, f"move {plan.model}"[:40])) as batches:
            async for batch in batches:
                for progress in batch:
                    yield progress

    async def close(self) -> None:
        self._streams.close()
        self._calls.close()

    # --- scanning -------------------------------------------------------------------------------------

    def scan_now(self, *, others: bool = True) -> StoreContents:
        with self._busy:
            start = time.perf_counter()
            findings: list[Finding] = []
            models = [self._model(place, self._root) for place in self._places(findings)]
            found = tuple(sorted((model for model in models if model is not None), key=lambda model: model.id.lower()))
            orphans = tuple(self._orphans(f"{self._root}/{_HUB}", found))
            elsewhere = tuple(self._others()) if others else ()
            if others:
                try:
                    paths = {model.path for model in (*found, *(each for other in elsewhere for each in other.models))}
                    self._kept.save(paths)
                except OSError as error:
                    findings.append(Finding("scan_not_saved", Severity.INFO, f"cannot save the scan: {reason(error)}"))
            findings += [*self._about_root(orphans, elsewhere), *lying_twice(found, elsewhere)]
            path = self._root
            while not os.path.isdir(path) and path != "/":
                path = os.path.dirname(path)
            free = total = None
            with contextlib.suppress(OSError):
                total, _, free = shutil.disk_usage(path)
            seconds = time.perf_counter() - start
            return StoreContents(self._given, found, orphans, elsewhere, tuple(findings), free, seconds, total)

    def _model(self, place: ModelPlace, root: str) -> StoredModel | None:
        """One model: as it was kept, or scanned. What changes meanwhile is scanned again."""
        kept = self._kept.get(place.path)
        if kept is not None:
            return kept
        for attempt in range(_TRIES):
            survey = ModelScan(root, place.path, self._uid, self._now())
            repo, model = repo_id(place.name), None
            if not place.hub:
                model, _ = scan_folder(survey, place.name)
            elif repo is not None:
                model = scan_repo(survey, kind=repo[0], name=repo[1], hub=place.hub)
            if model is None or not _moved(survey):
                break
            if attempt == _TRIES - 1:
                survey.settled = False
                model = in_motion(model)
        self._kept.put(survey, model)
        return model

    def _places(self, findings: list[Finding]) -> Iterator[ModelPlace]:
        hub = f"{self._root}/{_HUB}"
        yield from self._repos(hub, findings)
        for name in _listed(self._root, findings):
            path = f"{self._root}/{name}"
            if repo_id(name) is not None and os.path.isdir(f"{path}/snapshots"):
                yield ModelPlace(path, name, self._root)
            elif name not in _NOT_MODELS and not name.startswith("."):
                yield from self._folders(path, name)

    def _repos(self, hub: str, findings: list[Finding]) -> Iterator[ModelPlace]:
        for name in _listed(hub, findings):
            path = f"{hub}/{name}"
            if repo_id(name) is None:
                continue
            if os.path.islink(path) or not os.path.isdir(path):
                why = "a link (not followed)" if os.path.islink(path) else "not a folder"
                words = f"{clean_line(name)} is {why}"
                findings.append(Finding("not_a_folder", Severity.WARNING, words, subject=path))
                continue
            yield ModelPlace(path, name, hub)

    def _folders(self, path: str, name: str, depth: int = 0) -> Iterator[ModelPlace]:
        if os.path.islink(path):
            return
        if name.endswith(".gguf") and os.path.isfile(path):
            yield ModelPlace(path, name)
            return
        try:
            names = os.listdir(path)
        except NotADirectoryError:
            return
        except OSError:
            names = []
            if depth == 0:
                yield ModelPlace(path, name)  # unreadable, which its scan reports
        if is_model_folder(names) or has_papers(path):
            yield ModelPlace(path, name)
        elif depth == 0:
            for inner in sorted(names):
                if not inner.startswith("."):
                    yield from self._folders(f"{path}/{inner}", f"{name}/{inner}", 1)

    def _orphans(self, hub: str, models: tuple[StoredModel, ...]) -> Iterator[Payload]:
        """Shared blobs that no repository leads to."""
        if not is_shared_store(hub):
            return
        used = {payload.key for model in models for payload in model.shared}
        for prefix in entries_of(f"{hub}/blobs"):
            if len(prefix.name) != 2 or not prefix.is_dir(follow_symlinks=False):
                continue
            for entry in entries_of(prefix.path):
                if len(entry.name) == 64 and entry.is_file(follow_symlinks=False):
                    payload = payload_of(entry.stat(follow_symlinks=False), shared=True)
                    if payload.key not in used:
                        yield payload

    def _about_root(self, orphans: tuple[Payload, ...], others: Iterable[OtherCache]) -> list[Finding]:
        findings = []
        if not os.path.isdir(self._root):
            older = [each.folder for each in others if each.folder]
            remedy = "The first download creates it. To use another folder, set `store` in the settings."
            if older:
                command = f"spark-tui config set {_STORE} {shlex.quote(clean_line(older[0]))}"
                remedy = f"The first download creates it. To download to where your models are: {command}"
            words = "the store does not exist yet"
            findings.append(Finding("no_store", Severity.INFO, words, remedy=remedy, subject=self._given))
        if os.path.islink(f"{self._root}/{_HUB}"):
            target = clean_line(os.path.realpath(f"{self._root}/{_HUB}"))
            words = f"hub is a link to {target}: its models are shown but cannot be deleted"
            remedy, place = f"Set `store` to {os.path.dirname(target)}.", f"{self._root}/{_HUB}"
            findings.append(Finding("hub_is_link", Severity.WARNING, words, remedy=remedy, subject=place))
        if orphans:
            size, hub = human_bytes(sum(each.disk for each in orphans)), clean_line(f"{self._root}/{_HUB}")
            remedy = f"hf cache prune --cache-dir {shlex.quote(hub)}"
            findings.append(Finding("orphans", Severity.WARNING, f"{size} of shared data is unused", remedy=remedy))
        return findings

    def elsewhere(self, repo: str, revision: str) -> StoredModel | None:
        """Of the ModelStore port. Scans of that one repository are kept like all others."""
        name = repository_folder(repo)
        for hub in (f"{self._root}/{_HUB}", *self._hubs()):
            path = f"{hub}/{name}"
            own = hub == f"{self._root}/{_HUB}"
            model = (
                self._model(ModelPlace(path, name, hub), self._root if own else hub) if os.path.isdir(path) else None
            )
            found = model.revision(revision) if model is not None else None
            if found is not None and found.completeness is Completeness.COMPLETE:
                return None if own else model
        return None

    def _hubs(self) -> list[str]:
        """The person's other Hub caches that are there."""
        own = (os.path.realpath(f"{self._root}/{_HUB}"), self._root)
        found = dict.fromkeys(os.path.realpath(hub) for hub in self._other_hubs)
        return [hub for hub in found if hub not in own and os.path.isdir(hub)]

    def _others(self) -> Iterator[OtherCache]:
        """This person's caches, then those of other users that can be read and hold anything, then those of tools."""
        mine = self._hubs()
        theirs = sorted({os.path.realpath(each) for pattern in self._strangers for each in glob.iglob(pattern)})
        own = (os.path.realpath(f"{self._root}/{_HUB}"), *mine)
        for hub in (*mine, *(each for each in theirs if each not in own and os.access(each, os.R_OK | os.X_OK))):
            findings: list[Finding] = []
            models = (self._model(place, hub) for place in self._repos(hub, findings))
            found = tuple(model for model in models if model is not None and (hub in mine or model.disk))
            if found:
                yield OtherCache(hub, found, disk_of(found), tuple(findings), hub in mine)
        for root, tool in self._tools.items():
            if held := tool_models(root, tool):
                yield OtherCache(root, held, disk_of(held), tool=tool)

    # --- one model ------------------------------------------------------------------------------------

    def _find(self, name: str) -> tuple[ModelPlace, StoredModel]:
        contents = self.scan_now(others=False)
        model = contents.find(name)
        if model is None:
            near = suggestion(name, [each.id for each in contents.models])
            hint = f"Did you mean {clean_line(near)}?" if near else "See what is there: spark-tui models list"
            raise UsageError(f"There is no model {clean_line(name)} in {clean_line(self._given)}.", hint)
        return _place_of(model), model

    def _look(
        self, name: str, revision: str, *, anywhere: bool = False
    ) -> tuple[ModelPlace, StoredRevision, tuple[StoredFile, ...]]:
        other = self.elsewhere(name, revision or "main") if anywhere else None
        place, model = (_place_of(other), other) if other is not None else self._find(name)
        found = revision_of(model, revision)
        survey = ModelScan(place.hub if other is not None else self._root, place.path, self._uid, self._now())
        if place.hub:
            files = read_repo(survey, hub=place.hub).files.get(found.commit, ())
        else:
            _, files = scan_folder(survey, place.name)
        here = {file.name for file in files}
        absent = (StoredFile(name, trouble=FileProblem.ABSENT) for name in found.missing if name not in here)
        return place, found, tuple(sorted((*files, *absent), key=lambda file: file.name))

    def _plan(self, name: str, extent: DeleteExtent, revision: str) -> tuple[Deletion, DeletePlan]:
        place, model = self._find(name)
        deletion = Deletion(self._root, place.path, place.hub, self._uid, self._now())
        found = revision_of(model, revision) if extent is DeleteExtent.REVISION else None
        return deletion, deletion.plan(model, extent, found)

    def _plan_move(self, name: str, folder: str) -> MovePlan:
        hubs = list(dict.fromkeys(map(os.path.realpath, (f"{self._root}/{_HUB}", *self._other_hubs))))
        given = os.path.realpath(os.path.expanduser(folder))
        hub = next((each for each in hubs if not folder or given in (each, os.path.dirname(each))), None)
        if hub is None:
            here = ", ".join(os.path.dirname(each) for each in hubs if os.path.isdir(each))
            add = f"spark-tui config set {_ROOTS} {shlex.quote(clean_line(folder))}"
            raise UsageError(f"{clean_line(folder)} is no folder of models.", f"They are: {here}. Add it: {add}")
        target = f"{hub}/{repository_folder(name)}"
        paths = [f"{each}/{os.path.basename(target)}" for each in hubs if each != hub]
        left = next((each for each in paths if os.path.isdir(beside(each, LEAVING))), None)
        if left is not None and os.path.isdir(target):
            return MovePlan(name, left, target, MoveWay.FINISH)
        source = next(  # one folder under two names, by a mount, is one
            (p for p in paths if os.path.isdir(p) and not (os.path.isdir(target) and os.path.samefile(p, target))), None
        )
        if source is None:
            self._find(name)  # says what is not there
            raise UsageError(f"{clean_line(name)} is in {hub} only.", "See where models lie: spark-tui models list")
        return self._checked_move(name, source, target)

    def _checked_move(self, name: str, source: str, target: str) -> MovePlan:
        """Raises RefusedError for what would lose something, or could not be finished."""
        hub, there = os.path.dirname(source), os.path.dirname(target)
        model = self._model(ModelPlace(source, os.path.basename(source), hub), hub)
        if model is None or model.completeness is not Completeness.COMPLETE:
            state = model.completeness.value if model is not None else "no model"
            raise RefusedError(f"{name} in {hub} is {state}.", f"Download it: spark-tui models pull {name}")
        Deletion(hub, source, hub, self._uid, self._now()).plan(model, DeleteExtent.MODEL).check()
        if os.path.isdir(target):
            kept = self._model(ModelPlace(target, os.path.basename(target), there), there)
            if kept is None or kept.completeness is not Completeness.COMPLETE:
                remedy = f"Delete that one first: spark-tui models rm {name}"
                raise RefusedError(f"{there} has {name} in part.", remedy)
            return MovePlan(name, source, target, MoveWay.KEEP_ONE)
        above = there
        while not os.path.isdir(above):
            above = os.path.dirname(above)
        one_disk = os.stat(above).st_dev == os.stat(source).st_dev
        size, free = 0 if one_disk else model.size, shutil.disk_usage(above).free
        if size and size + KEEP_FREE > free:
            raise no_room(above, size, free)
        renamed = one_disk and not any(each.shared for each in model.shared)
        return MovePlan(name, source, target, MoveWay.RENAME if renamed else MoveWay.COPY, size)

    def _delete(self, plan: DeletePlan) -> Deleted:
        deletion, now = self._plan(plan.model, plan.extent, plan.revision)
        done = deletion.carry_out(now, plan)
        self._kept.drop(now.path)
        return done


def _place_of(model: StoredModel) -> ModelPlace:
    hub = os.path.dirname(model.path) if model.layout is Layout.CACHE else ""
    return ModelPlace(model.path, os.path.basename(model.path) if hub else model.id.removeprefix("/models/"), hub)


def revision_of(model: StoredModel, name: str) -> StoredRevision:
    """A revision by commit, branch or tag; empty is the current one. Raises UsageError."""
    found = model.revision(name)
    if found is not None:
        return found
    here = ", ".join(each.refs[0] if each.refs else each.short for each in model.revisions)
    if not here:
        raise UsageError(f"{clean_line(model.id)} has no revision yet.", "Fetch it first.")
    raise UsageError(f"{clean_line(model.id)} has no revision {clean_line(name)}.", f"Here are: {clean_line(here)}")


def _moved(survey: ModelScan) -> bool:
    """Whether a folder has changed since it was listed."""
    try:
        return any(
            size < 0 and os.lstat(f"{survey.base}/{path}" if path else survey.base).st_ctime_ns != changed
            for path, changed, size in survey.marks
        )
    except OSError:
        return True


def _listed(folder: str, findings: list[Finding]) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        words = f"{clean_line(folder)} cannot be read: {reason(error)}"
        findings.append(Finding("unreadable", Severity.WARNING, words, subject=folder))
        return []
