"""Which files of a repository an engine needs: many hold their weights twice, in formats that no engine here reads."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.models.hub import RepoFile

_COPIES: Final = ("original/", "metal/", "onnx/", "openvino/", "coreml/", "gguf/", "mlx/")
"""Folders that hold the same weights again. gpt-oss has two of them: three times its size in all."""
_OTHER_WEIGHTS: Final = (
    ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot", ".tflite", ".onnx", ".onnx_data", ".gguf", ".pkl", ".npz",
)  # fmt: skip
_SMALL: Final = 16 * 1024 * 1024
"""A `.bin` of this size is a vocabulary or a training argument: not worth leaving out, perhaps needed."""
_PART: Final = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that is not fetched, and why."""

    path: str
    size: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Selection:
    """What to fetch. `choices` is filled, and `files` empty, where a person has to choose first: a repository of GGUF
    files holds the same weights in many sizes, one name (of one file or of its parts) each. `missing` are patterns that
    no file fits."""

    files: tuple[RepoFile, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    choices: tuple[tuple[str, int | None], ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def select(
    files: Sequence[RepoFile], *, only: Sequence[str] = (), everything: bool = False, load_format: str = ""
) -> Selection:
    """The files to fetch, in path order. `only` are paths or patterns (`*.json`); `everything` leaves nothing out.

    `load_format` is the engine's `--load-format`: of weights that are there twice, as Mistral's are, one copy is taken
    where it says which.
    """
    plain = [file for file in files if _is_plain(file.path)]
    if only:
        return _named(plain, only)
    if everything:
        return Selection(tuple(plain))
    safe = any(file.path.endswith(".safetensors") and "/" not in file.path for file in plain)
    if not safe:
        return _without_safetensors(plain)
    reasons = _Reasons(plain, load_format)
    kept = tuple(file for file in plain if not reasons.against(file))
    left = tuple(LeftOut(file.path, file.size, why) for file in plain if (why := reasons.against(file)))
    return Selection(kept, left, notes=reasons.notes)


def _is_plain(path: str) -> bool:
    """A path that stays in its folder, and that a file system takes. The Hub's names come from strangers."""
    parts = path.split("/")
    return bool(path) and len(path) < 1024 and "\0" not in path and not any(part in ("", ".", "..") for part in parts)


def _named(files: Iterable[RepoFile], only: Sequence[str]) -> Selection:
    found: dict[str, RepoFile] = {}
    missing = []
    for pattern in only:
        hits = [file for file in files if file.path == pattern or fnmatch.fnmatchcase(file.path, pattern)]
        if not hits:
            missing.append(pattern)
        found.update((file.path, file) for file in hits)
    return Selection(tuple(sorted(found.values(), key=lambda file: file.path)), missing=tuple(missing))


def _without_safetensors(files: Sequence[RepoFile]) -> Selection:
    """PyTorch's own files, or GGUF: of these one choice among many."""
    models = [file for file in files if file.path.endswith(".gguf")]
    choices = gguf_choices(models)
    if len(choices) > 1:
        return Selection(choices=choices)
    return Selection(tuple(files))


def gguf_choices(files: Iterable[RepoFile]) -> tuple[tuple[str, int | None], ...]:
    """GGUF files by name and size; the parts of a split file are one. `mmproj` files are no models."""
    sizes: dict[str, int | None] = {}
    for file in files:
        if "mmproj" in file.path.lower():
            continue
        name = _PART.sub("-*", file.path)
        before = sizes.get(name, 0)
        sizes[name] = None if before is None or file.size is None else before + file.size
    return tuple(sorted(sizes.items()))


class _Reasons:
    """Why a file of a repository with safetensors is left out."""

    def __init__(self, files: Sequence[RepoFile], load_format: str) -> None:
        names = [file.path for file in files]
        one = any(name.startswith("consolidated") and name.endswith(".safetensors") for name in names)
        other = any(name.startswith("model") and name.endswith(".safetensors") for name in names)
        self._drop = ""
        self.notes: tuple[str, ...] = ()
        if one and other:
            if load_format == "mistral":
                self._drop = "model"
            elif load_format and load_format != "auto":
                self._drop = "consolidated"
            else:
                self.notes = ("It holds its weights twice (consolidated and model): which one an engine reads is its "
                              "own choice, so both are fetched.",)  # fmt: skip

    def against(self, file: RepoFile) -> str:
        """Empty: it is fetched."""
        path = file.path
        if path.startswith(_COPIES):
            return "another copy of the weights"
        if self._drop and path.startswith(self._drop) and path.endswith(".safetensors"):
            return "the same weights in the other layout"
        if path.endswith(_OTHER_WEIGHTS) and (file.size or 0) > _SMALL:
            return "weights in a format that is not needed beside safetensors"
        return ""
