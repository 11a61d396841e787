"""How whole a checkpoint is, from the names and sizes of its files alone: nothing is read here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark_tui.domain.models.store import (
    Algorithm,
    Completeness,
    Expected,
    RepoKind,
    StoredFile,
    StoredModel,
    StoredRevision,
    StoreFinding,
    Trouble,
)
from spark_tui.domain.quantities import human_bytes
from spark_tui.domain.text import clean_line, truncate

MOST_NAMES: Final = 100
MOVING: Final = "it changes while it is read"
_MOST_REASONS: Final = 8
_SHARD: Final = re.compile(r"(?P<stem>.+)-(?P<at>\d{5})-of-(?P<of>\d{5})\.(?P<kind>safetensors|gguf|bin|pt)")
_WEIGHTS: Final = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".npz", ".onnx", ".nemo")
_SECOND_COPY: Final = re.compile(r"consolidated|original/|onnx/|openvino/|metal/|flax_|tf_model|rust_model|coreml/")
_SMALL: Final = ("config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "tekken.json")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_BROKEN: Final = (Trouble.LOST, Trouble.LOOP, Trouble.OUTSIDE, Trouble.SIZE)


@dataclass(frozen=True, slots=True)
class Judgement:
    """How whole a set of files is, why, and what is to be fetched (again)."""

    completeness: Completeness
    reasons: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def shown(name: str) -> str:
    """A file's name for the screen."""
    return truncate(clean_line(name), 80)


def is_commit(name: str) -> bool:
    """Forty hexadecimal digits."""
    return _COMMIT.fullmatch(name) is not None


def digest_of(blob: str) -> tuple[str, Algorithm]:
    """What a blob's name says of its content: the Hub names LFS files by SHA-256 and all others as git does."""
    name = blob.lower()
    if _SHA256.fullmatch(name):
        return name, Algorithm.SHA256
    return (name, Algorithm.GIT_SHA1) if _COMMIT.fullmatch(name) else ("", Algorithm.NONE)


def expected_files(tree: Mapping[str, object]) -> dict[str, Expected] | None:
    """A tree listing that the Hub's client keeps (`trees/COMMIT.json`, format 1) by file name; None for another
    format. What has the wrong shape is left out."""
    files = tree.get("files")
    if tree.get("format_version") != 1 or not isinstance(files, dict):
        return None
    found = {}
    for name, entry in files.items():
        if isinstance(entry, dict):
            found[str(name)] = _expected(entry)
    return found


def _expected(entry: Mapping[str, object]) -> Expected:
    sha = entry.get("lfs_sha256")
    size = entry.get("lfs_size") if sha is not None else entry.get("size")
    told = size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None
    name = sha if sha is not None else entry.get("blob_id")
    digest, algorithm = digest_of(name) if isinstance(name, str) else ("", Algorithm.NONE)
    return Expected(told, digest, algorithm)


def with_expected(files: Iterable[StoredFile], expected: Mapping[str, Expected] | None) -> tuple[StoredFile, ...]:
    """Files with what is known of their content: by the tree listing, else by the name of their blob; with the sizes
    compared."""
    return tuple(_told(file, (expected or {}).get(file.name)) for file in files)


def _told(file: StoredFile, told: Expected | None) -> StoredFile:
    if told is None:
        if file.expected is None and file.blob:
            digest, algorithm = digest_of(file.blob)
            if digest:
                return replace(file, expected=Expected(None, digest, algorithm))
        return file
    differs = told.size is not None and file.size is not None and told.size != file.size
    trouble = Trouble.SIZE if differs and not file.trouble else file.trouble
    return replace(file, expected=told, trouble=trouble)


# --- completeness -----------------------------------------------------------------------------------------


def is_weights(name: str) -> bool:
    """Whether a file holds weights, by its name."""
    return name.endswith(_WEIGHTS)


def judge(files: Sequence[StoredFile], *, tree: Mapping[str, Expected] | None, kind: RepoKind) -> Judgement:
    """How whole a revision is. `tree` is what the Hub lists for it, where that is known.

    A file of the listing that nobody asked for (a second copy of the weights, pictures) is not missed: weights, the
    config and the tokenizer are.
    """
    broken = [file for file in files if file.trouble in _BROKEN]
    if broken:
        reasons = _some(_why_broken(file) for file in broken)
        return Judgement(Completeness.CORRUPT, reasons, tuple(file.name for file in broken[:MOST_NAMES]))
    if any(file.trouble is Trouble.UNREADABLE for file in files):
        names = _some(f"{shown(file.name)} {file.trouble}" for file in files if file.trouble)
        return Judgement(Completeness.UNKNOWN, names)
    here = {file.name for file in files if file.payload is not None}
    if kind is not RepoKind.MODEL:
        return Judgement(Completeness.COMPLETE)
    missing = sorted(_missing_by_listing(here, tree) if tree else _missing_shards(here))
    if missing:
        return Judgement(Completeness.PARTIAL, _why_missing(missing, tree), tuple(missing[:MOST_NAMES]))
    if not any(is_weights(name) for name in here):
        return Judgement(Completeness.PARTIAL, ("no weights are here",))
    empty = [name for name in sorted(here) if is_weights(name) and _is_empty(files, name)]
    if empty:
        return Judgement(Completeness.CORRUPT, _some(f"{shown(name)} is empty" for name in empty), tuple(empty))
    return Judgement(Completeness.COMPLETE)


