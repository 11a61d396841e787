"""One folder (or one GGUF file) of the store's own becomes a StoredModel.

What `hf download --local-dir` has fetched keeps its papers in `.cache/huggingface`: the commit and digest of each
file, unfinished downloads, and, in newer clients, the Hub's listing.
"""

# A store has tens of thousands of names, and Path objects take several times as long as strings.
# ruff: noqa: PTH112, PTH113, PTH119, PTH208

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from spark_tui.domain.models.store import (
    Completeness,
    Expected,
    Layout,
    Partial,
    RepoKind,
    StoredFile,
    StoredModel,
    StoredRevision,
    StoreFinding,
    Trouble,
    unique,
)
from spark_tui.domain.models.store_rules import digest_of, is_commit, is_weights, judge, needed, shown, with_expected
from spark_tui.domain.quantities import human_bytes
from spark_tui.domain.text import clean_line
from spark_tui.services.files import is_locked
from spark_tui.services.model_store_disk import Survey, chown_command, data_behind, read_small, user_name, walk
from spark_tui.services.model_store_repo import INCOMPLETE, read_tree

CONTAINER_ROOT: Final = "/models"
_PAPERS: Final = ".cache/huggingface/"
_DOWNLOADS: Final = _PAPERS + "download/"
_METADATA: Final = ".metadata"
_GIT: Final = ".git/"
_TELLING: Final = ("config.json", "params.json", "model_index.json", "adapter_config.json")
_MOST_METADATA_BYTES: Final = 1024
_WRITING_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Folder:
    """Everything that is read of one folder."""

    files: tuple[StoredFile, ...]
    commit: str
    tree: Mapping[str, Expected] | None
    partials: tuple[Partial, ...]
    papers: int
    git: int


def is_model_folder(names: Iterable[str]) -> bool:
    """Whether a folder is a checkpoint, or was going to be one, by the names in it."""
    return any(name in _TELLING or is_weights(name) for name in names)


def has_papers(path: str) -> bool:
    """Whether `hf download --local-dir` has been at work in a folder."""
    return os.path.isdir(f"{path}/{_DOWNLOADS}")


def read_folder(survey: Survey) -> Folder:
    """Looks at one folder. Never raises: what cannot be read is a finding."""
    if os.path.isfile(survey.base):
        return _single(survey)
    files, papers, partials = [], [], []
    git = paper_bytes = 0
    for name, entry in walk(survey, survey.base):
        payload, trouble = data_behind(survey, entry.path, is_link=entry.is_symlink())
        if name.startswith(_GIT):
            git += payload.disk if payload else 0
        elif not name.startswith(_PAPERS):
            files.append(StoredFile(name, payload, "", None, trouble))
        else:
            paper_bytes += payload.disk if payload and not name.endswith(INCOMPLETE) else 0
            papers.append(name)
            if name.endswith(INCOMPLETE) and payload is not None:
                partials.append(_partial(survey, entry.path, payload.disk, payload.modified))
    told = _metadata(survey, papers)
    commit = next((commit for commit, _ in told.values()), "")
    tree = read_tree(f"{survey.base}/{_PAPERS}trees/{commit}.json") if commit else None
    known = tree if tree is not None else {name: _expected(etag) for name, (_, etag) in told.items()}
    found = tuple(_forgiven(file) for file in with_expected(files, known))
    _tell_changed(survey, with_expected(files, known))
    return Folder(found, commit, tree, tuple(partials), paper_bytes, git)


def _single(survey: Survey) -> Folder:
    payload, trouble = data_behind(survey, survey.base, is_link=False)
    file = StoredFile(os.path.basename(survey.base), payload, "", None, trouble)
    return Folder((file,), "", None, (), 0, 0)


