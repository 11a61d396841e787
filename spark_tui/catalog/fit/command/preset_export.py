"""presets export: a preset for another tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import click

from spark_tui.base.context import Context
from spark_tui.base.engine.container import LABEL_RANK, ContainerSpec
from spark_tui.base.engine.docker_run import render_text
from spark_tui.base.errors import PresetError, SparkError, UsageError
from spark_tui.base.finding import Severity
from spark_tui.base.page import maybe
from spark_tui.base.ports import port_named
from spark_tui.catalog.fit.use.fit import LaunchChecks, observe
from spark_tui.catalog.presets.model.dialects.container_files import compose_text, quadlet_text, systemd_text
from spark_tui.catalog.presets.model.dialects.recipe_files import comment, to_sparkrun, yaml_text
from spark_tui.catalog.presets.model.overrides import SHARE, Overrides, overrides_from_pairs, pairs_from
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import MappingValue, Preset
from spark_tui.catalog.presets.model.rights import findings_of
from spark_tui.catalog.presets.model.rules.check import deviations
from spark_tui.catalog.presets.use.imports import (
    RecipeStore,
)
from spark_tui.catalog.presets.use.rights import find_preset
from spark_tui.cli.command import command, preset_argument, settings_option
from spark_tui.cli.output import write_new
from spark_tui.cli.session import Session

_OfSpec = Callable[[ContainerSpec, tuple[str, ...]], str]


# Format: the file's usual name, what to do with it, and how it is made of the container.
_OF_SPEC: Final[dict[str, tuple[str, str, _OfSpec]]] = {
    "docker-run": ("", "", lambda spec, about: comment(about) + render_text(spec) + "\n"),
    "compose": ("compose.yaml", "docker compose up -d", compose_text),
    "systemd": ("/etc/systemd/system/{name}.service", "systemctl enable --now {name}", systemd_text),
    "quadlet": (
        "/etc/containers/systemd/{name}.container",
        "systemctl daemon-reload && systemctl start {name}",
        quadlet_text,
    ),
}


_FORMATS = ("docker-run", "compose", "systemd", "quadlet", "sparkrun")


_EXPORT_EXAMPLES = """\
  spark-tui presets export gpt-oss-120b --format compose > compose.yaml
  spark-tui presets export gpt-oss-120b --format systemd -o gpt-oss-120b.service
  spark-tui presets export gpt-oss-120b --format sparkrun --set max_model_len=65536
  spark-tui presets export minimax-m2.7-awq --nodes duo --format compose -o compose.yaml
