"""Keys and pasted text, one at a time and in the order in which they were typed.

Textual gives each to whatever has the focus at that moment, and runs the binding only when the key has come back up
to the app. Over a slow line keys arrive in bursts: of `3` and `/` the second then went to the screen that the first
was about to leave, and of `8` and `m` the second could overtake the first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from textual.app import App
from textual.events import Event
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

PATIENCE_S = 2.0
"""After this long the next key goes on, whatever became of the one before."""
LOOK_EVERY_S = 0.05
"""A widget that is removed takes the message behind a key with it: looked for only while something waits."""
ROUNDS = 2
"""The key itself; then what its action has sent, as an input's `Submitted` that moves the focus."""


class KeyPassed(Message):
    """Follows a key from widget to widget up to the app: once it is there, the key has been everywhere."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class TypedKeys:
    """Holds what is typed while an earlier key is still on its way."""

    def __init__(self, app: App[Any], deliver: Callable[[Event], Awaitable[None]]) -> None:
        self._app = app
        self._deliver = deliver
        self._waiting: deque[Event] = deque()
        self._number = 0  # of the key that is on its way, or was last
        self._on_its_way = False
        self._rounds = 0
        self._screen: Screen[Any] | None = None
        self._followed: Widget | None = None
        self._sent_at = 0.0
        self._watch: Timer | None = None

    async def typed(self, event: Event) -> None:
        """Delivers the event now, or when those before it are done."""
        if self._on_its_way:
            self._waiting.append(event)
            self._watch = self._watch or self._app.set_interval(LOOK_EVERY_S, self._look)
        else:
            await self._send(event)

    def passed(self, message: KeyPassed) -> None:
        """A round of the key of this number is over."""
        message.stop()
        if self._current(message.number) and not self._follow_to_new_screen():
            if self._rounds < ROUNDS:
                self._follow(self._target)
            else:
                self._app.call_later(self._done, message.number)  # behind a focus that the key has asked for

    def _current(self, number: int) -> bool:
        return number == self._number and self._on_its_way and bool(self._app.screen_stack)  # none: the app is leaving

    @property
    def _target(self) -> Widget:
        return self._app.focused or self._app.screen

    async def _send(self, event: Event) -> None:
        self._number += 1
        self._on_its_way, self._rounds, self._sent_at = True, 0, monotonic()
        self._screen, target = self._app.screen, self._target
        await self._deliver(event)
        if not self._follow_to_new_screen():
            self._follow(target)

    def _follow(self, target: Widget) -> None:
        self._rounds += 1
        self._followed = target
        if not target.post_message(KeyPassed(self._number)):
            self._app.call_later(self._done, self._number)

    def _follow_to_new_screen(self) -> bool:
        """A screen that the key has opened must be ready before the next key is given to it."""
        if self._app.screen is self._screen:
            return False
        self._screen = self._app.screen
        self._follow(self._screen)
        return True

    async def _done(self, number: int) -> None:
        if self._current(number) and not self._follow_to_new_screen():
            await self._go_on()

    async def _go_on(self) -> None:
        self._on_its_way = False
        if self._waiting:
            await self._send(self._waiting.popleft())
        elif self._watch is not None:
            self._watch.stop()
            self._watch = None

    async def _look(self) -> None:
        gone = self._followed is not None and not self._followed.is_running
        if self._current(self._number) and (gone or monotonic() - self._sent_at > PATIENCE_S):
            await self._go_on()
