"""A preset, a launch of it and its running container side by side."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from spark_tui.base.engine.container import (
    ContainerFacts,
    ImageFacts,
)
from spark_tui.base.engine.invocation import parse
from spark_tui.catalog.presets.model.diff import Diff, diff
from spark_tui.catalog.presets.model.overrides import AUTO, SHARE, Overrides, names_share
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.use.preflight import Preflight


def container_of(preset: Preset, containers: Sequence[ContainerFacts], name: str = "") -> ContainerFacts | None:
    """The container to compare with: the one of that name, else one launched from the preset, running ones first."""
    if name:
        return next((container for container in containers if container.name == name), None)
    ours = [container for container in containers if container.preset == preset.name]
    return min(ours, key=lambda container: not container.running, default=None)


def preset_diff(
    preflight: Preflight,
    preset: Preset,
    overrides: Overrides,
    image: ImageFacts | None,
    containers: Sequence[ContainerFacts],
    name: str = "",
) -> Diff:
    """Raises SparkError when the preset cannot be launched with these changes."""
    container, plain = container_of(preset, containers, name), Overrides()
    if container is not None and f'"{SHARE}": "{AUTO}"' in container.overrides:  # its share is no difference
        share = parse(container.argv, preset.server.id).number(SHARE)
        plain, overrides = (
            each if names_share(each) else replace(each, auto_share=True, gpu_memory_utilization=share)
            for each in (plain, overrides)
        )
    specs = [preflight.dry_plan(preset, each, image).spec for each in (plain, overrides)]
    return diff(preset.name, specs[0], specs[1], container)
