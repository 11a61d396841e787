"""Other hosts: what each serves, and the choice of one to open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from spark_tui.base.finding import value_of
from spark_tui.base.page import Cell, Column, Row, Section, Table, Tone, cells
from spark_tui.base.page import Page as Sections
from spark_tui.base.quantities import gib
from spark_tui.base.remote import RemoteHost, host_text, memory_words, serving_words
from spark_tui.machine.nodes import Hosts, HostView
from spark_tui.tui.format import key_hints
from spark_tui.tui.textual_private import QuietModal
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.widgets.row_list import RowList

FRAME_LINES = 14
"""What the dialog takes beside its rows: frame, titles, and the page of the one under the cursor."""
HOW = "spark-tui config set hosts.NAME USER@ADDRESS"


class HostsDialog(QuietModal[RemoteHost | None]):
    """Answers the host to open; None when cancelled."""

    CSS_PATH = "hosts.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back"),
        Binding("ctrl+r", "ask", "Refresh"),
        Binding("enter", "open", "Open"),
    ]

    def __init__(self, hosts: Hosts) -> None:
        super().__init__()
        self._hosts = hosts
        self._views: dict[str, HostView] = {}

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="hosts") as dialog:
            dialog.border_title = "Other hosts"
            if self._hosts.known:
                dialog.border_subtitle = key_hints("Enter open  ^r refresh  Esc back")
                yield RowList(titles=True, id="host-list")
            else:
                dialog.border_subtitle = key_hints("Esc back")
            yield Page(id="host-page")

    def on_mount(self) -> None:
        if not self._hosts.known:
            self.query_one("#host-page", Page).show(HOW_TO_ADD)
            return
        rows = self.query_one(RowList)
        rows.styles.height = 1 + min(len(self._hosts.known), max(1, self.app.size.height - FRAME_LINES))
        rows.focus()
        self.action_ask()

    def action_ask(self) -> None:
        if self._hosts.known:
            self._views.clear()
            self._show()
            self._ask_hosts()

    @work(exit_on_error=False, exclusive=True, group="ask-hosts")
    async def _ask_hosts(self) -> None:
        async for view in self._hosts.look():
            self._views[view.host.name] = view
            self._show()

    def action_open(self) -> None:
        """Also one that has not answered: ssh on the terminal can ask for a password."""
        host = self._chosen()
        if host is not None:
            self.dismiss(host)

    def action_leave(self) -> None:
        self.dismiss(None)

    # --- what is shown --------------------------------------------------------------------------------

    def _show(self) -> None:
        self.query_one(RowList).show_table(host_table(self._hosts.known, self._views))
        self.on_row_list_moved()

    def on_row_list_moved(self) -> None:
        host = self._chosen()
        if host is not None:
            self.query_one("#host-page", Page).show(host_page(host, self._views.get(host.name)))

    def _chosen(self) -> RemoteHost | None:
        key = self.query_one(RowList).key if self._hosts.known else ""
        return next((host for host in self._hosts.known if host.name == key), None)


def host_table(hosts: Iterable[RemoteHost], views: Mapping[str, HostView]) -> Table:
    columns = (Column("host"), Column("available", right=True), Column("serves", least=20))
    rows, known = [], tuple(hosts)
    for host in known:
        view, name = views.get(host.name), Cell(host.name, Tone.STRONG)
        if view is None:
            rows.append(cells(name, "", Cell("connecting ...", Tone.QUIET)))
        elif view.status is None:
            summary = view.problem.summary if view.problem is not None else ""
            text = summary.removeprefix(host.name).lstrip(": ")
            rows.append(cells(name, Cell("n/a", Tone.QUIET), Cell(text, Tone.BAD)))
        else:
            free = value_of(view.status.available)
            available = Cell("n/a", Tone.QUIET) if free is None else f"{gib(free)} GiB"
            rows.append(cells(name, available, serving_words(view.status)))
    return Table(columns, tuple(rows), tuple(host.name for host in known))


def host_page(host: RemoteHost, view: HostView | None) -> Sections:
    rows = [Row(host_text(host), "ssh")]
    if view is not None and view.status is not None:
        rows += [
            Row(view.status.hostname or "unknown name", "machine"),
            Row(memory_words(view.status), "available"),
            Row(serving_words(view.status), "serves"),
        ]
    elif view is not None and view.problem is not None:
        rows += [Row(view.problem.summary, tone=Tone.BAD), Row(view.problem.remedy)]
    return (Section(), Section(rows=tuple(rows)))


HOW_TO_ADD = (
    Section(
        "No other hosts configured.",
        (
            Row(
                "A host with its own spark-tui is opened through your ssh. Configure it in a shell, then restart "
                "spark-tui:"
            ),
        ),
    ),
    Section(command=HOW),
)
