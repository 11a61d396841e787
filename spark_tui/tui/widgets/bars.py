"""The frame's one-line bars: who and what is on top, the tabs, the keys at the foot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from spark_tui.core.actions import shown
from spark_tui.domain.host.identity import HostIdentity
from spark_tui.domain.quantities import human_duration
from spark_tui.domain.reading import NOT_READ_YET, Missing, Ok, Reading
from spark_tui.tui import format as fmt
from spark_tui.tui.widgets.line import Line, spread

if TYPE_CHECKING:
    from spark_tui.core.actions import Action
    from spark_tui.domain.engine.container import DaemonFacts
    from spark_tui.domain.logs.view import EngineView


class TopBar(Line):
    """Left: the machine. Right: the selected engine and what it does; DEMO stands first when nothing here is real."""

    def __init__(self, *, demo: bool, read_only: bool) -> None:
        super().__init__(id="top-bar")
        self._marks = ["DEMO"] * demo + ["READ ONLY"] * read_only
        self.identity = HostIdentity("")
        self.uptime_minutes: Reading[int] = NOT_READ_YET
        self.engine: EngineView | None = None
        self.launching = ""

    def say(self, width: int) -> Content:
        """`spark-7f3a  DGX Spark GB10  up 6d        qwen36-35b  SERVING  127.0.0.1:8000`."""
        left: list[Content] = [Content(" ")]
        for mark in self._marks:
            left += [Content.styled(f" {mark} ", "bold $background on $warning"), Content(" ")]
        left.append(fmt.safe(self.identity.hostname, "bold"))
        if self.identity.product:
            left.append(fmt.safe(f"  {self.identity.product}"))
        if isinstance(self.uptime_minutes, Ok):
            left.append(Content.styled(f"  up {_coarse(self.uptime_minutes.value)}", "$dim"))
        return spread(Content.assemble(*left), self._engine(width), width)

    def _engine(self, width: int) -> Content:
        if self.engine is None and self.launching:
            return Content.assemble(fmt.safe(self.launching, "bold"), ("  LAUNCH ", "$warning"))
        if self.engine is None:
            return Content.styled("no engine ", "$dim")
        parts = [fmt.safe(self.engine.name, "bold"), Content("  "), fmt.state(self.engine)]
        if self.engine.port and width >= 100:
            parts.append(Content.styled(f"  :{self.engine.port}", "$dim"))
        return Content.assemble(*parts, " ")


def _coarse(minutes: int) -> str:
    """Uptime that changes seldom, so that the bar is seldom repainted."""
    if minutes >= 24 * 60:
        return f"{minutes // (24 * 60)}d"
    return f"{minutes // 60}h" if minutes >= 60 else human_duration(minutes * 60)[:-2].rstrip("m") + "m"


class TabBar(Line):
    """The screens and their digits; the current one is marked by brackets too, not by colour alone."""

    def __init__(self, tabs: Sequence[Action], current: str) -> None:
        super().__init__(id="tab-bar")
        self._tabs = tuple(tabs)
        self._current = current

    def say(self, width: int) -> Content:
        """`[1 Home]  3 Presets  4 Logs  6 Chat`; closer together where it is narrow."""
        parts: list[Content] = [Content(" ")]
        gap = " " if sum(len(tab.label) + 5 for tab in self._tabs) < width else ""
        for tab in self._tabs:
            here = tab.id == self._current
            key = shown(tab.keys[0])
            text = f"[{key} {tab.label}]" if here else f" {key} {tab.label} "
            parts.append(Content.styled(text, "bold $primary" if here else "$dim"))
            parts.append(Content(gap))
        return Content.assemble(*parts).truncate(width, ellipsis=False)


HELP = "help"


def _key_cells(action: Action) -> int:
    """Cells of `x Stop  `."""
    return len(shown(action.keys[0])) + len(action.label) + 3


class KeyBar(Line):
    """The keys that work here now, and whether Docker answers."""

    def __init__(self) -> None:
        super().__init__(id="key-bar")
        self.actions: tuple[Action, ...] = ()
        self.docker: Reading[DaemonFacts] = NOT_READ_YET

    def say(self, width: int) -> Content:
        """`l Launch  x Stop  ? Help  ^p Palette                docker OK`.

        Where it is narrow the last keys go first, and help, which lists them all, never.
        """
        right = self._docker()
        parts: list[Content] = [Content(" ")]
        for action in self._fitting(width - right.cell_length - 3):
            key = shown(action.keys[0])
            parts += [Content.styled(key, "bold $footer-key-foreground"), Content.styled(f" {action.label}  ", "$dim")]
        return spread(Content.assemble(*parts), right, width)

    def _fitting(self, room: int) -> list[Action]:
        """The actions that there is room for, in their order."""
        chosen = [action for action in self.actions if action.id == HELP]
        room -= sum(map(_key_cells, chosen))
        for action in self.actions:
            if action.id == HELP:
                continue
            if _key_cells(action) > room:
                break
            room -= _key_cells(action)
            chosen.append(action)
        return [action for action in self.actions if action in chosen]

    def _docker(self) -> Content:
        match self.docker:
            case Ok():
                return Content.styled("docker OK ", "$dim")
            case Missing(reason) if self.docker is NOT_READ_YET or reason == NOT_READ_YET.reason:
                return Content.styled("docker ... ", "$dim")
            case _:
                return Content.styled("docker UNREACHABLE ", "bold $error")
