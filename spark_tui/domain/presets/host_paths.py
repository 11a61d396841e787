"""Where things lie on the host, and how the container sees them: the model store, the compile caches, extra mounts."""

from __future__ import annotations

import posixpath
import re
from typing import Final

from spark_tui.domain.errors import PresetError, RefusedError
from spark_tui.domain.host.paths import HostPaths
from spark_tui.domain.presets.container_spec import Mount
from spark_tui.domain.presets.image_reference import repository
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.presets.recipe_options import parse_mount

STORE_TARGET: Final = "/models"

# Compiled kernels by library, each where it looks for them when it runs as root. They are keyed by content, so that
# one set serves all engines of an image; a set per image can be cleared by itself after an upgrade.
_CACHES: Final = (
    ("vllm", "/root/.cache/vllm"),
    ("flashinfer", "/root/.cache/flashinfer"),
    ("triton", "/root/.triton"),
    ("tilelang", "/root/.tilelang"),
)
COMPILE_CACHES: Final = tuple(target for _, target in _CACHES)
_ROOT_USERS: Final = (None, "", "0", "root", "0:0", "root:root")

__all__ = ["STORE_TARGET", "HostPaths", "local_model_path", "model_in_container", "mounts_of"]


def local_model_path(model: str) -> str | None:
    """The folder within the store of a model given by path: `/models/smollm2` -> `smollm2`; None for a Hub name."""
    if model != STORE_TARGET and not model.startswith(STORE_TARGET + "/"):
        return None
    return posixpath.normpath(model.removeprefix(STORE_TARGET).strip("/") or ".")


def model_in_container(preset: Preset, paths: HostPaths) -> str:
    """The model as the container sees it: a path within the store becomes one below /models, a Hub name stays.

    Raises RefusedError for a path elsewhere on the host.
    """
    if local_model_path(preset.model) is not None or not preset.model.startswith(("/", "~")):
        return preset.model
    host = _absolute(preset.model, paths)
    inside = _within(host, paths.store)
    if inside is None:
        raise RefusedError(
            f"The model {preset.model} lies outside the model store ({paths.store}).",
            "Move it into the store and name it as /models/FOLDER in the recipe.",
        )
    return posixpath.join(STORE_TARGET, inside)


def mounts_of(preset: Preset, paths: HostPaths) -> tuple[Mount, ...]:
    """The store, the caches, and what the recipe adds; of two mounts with one target the recipe's counts.

    Raises PresetError for a mount that leaves the store: a recipe may come from a stranger.
    """
    extra = tuple(_extra(preset, text, paths) for text in preset.mounts)
    taken = {mount.target for mount in extra}
    own = (Mount(posixpath.normpath(paths.store), STORE_TARGET), *_caches(preset, paths))
    return (*(mount for mount in own if mount.target not in taken), *extra)


def _caches(preset: Preset, paths: HostPaths) -> tuple[Mount, ...]:
    if preset.options.user not in _ROOT_USERS:
        return ()
    image = re.sub(r"[^a-z0-9.]+", "-", repository(preset.image).lower()).strip("-.")
    filled = preset.server.caches[:1] if preset.cpu_only else preset.server.caches
    wanted = [(name, target) for name, target in _CACHES if name in filled]
    return tuple(Mount(posixpath.join(paths.caches, image, name), target) for name, target in wanted)


def _extra(preset: Preset, text: str, paths: HostPaths) -> Mount:
    """`source:target[:ro]`: a relative source is a folder of the store."""
    try:
        source, target, read_only = parse_mount(text)
    except ValueError:
        raise PresetError(
            f"The mount {text!r} cannot be used.", "Write for example: notes:/notes:ro", file=preset.file
        ) from None
    host = _absolute(source, paths)
    if _within(host, paths.store) is None and _within(host, paths.caches) is None:
        raise PresetError(
            f"The mount {source} lies outside the model store ({paths.store}).",
            "Put those files into the store, or take the mount out of the recipe.",
            file=preset.file,
        )
    return Mount(host, posixpath.normpath(target), read_only)


def _absolute(path: str, paths: HostPaths) -> str:
    if path == "~" or path.startswith("~/"):
        path = (paths.home or "/nowhere") + path[1:]
    return posixpath.normpath(posixpath.join(paths.store, path))


def _within(path: str, root: str) -> str | None:
    """`path` relative to `root`, None when it lies outside."""
    root = posixpath.normpath(root)
    if path == root:
        return "."
    return path[len(root) + 1 :] if path.startswith(root.rstrip("/") + "/") else None
