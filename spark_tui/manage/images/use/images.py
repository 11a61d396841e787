"""Container images for the front ends: what is on disk, who uses it, whether tags moved, versions inside, deleting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from spark_tui.base.actions import by_front_end
from spark_tui.base.context import Context
from spark_tui.base.engine.container import StoredImage
from spark_tui.base.engine.image import (
    LOOK,
    PRESENT,
    familiar,
    patches,
    patches_for,
    registry_of,
    repository,
    visible_patches,
)
from spark_tui.base.engine.runtimes import runtime_named
from spark_tui.base.errors import (
    DockerError,
    ImageNotFound,
    RefusedError,
    RegistryUnreachable,
    SparkError,
    UsageError,
)
from spark_tui.base.finding import Finding, Ok, Reading, Severity, aged, reason_of, value_of
from spark_tui.base.host.series import HistoryOff, Record
from spark_tui.base.ports import Clock, ContainerEngine
from spark_tui.base.quantities import human_bytes
from spark_tui.base.store import Store
from spark_tui.base.text import clean_line, quoted
from spark_tui.base.untrusted import load_json
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.use.rights import PresetSource
from spark_tui.manage.images.model import (
    IMAGES,
    ImageDeletion,
    ImageEntry,
    ImagesView,
    ImageUser,
    ImageVersion,
    TagState,
    last_good,
    names,
    of_engines,
    uses_of,
)
from spark_tui.observe.explain.model.starts import StartRecord
from spark_tui.observe.metrics.use.history import HistoryStore

INSPECTED: Final = "image versions"
"""The kind of the records that inspections leave: `key` is the image's id, `body` has version by title."""
_KNOWN_STARTS: Final = 500
_LEAST_ID: Final = 6
_TITLES: Final = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "torch": "torch",
    "cuda": "CUDA",
    "nvidia-cuda-runtime": "CUDA",
    "nvidia-nccl": "NCCL",
    "flashinfer-python": "FlashInfer",
    "triton": "Triton",
    "transformers": "Transformers",
}
"""Of what a container is asked: distributions of Python, without the `-cu13` at their ends, and `cuda`."""
_PROGRAM: Final = """\
import importlib.metadata as metadata, json, os, re, sys
found = {}
for each in metadata.distributions():
    name = re.sub(r"-cu[0-9]+$", "", str(each.metadata["Name"]).lower().replace("_", "-"))
    if name in WANTED:
        found[name] = each.version
try:
    found["cuda"] = json.load(open("/usr/local/cuda/version.json"))["cuda"]["version"]
except (OSError, ValueError, KeyError):
    pass
LOOK
for name, patch in PATCHES.items():
    found[name] = seen(*patch)
print(json.dumps(found))
"""
_MOST_CELLS: Final = 60