def _metadata(survey: Survey, papers: Iterable[str]) -> dict[str, tuple[str, str]]:
    """File name -> (commit, etag), from the papers."""
    found = {}
    for name in papers:
        if not (name.startswith(_DOWNLOADS) and name.endswith(_METADATA)):
            continue
        lines = (
            (read_small(f"{survey.base}/{name}", _MOST_METADATA_BYTES) or b"").decode("utf-8", "replace").split("\n")
        )
        if len(lines) >= 2 and is_commit(lines[0].strip()):
            found[name[len(_DOWNLOADS) : -len(_METADATA)]] = (lines[0].strip(), lines[1].strip())
    return found


def _expected(etag: str) -> Expected:
    digest, algorithm = digest_of(etag)
    return Expected(None, digest, algorithm)


def _forgiven(file: StoredFile) -> StoredFile:
    """Small files of an own folder are there to be edited; weights are not."""
    if file.trouble is Trouble.SIZE and not is_weights(file.name):
        return replace(file, trouble=Trouble.NONE)
    return file


def _tell_changed(survey: Survey, files: Iterable[StoredFile]) -> None:
    changed = [shown(file.name) for file in files if file.trouble is Trouble.SIZE and not is_weights(file.name)]
    if changed:
        survey.finding(f"edited since it was fetched: {', '.join(changed[:5])}", path=survey.base)


def _partial(survey: Survey, path: str, have: int, modified: float) -> Partial:
    survey.settled = False
    folder, _, name = path.rpartition("/")
    etag = name.removesuffix(INCOMPLETE).split(".")
    locks = (f"{folder}/{entry}" for entry in _names(folder) if entry.endswith(".lock"))
    writing = survey.now - modified < _WRITING_SECONDS or any(is_locked(lock) for lock in locks)
    return Partial(etag[1] if len(etag) > 1 else etag[0], have, modified, writing)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


# --- the model --------------------------------------------------------------------------------------------


def scan_folder(survey: Survey, name: str) -> StoredModel:
    """One folder as the store shows it; `name` is its path within the store."""
    found = read_folder(survey)
    judged = judge(found.files, tree=found.tree, kind=RepoKind.MODEL)
    completeness, reasons = judged.completeness, judged.reasons
    if found.partials and completeness is Completeness.COMPLETE:
        completeness, reasons = Completeness.PARTIAL, ("a download into it has not ended",)
    payloads = unique(file.payload for file in found.files if file.payload is not None)
    here = [file.name for file in found.files]
    size = sum(each.size for each in payloads)
    revision = StoredRevision(
        commit=found.commit,
        path=survey.base,
        files=len(found.files),
        size=size,
        expected=sum(found.tree[each].size or 0 for each in needed(found.tree, here)) if found.tree else None,
        completeness=completeness,
        reasons=reasons,
        missing=judged.missing,
        modified=max((each.modified for each in payloads), default=0.0),
    )
    extra = found.papers + found.git + sum(each.have for each in found.partials)
    return StoredModel(
        id=f"{CONTAINER_ROOT}/{name}",
        layout=Layout.FOLDER,
        path=survey.base,
        revisions=(revision,),
        commit=found.commit,
        completeness=completeness,
        reasons=reasons,
        size=size,
        disk=sum(each.disk for each in payloads) + extra,
        partials=found.partials,
        shared=tuple(each for each in payloads if each.links > 1),
        used=max((each.used for each in payloads if each.size), default=None),
        modified=max((each.modified for each in payloads), default=None),
        foreign=survey.foreign,
        owner=clean_line(user_name(survey.owner)) if survey.foreign else "",
        findings=(*survey.findings, *_findings(survey, found)),
    )


def _findings(survey: Survey, found: Folder) -> list[StoreFinding]:
    findings = []
    if survey.foreign:
        words = f"{survey.foreign:,} of its files and folders belong to {clean_line(user_name(survey.owner))}"
        findings.append(StoreFinding(f"{words}: a container has fetched them", chown_command(survey.base), survey.base))
    if found.git > 1 << 30:
        words = f"its .git holds {human_bytes(found.git)}: as a rule, a second copy of the weights"
        findings.append(StoreFinding(words, "Remove .git if you do not pull into it any more.", f"{survey.base}/.git"))
    return findings
