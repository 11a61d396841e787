"""presets show, pin, unpin: one recipe, and the image that it last served with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click

from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Finding
from spark_tui.base.page import maybe
from spark_tui.catalog.fit.show.launch import deviations_object, deviations_page
from spark_tui.catalog.fit.show.preset_files import (
    last_good_object,
    last_good_rows,
    pin_object,
    pin_page,
)
from spark_tui.catalog.fit.show.presets import (
    drift_object,
    overview,
    preset_detail,
    recipe,
)
from spark_tui.catalog.fit.use.fit import LaunchChecks, observe
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.use.pins import LastGood, PinPlan, Pins
from spark_tui.catalog.presets.use.rights import drifts, find_preset
from spark_tui.cli.command import command, preset_argument
from spark_tui.cli.session import Session
from spark_tui.observe.metrics.use.history import History


@command("show", "  spark-tui presets show gpt-oss-120b")
@preset_argument
def show_preset(session: Session, name: str) -> None:
    """Show everything about one preset, its command, what a launch does otherwise, and its last good start."""

    async def load(context: Context) -> tuple[Preset, Finding | None, LastGood, LaunchPlan | None, str]:
        preset = find_preset(context, name)
        await observe(context, session.err.note)
        last = context[Pins].last_good(preset, await context[Pins].image(preset))
        return preset, drifts(context, (preset,)).get(preset.name), last, *await _planned(context, preset)

    preset, drift, last, plan, why = session.run(load)
    launch = maybe("deviations", None if plan is None else deviations_object(plan), why)
    session.out.json({**preset_detail(preset), **launch, **drift_object(drift), **last_good_object(last)})
    good = last_good_rows(last, f"spark-tui presets pin {preset.name}")
    session.out.page((*overview(preset, drift=drift, good=good), *recipe(preset), *deviations_page(plan)))
    nodes = " --nodes CLUSTER" if preset.min_nodes > 1 else ""
    session.err.say(f"The exact docker run: spark-tui up {preset.name}{nodes} --dry-run")


async def _planned(context: Context, preset: Preset) -> tuple[LaunchPlan | None, str]:
    """A launch with the recipe's values, or why there is none."""
    try:
        return (await context[LaunchChecks].launch(preset, Overrides())).settle(), ""
    except SparkError as error:
        return None, error.summary


_PIN_EXAMPLES = """\
  spark-tui presets pin gpt-oss-120b --dry-run
  spark-tui presets pin gpt-oss-120b --digest sha256:3f8e21
"""


@command("pin", _PIN_EXAMPLES)
@preset_argument
@click.option("--digest", default="", metavar="DIGEST", help="Another digest.  [of the last good start]")
@click.option("--dry-run", is_flag=True, help="Show the change; write nothing.")
def pin_preset(session: Session, name: str, digest: str, dry_run: bool) -> None:
    """Pin a preset to the image that last served well, by its digest.

    Written into your preset file; of a built-in preset, into a copy that becomes yours.
    """

    async def work(context: Context) -> PinPlan:
        preset = find_preset(context, name)
        await context[History].load()
        return await context[Pins].plan(preset, digest)

    _pin(session, work, dry_run=dry_run)


@command("unpin", "  spark-tui presets unpin gpt-oss-120b")
@preset_argument
@click.option("--dry-run", is_flag=True, help="Show the change; write nothing.")
def unpin_preset(session: Session, name: str, dry_run: bool) -> None:
    """Let a pinned preset follow its image tag again."""

    async def work(context: Context) -> PinPlan:
        return context[Pins].unpin_plan(find_preset(context, name))

    _pin(session, work, dry_run=dry_run)


def _pin(session: Session, make: Callable[[Context], Awaitable[PinPlan]], *, dry_run: bool) -> None:
    async def work(context: Context) -> tuple[PinPlan, str]:
        plan = await make(context)
        return plan, "" if dry_run else context[Pins].apply(plan).file

    plan, file = session.run(work, changes=not dry_run)
    session.out.answer(pin_object(plan, file), pin_page(plan, file))
    if dry_run:
        session.err.say("Nothing written.")
