"""When the app has done what it was told: a state of its queues, of calls on threads and of its picture, and not a
number of milliseconds without work. Textual's own pilot takes a process that gets no processor for one that is done."""

from __future__ import annotations

import asyncio
import itertools
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import textual.app
import textual.pilot
from textual._context import active_app
from textual._styles_cache import StylesCache
from textual.app import App
from textual.dom import DOMNode
from textual.pilot import Pilot
from textual.screen import Screen

from spark_tui.tui.key_queue import KeyQueue
from tests.fakes_host import settle

ROUNDS = 100
"""A screen that changes with every picture is never quiet: it has been drawn so often."""
TURNS = 2_000
"""Of the loop, in which a task that is always ready is given up: what a key sets off takes hundreds."""
SOON_S = 0.02
"""What a timer does so soon is under way: a resize, an animation."""
TIMERS = 3
"""So many one after the other: one that goes on for ever is not waited for."""


async def quiet(app: App[Any]) -> None:
    """Returns once every message is handled, calls on threads have come back, and the picture shows all of it."""
    loop: Any = asyncio.get_running_loop()
    waits = TIMERS
    for _ in range(ROUNDS):
        await settle(TURNS)
        if not app.screen_stack or app._exit:
            return
        while app._batch_count and not app._exit:  # another mode is shown some hundredths of a second later
            await asyncio.sleep(SOON_S / 4)
        if _drawn(app.screen):
            continue
        now = loop.time()
        soon = [each.when() - now for each in loop._scheduled if not each.cancelled() and each.when() < now + SOON_S]
        if _typing(app):
            await asyncio.sleep(0.001)
        elif soon and waits:
            waits -= 1
            await asyncio.sleep(max(*soon, 0.001))
        else:
            return


PLENTY_S = 40.0
"""How long a busy machine may take for what is done at once on an idle one."""
ROUNDS_AT_ONCE = 20
SELDOM_S = 0.1
"""Between two looks at what takes long: a look is a whole picture."""


async def until(
    app: App[Any],
    condition: Callable[[], bool],
    what: object = "",
    *,
    passes: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Waits until it is so. `passes` lets time pass on a clock that a test moves."""
    latest = time.monotonic() + PLENTY_S
    for count in itertools.count():
        if condition():
            return
        assert time.monotonic() < latest, f"never so {what}\n{text_of(app)}"
        if passes is not None:
            await passes()
        if passes is None or count >= ROUNDS_AT_ONCE:  # it waits for a thread, a child or a timer
            await asyncio.sleep(SOON_S if count < 2 * ROUNDS_AT_ONCE else SELDOM_S)
        await quiet(app)


def text_of(app: App[Any]) -> str:
    """The terminal as it is now, right ends trimmed."""
    strips = app.screen._compositor.render_strips(app.size)
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


def _typing(app: App[Any]) -> bool:
    queue = getattr(app, "key_queue", None)
    return isinstance(queue, KeyQueue) and queue._busy


def _drawn(screen: Screen[Any]) -> bool:
    """Draws at once what the screen would draw at its next sixtieth of a second; whether there was anything."""
    if not (
        screen._layout_required
        or screen._scroll_required
        or screen._repaint_required
        or screen._recompose_required
        or screen._dirty_widgets
        or screen._callbacks
    ):
        return False
    _draw(screen)
    return True


_draw = Screen._on_timer_update


def _is_drawn_when_quiet(screen: Screen[Any]) -> None:
    """In place of a picture each sixtieth of a second: how many there are before the last is a matter of the machine,
    and nobody sees them. Every state that a test waits for is drawn."""
    if screen.app.screen_stack[-1:] == [screen]:  # one behind a dialog keeps its time: it is never done
        screen._update_timer.pause()
    else:
        _draw(screen)


async def _idle(min_sleep: float = 0.0, max_sleep: float = 0.0) -> None:
    await quiet(active_app.get())


async def _screen_is_ready(pilot: Pilot[Any], timeout: float = 0.0) -> bool:
    await quiet(pilot.app)
    return True


_init = DOMNode.__init__


def taken_apart(patch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What takes every widget apart that was made from now on, for when its app has ended: apps refer to themselves,
    and finding them as garbage costs a tenth of the test."""
    made: list[weakref.ref[DOMNode]] = []

    def remembered(node: DOMNode, *arguments: Any, **named: Any) -> None:
        made.append(weakref.ref(node))
        _init(node, *arguments, **named)

    def take_apart() -> None:
        for kept in made:
            if (node := kept()) is not None and not isinstance(node, App):  # its log handler flushes at the end
                node.__dict__.clear()
        made.clear()
        StylesCache.get_inner_outer.cache_clear()  # by widget: it keeps what a thousand of them have drawn

    patch.setattr(DOMNode, "__init__", remembered)
    return take_apart


def wait_for_states(patch: pytest.MonkeyPatch) -> None:
    """Has every pilot wait so, for `press`, `click` and `pause`, and draw then."""
    patch.setattr(textual.app, "wait_for_idle", _idle)
    patch.setattr(textual.pilot, "wait_for_idle", _idle)
    patch.setattr(Pilot, "_wait_for_screen", _screen_is_ready)
    patch.setattr(Screen, "_on_timer_update", _is_drawn_when_quiet)
