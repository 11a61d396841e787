"""The base of dialogs that confirm something: what was typed before one could be read does not confirm it."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from spark_tui.tui.textual_private import QuietModal

Answer = TypeVar("Answer")


class Dialog(QuietModal[Answer]):
    """A screen over another one. Text that is typed ahead reaches its fields, and keys that cancel work at once; a key
    that confirms counts from some moments after the first picture, see `KeyQueue.guard`."""

    CONFIRMS: ClassVar[tuple[str, ...]] = ("enter",)  # besides Enter on a button
    _read_from = float("inf")

    def on_mount(self) -> None:
        self.call_after_refresh(self.hold)

    def hold(self) -> None:
        """Something new to read is shown: what confirms counts only from some moments later."""
        if (queue := getattr(self.app, "key_queue", None)) is not None:
            self._read_from = queue.clock() + queue.guard

    def takes(self, key: str, typed_at: float) -> bool:
        """Whether a key that was typed then, in seconds of the queue's clock, reaches this dialog."""
        from textual.widgets import Button  # not for the first frame

        return typed_at >= self._read_from or not (
            key in self.CONFIRMS or (key == "enter" and isinstance(self.focused, Button))
        )
