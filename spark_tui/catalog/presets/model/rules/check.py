"""What is wrong with a launch before it happens: one entry, `check`, over the groups of rules.

A rule is a pure function of a launch. It says nothing where it does not know; an error needs certainty. "The guide"
that rules cite is vlaicu.io/posts/dgx-vllm (2026-06).
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerSpec, EnvVar
from spark_tui.base.engine.runtimes import known_models
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Change, Finding, Severity, pairs_text
from spark_tui.catalog.presets.model import rights
from spark_tui.catalog.presets.model.command import command_of
from spark_tui.catalog.presets.model.overrides import with_change
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import Origin, Preset
from spark_tui.catalog.presets.model.recipe import with_known
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
    finding without another one."""
    found = _findings(launch)
    tried = (each if _ends(each, found, launch) else replace(each, change=()) for each in found)
    return tuple(sorted(tried, key=lambda finding: finding.severity.rank))


def _findings(launch: LaunchContext) -> list[Finding]:
    return [finding for rule in RULES.values() if (finding := rule(launch)) is not None]


def changed(launch: LaunchContext, change: Change) -> LaunchContext | None:
    """The launch with a change; None where it is not taken: a shell script, for one, has no place for unforeseen
    options."""
    plan = launch.plan
    try:
        overrides = with_change(launch.overrides, change)
        command = command_of(plan.preset, overrides, plan.model)
    except SparkError:
        return None
    env = {variable.name: variable.value for variable in plan.spec.env} | dict(overrides.extra_env)
    variables = tuple(EnvVar(name, text) for name, text in env.items())
    spec = replace(plan.spec, entrypoint=None, command=command.argv, env=variables)
    return replace(launch, overrides=overrides, plan=replace(plan, spec=spec))


def _ends(finding: Finding, found: Iterable[Finding], launch: LaunchContext) -> bool:
    after = changed(launch, finding.change) if finding.change else None
    return after is not None and RULES[finding.id](after) is None and not _worse(found, after)


SLOWER_ALONE: Final = frozenset(("cuda_graphs_off",))
"""A start that fails is not made worse by being slower: these do not count against advice."""


def _worse(before: Iterable[Finding], after: LaunchContext) -> list[Finding]:
    """The errors and warnings of a changed launch that were not there before, the worst first. How many machines serve
    is not known of a log."""
    was = {each.id: each.severity for each in before}
    aside = SLOWER_ALONE | ({"parallel_beyond_machines"} if after.sparks is None else set())
    found = (each for each in _findings(after) if each.id not in aside)
    new = [each for each in found if each.severity.worse_than(was.get(each.id, Severity.INFO))]
    return sorted(new, key=lambda each: each.severity.rank)


def judged(advice: Finding, launch: LaunchContext) -> Finding:
    """Advice whose change passes the check of the launch that it makes. Where a rule is against it, what the rule
    asks for is set too; where that undoes it or does not help, the rule's words stand alone."""
    before = changed(launch, ())
    if before is None or not advice.change:
        return advice  # a command that cannot be planned is not judged
    after = changed(launch, advice.change)
    if after is None:  # a log repeats some arguments alone
        return replace(advice, change=()) if launch.spec.image else advice
    found = _findings(before)
    new = _worse(found, after)
    if not new:
        return advice
    joined = dict(advice.change) | {key: value for each in reversed(new) for key, value in each.change}
    both = changed(launch, tuple(joined.items()))
    passes = both is not None and both.spec != before.spec and not _worse(found, both)
    change = tuple(joined.items()) if passes else ()
    said = " ".join(f"{each.summary} {each.remedy}".strip() for each in new)
    if passes and all(joined[key] == value for key, value in advice.change):
        return replace(advice, remedy=f"{advice.remedy} {said}".strip(), change=change)
    proposed = pairs_text(advice.change).replace("without=", "without ")
    return replace(advice, remedy=f"Not {proposed}: {said}", change=change)


@functools.lru_cache(maxsize=256)  # an engine's explanation is renewed with each of its lines
def judge(image: str, model: str, argv: tuple[str, ...], env: tuple[str, ...], advice: Finding) -> Finding:
    """`judged`, for vLLM by its command as a container or a log shows it, with what is known of its model. Variables
    whose values are not known are those of the model's published recipe."""
    named = (each["set"] for each in known_models().environment if re.search(each["names"], model.lower()))
    recipe: Mapping[str, str] = next(named, {})
    template = shlex.join(argv).replace("{", "{{").replace("}", "}}")
    preset = with_known(Preset(model, Origin.USER, "", model, image, command=template))
    variables = tuple(EnvVar(name, recipe.get(name, "")) for name in env)
    spec = ContainerSpec(model, image, argv, (), variables)
    return judged(advice, LaunchContext(LaunchPlan(spec, preset, model, model, preset.server.port)))
