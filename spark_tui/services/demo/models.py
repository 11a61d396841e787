"""The simulated Spark's model store: a few checkpoints in every state that a person meets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from spark_tui.domain.errors import RefusedError, UsageError
from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.models.checkpoint import (
    AttentionLayers,
    ChatAbilities,
    CheckpointFacts,
    Experts,
    LayerKind,
    ModuleBytes,
    ModuleClass,
    Quantization,
    StateLayers,
    WeightFormat,
    WeightSummary,
)
from spark_tui.domain.models.hub import RepoFile
from spark_tui.domain.models.store import (
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
    OtherCache,
    Partial,
    Payload,
    StoreContents,
    StoredFile,
    StoredModel,
    StoredRevision,
    VerifyProgress,
)
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.services.demo.world import DISK_FREE, RECORDED_MODEL, STORE
from spark_tui.services.ports import Clock

RATE: Final = 2_400_000_000
"""Bytes a second that a verification reads, on one NVMe disk."""
_DAY: Final = 86_400.0
_STEP_SECONDS: Final = 0.25
_COMMIT: Final = "4f2c1e7a9b3d5860c1f2e3d4a5b6978812345678"
_DIGEST: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

# name, GiB, shards, state, shards that are here, days since it was read
_MODELS: Final = (
    (RECORDED_MODEL, 21.3, 5, Completeness.COMPLETE, 5, 0.02),
    ("nvidia/Qwen3.6-35B-A3B-NVFP4", 21.4, 5, Completeness.COMPLETE, 5, 0.1),
    ("openai/gpt-oss-120b", 60.8, 15, Completeness.COMPLETE, 15, 2.0),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", 17.9, 4, Completeness.PARTIAL, 3, 6.0),
    ("unsloth/Qwen3.6-27B-NVFP4", 18.6, 4, Completeness.CORRUPT, 4, 31.0),
)


class DemoModels:
    """The ModelStore port of a disk that is not there."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now = clock.now()
        self._models = {model.id: model for model in (*(_cached(now, *each) for each in _MODELS), _folder(now))}
        elsewhere = _cached(now, "Qwen/Qwen3-0.6B", 2.7, 1, Completeness.COMPLETE, 1, 80.0)
        self._other = OtherCache("/home/spark/.cache/huggingface/hub", (elsewhere,), int(2.7 * GIB))

    async def scan(self, *, others: bool = True) -> StoreContents:
        models = tuple(sorted(self._models.values(), key=lambda model: model.id.lower()))
        return StoreContents(STORE, models, others=(self._other,) if others else (), free=DISK_FREE, seconds=0.03)

    async def files(self, model: str, revision: str = "") -> tuple[StoredFile, ...]:
        return _files(self._named(model, revision))

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
    path = f"{STORE}/hub/models--{name.replace('/', '--')}"
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
        _COMMIT, f"{path}/snapshots/{_COMMIT}", ("main",), here + 3, size, int(gib * GIB), state, reasons, missing, now
    )
    left = "an interrupted download has left 1.2 GiB"
    remedy = "Resume the download, or delete the unfinished files."
    finding = Finding("interrupted_download", Severity.WARNING, left, remedy=remedy)
    return StoredModel(
        id=name, layout=Layout.CACHE, path=path, revisions=(revision,), commit=_COMMIT, completeness=state,
        reasons=reasons, size=size, disk=size + sum(each.have for each in partials), partials=partials,
        used=now - days * _DAY, findings=(finding,) if partials else (),
    )  # fmt: skip


def _folder(now: float) -> StoredModel:
    size, path = int(3.3 * GIB), f"{STORE}/qwen3.5-27b-dflash"
    revision = StoredRevision("", path, (), 5, size, None)
    words = "5 of its files and folders belong to root: a container has fetched them"
    finding = Finding(
        "foreign_files", Severity.WARNING, words, remedy=f'sudo chown -R "$(id -u):$(id -g)" {path}', subject=path
    )
    return StoredModel(
        id="/models/qwen3.5-27b-dflash", layout=Layout.FOLDER, path=path, revisions=(revision,), size=size, disk=size,
        used=now - 12 * _DAY, foreign=5, owner="root", findings=(finding,),
    )  # fmt: skip


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


