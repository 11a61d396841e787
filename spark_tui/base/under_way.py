"""What is under way and would be disturbed by a launch, a stop, or by leaving: every question about it is from here."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from spark_tui.base.jobs import StepState
from spark_tui.base.ports import EDITS, MEASURES, StateFiles
from spark_tui.base.store import World

# What a claim says that a program does. A measurement comes before the edit that it may be made of.
_CLAIMS: Final = {MEASURES: "measurement of ", "update-": "update of ", EDITS: "edit of ", "tune": "search with tune"}


class UnderWay(Struct, frozen=True):
    """`what` names it: `A/B of qwen, 3 of 24`. `end`: what becomes of it when this program ends, empty where another
    one does it."""

    engines: tuple[str, ...]
    what: str
    end: str = ""


class Measurement(Struct, frozen=True):
    """A benchmark, an A/B or a proof of this program: its engines, the event that stops it, and the event of its end.
    `restored` is the engine that is started again as it was at its end."""

    kind: str
    engines: tuple[str, ...]
    stop: asyncio.Event
    ended: asyncio.Event
    restored: str = ""

    @property
    def title(self) -> str:
        return f"{self.kind} of {' and '.join(self.engines)}"

    async def end(self) -> None:
        """Stops it, and returns when it has kept its results and restored what it restores."""
        self.stop.set()
        await self.ended.wait()


def under_way(world: World, measured: Measurement | None) -> tuple[UnderWay, ...]:
    """The work of this program that ends with it, its measurement first."""
    found = [
        UnderWay(
            (job.title,),
            f"{job.what} of {job.title}",
            "What was begun is written down: spark-tui finishes it, or goes back, when it is opened next.",
        )
        for job in world.jobs
        if job.state is StepState.RUNNING and job.what in ("edit", "update")
    ]
    if measured is not None:
        done = f", {world.bench.done} of {world.bench.total}" if world.bench is not None and world.bench.total else ""
        again = f" {measured.restored} is started again as it was." if measured.restored else ""
        found.insert(
            0,
            UnderWay(
                measured.engines,
                f"{measured.title}{done}",
                f"The {measured.kind} stops. Results so far are kept.{again}",
            ),
        )
    return tuple(found)


def disturbed(then: str, name: str, own: tuple[UnderWay, ...], state: StateFiles | None) -> tuple[UnderWay, ...]:
    """What `then` (`Launch`, `Stop` ...) disturbs, done with that engine: work of this program, of which `own` is all,
    and of others on this machine. A stop disturbs that engine alone; one that starts takes memory and bandwidth from
    all others. Raises SparkError where the claims of others cannot be read."""
    found = {engine: work for work in own for engine in work.engines}
    for prefix, what in _CLAIMS.items():
        for claim in state.claimed(prefix) if state is not None else ():
            engine = claim.removeprefix(prefix)
            found.setdefault(engine, UnderWay((engine,), f"{what}{engine}"))
    return tuple(
        each for each in dict.fromkeys(found.values()) if then not in ("Stop", "Remove") or name in each.engines
    )
