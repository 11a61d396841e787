"""bench --ab: another engine that runs, or another launch of this one, for which it is stopped and started."""

from __future__ import annotations

from functools import partial

from spark_tui.cli.asking import confirm
from spark_tui.cli.engines import find_container
from spark_tui.cli.session import Session
from spark_tui.core.bench_sides import Side
from spark_tui.core.bench_turns import starts_of
from spark_tui.core.context import Context
from spark_tui.domain.bench.plan import BenchPlan
from spark_tui.domain.errors import RefusedError


def sides_of(session: Session, name: str, other: str, plan: BenchPlan, *, yes: bool) -> tuple[Side, Side] | None:
    """The two launches that `--ab` means, once a person agreed to what they cost; None where `other` runs already.

    Raises RefusedError when they did not, and what `Sides.plan` raises.
    """
    sides = session.run(partial(_sides, name, other))
    if sides is None:
        return None
    first, second = sides
    session.err.say(f"A is {first.name} {first.what}, B is {second.what}.")
    session.err.say(f"They are started in turn, {starts_of(plan)} times; then {first.name} runs as it does now.")
    if not confirm(session, f"Requests to {first.name} are cut off meanwhile. Begin?", yes=yes):
        raise RefusedError(
            "Nothing was measured.", f"To compare with a running engine: spark-tui bench {name} --ab NAME"
        )
    return sides


async def _sides(name: str, other: str, context: Context) -> tuple[Side, Side] | None:
    container = await find_container(context, name)
    if "=" not in other:
        running = [each for each in await context.docker.containers() if each.running]
        if any(other == each.name or (len(other) >= 12 and each.id.startswith(other)) for each in running):
            return None
    watch = await context.supervisor.watch(container.id)
    await watch.settled()
    return context.bench_turns.sides(watch.view(), other)
