"""The simulated Spark's model store: a few checkpoints in every state that a person meets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final

from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts
from spark_tui.base.engine.container import repository_folder
from spark_tui.base.errors import RefusedError, UsageError
from spark_tui.base.finding import Finding, Missing, Ok, Reading, Severity
from spark_tui.base.ports import Clock
from spark_tui.base.quantities import GIB
from spark_tui.base.settings import DEMO_HOME
from spark_tui.catalog.models.model.hub import RepoFile
from spark_tui.catalog.models.model.store import (
    Algorithm,
    Completeness,
    Deleted,
    DeleteExtent,
    DeletePlan,
    ExpectedFile,
    FileCheck,
    FileProblem,
    FileVerdict,
    Layout,
    MovePlan,
    OtherCache,
    Partial,
    Payload,
    StoreContents,
    StoredFile,
    StoredModel,
    StoredRevision,
    VerifyProgress,
)
from spark_tui.simulator.facts import FACTS, RECORDED_MODEL
from spark_tui.simulator.world import DISK_FREE, DISK_TOTAL, STORE

RATE: Final = 2_400_000_000
"""Bytes a second that a verification reads, on one NVMe disk."""
_DAY: Final = 86_400.0
_STEP_SECONDS: Final = 0.25
COMMIT: Final = "4f2c1e7a9b3d5860c1f2e3d4a5b6978812345678"
_DIGEST: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

# name, GiB, shards, state, shards that are here, days since it was read
_MODELS: Final = (
    (RECORDED_MODEL, 21.3, 5, Completeness.COMPLETE, 5, 0.02),
    ("nvidia/Qwen3.6-35B-A3B-NVFP4", 21.4, 5, Completeness.COMPLETE, 5, 0.1),
    ("nvidia/Gemma-4-26B-A4B-NVFP4", 13.0, 3, Completeness.COMPLETE, 3, 0.05),
    ("openai/gpt-oss-120b", 60.8, 15, Completeness.COMPLETE, 15, 2.0),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", 17.9, 4, Completeness.PARTIAL, 3, 6.0),
    ("unsloth/Qwen3.6-27B-NVFP4", 18.6, 4, Completeness.CORRUPT, 4, 31.0),
)


class DemoModels:
    """The ModelStore and CheckpointSource ports of a disk that is not there."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now = clock.now()
        self._models = {model.id: model for model in (*(_cached(now, *each) for each in _MODELS), _folder(now))}
        cache = f"{DEMO_HOME}/.cache/huggingface/hub"
        elsewhere = _cached(now, "Qwen/Qwen3-0.6B", 2.7, 1, Completeness.COMPLETE, 1, 80.0)
        elsewhere = replace(elsewhere, path=f"{cache}/models--Qwen--Qwen3-0.6B")
        self._other = OtherCache(cache, (elsewhere,), int(2.7 * GIB))

    async def scan(self, *, others: bool = True) -> StoreContents:
        models = tuple(sorted(self._models.values(), key=lambda model: model.id.lower()))
        found = (self._other,) if others else ()
        return StoreContents(STORE, models, others=found, free=DISK_FREE, seconds=0.03, total=DISK_TOTAL)

    def elsewhere(self, repo: str, revision: str) -> StoredModel | None:
        own = self._models.get(repo)
        whole = own is not None and own.completeness is Completeness.COMPLETE
        return None if whole else next((each for each in self._other.models if each.id == repo), None)

    async def files(self, model: str, revision: str = "", *, anywhere: bool = False) -> tuple[StoredFile, ...]:
        other = self.elsewhere(model, revision) if anywhere else None
        return _files(other or self._named(model, revision))

    async def verify(self, model: str, revision: str = "") -> AsyncGenerator[VerifyProgress, None]:
        """At the pace of a disk; the damaged one is found out."""
        found = self._named(model, revision)
        start = self._clock.monotonic()
        checks: list[FileCheck] = []
        done = 0
        for file in _files(found):
            end = done + (file.size or 0)
            while done < end:
                await self._clock.sleep(_STEP_SECONDS)
                done = min(end, done + int(RATE * _STEP_SECONDS))
                seconds = self._clock.monotonic() - start
                yield VerifyProgress(found.id, found.commit, done, found.size, file.name, tuple(checks), seconds)
            checks.append(_check(file, found.completeness))
        seconds = self._clock.monotonic() - start
        yield VerifyProgress(found.id, found.commit, done, found.size, "", tuple(checks), seconds, over=True)

    async def plan_delete(self, model: str, extent: DeleteExtent, revision: str = "") -> DeletePlan:
        found = self._named(model, revision)
        path = found.path[len(STORE) + 1 :]
        if extent is DeleteExtent.LEFTOVERS:
            none = () if found.partials else (Finding("nothing_to_delete", Severity.ERROR, "nothing to delete"),)
            freed = found.partial_bytes
            removes = tuple(f"{path}/blobs/{each.name}.incomplete" for each in found.partials)
            return DeletePlan(found.id, extent, found.id, found.path, "", freed, 0, 1, (), removes, (), none)
        return DeletePlan(found.id, DeleteExtent.MODEL, found.id, found.path, "", found.disk, 0, 12, (), (path,))

    async def delete(self, plan: DeletePlan) -> Deleted:
        if plan.obstacles:
            raise RefusedError(f"{plan.model} is not deleted: {plan.obstacles[0].summary}.", "Nothing was changed.")
        found = self._named(plan.model)
        if plan.extent is DeleteExtent.LEFTOVERS:
            self._models[found.id] = replace(found, partials=(), disk=found.disk - found.partial_bytes, findings=())
        else:
            del self._models[found.id]
        return Deleted(plan, plan.freed, plan.files)

    async def plan_move(self, model: str, folder: str = "") -> MovePlan:
        raise RefusedError("Moving models is not available in the demo.", "Start without --demo.")

    def sizes(self, model: str) -> dict[str, int]:
        """Bytes by file name of what is whole; empty for a model that is not here."""
        found = self._models.get(model)
        whole = () if found is None else (each for each in _files(found) if not _damaged(each, found.completeness))
        return {file.name: file.size for file in whole if file.size is not None}

    def fetched(self, model: str, files: Sequence[RepoFile]) -> None:
        """A download has ended: what it fetched is here."""
        shards = sum(file.path.endswith(".safetensors") for file in files)
        known = self._models.get(model)
        if known is not None and known.completeness is Completeness.CORRUPT:  # the damaged file was downloaded again
            shards = known.current.files - 3 if known.current is not None else shards
            size = float(known.current.expected or known.size) if known.current is not None else float(known.size)
        else:
            size = float(sum(file.size or 0 for file in files))
        self._models[model] = _cached(self._clock.now(), model, size / GIB, shards, Completeness.COMPLETE, shards, 0.0)

    def read(self, model: str, revision: str = "") -> Reading[CheckpointFacts]:
        """The same whatever the revision."""
        found = FACTS.get(model) if self.sizes(model) else None
        return Missing("its config.json is not here") if found is None else Ok(found)

    async def close(self) -> None:
        pass

    def _named(self, name: str, revision: str = "") -> StoredModel:
        found = StoreContents(STORE, tuple(self._models.values())).find(name)
        if found is None:
            raise UsageError(f"There is no model {name} in {STORE}.", "See what is there: spark-tui models list")
        if found.revision(revision) is None:
            here = ", ".join(ref for each in found.revisions for ref in each.refs)
            raise UsageError(f"{name} has no revision {revision}.", f"Here are: {here}")
        return found


