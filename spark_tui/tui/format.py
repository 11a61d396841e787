"""The only place where values become styled text. Styles are theme tokens; every state also has a word."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from textual.content import Content

from spark_tui.domain.engine.state import EngineState, Exposure
from spark_tui.domain.event import Severity
from spark_tui.domain.quantities import human_duration
from spark_tui.domain.text import clean_line

if TYPE_CHECKING:
    from spark_tui.domain.engine.view import EngineView
    from spark_tui.domain.event import Event

STATE_STYLE = {
    EngineState.CREATED: "$dim",
    EngineState.STARTING: "$warning",
    EngineState.SERVING: "$success",
    EngineState.NOT_ANSWERING: "bold $error",
    EngineState.RESTARTING: "$warning",
    EngineState.PAUSED: "$dim",
    EngineState.STOPPED: "$dim",
    EngineState.FAILED: "$error",
}

EXPOSURE_STYLE = {
    Exposure.LOCAL: "$dim",
    Exposure.LAN: "$secondary",
    Exposure.LAN_NO_KEY: "bold $error",
    Exposure.NONE: "$dim",
}

SEVERITY_STYLE = {Severity.INFO: "$dim", Severity.WARNING: "$warning", Severity.ERROR: "$error"}


def safe(text: str, style: str = "") -> Content:
    """Text from outside as plain content: never markup, control codes removed."""
    return Content.styled(clean_line(text), style) if style else Content(clean_line(text))


def state_word(view: EngineView) -> str:
    """`SERVING`, `FAILED 1`, or the boot phase while it starts: `WEIGHTS 62%`."""
    if view.state is EngineState.FAILED:
        return f"FAILED {view.container.exit_code}"
    current = view.timeline.current
    if view.state is EngineState.STARTING and current is not None:
        percent = f" {current.progress:.0%}" if current.progress is not None else ""
        return f"{current.label.upper()}{percent}"
    return view.state.value


def state(view: EngineView) -> Content:
    """The state word in its colour."""
    return Content.styled(clean_line(state_word(view)), STATE_STYLE[view.state])


def exposure(view: EngineView) -> Content:
    """The badge."""
    return Content.styled(view.exposure.value, EXPOSURE_STYLE[view.exposure])


def ago(seconds: float) -> str:
    """`12s ago`, `3h12m ago`, `2d ago`: one unit fewer than a duration, it is only a hint."""
    if seconds < 86400:
        return f"{human_duration(max(seconds, 1))} ago"
    return f"{int(seconds // 86400)}d ago"


def day_and_time(at: float) -> str:
    """`21 Nov 18:40`, by this machine's clock."""
    return datetime.fromtimestamp(at).astimezone().strftime("%d %b %H:%M")


def event_line(event: Event, clock_text: str) -> Content:
    """One line of the feed: time, what, and what to do."""
    line = Content.assemble((f"{clock_text}  ", "$dim"), safe(event.text, SEVERITY_STYLE[event.severity]))
    if event.remedy:
        line = Content.assemble(line, "  ", safe(event.remedy, "$dim"))
    return line


def labelled(label: str, value: str, width: int = 0) -> Content:
    """`label value` with the label dim."""
    return Content.assemble((f"{label:<{width}} ", "$dim"), safe(value))