SOURCE: Final = "simulated"
_NVFP4, _MXFP4, _WIDE = 4.5, 4.25, 16.0
"""Bits of a weight with its share of the scales."""
_DTYPES: Final = {_NVFP4: (("U8", 4.0), ("F8_E4M3", 0.5)), _MXFP4: (("U8", 4.25),), _WIDE: (("BF16", 16.0),)}

Parts: TypeAlias = tuple[tuple[ModuleClass, float, float], ...]
"""Class, billions of weights, bits of each."""


class DemoCheckpoints:
    """The CheckpointSource port of the simulated store."""

    def read(self, model: str, revision: str = "") -> Reading[CheckpointFacts]:
        """The same whatever the revision."""
        found = KNOWN.get(model)
        return Missing("its config.json is not here") if found is None else Ok(found)


def _weights(parts: Parts, *, complete: bool = True) -> WeightSummary:
    dtypes: dict[str, int] = {}
    modules = []
    for module, billions, bits in parts:
        size = round(billions * 1e9 * bits / 8)
        modules.append(ModuleBytes(module, size, size if bits == _WIDE else 0, round(billions * 1e9)))
        for dtype, share in _DTYPES[bits]:
            dtypes[dtype] = dtypes.get(dtype, 0) + round(billions * 1e9 * share / 8)
    ordered = tuple(sorted(dtypes.items(), key=lambda pair: -pair[1]))
    return WeightSummary(ordered, tuple(modules), sum(each.parameters for each in modules), 2_000, complete)


def _quantized(method: str, form: WeightFormat, *excluded: str) -> Quantization:
    return Quantization(method, (form,), excluded, "fp8" if method == "modelopt" else "")


_QWEN_MOE: Final[Parts] = (
    (ModuleClass.EXPERTS, 32.2, _NVFP4), (ModuleClass.STATE, 0.76, _WIDE), (ModuleClass.ATTENTION, 0.19, _WIDE),
    (ModuleClass.SHARED_EXPERT, 0.13, _NVFP4), (ModuleClass.ROUTER, 0.02, _WIDE), (ModuleClass.EMBEDDING, 0.51, _WIDE),
    (ModuleClass.HEAD, 0.51, _WIDE), (ModuleClass.VISION, 0.45, _WIDE),
)  # fmt: skip
_QWEN_CHAT: Final = ChatAbilities(True, True, True, ("enable_thinking",), "qwen3", "qwen3_coder")


def _qwen_moe(mtp: int) -> CheckpointFacts:
    return CheckpointFacts(
        architecture="Qwen3_5MoeForConditionalGeneration", model_type="qwen3_5_moe", dtype="bfloat16",
        quantization=_quantized("modelopt", WeightFormat.NVFP4, "lm_head", "*.self_attn.*", "*.linear_attn.*"),
        layers=40,
        attention=(AttentionLayers(LayerKind.FULL, 10, 512, 512),),
        states=(StateLayers(LayerKind.GDN, 30, 8192, 3, 524_288),),
        experts=Experts(256, 8, 1), is_moe=True, max_position_embeddings=262_144, mtp_declared=1, mtp_layers=mtp,
        modalities=("text", "image", "video"), weights=_weights(_QWEN_MOE),
        sampling=(("temperature", 1.0), ("top_p", 0.95), ("top_k", 20.0)), chat=_QWEN_CHAT, licence="apache-2.0",
        source=SOURCE,
    )  # fmt: skip


def _gpt_oss() -> CheckpointFacts:
    parts: Parts = (
        (ModuleClass.EXPERTS, 114.7, _MXFP4), (ModuleClass.ATTENTION, 0.96, _WIDE), (ModuleClass.ROUTER, 0.02, _WIDE),
        (ModuleClass.EMBEDDING, 0.58, _WIDE), (ModuleClass.HEAD, 0.58, _WIDE),
    )  # fmt: skip
    return CheckpointFacts(
        architecture="GptOssForCausalLM", model_type="gpt_oss", dtype="bfloat16",
        quantization=_quantized("mxfp4", WeightFormat.MXFP4, "self_attn", "lm_head", "embed_tokens"),
        layers=36,
        attention=(
            AttentionLayers(LayerKind.FULL, 18, 512, 512), AttentionLayers(LayerKind.SLIDING, 18, 512, 512, 128),
        ),
        states=(), experts=Experts(128, 4), is_moe=True, max_position_embeddings=131_072, modalities=("text",),
        weights=_weights(parts), licence="apache-2.0", source=SOURCE,
        chat=ChatAbilities(True, True, False, ("reasoning_effort",), "openai_gptoss", "openai"),
    )  # fmt: skip