"""


@port_named("node_plans")
class NodePlans(Protocol):
    """Plans launches over several nodes without asking any of them."""

    async def __call__(
        self, context: Context, preset: Preset, overrides: Overrides, nodes: Sequence[str]
    ) -> tuple[Mapping[str, LaunchPlan], Sequence[str]]:
        """The container of each node by the node's name in the order of starting, the head last, and what must be
        known of all. `nodes` names a cluster, or nodes of one; empty is the only cluster. Raises SparkError."""


@command("export", _EXPORT_EXAMPLES)
@preset_argument
@click.option("--format", "format_", type=click.Choice(_FORMATS), default="docker-run", help="[docker-run]")
@settings_option()
@click.option("--nodes", metavar="NAMES", help="A cluster, or nodes of one with commas.  [the only cluster]")
@click.option("-o", "--output", default="", metavar="FILE", help="Write to a new file, of several nodes one for each.")
def export_preset(
    session: Session, name: str, format_: str, settings: tuple[str, ...], nodes: str | None, output: str
) -> None:
    """Export a preset for another tool: a command, a Compose file, a service, a recipe.

    A preset for several nodes gives a file for each, FILE-NODE with `-o`. Keys and tokens are never included: the
    export names the private file that holds them.
    """
    overrides = overrides_from_pairs(pairs_from(settings))
    if nodes and format_ not in _OF_SPEC:
        raise UsageError("A recipe names no nodes.", "Leave out --nodes, or choose another --format.")

    async def work(context: Context) -> tuple[Mapping[str, str], Sequence[str]]:
        preset = find_preset(context, name)
        recipe = None if format_ in _OF_SPEC else _of_recipe(context, preset, overrides)
        if recipe is None and (nodes or preset.min_nodes > 1):
            plans, notes = await context[NodePlans](context, preset, overrides, nodes.split(",") if nodes else ())
            made = {node: _of_plan(plan, format_, node) for node, plan in plans.items()}
            more = (note for _, found in made.values() for note in found)
            differs = _differences([*plans.values()][-1], format_)
            return {node: text for node, (text, _) in made.items()}, tuple(dict.fromkeys((*differs, *notes, *more)))
        await observe(context, session.err.note)
        try:
            launch = await context[LaunchChecks].launch(preset, overrides)
        except SparkError:
            if recipe is None:
                raise
            return {"": recipe[0]}, recipe[1]  # for several nodes, or with values left open
        text, notes = recipe or _of_plan(launch.plan, format_)
        return {"": text}, (*_differences(launch.settle(), format_), *notes)

    texts, notes = session.run(work)
    files = {node: _of_node(output, node) for node in texts if output}
    for node, file in files.items():
        write_new(file, texts[node], "-o")
    text, asked = "\n".join(texts.values()), "it was not asked for"
    each = [{"id": node, "text": texts[node], **maybe("file", files.get(node), asked)} for node in texts if node]
    whole = {"nodes": each} if each else maybe("file", output, asked)
    session.out.json({"id": name, "format": format_, "text": text, **whole, "notes": list(notes)})
    if not output:
        session.out.write(text)
    session.err.note(*notes)


def _of_node(output: str, node: str) -> str:
    """The file of one node: `compose.yaml` is `compose-spark-1.yaml` there, and itself for no node."""
    place = Path(output)
    return str(place.parent / f"{place.stem}-{node}{place.suffix}") if node else output


def _of_plan(plan: LaunchPlan, format_: str, node: str = "") -> tuple[str, Sequence[str]]:
    """The file, and what a person should know before using it."""
    file, then, make = _OF_SPEC[format_]
    name = plan.spec.name
    about = [f"{node}: rank {plan.spec.label(LABEL_RANK).replace('/', ' of ')}"] if node else []
    notes = [*plan.notes, *(each.summary for each in findings_of(plan.preset) if each.severity is Severity.ERROR)]
    if then:
        about.append(f"Made by spark-tui from its preset {plan.preset.name}.")
        about += [f"Save it as {file.format(name=name)}, then:", f"  {then.format(name=name)}"]
    for path in plan.spec.env_files:
        notes.append(f"It reads the keys from {path}, which spark-tui writes when it launches the preset.")
    if plan.directories:
        notes.append(f"These folders must be there: {', '.join(plan.directories)}")
    return make(plan.spec, tuple(about)), notes


def _differences(settled: LaunchPlan, format_: str) -> Iterator[str]:
    """Where the file, or a launch by spark-tui, is not as the recipe says. Every file has the recipe's memory share,
    where a launch follows the memory of its moment; a recipe has nothing of a launch."""
    left = ("limits", "folders", *(("restart",) if format_ in ("systemd", "quadlet") else ()))  # a service restarts it
    for each in deviations(settled):
        if each.id == SHARE:
            now = settled.overrides.gpu_memory_utilization
            names = f"the recipe's memory share, {each.source}" if each.source else "no memory share: the engine's own"
            number = "" if now is None else f": {now:g} now. To write that number: --set {SHARE}={now:g}"
            yield f"The file has {names}. A launch by spark-tui takes what fits at its moment (auto){number}."
        elif each.id not in left:
            yield each.text if format_ in _OF_SPEC else f"A launch by spark-tui has {each.text}"


def _of_recipe(context: Context, preset: Preset, overrides: Overrides) -> tuple[str, Sequence[str]]:
    found = context[RecipeStore].recipe(preset.file)
    if not isinstance(found.document, MappingValue):
        raise PresetError("The file holds no recipe any more.", "Restore it.", file=preset.file)
    exported = to_sparkrun(preset, found.document, overrides)
    if exported.document is found.document:
        return found.text, exported.notes  # unchanged, with its comments
    about = comment((f"Made by spark-tui from its preset {preset.name}.",))
    return about + yaml_text(exported.document), exported.notes
