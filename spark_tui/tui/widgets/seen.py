"""Whether anybody can see a widget: what is hidden neither ticks nor paints."""

from __future__ import annotations

from textual.screen import ModalScreen
from textual.widget import Widget


def is_seen(widget: Widget) -> bool:
    """Its screen is shown, at most dialogs stand before it, and it is not hidden itself."""
    stack = widget.app.screen_stack
    if widget.screen not in stack or not widget.display:
        return False
    return all(isinstance(screen, ModalScreen) for screen in stack[stack.index(widget.screen) + 1 :])
