"""What is wrong with a launch before it happens: one entry, `check`, over the groups of rules.

A rule is a pure function of a launch. It says nothing where it does not know; an error needs certainty. "The guide"
that rules cite is vlaicu.io/posts/dgx-vllm (2026-06).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from spark_tui.base.engine.container import EnvVar
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Change, Finding
from spark_tui.catalog.presets.model import rights
from spark_tui.catalog.presets.model.command import command_of
from spark_tui.catalog.presets.model.overrides import with_change
from spark_tui.catalog.presets.model.rules import image, memory, model, serving
from spark_tui.catalog.presets.model.rules.context import LaunchContext

RULES: Final[Mapping[str, Callable[[LaunchContext], Finding | None]]] = {
    **{
        id_: lambda launch, id_=id_: next((each for each in rights.findings_of(launch.preset) if each.id == id_), None)  # type: ignore[misc]
        for id_ in rights.RULES
    },
    **serving.RULES,
    **model.RULES,
    **memory.RULES,
    **image.RULES,
}
"""Every rule by its id. Of findings of one severity the earlier rule's comes first."""


def check(launch: LaunchContext) -> tuple[Finding, ...]:
    """All findings of a launch, the worst first, in text that is safe to show. A change was tried, and ends its
    finding."""
    found = [finding for rule in RULES.values() if (finding := rule(launch)) is not None]
    tried = (each if _ends(each.id, each.change, launch) else replace(each, change=()) for each in found)
    return tuple(sorted(tried, key=lambda finding: finding.severity.rank))


def _ends(id_: str, change: Change, launch: LaunchContext) -> bool:
    """Whether a change is taken and ends the finding: a shell script, for one, has no place for unforeseen options."""
    if not change:
        return False
    plan = launch.plan
    try:
        overrides = with_change(launch.overrides, change)
        command = command_of(plan.preset, overrides, plan.model)
    except SparkError:
        return False
    env = {variable.name: variable.value for variable in plan.spec.env} | dict(overrides.extra_env)
    variables = tuple(EnvVar(name, text) for name, text in env.items())
    spec = replace(plan.spec, entrypoint=None, command=command.argv, env=variables)
    return RULES[id_](replace(launch, overrides=overrides, plan=replace(plan, spec=spec))) is None
