"""What a preset needs in the model store before its start, and the command that fetches it."""

from __future__ import annotations

import posixpath
import shlex

from spark_tui.domain.presets.preset import Preset, RequiredFile


def fetch_command(file: RequiredFile, store: str) -> str:
    """The words to type on the host. `store` is the model store's path there."""
    place = posixpath.join(store, file.target)
    if file.url:
        return shlex.join(("curl", "-fL", "--create-dirs", "-o", place, file.url))
    if file.is_folder:
        return shlex.join(("hf", "download", file.repo, "--local-dir", place))
    folder = place.removesuffix(file.file).rstrip("/") if place.endswith("/" + file.file) else posixpath.dirname(place)
    fetched = posixpath.join(folder, file.file)
    download = shlex.join(("hf", "download", file.repo, file.file, "--local-dir", folder))
    return download if fetched == place else f"{download} && {shlex.join(('mv', fetched, place))}"


def needed_to_start(preset: Preset) -> tuple[RequiredFile, ...]:
    """The files and folders without which the server does not start."""
    return tuple(file for file in preset.facts.required_files if not file.for_chat)