class Images:
    """Publishes the slice `images` of the World. Without a history no versions and last good starts are remembered."""

    @classmethod
    def from_context(cls, context: Context) -> Images:
        return cls(context.docker, context[PresetSource], context.find(HistoryStore), context.store, context.clock)

    def __init__(
        self, docker: ContainerEngine, presets: PresetSource, history: HistoryStore | None, store: Store, clock: Clock
    ) -> None:
        self._docker = docker
        self._presets = presets
        self._history = history
        self._store = store
        self._clock = clock
        self._remote: dict[str, str | SparkError] = {}
        self._labels: dict[str, tuple[tuple[str, str], ...]] = {}
        self._inspected: dict[str, Mapping[str, str]] = {}
        self._reading = asyncio.Lock()

    # --- reading --------------------------------------------------------------------------------------

    @property
    def view(self) -> Reading[ImagesView]:
        return self._store.world[IMAGES]

    async def refresh(self) -> ImagesView:
        """Reads again. Raises SparkError where Docker does not answer; the slice has the last view as stale."""
        async with self._reading:
            try:
                found = await self._read()
            except SparkError as error:
                self._store.put(IMAGES, aged(self.view, str(error)))
                raise
            self._store.put(IMAGES, Ok(found, self._clock.now()))
            return found

    async def _read(self) -> ImagesView:
        disk = await self._docker.images()
        containers = await self._docker.containers()
        presets = self._presets.load().presets
        starts: tuple[StartRecord, ...] = ()
        unknown = "no history is kept"
        if self._history is not None:
            reading = await self._history.starts(limit=_KNOWN_STARTS)
            good_starts = value_of(await self._history.starts(ready=True, limit=_KNOWN_STARTS)) or ()
            starts, unknown = (*(value_of(reading) or ()), *good_starts), reason_of(reading)
            inspected: tuple[Record, ...] = value_of(await self._history.records(INSPECTED)) or ()
            for record in reversed(inspected):
                self._inspected[record.key] = _texts(record.body)
        good = last_good(starts, (preset.name for preset in presets))
        repositories = {repository(familiar(preset.reference)) for preset in presets}
        kept = {start.image_id for start in good.values()}
        entries, others = [], []
        for image in disk.images:
            if image.id not in kept and not of_engines(image, containers, repositories):
                others.append(image)
                continue
            versions = await self._versions(image, starts)
            for name in names(image):
                uses = uses_of(image, familiar(name), containers, presets, good)
                patches = self._patches(image, familiar(name), presets)
                entries.append(ImageEntry(name, image, uses, versions, self._remote.get(name), patches))
        held = {preset for entry in entries for preset in entry.presets}
        missing = sorted({familiar(each.reference) for each in presets if each.image and each.name not in held})
        for name in missing:
            uses = uses_of(None, name, containers, presets, good)
            entries.append(ImageEntry(name, None, uses, (), self._remote.get(name)))
        entries.sort(key=lambda each: (each.stored is None, not each.uses, each.name))
        bytes_ = sum(image.size for image in others)
        return ImagesView(tuple(entries), disk.layers, len(others), bytes_, unknown)

    async def _versions(self, image: StoredImage, starts: tuple[StartRecord, ...]) -> tuple[ImageVersion, ...]:
        """What was read inside counts most, then what an engine reported of itself, then the image's own words."""
        if image.id not in self._labels:
            facts = await self._docker.image(image.id)
            self._labels[image.id] = facts.versions if facts is not None else ()
        found = {title: ImageVersion(title, text, "image") for title, text in self._labels[image.id]}
        for start in starts[::-1]:
            if start.image_id == image.id and start.version:
                title = runtime_named(start.runtime).title
                found[title] = ImageVersion(title, clean_line(start.version)[:_MOST_CELLS], "start")
        read = self._inspected.get(image.id, {})
        for title, text in ((title, text) for title, text in read.items() if title not in patches()):
            found[title] = ImageVersion(title, text, "inspected")
        order = [*dict.fromkeys(_TITLES.values()), *sorted(found)]
        return tuple(found[title] for title in dict.fromkeys(order) if title in found)

    def _patches(self, image: StoredImage, name: str, presets: Iterable[Preset]) -> dict[str, str]:
        """Patches that an inspection found, but for what vLLM has itself, and those that presets with this image ask
        for."""
        users = [each for each in presets if familiar(each.reference) == name]
        asked = {id_ for each in users for id_ in patches_for(each.env, each.mods)}
        found = {id_: self._inspected.get(image.id, {}).get(id_, "") for id_ in visible_patches()}
        known = patches()
        return {id_: at for id_, at in found.items() if id_ in asked or (at == PRESENT and not known[id_].since)}

    async def entry(self, name: str) -> ImageEntry:
        """An image by a name, or by the beginning of its id or digest. Raises UsageError where none or several are
        meant, SparkError where Docker does not answer."""
        return find(await self.refresh(), name)

    # --- asking registries ----------------------------------------------------------------------------

    async def check(self) -> ImagesView:
        """Asks registries for the digests of all tags on disk that came from one. A registry that does not answer is
        asked once. Raises what `refresh` raises; what a registry says is in its entries."""
        view = await self.refresh()
        by_registry: dict[str, list[str]] = {}
        for each in view.entries:
            if each.state not in (TagState.ABSENT, TagState.PINNED, TagState.LOCAL):
                by_registry.setdefault(registry_of(each.name), []).append(each.name)
        await asyncio.gather(*(self._ask(each) for each in by_registry.values()))
        entries = tuple(replace(each, remote=self._remote.get(each.name)) for each in view.entries)
        view = replace(view, entries=entries)
        self._store.put(IMAGES, Ok(view, self._clock.now()))
        return view

    async def _ask(self, tags: list[str]) -> None:
        """Tags of one registry, one after another."""
        gone: SparkError | None = None
        for tag in tags:
            try:
                self._remote[tag] = gone or await self._docker.registry_digest(tag)
            except SparkError as error:
                self._remote[tag] = error
                if isinstance(error, RegistryUnreachable):
                    gone = error

    # --- looking inside -------------------------------------------------------------------------------

    async def inspect(self, name: str) -> ImageEntry:
        """Reads versions and patches inside by a program in a container of the image, and remembers them. Raises
        SparkError."""
        entry = await self.entry(name)
        if entry.stored is None:
            raise RefusedError(f"{entry.name} is not downloaded.", f"Pull it: docker pull {quoted(entry.name)}")
        wanted = visible_patches()
        looks = {id_: (each.package, each.version, each.file, each.pattern) for id_, each in wanted.items()}
        program = _PROGRAM.replace("WANTED", repr(tuple(_TITLES))).replace("PATCHES", repr(looks)).replace("LOOK", LOOK)
        try:
            lines = await self._docker.run_once(entry.stored.id, ("python3", "-c", program))
            found = load_json(lines[-1] if lines else "")
        except ImageNotFound:
            raise
        except (DockerError, ValueError) as error:
            why = error.summary if isinstance(error, DockerError) else "its Python printed something else."
            raise DockerError(
                f"Versions in {entry.name} unknown: {why}",
                "An engine reports its own version once it has started.",
                detail=error.detail if isinstance(error, DockerError) else str(error),
            ) from error
        known = _TITLES | {id_: id_ for id_ in looks}
        versions = {known[key]: text for key, text in _texts(found).items() if key in known}
        self._inspected[entry.stored.id] = versions
        if self._history is not None:
            try:
                await self._history.add_record(Record(INSPECTED, entry.stored.id, self._clock.now(), versions))
            except HistoryOff as error:
                self._store.say(f"{entry.name}: versions not remembered. {error.summary}", Severity.WARNING)
        return await self.entry(name)

    # --- deleting -------------------------------------------------------------------------------------

    async def plan_delete(self, name: str, *, unchecked: bool = False) -> ImageDeletion:
        """What deleting that name would free, with what keeps it. `unchecked`: also where the history does not say
        which images the last good starts ran in. Raises what `entry` raises."""
        view = await self.refresh()
        entry = find(view, name)
        if entry.stored is None:
            remedy = by_front_end("Select a downloaded image.", "List what is: spark-tui images")
            raise UsageError(f"{entry.name} is not downloaded.", remedy)
        others = tuple(each for each in view.names_of(entry.stored) if each != entry.name)
        # Another name keeps the image for all but a pin, whose name by digest goes with the tag.
        obstacles = [use.obstacle for use in entry.uses if use.keeps and (not others or use.kind is ImageUser.PIN)]
        if view.starts_unknown and not unchecked and not others:
            words = f"unknown whether a last good start needs it ({view.starts_unknown.rstrip('.')})"
            remedy = "Repair the history, or skip this check with --unchecked."
            obstacles.append(Finding("starts_unknown", Severity.ERROR, words, remedy=remedy))
        return ImageDeletion(entry, 0 if others else entry.stored.unique, others, tuple(obstacles))

    async def delete(self, plan: ImageDeletion, *, unchecked: bool = False) -> int | None:
        """Does what `plan_delete` has shown, after looking once more; returns the bytes that the disk gained, None
        where Docker does not measure. Raises RefusedError when it has come into use or is another image by now."""
        fresh = await self.plan_delete(plan.entry.name, unchecked=unchecked)
        fresh.check()
        if fresh.entry.stored is None or plan.entry.stored is None or fresh.entry.stored.id != plan.entry.stored.id:
            raise RefusedError(f"{plan.entry.name} is another image by now.", "Look again, then repeat it.")
        before = value_of(self.view)
        await self._docker.remove_image(fresh.entry.name)
        after = await self.refresh()
        freed = None
        if before is not None and before.layers is not None and after.layers is not None:
            freed = max(0, before.layers - after.layers)
        size = "" if freed is None else f", {human_bytes(freed)} freed"
        self._store.say(f"{fresh.entry.name}: image deleted{size}")
        return freed


def find(view: ImagesView, name: str) -> ImageEntry:
    """An entry by its name, by the beginning of its id or digest, or by its end where only one has it. Raises
    UsageError."""
    meant = [each for each in view.entries if each.name in (name, familiar(name))]
    if not meant and len(name) >= _LEAST_ID:
        begin = name.partition("sha256:")[2] or name
        meant = [
            each
            for each in view.entries
            if each.stored is not None
            and any(text.removeprefix("sha256:").startswith(begin) for text in (each.stored.id, each.digest) if text)
        ]
    meant = meant or [each for each in view.entries if each.name.endswith((f"/{name}", f":{name}"))]
    if len(meant) == 1:
        return meant[0]
    if meant:
        several = ", ".join(each.name for each in meant[:5])
        raise UsageError(f"Several images are meant by {name}: {several}.", "Name one of them.")
    raise UsageError(f"No image {name}.", "List them: spark-tui images")


def _texts(found: Any) -> dict[str, str]:
    """Texts by name, of what a container printed or a file had."""
    pairs = found.items() if isinstance(found, dict) else ()
    return {str(key): clean_line(value)[:_MOST_CELLS] for key, value in pairs if isinstance(value, str) and value}
