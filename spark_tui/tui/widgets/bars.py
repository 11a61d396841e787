"""The frame's one-line bars: the machine on top, what is under way, the tabs, the keys at the foot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from textual.content import Content

from spark_tui.base.actions import Action, key_of, shown
from spark_tui.base.engine.container import DaemonFacts
from spark_tui.base.finding import NOT_READ_YET, Finding, Missing, Ok, Reading, Severity, reason_of, value_of
from spark_tui.base.host.vitals import GpuReading, HostIdentity, Vitals
from spark_tui.base.page import Cell
from spark_tui.base.text import cells_left
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.line import Line, spread

if TYPE_CHECKING:
    from spark_tui.base.jobs import Activity


GPU_CELLS: Final = 8
CPU_STEP: Final = 3
WATT_STEP: Final = 1.0
"""A figure that moved by less keeps what it shows: a quiet machine is not repainted for its noise."""


class TopBar(Line):
    """One line: the machine, its GPU, CPU and disk, and how the engines are. What goes first where it is narrow is
    decided by worth; DEMO stands first when nothing here is real."""

    def __init__(self, glyphs: Glyphs, *, demo: bool, read_only: bool) -> None:
        super().__init__(id="top-bar")
        self._glyphs = glyphs
        self._marks = ["DEMO"] * demo + ["READ ONLY"] * read_only
        self._held: dict[str, float] = {}
        self.identity = HostIdentity("")
        self.gpu: Reading[GpuReading] = NOT_READ_YET
        self.vitals: Reading[Vitals] = NOT_READ_YET
        self.selected = Cell("")
        """The engine that all screens show, where there are several."""
        self.counts: tuple[Cell, ...] = ()

    def say(self, width: int) -> Content:
        """`spark-7f3a  DGX Spark  GPU 96% ━━━━━━━─  51 W  71 C  2.4 GHz  CPU 12%  disk 0.4 GB/s    2 running`."""
        left: list[Content] = [Content(" ")]
        for mark in self._marks:
            left += [Content.styled(f" {mark} ", "bold $background on $warning"), Content(" ")]
        left.append(fmt.safe(self.identity.hostname, "bold"))
        parts = [(worth, part) for worth, part in self._parts() if part.cell_length]
        right = Content("  ").join([fmt.styled(cell) for cell in self.counts])
        fixed = sum(part.cell_length for part in left) + right.cell_length + 2
        kept: list[int] = []
        for number in sorted(range(len(parts)), key=lambda each: parts[each][0]):
            cells = parts[number][1].cell_length + 2
            if fixed + cells > width:
                break
            fixed += cells
            kept.append(number)
        for number in sorted(kept):
            left += [Content("  "), parts[number][1]]
        return spread(Content.assemble(*left), Content.assemble(right, " "), width)

    def _parts(self) -> list[tuple[int, Content]]:
        """In the order of the line, each with its rank: the last one goes first."""
        gpu, vitals = value_of(self.gpu), value_of(self.vitals)
        parts = [(8, fmt.safe(self.identity.product))]
        if gpu is None:
            unread = self.gpu == NOT_READ_YET
            parts += [
                (1, _figure("GPU", "..." if unread else "n/a")),
                (9, fmt.safe("" if unread else reason_of(self.gpu), "$dim")),
            ]
        else:
            busy, watts = gpu.utilization_percent, gpu.power_watts
            if busy is not None:
                full = round(GPU_CELLS * busy / 100)
                bar = ((self._glyphs.full * full, "$primary"), (self._glyphs.empty * (GPU_CELLS - full), "$rule"))
                parts += [(1, _figure("GPU", f"{busy}%")), (6, Content.assemble(*bar))]
            parts.append((3, Content("" if watts is None else f"{self._steady('watts', watts, WATT_STEP):.0f} W")))
            parts.append((2, Content("" if gpu.temperature_c is None else f"{gpu.temperature_c} C")))
            clock = "" if gpu.sm_clock_mhz is None else f"{gpu.sm_clock_mhz / 1000:.1f} GHz"
            parts.append((7, Content(clock)))
            parts.append((2, fmt.safe(f"clock: {gpu.held_by}" if gpu.held_by else "", "bold $warning")))
        if vitals is not None:
            loads, disks = value_of(vitals.clusters), value_of(vitals.disks)
            if loads:
                load = sum(each.percent * each.cpus for each in loads) / max(1, sum(each.cpus for each in loads))
                parts.append((4, _figure("CPU", f"{self._steady('cpu', load, CPU_STEP):.0f}%")))
            if disks is not None:
                rate = sum(each.read + each.written for each in disks) / 1e9
                parts.append((5, _figure("disk", f"{rate:.1f} GB/s")))
        parts.append((9, fmt.styled(self.selected)))
        return parts

    def _steady(self, name: str, value: float, step: float) -> float:
        shown = self._held.get(name)
        if shown is None or abs(value - shown) >= step:
            self._held[name] = shown = value
        return shown


def _figure(label: str, value: str) -> Content:
    return Content.assemble((f"{label} ", "$dim"), (value, "bold"))


MORE_CELLS: Final = len("   +9 more")


class ActivityLine(Line):
    """What is under way, each with the key of its screen; the worst alarm stands before it. No line where there is
    neither."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="activity")
        self._glyphs = glyphs
        self.activities: tuple[Activity, ...] = ()
        self.alarms: tuple[Finding, ...] = ()

    def renew(self) -> None:
        self.display = bool(self.activities or self.alarms)
        super().renew()

    def say(self, width: int) -> Content:
        """`1 gpt-oss-20b loading 62% ~1m10s   2 download Qwen3-8B 16%   7 bench 12 of 24`."""
        line = self._alarm(width)
        for number, each in enumerate(self.activities):
            key = Content.styled(key_of(each.show), "bold $footer-key-foreground")
            item = Content.assemble("   " if number or self.alarms else " ", key, " ", fmt.safe(each.words))
            rest = len(self.activities) - number
            if line.cell_length + item.cell_length + (MORE_CELLS if rest > 1 else 0) > width:
                more = Content.styled(f"   +{rest} more" if number or self.alarms else "", "$dim")
                line = Content.assemble(line, more if number or self.alarms else item)
                break
            line = Content.assemble(line, fmt.pressable(item, f"app.{each.show}"))
        return line.truncate(width, ellipsis=True)

    def _alarm(self, width: int) -> Content:
        """With the fix; a warning's gives way to what is under way."""
        if not self.alarms:
            return Content("")
        alarm, more = self.alarms[0], len(self.alarms) - 1
        style = f"bold {fmt.SEVERITY_STYLE[alarm.severity]}"
        summary = f"{alarm.subject}: {alarm.summary}" if alarm.subject else alarm.summary
        others = Content.styled(f"   +{more} more" if more else "", "$dim")
        line = fmt.safe(f" {self._glyphs.warning} {summary}", style)
        if not self.activities or alarm.severity is Severity.ERROR:
            line = Content.assemble(line, "  ", fmt.safe(alarm.remedy, "$dim"))
        room = cells_left(width, others.cell_length, MORE_CELLS if self.activities else 0)
        return Content.assemble(line.truncate(room, ellipsis=True), others)


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
            parts.append(fmt.pressable(Content.styled(text, "bold $primary" if here else "$dim"), f"app.{tab.id}"))
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
        for action in self._fitting(cells_left(width, right.cell_length, 3)):
            key = (shown(action.keys[0]), "bold $footer-key-foreground")
            part = Content.assemble(key, (f" {action.label}  ", "$dim"))
            parts.append(fmt.pressable(part, fmt.presses(action.keys[0])))
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