def _nemotron() -> CheckpointFacts:
    parts: Parts = (
        (ModuleClass.EXPERTS, 29.4, _NVFP4), (ModuleClass.STATE, 0.9, _WIDE), (ModuleClass.ATTENTION, 0.14, _WIDE),
        (ModuleClass.EMBEDDING, 0.35, _WIDE), (ModuleClass.HEAD, 0.35, _WIDE),
    )  # fmt: skip
    return CheckpointFacts(
        architecture="NemotronHForCausalLM", model_type="nemotron_h", dtype="bfloat16",
        quantization=_quantized("modelopt", WeightFormat.NVFP4, "*.mixer.in_proj", "lm_head"),
        layers=52, attention=(AttentionLayers(LayerKind.FULL, 6, 256, 256),),
        states=(StateLayers(LayerKind.MAMBA, 23, 6144, 3, 524_288),), experts=Experts(128, 6, 1), is_moe=True,
        max_position_embeddings=262_144, modalities=("text",),
        weights=_weights(parts, complete=False), licence="nvidia-open-model-license", source=SOURCE,
        chat=ChatAbilities(True, True, False, ("enable_thinking",), "nemotron_v3", "qwen3_coder"),
        findings=("model-00004-of-00004.safetensors is named in the index and is not here",),
    )  # fmt: skip


def _dense() -> CheckpointFacts:
    parts: Parts = (
        (ModuleClass.MLP, 19.4, _NVFP4), (ModuleClass.STATE, 1.6, _WIDE), (ModuleClass.ATTENTION, 1.7, _NVFP4),
        (ModuleClass.EMBEDDING, 1.2, _WIDE), (ModuleClass.HEAD, 1.2, _WIDE), (ModuleClass.VISION, 0.25, _WIDE),
    )  # fmt: skip
    return CheckpointFacts(
        architecture="Qwen3_5ForConditionalGeneration", model_type="qwen3_5", dtype="bfloat16",
        quantization=_quantized("compressed-tensors", WeightFormat.NVFP4, "lm_head", "re:.*linear_attn.*"),
        layers=64, attention=(AttentionLayers(LayerKind.FULL, 16, 1024, 1024),),
        states=(StateLayers(LayerKind.GDN, 48, 10_240, 3, 786_432),), is_moe=False, max_position_embeddings=262_144,
        mtp_declared=1, mtp_layers=0, modalities=("text", "image", "video"),
        weights=_weights(parts), chat=_QWEN_CHAT, licence="apache-2.0", source=SOURCE,
    )  # fmt: skip


def _drafter() -> CheckpointFacts:
    return CheckpointFacts(
        architecture="DFlashDraftModel", model_type="qwen3", dtype="bfloat16", quantization=Quantization(""),
        layers=5, attention=(AttentionLayers(LayerKind.FULL, 5, 1024, 1024),), states=(),
        is_moe=False, max_position_embeddings=262_144, modalities=("text",),
        weights=_weights(((ModuleClass.MLP, 1.33, _WIDE), (ModuleClass.ATTENTION, 0.44, _WIDE))), source=SOURCE,
    )  # fmt: skip


KNOWN: Final = {
    RECORDED_MODEL: _qwen_moe(1),
    "nvidia/Qwen3.6-35B-A3B-NVFP4": _qwen_moe(1),
    "openai/gpt-oss-120b": _gpt_oss(),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": _nemotron(),
    "unsloth/Qwen3.6-27B-NVFP4": _dense(),
    "/models/qwen3.5-27b-dflash": _drafter(),
}
