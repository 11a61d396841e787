"""A launch before it happens: what is wrong with it (`check`, over the groups of rules), and where it differs from its
recipe (`deviations`).

A rule is a pure function of a launch. It says nothing where it does not know; an error needs certainty. "The guide"
that rules cite is vlaicu.io/posts/dgx-vllm (2026-06).
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.container import ALL_INTERFACES, HUB_SETTINGS, LOOPBACK, ContainerSpec, EnvVar
from spark_tui.base.engine.docker_run import port_value, read_ulimit, ulimit_value, volume_value
from spark_tui.base.engine.invocation import parse
from spark_tui.base.engine.runtimes import known_models
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Change, Finding, Severity, pairs_text
from spark_tui.base.quantities import docker_size
from spark_tui.base.settings import ExposureChoice
from spark_tui.catalog.presets.model import rights
from spark_tui.catalog.presets.model.command import HOST_NETWORK, command_of
from spark_tui.catalog.presets.model.overrides import AUTO, SHARE, Overrides, with_change
from spark_tui.catalog.presets.model.plan import COMPILE_CACHES, TOOL_TARGET, LaunchPlan, with_overrides
from spark_tui.catalog.presets.model.preset import DOCKER_COMMAND, Origin, Preset
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
"""A start that fails is not made worse by being slower: these do not count against the fix of a failure that says so.
Any other advice is held to them."""


def _worse(before: Iterable[Finding], after: LaunchContext) -> list[Finding]:
    """The errors and warnings of a changed launch that were not there before, the worst first. How many machines serve
    is not known of a log."""
    was = {each.id: each.severity for each in before}
    unknown = "parallel_beyond_machines" if after.sparks is None else ""
    found = (each for each in _findings(after) if each.id != unknown)
    new = [each for each in found if each.severity.worse_than(was.get(each.id, Severity.INFO))]
    return sorted(new, key=lambda each: each.severity.rank)


def judged(advice: Finding, launch: LaunchContext) -> Finding:
    """Advice whose change passes the check of the launch that it makes. Where a rule is against it, what the rule
    asks for is set too; where that undoes it or does not help, the rule's words stand alone."""
    before = changed(launch, ())
    if before is None or not advice.change:
        return advice  # a command that cannot be planned is not judged
    after = changed(launch, advice.change)
    absent = after is not None and after.spec == before.spec and [key for key, _ in advice.change] == ["without"]
    if after is None or absent:  # a log repeats some arguments alone
        return replace(advice, change=()) if launch.spec.image else advice
    found, aside = _findings(before), SLOWER_ALONE if advice.severity is Severity.ERROR else ()
    worse = _worse(found, after)
    new = [each for each in worse if each.id not in aside]
    if len(new) < len(worse) and "slower" not in advice.remedy:
        slower = " ".join(each.summary for each in worse if each.id in aside)
        advice = replace(advice, remedy=f"{advice.remedy} {slower}".strip())
    if not new:
        return advice
    joined = dict(advice.change) | {key: value for each in reversed(new) for key, value in each.change}
    both = changed(launch, tuple(joined.items()))
    left = [] if both is None else [each for each in _worse(found, both) if each.id not in aside]
    passes = both is not None and both.spec != before.spec and not left
    change = tuple(joined.items()) if passes else ()
    said = " ".join(f"{each.summary} {each.remedy}".strip() for each in new)
    if passes and all(joined[key] == value for key, value in advice.change):
        return replace(advice, remedy=f"{advice.remedy} {said}".strip(), change=change)
    proposed = pairs_text(advice.change).replace("without=", "without ")
    return replace(advice, remedy=f"Not {proposed}: {said}", change=change)


@functools.lru_cache(maxsize=256)  # an engine's explanation is renewed with each of its lines
def judge(image: str, model: str, argv: tuple[str, ...], env: tuple[str, ...], advice: Finding) -> Finding:
    """`judged`, for vLLM by its command as a container or a log shows it, with what is known of its model. A variable
    without its value (`NAME=value`) has that of the model's published recipe."""
    named = (each["set"] for each in known_models().environment if re.search(each["names"], model.lower()))
    recipe: Mapping[str, str] = next(named, {})
    template = shlex.join(argv).replace("{", "{{").replace("}", "}}")
    preset = with_known(Preset(model, Origin.USER, "", model, image, command=template))
    pairs = (each.partition("=") for each in env)
    variables = tuple(EnvVar(name, value if known else recipe.get(name, "")) for name, known, value in pairs)
    spec = ContainerSpec(model, image, argv, (), variables)
    return judged(advice, LaunchContext(LaunchPlan(spec, preset, model, model, preset.server.port)))


# --- what differs from the recipe ---------------------------------------------------------------------------


EUGR_SHARE: Final = 0.7
"""What recipes of eugr's spark-vllm-docker take."""
_EXPOSED: Final = "closed to the local network; exposure=lan opens it, with an API key"
_PARSERS: Final = ("tool_call_parser", "reasoning_parser", "enable_auto_tool_choice", "jinja")


class Deviation(Struct, frozen=True):
    """`source` is what the recipe says, or published commands where it is silent; empty where neither says anything.
    `launch` is what is done instead, in the words of the command."""

    id: str
    source: str
    launch: str
    why: str

    @property
    def text(self) -> str:
        return f"{self.launch}{f', not {self.source}' if self.source else ''}: {self.why}."


