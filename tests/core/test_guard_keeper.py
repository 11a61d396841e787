"""A guard is there while an engine of ours runs, without anybody having asked for it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from spark_tui.core.guard import AGAIN_SECONDS, GuardLauncher
from spark_tui.domain.engine.container import LABEL_PRESET
from spark_tui.domain.errors import SparkError
from tests.core.kit import Kit
from tests.core.test_guard import FakeJournal


@dataclass
class FakeStarter:
    """A GuardStarter whose guard holds the journal's claim."""

    journal: FakeJournal
    starts: int = 0
    error: SparkError | None = None
    ends_at_once: bool = False
    kit: Kit = field(default_factory=Kit)

    def start(self) -> None:
        self.starts += 1
        if self.error is not None:
            raise self.error
        self.journal.claimed = not self.ends_at_once

    def keeper(self) -> GuardLauncher:
        context = self.kit.context
        return GuardLauncher(self, self.journal, context.supervisor, context.store, self.kit.clock)


async def test_a_launch_starts_one_and_the_next_launch_finds_it() -> None:
    starter = FakeStarter(FakeJournal())
    keeper = starter.keeper()
    await keeper.ensure()
    await keeper.ensure()
    assert starter.starts == 1


async def test_one_that_ends_at_once_is_not_started_again_and_again() -> None:
    starter = FakeStarter(FakeJournal(), ends_at_once=True)
    keeper = starter.keeper()
    for _ in range(5):
        await keeper.ensure()
        starter.kit.clock.tick(5.0)
    assert starter.starts == 1
    starter.kit.clock.tick(AGAIN_SECONDS)
    await keeper.ensure()
    assert starter.starts == 2


async def test_why_there_is_none_is_told_and_the_launch_goes_on() -> None:
    starter = FakeStarter(FakeJournal(), error=SparkError("The memory guard could not be started.", "See why."))
    await starter.keeper().ensure()
    event = starter.kit.context.store.world.events[-1]
    assert event.text == "The memory guard could not be started."
    assert event.remedy == "See why."


async def test_an_engine_of_ours_that_is_found_running_is_guarded_and_a_foreign_one_is_not() -> None:
    starter = FakeStarter(FakeJournal())
    kit = starter.kit
    async with kit.supervised():
        watching = asyncio.create_task(starter.keeper().run())
        kit.docker.add_container("theirs", argv=("vllm", "serve", "m"))
        await kit.clock.advance(12)
        assert starter.starts == 0
        kit.docker.add_container("ours", argv=("vllm", "serve", "m"), labels=((LABEL_PRESET, "qwen"),))
        await kit.until(lambda: starter.starts == 1)
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
