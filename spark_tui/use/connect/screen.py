"""Connect: the clients of the selected engine, what their files would be, and the keys that write and undo."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content

from spark_tui.base.actions import Scope, key_of
from spark_tui.base.errors import RefusedError, SparkError, UsageError
from spark_tui.base.finding import Finding
from spark_tui.base.page import Section
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.tui.frame import acting, bindings
from spark_tui.tui.list_screen import LIST_CSS, ListScreen
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.widgets.row_list import NO_ROWS
from spark_tui.tui.yank import Yank
from spark_tui.use.connect import show as present
from spark_tui.use.connect.model import CLIENTS, Client, change_of
from spark_tui.use.connect.use import Connection, Connector, Place


class ConnectScreen(ListScreen):
    """Over whatever was shown; Esc goes back there. Files are read in the background."""

    SCOPE = Scope.CONNECT
    TAB = ""
    OF_ENGINE = True
    CSS_PATH: ClassVar = [LIST_CSS, "screen.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.CONNECT)
    AUTO_FOCUS = "#client-list"
    LIST = "client-list"
    LIST_TITLE = "Clients"
    PAGES = (("client", "Client"),)

    def compose_rail(self) -> ComposeResult:
        """How the same client connects from another machine, where there is room."""
        with Container(id="rail", classes="pane") as rail:
            rail.border_title = "From another machine"
            with VerticalScroll(can_focus=False):
                yield Page(id="elsewhere")

    @property
    def selected_engine(self) -> EngineView | None:
        return self.world.named(ENGINES, self.spark.selected)

    def on_mount(self) -> None:
        self._plans: dict[str, Connection] = {}
        self._elsewhere: dict[str, Connection] = {}
        self._checks: dict[tuple[str, str], Finding] = {}
        self._seen: tuple[object, ...] = ()
        self._by_gateway: bool | None = None  # as each client is connected, until the key says which
        self.bind_slices((ENGINES, "selected", "gateway"), self._look)

    def on_screen_resume(self) -> None:
        self._seen = ()
        self._look()

    def _look(self) -> None:
        """Reads the files where the engine or the gateway is another one, or serves otherwise than before."""
        view, gateway = self.selected_engine, self.world.gateway
        if gateway is None and self._by_gateway:
            self._by_gateway = None
        seen = (
            view and (view.name, view.word.serves, view.models, view.exposure, view.port, view.container.id),
            gateway and (gateway.address, gateway.keyed),
        )
        if seen != self._seen:
            self._seen = seen
            self._read(view)

    @work(exit_on_error=False, exclusive=True, group="connect")
    async def _read(self, view: EngineView | None) -> None:
        plans: dict[str, Connection] = {}
        elsewhere: dict[str, Connection] = {}
        status = self.world.gateway if self._by_gateway else None
        address = None if self._by_gateway is None else status.local_address if status is not None else ""
        plan = partial(self.context[Connector].plan, gateway=address, keyed=status is not None and status.keyed)
        for client in CLIENTS.values():
            if view is not None:
                plans[client.id] = await self.context.in_thread(plan, view, client)
                with suppress(UsageError):  # this machine has no address in its network
                    there = partial(self.context[Connector].plan, view, client, Place.LAPTOP)
                    elsewhere[client.id] = await self.context.in_thread(there)
        self._plans, self._elsewhere = plans, elsewhere
        self.show_rows()

    # --- show -----------------------------------------------------------------------------------------

    @property
    def plan(self) -> Connection | None:
        """Of the client under the cursor."""
        return self._plans.get(self.rows.key)

    def show_rows(self) -> None:
        empty = Content.styled("No engine is selected." if self.selected_engine is None else "Reading files...", "$dim")
        self.rows.show_table(present.clients_table(list(self._plans.values())) if self._plans else NO_ROWS, empty)
        self.show_selected()

    def show_selected(self) -> None:
        plan = self.plan
        page = present.connection_page(plan, self.world.gateway) if plan is not None else ()
        check = self._checks.get((plan.engine, plan.client.id)) if plan is not None else None
        if check is not None:
            page = (page[0], Section("Check", tuple(present.finding_rows(check))), *page[1:])
        self.page("client").show(page)
        there = self._elsewhere.get(self.rows.key)
        script = self.context[Connector].script(there, show_key=False) if there is not None and there.files else ""
        self.query_one("#elsewhere", Page).show(present.elsewhere_page(there, script))
        self.show_title(f"{plan.client.title} for {plan.engine}" if plan is not None else "Connect")
        self.name_keys()

    def offers(self, id_: str) -> bool:
        plan = self.plan
        match id_:
            case "write_client":
                return plan is not None and plan.changed and not plan.errors
            case "undo_client":
                return plan is not None and plan.written
            case "check_client":
                return plan is not None and bool(plan.served.name)
            case "toggle_gateway":
                return plan is not None and (plan.gateway or self.world.gateway is not None)
            case "fix_engine":
                return plan is not None and bool(change_of(plan.findings))
            case "yank":
                return bool(self.yanks())
        return super().offers(id_)

    def yanks(self) -> tuple[Yank, ...]:
        plan = self.plan
        if plan is None:
            return ()
        served, command = plan.served, plan.client.command_for(plan.served) if plan.served.name else ""
        texts = (("Start command", "s", plan.client.start), ("Commands", "c", command), ("Model", "m", served.name))
        found = [Yank(*each) for each in texts if each[2]]
        if plan.files:
            found.append(Yank("Line for another machine", "l", partial(self._script, plan.client)))
        return (*found, Yank("URL", "u", served.api_url)) if served.base_url else tuple(found)

    def _script(self, client: Client) -> str:
        """Raises RefusedError where that machine cannot reach the engine."""
        view = self.selected_engine
        if view is None:
            raise UsageError("No engine is selected.", "Choose one on Home.")
        plan = self.context[Connector].plan(view, client, Place.LAPTOP)
        for finding in plan.errors:
            raise RefusedError(finding.summary, f"Edit the engine: {finding.remedy}")
        return self.context[Connector].script(plan, show_key=False)

    # --- act ------------------------------------------------------------------------------------------

    def action_write_client(self) -> None:
        plan = self.plan
        if plan is None or not plan.files:
            self.notify("Nothing to write for this client.", markup=False)
        elif plan.errors:
            fix = f" Press {key_of('fix_engine')} to fix it." if change_of(plan.findings) else ""
            self.notify(f"{plan.errors[0].summary}{fix}", severity="warning", markup=False)
        else:
            self._change(plan, write=True)

    def action_undo_client(self) -> None:
        if self.plan is None or not self.plan.written:
            self.notify("This client was not connected by spark-tui.", markup=False)
        else:
            self._change(self.plan, write=False)

    @work(exit_on_error=False, group="change-client")
    async def _change(self, plan: Connection, *, write: bool) -> None:
        connector = self.context[Connector]
        try:
            if write:
                await self.context.in_thread(connector.write, plan)
            else:
                await self.context.in_thread(connector.undo, plan.client)
        except SparkError as error:
            self.spark.report(error)
        else:
            how = f"Written. {key_of('check_client')} checks it, {key_of('undo_client')} undoes it."
            self.notify(how if write else f"{plan.client.title} is as before.", markup=False)
        self._read(self.selected_engine)

    @acting("check-client")
    async def action_check_client(self) -> None:
        """One request with a tool call, as the client sends it."""
        view, plan = self.selected_engine, self.plan
        if view is None or plan is None:
            self.notify("No engine is selected.", markup=False)
            return
        self.notify(f"Asking {view.name} ...", markup=False)
        self._checks[view.name, plan.client.id] = await self.context[Connector].check(view, plan)
        self.show_selected()

    def action_toggle_gateway(self) -> None:
        """All clients of the page are given the gateway's address, or the engine's."""
        if self.plan is None or not (self.plan.gateway or self.world.gateway is not None):
            self.notify("No gateway is running. Start it: spark-tui gateway", markup=False)
            return
        self._by_gateway = not self.plan.gateway
        self._checks.clear()
        self._read(self.selected_engine)

    def action_fix_engine(self) -> None:
        """The form of the engine's settings, with the changes that this client needs."""
        change = change_of(self.plan.findings) if self.plan is not None else ()
        if change:
            self.spark.edit_engine(self.spark.selected, dict(change))
        else:
            self.notify("No fix available for this engine.", markup=False)

    def action_leave_connect(self) -> None:
        self.spark.show_aside("connect")
