"""Keys and pasted text, one at a time and in the order in which they were typed.

Textual gives each to whatever has the focus at that moment, and runs the binding only when the key has bubbled up to
the app. Over a slow line keys arrive in bursts: of `3` and `/` the second went to the screen that the first was about
to leave, and of `8` and `m` the second could overtake the first.
A dialog is asked whether it takes a key that was typed before it could be read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic, process_time
from typing import Any

from textual.app import App
from textual.events import Event, Key
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

from spark_tui.tui.dialog import Dialog

TIMEOUT_S = 2.0
"""After this long in which nothing is done, the next key is delivered, whatever became of the one before."""
PATIENCE = 10
"""As many times as long it waits while something is done: on a busy machine a screen takes seconds to open."""
AT_WORK_S = 0.0005
"""Of processor time in a few turns of an event loop that has something to do; an idle one takes a tenth."""
CHECK_EVERY_S = 0.05
"""A widget that is removed takes the message behind a key with it: checked only while keys wait."""
ROUNDS = 2
"""The key itself; then what its action has sent, as an input's `Submitted` that moves the focus."""
GUARD_S = 0.3  # from a dialog's picture to the first key that may confirm it: faster than anybody reads and answers


class KeyHandled(Message):
    """Follows a key from widget to widget up to the app: once it is there, the key has been everywhere."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class KeyQueue:
    """Holds what is typed while an earlier key is still being handled."""

    def __init__(self, app: App[Any], deliver: Callable[[Event], Awaitable[None]]) -> None:
        self.timeout = TIMEOUT_S
        self.clock: Callable[[], float] = monotonic
        self.guard = 0.0  # `GUARD_S` where a person types
        self._app = app
        self._deliver = deliver
        self._waiting: deque[tuple[Event, float]] = deque()
        self._number = 0  # of the key that is being handled, or was last
        self._busy = False
        self._rounds = 0
        self._sent_at = self._worked_at = 0.0
        self._screen: Screen[Any] | None = None
        self._followed: Widget | None = None
        self._check: Timer | None = None

    async def put(self, event: Event) -> None:
        """Delivers the event now, or when those before it are handled."""
        if self._busy:
            self._waiting.append((event, self.clock()))
            self._check = self._check or self._app.set_interval(CHECK_EVERY_S, self._give_up)
        else:
            await self._send(event, self.clock())

    async def _send(self, event: Event, typed_at: float) -> None:
        self._number += 1
        self._busy, self._rounds, self._sent_at = True, 0, monotonic()
        self._screen, target = self._app.screen, self._app.focused or self._app.screen
        if not (isinstance(event, Key) and isinstance(self._screen, Dialog)) or self._screen.takes(event.key, typed_at):
            await self._deliver(event)
        if not self._follow_to_new_screen():
            self._follow(target)

    def handled(self, message: KeyHandled) -> None:
        """A round of the key of this number is over: follows the next one, or lets the next key go."""
        message.stop()
        if not self._handling(message.number) or self._follow_to_new_screen():
            return
        if self._rounds < ROUNDS:
            self._follow(self._app.focused or self._app.screen)
        else:
            self._app.call_later(self._done, message.number)  # behind a focus that the key has asked for

    def _handling(self, number: int) -> bool:
        return number == self._number and self._busy and bool(self._app.screen_stack)  # none: the app is closing

    def _follow(self, target: Widget) -> None:
        self._rounds += 1
        self._followed = target
        if not target.post_message(KeyHandled(self._number)):
            self._app.call_later(self._done, self._number)

    def _follow_to_new_screen(self) -> bool:
        """A screen that the key has opened must be ready before the next key is given to it."""
        if self._app.screen is self._screen:
            return False
        self._screen = self._app.screen
        self._follow(self._screen)
        return True

    async def _done(self, number: int) -> None:
        if self._handling(number) and not self._follow_to_new_screen():
            await self._next()

    async def _give_up(self) -> None:
        number, began = self._number, process_time()
        for _ in range(3):
            await asyncio.sleep(0)
        if process_time() - began > AT_WORK_S:
            self._worked_at = monotonic()
        gone = self._followed is not None and not self._followed.is_running
        quiet, whole = monotonic() - max(self._sent_at, self._worked_at), monotonic() - self._sent_at
        if self._handling(number) and (gone or quiet > self.timeout or whole > PATIENCE * self.timeout):
            await self._next()

    async def _next(self) -> None:
        self._busy = False
        if self._waiting:
            await self._send(*self._waiting.popleft())
        elif self._check is not None:
            self._check.stop()
            self._check = None