def deviations(found: LaunchPlan) -> tuple[Deviation, ...]:
    """What a launch, or its head on several machines, does otherwise than its recipe and the person's own settings say:
    first what changes the recipe, then what is added."""
    given = found.overrides
    plain = replace(given, auto_share=False, gpu_memory_utilization=None) if given.auto_share else given
    return (*_share(found, plain), *_container(found), *_options(found, plain), *_added(found))


def _share(found: LaunchPlan, plain: Overrides) -> Iterator[Deviation]:
    before, now = LaunchContext(with_overrides(found, plain)), LaunchContext(found)
    source, number = before.value(SHARE), found.overrides.gpu_memory_utilization
    if found.overrides is plain or (number is not None and now.value(SHARE) == source):
        return
    why = "as much as it needs and fits beside other engines"
    if source:
        why += f"; {SHARE}={source} keeps the recipe's"
    elif now.is_vllm:
        own = memory.default_share(before)
        why += f". The recipe names none; vLLM's own is {own}, eugr's recipes take {EUGR_SHARE}"
    launch = f"memory share {AUTO if number is None else f'{number:g} ({AUTO})'}"
    yield Deviation(SHARE, source or "", launch, why)


def _as_published(preset: Preset) -> bool:
    """Whether the recipe leaves to the tool how its container is run. vLLM's documentation, NVIDIA's playbooks,
    sparkrun and eugr run it with --ipc=host and an open port then; the guide restarts it until it is stopped."""
    source = preset.facts.source
    return preset.origin is not Origin.USER or (bool(source) and not source.startswith(DOCKER_COMMAND))


def _container(found: LaunchPlan) -> Iterator[Deviation]:
    spec, options, published = found.spec, found.preset.options, _as_published(found.preset)
    size = f"--shm-size {docker_size(spec.shm_size)}"
    if not spec.ipc and options.ipc is None and published and not found.preset.cpu_only:
        yield Deviation("ipc", "--ipc host", size, "room for the engine's processes, and the host's stays its own")
    elif not spec.ipc and options.ipc is None and options.shm_size is None:
        yield Deviation("shm_size", "Docker's 64m", size, "PyTorch's processes need more")
    if options.restart_policy is None and found.preset.origin is Origin.BUILTIN:
        why = "a crash loop can take a Spark down; boot starts an engine with the machine"
        yield Deviation("restart", "unless-stopped", "--restart no", why)
    closed = [each for each in spec.ports if each.host_ip != ALL_INTERFACES]  # a replica has one on the fabric too
    if closed:
        open_ = f"-p {closed[0].host_port}:{closed[0].container_port}" if published else ""
        yield Deviation("exposure", open_, " ".join(f"-p {port_value(each)}" for each in closed), _EXPOSED)


def _options(found: LaunchPlan, plain: Overrides) -> Iterator[Deviation]:
    command, engine = command_of(found.preset, plain, found.model), found.preset.engine
    asked = (*command.asked.arguments, *parse(plain.extra_args, engine).arguments)
    added = [each for each in command.invocation.arguments if each not in asked]
    parsers = [each for each in added if each.key in _PARSERS and plain.tool_calls is None]
    if parsers:
        words = " ".join(word for each in parsers for word in each.words)
        why = "added for tool calls, as the model's family has them; tool_calls=off leaves them out"
        yield Deviation("parsers", "", words, why)
    on_host, stated = found.spec.network == HOST_NETWORK, found.preset.default("host") or command.asked.value("host")
    closed = found.preset.server.host_option and found.overrides.exposure is ExposureChoice.LOCAL
    if on_host and closed and stated != LOOPBACK:
        yield Deviation("exposure", f"--host {stated}" if stated else "", f"--host {LOOPBACK}", _EXPOSED)


def _added(found: LaunchPlan) -> Iterator[Deviation]:
    spec, preset = found.spec, found.preset
    own = {"HF_HOME", *HUB_SETTINGS, *dict(preset.env), *dict(found.overrides.extra_env)}
    limits = [each for each in spec.ulimits if each not in map(read_ulimit, preset.options.ulimits)]
    words = [f"--ulimit {ulimit_value(each)}" for each in limits] + [f"--oom-score-adj {spec.oom_score_adj}"]
    words += [f"-e {each.name}={each.value}" for each in spec.env if each.name not in own]
    why = "pinned memory, long loads, and a system that outlives its engine"
    yield Deviation("limits", "", " ".join(words), why)
    options = preset.options
    taken: tuple[tuple[str, tuple[str, ...], tuple[str | None, ...]], ...] = (
        ("network", (spec.network,), ("", options.network)),
        ("ipc", (spec.ipc,), ("", options.ipc)),
        ("device", spec.devices, options.devices),
        ("cap-add", spec.cap_add, options.cap_add),
    )
    fabric = " ".join(f"--{name} {each}" for name, has, given in taken for each in has if each not in given)
    if fabric:
        yield Deviation("fabric", "", fabric, "the nodes reach one another by RDMA")
    caches = sum(each.target in COMPILE_CACHES for each in found.mounts)
    kept_there = {found.store, *(each.source for each in found.mounts if each.target == TOOL_TARGET)}
    places = [each for each in spec.mounts if each.source in kept_there or each in found.repositories]
    store = " ".join(f"-v {volume_value(each)}" for each in places)
    kept = f"{store} and {caches} compile cache{'s' * (caches > 1)}" if caches > 0 else store
    yield Deviation("folders", "", kept, "nothing is downloaded or compiled twice")
