"""Waiting for a time or an event, whichever comes first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_tui.services.ports import Clock


async def pause(clock: Clock, seconds: float, wake: asyncio.Event) -> None:
    """Returns after `seconds` by the clock, or as soon as `wake` is set."""
    sleep = asyncio.ensure_future(clock.sleep(seconds))
    waiting = asyncio.ensure_future(wake.wait())
    try:
        await asyncio.wait((sleep, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleep.cancel()
        waiting.cancel()
