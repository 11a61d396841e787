"""What is known about a launch before it happens, gathered for the rules."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from spark_tui.core.preflight import Preflight
from spark_tui.core.store import Store
from spark_tui.domain.engine.container import ImageFacts
from spark_tui.domain.engine.view import EngineView
from spark_tui.domain.errors import SparkError
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Preset, RequiredFile
from spark_tui.domain.presets.rules import Finding, Situation, check
from spark_tui.domain.presets.vllm_command import option
from spark_tui.domain.reading import value_of
from spark_tui.services.ports import CheckpointSource, ContainerEngine, HostProbe, SecretStore


class PresetChecks:
    """Runs the rules on presets with what this machine knows. `store_root` is the model store's folder."""

    def __init__(
        self,
        docker: ContainerEngine,
        host: HostProbe,
        secrets: SecretStore,
        preflight: Preflight,
        checkpoints: CheckpointSource,
        store: Store,
        store_root: Path,
    ) -> None:
        self._docker = docker
        self._host = host
        self._secrets = secrets
        self._preflight = preflight
        self._checkpoints = checkpoints
        self._store = store
        self._root = store_root

    async def check(self, preset: Preset, overrides: Overrides) -> tuple[Finding, ...]:
        """All findings, the worst first. Raises SparkError when the preset cannot be planned at all."""
        try:
            image = await self._docker.image(preset.reference)
        except SparkError:  # a Docker that does not answer leaves it unknown
            image = None
        return await self.check_with(image, preset, overrides)

    async def check_with(self, image: ImageFacts | None, preset: Preset, overrides: Overrides) -> tuple[Finding, ...]:
        """The same with the image as it was found before; None: it is not here, or not known."""
        plan = self._preflight.dry_plan(preset, overrides, image)
        read = await asyncio.to_thread(self._checkpoints.read, plan.model, preset.model_revision)
        return check(replace(self.situation(plan, overrides), image=image, checkpoint=value_of(read)))

    def situation(self, plan: LaunchPlan, overrides: Overrides) -> Situation:
        """What can be told without asking Docker and without reading the checkpoint."""
        world = self._store.world
        engines = value_of(world.engines)
        return Situation(
            plan=plan,
            overrides=overrides,
            engine_version=_version_seen(engines or (), plan.preset.reference),
            is_spark=world.identity.is_spark if world.identity.hostname else None,
            sparks=1,
            has_hf_token=self._secrets.hf_token() is not None,
            neighbours_utilization=None if engines is None else _shares(engines, plan.spec.name),
            missing_files=tuple(file for file in plan.preset.facts.required_files if not self._is_here(file)),
        )

    def _is_here(self, file: RequiredFile) -> bool:
        path = self._root / file.target
        return self._host.has_folder(path) if file.is_folder else self._host.has_file(path)


def _version_seen(engines: tuple[EngineView, ...], image: str) -> str:
    """What an engine of that image said of its version."""
    return next((view.version for view in engines if view.container.image == image and view.version), "")


def _shares(engines: tuple[EngineView, ...], name: str) -> float | None:
    """The memory shares of the other engines that run; None where one of them does not tell its own."""
    total = 0.0
    for view in engines:
        if not view.container.running or view.name == name or view.runtime != "vllm":
            continue
        stated = option(view.container.argv, "--gpu-memory-utilization")
        try:
            total += float(stated or "")
        except ValueError:
            return None
    return total
