"""GGUF files that other tools have downloaded, under those tools' names. Nothing there is ever changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby, islice
from pathlib import Path
from typing import Final

from spark_tui.base.settings import OLLAMA
from spark_tui.base.text import clean_line
from spark_tui.base.untrusted import load_json
from spark_tui.catalog.models.adapter.scan import payload_of, read_small
from spark_tui.catalog.models.model.gguf import PART
from spark_tui.catalog.models.model.store import Layout, StoredModel

MOST_MODELS: Final = 500
_MOST_BYTES: Final = 256 * 1024
_WEIGHTS: Final = "application/vnd.ollama.image.model"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_USUAL: Final = ("registry.ollama.ai", "library")
"""What a model's name leaves out."""


def tool_models(root: str, tool: str) -> tuple[StoredModel, ...]:
    """The models in a tool's folder, each a GGUF file: of a split one the first part, with the size of all; of a file
    with several names the first. MOST_MODELS at most; what cannot be read is left out."""
    found: dict[str, StoredModel] = {}
    for name, parts in islice((_ollama if tool == OLLAMA else _lm_studio)(Path(root)), MOST_MODELS):
        with suppress(OSError):
            held, path = [payload_of(part.stat()) for part in parts], str(parts[0])
            size, disk, used = (
                sum(each.size for each in held),
                sum(each.disk for each in held),
                max(each.used for each in held),
            )
            found.setdefault(path, StoredModel(clean_line(name), Layout.FOLDER, path, size=size, disk=disk, used=used))
    return tuple(found.values())


def _lm_studio(root: Path) -> Iterator[tuple[str, tuple[Path, ...]]]:
    """`PUBLISHER/REPO/FILE.gguf`; a model of pictures beside it is a part of it."""
    files = sorted(each for each in root.glob("*/*/*.gguf") if "mmproj" not in each.name.lower())
    for _, parts in groupby(files, lambda each: PART.sub("", str(each))):
        found = tuple(parts)
        yield str(found[0].relative_to(root)), found


def _ollama(root: Path) -> Iterator[tuple[str, tuple[Path, ...]]]:
    """`NAME:TAG` by a manifest in `manifests/REGISTRY/OWNER/NAME/TAG`, whose layer of weights is a blob."""
    for path in sorted(root.glob("manifests/*/*/*/*")):
        with suppress(ValueError, TypeError, LookupError):
            layers = load_json(read_small(str(path), _MOST_BYTES) or b"")["layers"]
            digest = next((each["digest"] for each in layers if each["mediaType"] == _WEIGHTS), "")
            if _DIGEST.fullmatch(digest):
                *place, name = path.parts[-4:-1]
                owner = [word for word in place if word not in _USUAL]
                yield "/".join((*owner, f"{name}:{path.name}")), (root / "blobs" / digest.replace(":", "-"),)
