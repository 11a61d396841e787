"""A preset against a launch with a person's changes, and against the container that runs now."""

from __future__ import annotations

from collections.abc import Sequence

from spark_tui.core.preflight import Preflight
from spark_tui.domain.engine.container import ContainerFacts, ImageFacts
from spark_tui.domain.presets.diff import Diff, diff
from spark_tui.domain.presets.plan import Overrides
from spark_tui.domain.presets.preset import Preset


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
    plain = preflight.dry_plan(preset, Overrides(), image)
    launch = preflight.dry_plan(preset, overrides, image)
    return diff(preset.name, plain.spec, launch.spec, container_of(preset, containers, name))
