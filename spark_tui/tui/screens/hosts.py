"""Other boxes: what each serves, and the choice of one to open."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from spark_tui.core.hosts import Hosts, HostView
from spark_tui.domain.quantities import gib
from spark_tui.domain.reading import value_of
from spark_tui.domain.remote import RemoteHost, host_text, memory_words, serving_words
from spark_tui.tui import format as fmt
from spark_tui.tui.widgets.page import BLANK, Page, Part, sentence
from spark_tui.tui.widgets.row_list import Column, Row, RowList

FRAME_LINES = 14
"""What the dialog takes beside its rows: frame, titles, and what is told of the one under the cursor."""
LABEL = 9
HOW = "spark-tui config set hosts.NAME USER@ADDRESS"


class HostsDialog(ModalScreen[RemoteHost | None]):
    """Answers the host to open; None when the person leaves."""

    CSS_PATH = "hosts.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back"),
        Binding("r", "ask", "Ask again"),
        Binding("enter", "open", "Open"),
    ]

    def __init__(self, hosts: Hosts) -> None:
        super().__init__()
        self._hosts = hosts
        self._views: dict[str, HostView] = {}

    def compose(self) -> ComposeResult:
        """The hosts, and the one under the cursor in words; without any, how to name one."""
        with Vertical(classes="dialog", id="hosts") as dialog:
            dialog.border_title = "Other hosts"
            if self._hosts.known:
                dialog.border_subtitle = "Enter opens  r asks again  Esc back"
                yield RowList(
                    (Column("host", 14), Column("usable", 10, right=True), Column("serves", minimum=20)),
                    Content(""),
                    titles=True,
                    id="host-list",
                )
            else:
                dialog.border_subtitle = "Esc back"
            yield Page(LABEL, id="host-told")

    def on_mount(self) -> None:
        """All of them, asked at once."""
        if not self._hosts.known:
            self.query_one("#host-told", Page).tell(_how_to_add(), HOW)
            return
        rows = self.query_one(RowList)
        rows.styles.height = 1 + min(len(self._hosts.known), max(1, self.app.size.height - FRAME_LINES))
        rows.focus()
        self.action_ask()

    def action_ask(self) -> None:
        """What they serve now."""
        if self._hosts.known:
            self._views.clear()
            self._show()
            self._look()

    @work(exit_on_error=False, exclusive=True, group="ask-hosts")
    async def _look(self) -> None:
        async for view in self._hosts.look():
            self._views[view.host.name] = view
            self._show()

    def on_row_list_moved(self) -> None:
        """Another one in words."""
        self._tell()

    def action_open(self) -> None:
        """The one under the cursor, whether it has answered or not: by hand a password can be typed."""
        host = self._chosen()
        if host is not None:
            self.dismiss(host)

    def action_leave(self) -> None:
        """None of them."""
        self.dismiss(None)

    # --- what is shown --------------------------------------------------------------------------------

    def _show(self) -> None:
        self.query_one(RowList).show([_row(host, self._views.get(host.name)) for host in self._hosts.known])
        self._tell()

    def _tell(self) -> None:
        host = self._chosen()
        if host is not None:
            self.query_one("#host-told", Page).tell(_told(host, self._views.get(host.name)))

    def _chosen(self) -> RemoteHost | None:
        key = self.query_one(RowList).key if self._hosts.known else ""
        return next((host for host in self._hosts.known if host.name == key), None)


def _row(host: RemoteHost, view: HostView | None) -> Row:
    name = fmt.safe(host.name, "bold")
    if view is None:
        return Row(host.name, (name, Content(""), Content.styled("asking ...", "$dim")))
    if view.box is None:
        summary = view.problem.summary if view.problem is not None else ""
        shown = fmt.safe(summary.removeprefix(host.name).lstrip(": "), "$error")
        return Row(host.name, (name, Content.styled("n/a", "$dim"), shown))
    available = value_of(view.box.available)
    usable = Content.styled("n/a", "$dim") if available is None else Content(f"{gib(available)} GiB")
    return Row(host.name, (name, usable, fmt.safe(serving_words(view.box))))


def _told(host: RemoteHost, view: HostView | None) -> list[Part]:
    parts = [BLANK, _labelled("ssh", host_text(host))]
    if view is None:
        return parts
    if view.box is not None:
        return [
            *parts,
            _labelled("box", view.box.hostname or "it does not tell its name"),
            _labelled("usable", memory_words(view.box)),
            _labelled("serves", serving_words(view.box)),
        ]
    if view.problem is not None:
        parts += [sentence(view.problem.summary, "$error"), sentence(view.problem.remedy)]
    return parts


def _labelled(label: str, value: str) -> Part:
    return Content.styled(f"{label:<{LABEL}}", "$dim"), fmt.safe(value)


def _how_to_add() -> list[Part]:
    return [
        sentence("No other box is named yet.", "bold"),
        sentence(
            "A box with a spark-tui of its own is opened from here through your ssh: what ssh asks for, it asks you. "
            "Name it in a shell, then open spark-tui again:"
        ),
        BLANK,
    ]
