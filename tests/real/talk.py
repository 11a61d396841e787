"""A person at the Chat screen, who talks to a real engine by keys alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from spark_tui.base.engine.message import SETTINGS
from tests.pty_app import PtyApp, spark_tui

ANSWER_SECONDS = 90
"""A token takes 40 ms on two quiet cores, and much longer on busy ones."""
LONG = "List one thousand animals, one on each line."


class Talk:
    """A person at the Chat screen."""

    def __init__(self, app: PtyApp) -> None:
        self.app = app

    def ask(self, question: str) -> None:
        """Types a question and sends it; a long one is pasted."""
        if len(question) > 80:
            self.app.send(f"\x1b[200~{question}\x1b[201~", "enter")
        else:
            self.app.send(question)
            self.app.wait_for(question)
            self.app.send("enter")

    def answered(self, *texts: str) -> str:
        """The screen once the answer is over and these texts are there."""
        self.app.wait_gone("Esc stop", timeout=ANSWER_SECONDS)
        return self.app.wait_for("ttft", *texts, timeout=ANSWER_SECONDS)

    def set(self, **settings: str) -> None:
        """Sets these in the settings panel, walking from the first field to the last."""
        order = [*(setting.name for setting in SETTINGS), "tools", "tool_choice"]
        self.app.send("ctrl+o")
        self.app.wait_for("For the next question", "temperature")
        at = order.index("temperature")
        for name in sorted(settings, key=order.index):
            self.app.send(*["down"] * (order.index(name) - at), settings[name])
            at = order.index(name)
        self.app.send("ctrl+o")
        self.app.wait_for("Changed settings for the next question")


@contextmanager
def talking(environment: Mapping[str, str], engine: str, model: str) -> Iterator[Talk]:
    """The program, started anew, at its Chat screen with this engine to talk to."""
    with PtyApp(spark_tui(), rows=40, env=environment) as app:
        app.wait_for("1 Home", "docker OK", engine, "ready", timeout=60)
        app.send("6")
        app.wait_for("Leave prompt", timeout=60)
        for _ in range(10):  # an engine of others may be selected
            if f"to {model} on {engine}" in app.text():
                break
            app.send("esc")
            app.wait_for("Enter Write")
            app.send("]", "enter")
            app.wait_for("Leave prompt")
        app.wait_for(f"to {model} on {engine}", f"Message to {model}")
        yield Talk(app)


def spoken(screen: str) -> list[str]:
    """The lines of the transcript that say something."""
    return [line for line in screen.split("\n") if line[1:2] in "│|" and line[3:].strip()]