def _cached(now: float, name: str, gib: float, shards: int, state: Completeness, here: int, days: float) -> StoredModel:
    size = int(gib * GIB * here / shards)
    path = f"{STORE}/hub/{repository_folder(name)}"
    partials: tuple[Partial, ...] = ()
    reasons: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    if state is Completeness.PARTIAL:
        partials = (Partial("9" * 64, int(1.2 * GIB)),)
        missing = tuple(_shard(at, shards) for at in range(here + 1, shards + 1))
        reasons = (f"{missing[0]} is missing (4.5 GiB)",)
    elif state is Completeness.CORRUPT:
        missing = (_shard(2, shards),)
        reasons = (f"{missing[0]} has 3.1 GiB of 4.6 GiB",)
    revision = StoredRevision(
        COMMIT, f"{path}/snapshots/{COMMIT}", ("main",), here + 3, size, int(gib * GIB), state, reasons, missing, now
    )
    finding = Finding(
        "interrupted_download",
        Severity.WARNING,
        "an interrupted download has left 1.2 GiB",
        remedy="Resume the download, or delete the unfinished files.",
    )
    return StoredModel(
        id=name,
        layout=Layout.CACHE,
        path=path,
        revisions=(revision,),
        commit=COMMIT,
        completeness=state,
        reasons=reasons,
        size=size,
        disk=size + sum(each.have for each in partials),
        partials=partials,
        used=now - days * _DAY,
        findings=(finding,) if partials else (),
    )


def _folder(now: float) -> StoredModel:
    size, path = int(3.3 * GIB), f"{STORE}/qwen3.5-27b-dflash"
    revision = StoredRevision("", path, (), 5, size, None)
    finding = Finding(
        "foreign_files",
        Severity.WARNING,
        "5 of its files and folders belong to root: a container has fetched them",
        remedy=f'sudo chown -R "$(id -u):$(id -g)" {path}',
        subject=path,
    )
    return StoredModel(
        id="/models/qwen3.5-27b-dflash",
        layout=Layout.FOLDER,
        path=path,
        revisions=(revision,),
        size=size,
        disk=size,
        used=now - 12 * _DAY,
        foreign=5,
        owner="root",
        findings=(finding,),
    )


def _shard(at: int, of: int) -> str:
    return f"model-{at:05d}-of-{of:05d}.safetensors"


def _files(model: StoredModel) -> tuple[StoredFile, ...]:
    revision = model.current
    missing = set(revision.missing) if revision is not None else set()
    count = max(1, (revision.files if revision is not None else 1) - 3)
    whole = model.completeness is not Completeness.PARTIAL
    shards = [_shard(at, count if whole else count + 1) for at in range(1, count + 1)]
    each = model.size // count
    digest = ExpectedFile(each, _DIGEST, Algorithm.SHA256)
    found = [StoredFile(name, Payload(name, each, each), _DIGEST, digest) for name in shards]
    absent = [StoredFile(name, trouble=FileProblem.ABSENT) for name in missing - set(shards)]
    return tuple(sorted((*found, *absent), key=lambda file: file.name))


def _damaged(file: StoredFile, state: Completeness) -> bool:
    return state is Completeness.CORRUPT and file.name.startswith("model-00002")


def _check(file: StoredFile, state: Completeness) -> FileCheck:
    if file.payload is None:
        return FileCheck(file.name, FileVerdict.ABSENT)
    if _damaged(file, state):
        return FileCheck(file.name, FileVerdict.SIZE, file.payload.size, detail="3,328,599,654 of 4,939,212,390 bytes")
    return FileCheck(file.name, FileVerdict.MATCHES, file.payload.size, Algorithm.SHA256)
