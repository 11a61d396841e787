"""Preset drafts: from a stored model, from the Hub, or from a container started by hand; and saving them."""

from __future__ import annotations

import posixpath
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts, ContainerSpec
from spark_tui.base.engine.docker_run import read_gpus, render_text
from spark_tui.base.engine.invocation import OPTIONS
from spark_tui.base.errors import RefusedError, UsageError
from spark_tui.base.executors import in_thread
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.ports import CheckpointSource, ContainerEngine
from spark_tui.base.store import Store
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.fit.model.draft import (
    Draft,
    DraftBasis,
    DraftRefused,
    DraftSource,
    DraftValue,
    draft_of,
    free_name,
    gguf_file,
)
from spark_tui.catalog.models.model.hub import RepoFacts
from spark_tui.catalog.models.model.store import Completeness, RepoKind, is_gguf
from spark_tui.catalog.models.use.downloads import Hub
from spark_tui.catalog.presets.model.dialects.importing import CollectedFiles, FoundFile, Registry, examine
from spark_tui.catalog.presets.model.library import LibraryEntry
from spark_tui.catalog.presets.model.preset import PRESETS, Origin, Preset
from spark_tui.catalog.presets.use.imports import RecipeStore
from spark_tui.catalog.presets.use.library import Library
from spark_tui.catalog.presets.use.rights import PresetSource


class Drafts(Struct, eq=False):
    """Drafts presets and saves them into the person's folder. Raises DraftRefused where none can be made."""

    _library: Library
    _checkpoints: CheckpointSource
    _hub: Hub
    _docker: ContainerEngine
    _presets: PresetSource
    _recipes: RecipeStore | None
    _store: Store
    _paths: HostPaths

    @classmethod
    def from_context(cls, context: Context) -> Drafts:
        return cls(
            context[Library],
            context.checkpoints,
            context[Hub],
            context.docker,
            context[PresetSource],
            context.find(RecipeStore),
            context.store,
            context.paths,
        )

    async def of(self, name: str) -> Draft:
        """By a model's name, stored or on the Hub, or a container's. Raises UsageError for a name that nothing has."""
        if "/" not in name.strip("/"):
            container = next((each for each in await self._docker.containers() if each.name == name), None)
            if container is not None:
                return await self.of_container(container)
            return await self.of_stored(await self._library.entry(name))
        try:
            entry = await self._library.entry(name)
        except UsageError:
            if name.startswith(("/", "~")):
                raise
            return await self.of_repo(await self._hub.repo(name))
        return await self.of_stored(entry)

    async def of_stored(self, entry: LibraryEntry) -> Draft:
        """From a checkpoint's own files in the store."""
        model = entry.model
        if model.kind is not RepoKind.MODEL:
            raise DraftRefused(f"{model.id} is a {model.kind}, not a model.", "Choose a model.")
        if model.writing or model.completeness in (Completeness.PARTIAL, Completeness.CORRUPT):
            state = "downloading" if model.writing else model.completeness.value
            raise DraftRefused(
                f"{model.id} is {state}: its files are missing.",
                f"Download them first: g on Models, or spark-tui models pull {model.id}",
            )
        facts = await in_thread(self._checkpoints.read, model.readable, model.commit)
        files = await self._library.files(model.id) if model.revisions else ()
        path = model.current.path if model.current is not None else model.path
        inside = posixpath.relpath(path, self._paths.store)
        inside = path if inside.startswith("../") else posixpath.join("/models", inside)
        sizes = {file.name: file.size for file in files if file.payload is not None}
        folder, single = posixpath.split(inside) if is_gguf(inside) else (inside, "")
        source = DraftSource(
            model.id,
            facts,
            folder,
            {single: model.size} if single else sizes,
            single,
            weights=sum(file.size or 0 for file in files if file.name.endswith(".safetensors")) or None,
            memory=self._hub.memory,
        )
        if file := gguf_file(source):
            read = await in_thread(self._checkpoints.read, f"{folder}/{file}")
            source = replace(source, facts=read)
        return draft_of(source, self._presets.load().presets)

    async def of_repo(self, repo: RepoFacts, file: str = "") -> Draft:
        """From a card and the headers on the Hub; `file` is the GGUF file that was chosen."""
        source = DraftSource(
            repo.repo,
            await self._hub.inspect(repo),
            "",
            {each.path: each.size for each in repo.files},
            file,
            repo.task,
            repo.base_models,
            repo.weights,
            repo.licence,
            repo.memory,
        )
        return draft_of(source, self._presets.load().presets)

    async def of_container(self, container: ContainerFacts) -> Draft:
        """From the command and mounts of a container that another program started."""
        spec = ContainerSpec(
            container.name,
            container.image,
            container.argv,
            (),
            mounts=container.mounts,
            ports=container.ports,
            network=container.network_mode if container.network_mode == "host" else "",
            gpus=read_gpus("all"),
        )
        taken = [preset.name for preset in self._presets.load().presets]
        taken += [each.name for each in await self._docker.containers()]
        name = free_name(container.name, container.name, taken)
        found = FoundFile(f"container {container.name}", command=render_text(spec), line=1)
        recipe = examine(found, CollectedFiles(Registry("")), name, paths=self._paths, chosen=True)
        if recipe.preset is None or recipe.problem is not None:
            problem = recipe.problem or RefusedError("The command cannot be read.", "")
            raise DraftRefused(f"{container.name}: {problem.summary}", problem.remedy)
        preset = recipe.preset
        values = [
            DraftValue("model", "model", preset.model, DraftBasis.COMMAND),
            DraftValue("container", "image", preset.image, DraftBasis.COMMAND),
            *(
                DraftValue(
                    key,
                    OPTIONS[key].label if key in OPTIONS and OPTIONS[key].label else key,
                    str(value),
                    DraftBasis.COMMAND,
                )
                for key, value in preset.defaults
            ),
        ]
        notes = list(recipe.changes)
        if container.environment:
            names = ", ".join(clean_line(each) for each in container.environment[:8])
            notes.append(f"Environment values are not copied: {truncate(names, 200)}.")
        return Draft(preset, recipe.text, tuple(values), tuple(notes))

    def save(self, draft: Draft, name: str = "") -> Preset:
        """Writes the draft as a preset of the person's own. Raises UsageError for a name that cannot be one,
        RefusedError where there is one of that name."""
        called = name or draft.name
        try:
            OPTIONS["name"].read(called)
        except ValueError:
            raise UsageError(
                f"{truncate(clean_line(called), 60)} cannot be a preset's name.",
                "Letters, digits, `_`, `.` and `-`, at most 63, the first a letter or digit.",
            ) from None
        known = self._presets.load().get(called)
        if known is not None:
            whose = "built-in preset" if known.origin is Origin.BUILTIN else "preset of yours"
            raise RefusedError(f"{called} is the name of a {whose}.", "Choose another name.")
        if self._recipes is None:
            raise RefusedError("No preset folder to write to.", "Start without --demo.")
        file: Path = self._recipes.write(called, draft.text)
        catalogue = self._presets.load()
        self._store.put(PRESETS, catalogue)
        found = catalogue.get(called)
        if found is None:
            raise RefusedError(f"{file} was written and cannot be read.", "Check: spark-tui presets list")
        return found