def in_motion(model: StoredModel) -> StoredModel:
    """A model that would not hold still: nothing of it is called corrupt, for what a single moment shows as damage
    may be a download or a deletion at work. It is partial until it is read in peace."""
    doubted = model.completeness is Completeness.CORRUPT
    return replace(
        model,
        revisions=tuple(_doubted(each) for each in model.revisions),
        completeness=Completeness.PARTIAL if doubted else model.completeness,
        reasons=(MOVING,) if doubted else model.reasons,
        findings=(*model.findings, StoreFinding(MOVING)),
    )


def _doubted(revision: StoredRevision) -> StoredRevision:
    if revision.completeness is not Completeness.CORRUPT:
        return revision
    return replace(revision, completeness=Completeness.PARTIAL, reasons=(MOVING,))


def _is_empty(files: Sequence[StoredFile], name: str) -> bool:
    return any(file.name == name and file.size == 0 for file in files)


def _why_broken(file: StoredFile) -> str:
    told = file.expected.size if file.expected is not None else None
    if file.trouble is Trouble.SIZE and told is not None and file.size is not None:
        return f"{shown(file.name)} has {human_bytes(file.size)} of {human_bytes(told)}"
    return f"{shown(file.name)} {file.trouble}"


def _why_missing(missing: list[str], tree: Mapping[str, Expected] | None) -> tuple[str, ...]:
    size = sum(tree[name].size or 0 for name in missing if name in tree) if tree else 0
    many = f"{len(missing)} files are not here" if len(missing) > 1 else f"{shown(missing[0])} is not here"
    first = f": {shown(missing[0])} ..." if len(missing) > 1 else ""
    return (f"{many}{f' ({human_bytes(size)})' if size else ''}{first}",)


def _some(reasons: Iterable[str]) -> tuple[str, ...]:
    found = list(reasons)
    return tuple(found[:_MOST_REASONS]) + ((f"and {len(found) - _MOST_REASONS} more",) * (len(found) > _MOST_REASONS))


def needed(names: Iterable[str], here: Iterable[str] = ()) -> set[str]:
    """The files of a listing that an engine needs: config, tokenizer, and one set of weights.

    Where weights are here already, those of their kind; else the safetensors, else whatever weights there are. Of
    GGUF files, which a repository holds in many sizes, only the shards of those that are here.
    """
    listed = {name for name in names if not _SECOND_COPY.search(name)}
    present = {name.rpartition(".")[2] for name in here if is_weights(name)}
    kinds = [kind for kind in ("safetensors", "gguf", "bin") if any(name.endswith("." + kind) for name in listed)]
    kind = next((kind for kind in kinds if kind in present), next(iter(kinds), ""))
    wanted = {name for name in listed if name in _SMALL}
    if kind == "gguf":
        return wanted & {"config.json"} | _shards_of(here)
    return wanted | {name for name in listed if kind and name.endswith("." + kind)}


def _missing_by_listing(here: set[str], tree: Mapping[str, Expected]) -> set[str]:
    return {name for name in needed(tree, here) if name not in here}


def _missing_shards(here: set[str]) -> set[str]:
    """By the shards' own names, and an index whose weights are absent."""
    return {name for name in _shards_of(here) if name not in here}


def _shards_of(names: Iterable[str]) -> set[str]:
    """All shards of the sets of which some are here: `model-00002-of-00009.safetensors` -> nine names."""
    sets = {(found["stem"], found["of"], found["kind"]) for name in names if (found := _SHARD.fullmatch(name))}
    return {
        f"{stem}-{at:05d}-of-{of}.{kind}"
        for stem, of, kind in sets
        if not _SECOND_COPY.search(stem)
        for at in range(1, min(int(of), 10_000) + 1)
    }


# --- of several revisions ---------------------------------------------------------------------------------


def current_commit(revisions: Sequence[StoredRevision]) -> str:
    """The revision that an engine gets when it names none: `main`, else the only one, else the newest."""
    main = next((each for each in revisions if "main" in each.refs), None)
    newest = max(revisions, key=lambda each: each.modified, default=None)
    found = main or newest
    return found.commit if found is not None else ""


def without_reference(revisions: Sequence[StoredRevision]) -> tuple[StoredRevision, ...]:
    """Revisions with those marked that a newer one has replaced: they have no branch or tag, others have.

    The only revision of a repository may well have none: it was asked for by its commit.
    """
    if not any(each.refs for each in revisions):
        return tuple(revisions)
    return tuple(_unreferenced(each) if not each.refs else each for each in revisions)


def _unreferenced(revision: StoredRevision) -> StoredRevision:
    if revision.completeness is not Completeness.COMPLETE:
        return revision
    return replace(revision, completeness=Completeness.UNREFERENCED, reasons=("no branch or tag leads to it any more",))
