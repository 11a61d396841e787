"""The mounts of a `docker run` command as a preset has them: the store, our caches, and folders of the store."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_tui.domain.errors import UsageError
from spark_tui.domain.host.paths import HostPaths
from spark_tui.domain.presets.container_spec import ContainerSpec, Mount
from spark_tui.domain.presets.dialects.docker_run_text import HOME
from spark_tui.domain.presets.host_paths import COMPILE_CACHES, STORE_TARGET

HUB_CACHE: Final = "/root/.cache/huggingface"
CACHE_VARIABLES: Final = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE")


@dataclass(frozen=True, slots=True)
class SortedMounts:
    """The model as a preset names it, the recipe's `volumes`, and what became of the other mounts, in words."""

    model: str
    volumes: tuple[str, ...]
    changes: tuple[str, ...]


@dataclass(slots=True)
class _Sorting:
    spec: ContainerSpec
    model: str
    env: Mapping[str, str]
    paths: HostPaths | None
    volumes: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)


def sorted_mounts(spec: ContainerSpec, model: str, env: Mapping[str, str], paths: HostPaths | None) -> SortedMounts:
    """What becomes of every mount. `model` is as the container sees it; without `paths` any folder may be mounted.

    Raises UsageError for a folder or model outside the store.
    """
    work = _Sorting(spec, model, env, paths)
    caches = {posixpath.normpath(env[name]) for name in CACHE_VARIABLES if env.get(name, "").startswith("/")}
    for mount in spec.mounts:
        target = posixpath.normpath(mount.target)
        if target in {HUB_CACHE, f"{HUB_CACHE}/hub", STORE_TARGET, *caches}:
            _replace_by_store(work, mount, target)
        elif target in COMPILE_CACHES:
            said = f"-v {_written(mount)} is left out: spark-tui keeps the compile caches of every image itself."
            work.changes.append(said)
        else:
            _keep(work, mount, target)
    if work.model.startswith("/") and not _lies_in(work.model, STORE_TARGET):
        raise UsageError(
            f"The model {work.model} lies in no folder of the model store.",
            f"Put it into the store and name it as {STORE_TARGET}/FOLDER, or name it as it is called on the Hub.",
        )
    return SortedMounts(work.model, tuple(work.volumes), tuple(work.changes))


def _replace_by_store(work: _Sorting, mount: Mount, target: str) -> None:
    """The place of models: theirs becomes ours. Raises UsageError where the command names files by its old place."""
    source = _on_host(mount.source, work.paths)
    store = posixpath.normpath(work.paths.store) if work.paths else ""
    others = (text for name, text in work.env.items() if name not in CACHE_VARIABLES)
    if target != STORE_TARGET and any(f"{target}/" in text for text in (*work.spec.command, *others)):
        raise UsageError(
            f"The command names a file below {target}, and models lie in {STORE_TARGET} here.",
            f"Put that file into the model store and name it below {STORE_TARGET}, or name a model as on the Hub.",
        )
    if (source, target) != (store, STORE_TARGET):
        where = f" ({store})" if store else ""
        work.changes.append(
            f"{_short(source, work.paths)} is replaced by spark-tui's model store{where}, which is {STORE_TARGET} "
            "there: what is not in it yet is fetched at the launch."
        )


def _keep(work: _Sorting, mount: Mount, target: str) -> None:
    """Keeps a folder of the store; a model in it is named by its place there."""
    inside = _on_host(mount.source, work.paths)
    if work.paths:
        store = posixpath.normpath(work.paths.store)
        if not _lies_in(inside, store):
            raise UsageError(
                f"-v {_written(mount)} lies outside the model store ({store}).",
                "Put those files into the store and mount them from there, or leave the mount out.",
            )
        inside = inside[len(store) :].strip("/") or "."
    if any(mark in inside + target for mark in ": "):
        raise UsageError(f"-v {_written(mount)} has a colon or blank in a path.", "Rename the folder.")
    work.volumes.append(f"{inside}:{target}{':ro' if mount.read_only else ''}")
    if _lies_in(work.model, target):
        below = work.model[len(target) :].strip("/")
        work.model = posixpath.normpath(posixpath.join(STORE_TARGET, inside, below))


def _lies_in(path: str, folder: str) -> bool:
    return (path + "/").startswith(folder.rstrip("/") + "/")


def _on_host(source: str, paths: HostPaths | None) -> str:
    home = (paths.home if paths else "") or "~"
    return posixpath.normpath(home + source[len(HOME) :] if _lies_in(source, HOME) else source)


def _written(mount: Mount) -> str:
    source = "~" + mount.source[len(HOME) :] if _lies_in(mount.source, HOME) else mount.source
    return f"{source}:{mount.target}"


def _short(path: str, paths: HostPaths | None) -> str:
    home = paths.home if paths else ""
    return "~" + path[len(home) :] if home and _lies_in(path, home) else path
