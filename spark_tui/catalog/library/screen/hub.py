"""The Hub, from the Models screen: search it, open a repository, and start a download."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, cast

from msgspec import Struct
from msgspec.structs import replace
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus
from textual.widgets import Input, Static

from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Missing, Reading
from spark_tui.base.page import Section
from spark_tui.base.quantities import human_bytes
from spark_tui.catalog.fit.use.draft import Drafts
from spark_tui.catalog.models.model.download import DownloadPlan, DownloadRequest, size_typed
from spark_tui.catalog.models.model.hub import SearchHit, SearchQuery, Sort
from spark_tui.catalog.models.model.inspection import Inspection, inspected
from spark_tui.catalog.models.model.weights import formats_typed
from spark_tui.catalog.models.show import downloads, inspection
from spark_tui.catalog.models.use.downloads import Downloads, Hub
from spark_tui.tui import format as fmt
from spark_tui.tui.dialog import Dialog
from spark_tui.tui.frame import FrameApp
from spark_tui.tui.textual_private import QuietModal
from spark_tui.tui.widgets.page import Page, page_lines
from spark_tui.tui.widgets.row_list import RowList
from spark_tui.tui.yank import Yank

SORTS = {Sort.DOWNLOADS: "downloads", Sort.TRENDING: "trending", Sort.UPDATED: "newest", Sort.LIKES: "likes"}
NOTHING = "No results. Try fewer words, another format, or F2."
ASK = "Search terms, then Enter. All fields optional."
FITS = {True: "fits: yes or unknown", False: "all sizes"}


class HubSearch(Struct):
    """The last search: the dialog shows it when it is opened again."""

    words: str = ""
    formats: str = ""
    publisher: str = ""
    most: str = ""
    fits: bool = True
    sort: Sort = Sort.DOWNLOADS
    hits: tuple[SearchHit, ...] | None = None
    key: str = ""

    def query(self) -> SearchQuery:
        """What to ask the Hub. Raises UsageError."""
        most = size_typed(self.most.strip(), "Up to")
        formats = formats_typed(self.formats.replace(",", " ").split())
        return SearchQuery(self.words.strip(), formats, self.publisher.strip(), most, self.fits, sort=self.sort)


class SearchDialog(QuietModal[str | None]):
    """Returns the id of a started download; None without one."""

    CSS_PATH = "hub.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back"),
        Binding("down", "into_list", "List", show=False),
        Binding("up", "into_fields", "Fields", show=False),
        Binding("slash", "into_fields", "Fields", show=False),
        Binding("enter", "open", "Open"),
        Binding("f2", "toggle_fits", "Fits"),
        Binding("f3", "next_sort", "Order"),
    ]
    FIELDS = (
        ("words", "words: qwen3.6, coder, ..."),
        ("formats", "format: nvfp4 fp8"),
        ("publisher", "owner: nvidia"),
        ("most", "up to: 70g"),
    )

    def __init__(self, context: Context, search: HubSearch) -> None:
        super().__init__()
        self._core = context
        self._search = search

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="search") as dialog:
            dialog.border_title = "Search the Hub"
            dialog.border_subtitle = fmt.key_hints("Enter search / open   Esc back")
            with Horizontal(id="search-fields"):
                for name, hint in self.FIELDS:
                    value = getattr(self._search, name)
                    yield Input(value, placeholder=hint, id=f"by-{name}", compact=True, select_on_focus=False)
            yield Static("", id="search-ways", markup=False)
            yield RowList(Content(ASK), titles=True, gap=1, id="hits")
            yield Static("", id="search-foot")

    def on_mount(self) -> None:
        self._show_options()
        if self._search.hits is None:
            self.query_one("#by-words", Input).focus()
        else:
            self._show_hits()
            self.query_one(RowList).select(self._search.key)
            self.query_one(RowList).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Kept until Enter: the Hub is not queried for every letter."""
        setattr(self._search, str(event.input.id).removeprefix("by-"), event.value)

    def on_input_submitted(self) -> None:
        self._ask()

    @work(exit_on_error=False, exclusive=True, group="search")
    async def _ask(self) -> None:
        rows = self.query_one(RowList)
        try:
            query = self._search.query()
            self._foot(Content.styled("Querying the Hub...", "$dim"))
            asked = [field.value for field in self.query(Input)]
            self._search.hits = await self._core[Hub].search(query)
        except SparkError as error:
            self._foot(Content("\n").join([fmt.safe(error.summary, "bold $error"), fmt.safe(error.remedy)]))
            return
        self._show_hits()
        if rows.key and asked == [field.value for field in self.query(Input)]:  # no text is being written
            rows.focus()

    def _show_hits(self) -> None:
        hits, now = self._search.hits or (), self._core.clock.now()
        self.query_one(RowList).show_table(inspection.hits_table(hits, now, NOTHING))
        self.query_one("#search").border_title = f"Search the Hub: {len(hits)} found" if hits else "Search the Hub"
        self._show_hit()

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        self._search.key = event.key or self._search.key
        self._show_hit()

    def on_descendant_focus(self, _: DescendantFocus) -> None:
        """More about the hit, once the list is used."""
        if self.focused is self.query_one(RowList):
            self._show_hit()

    def _show_hit(self) -> None:
        hit = self._hit()
        lines = page_lines((Section(rows=inspection.hit_rows(hit)),), 2000) if hit is not None else ()
        self._foot(Content("\n").join(lines))

    def _hit(self) -> SearchHit | None:
        key = self.query_one(RowList).key
        return next((hit for hit in self._search.hits or () if hit.repo == key), None)

    def _foot(self, content: Content) -> None:
        self.query_one("#search-foot", Static).update(content)

    def _show_options(self) -> None:
        text = f"F2 {FITS[self._search.fits]}   F3 order: {SORTS[self._search.sort]}"
        self.query_one("#search-ways", Static).update(text)

    # --- keys -----------------------------------------------------------------------------------------

    def action_toggle_fits(self) -> None:
        """Leaves out what one Spark cannot hold, or does not."""
        self._search.fits = not self._search.fits
        self._search_again()

    def action_next_sort(self) -> None:
        order = list(SORTS)
        self._search.sort = order[(order.index(self._search.sort) + 1) % len(order)]
        self._search_again()

    def _search_again(self) -> None:
        self._show_options()
        if self._search.hits is not None:
            self._ask()

    def action_into_list(self) -> None:
        self.query_one(RowList).focus()

    def action_into_fields(self) -> None:
        self.query_one("#by-words", Input).focus()

    def action_open(self) -> None:
        hit = self._hit()
        if hit is None:
            self._ask()
        else:
            self.app.push_screen(FetchDialog(self._core, DownloadRequest(hit.repo)), self._started)

    def _started(self, id_: str | None) -> None:
        if id_ is not None:
            self.dismiss(id_)

    def action_leave(self) -> None:
        self.dismiss(None)


class FetchDialog(Dialog[str | None]):
    """What a download would fetch, and what the checkpoint is. Returns the id of a started download."""

    CSS_PATH = "hub.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back"),
        Binding("enter", "fetch", "Download"),
        Binding("a", "everything", "All files"),
        Binding("l", "launch", "Download and launch"),
        Binding("y", "copy", "Copy the page's address"),
    ]

    def __init__(self, context: Context, request: DownloadRequest) -> None:
        super().__init__()
        self._core = context
        self._request = request
        self._plan: DownloadPlan | SparkError | None = None
        self._checkpoint: Reading[Inspection] | None = None

    def compose(self) -> ComposeResult:
        """The page; a list where one of several has to be chosen first."""
        with Vertical(classes="dialog", id="fetch") as dialog:
            dialog.border_title = fmt.safe(self._request.title)
            yield RowList(gap=1, id="fetch-choices")
            with VerticalScroll(id="fetch-scroll"):
                yield Page(id="fetch-page")

    def on_mount(self) -> None:
        self.query_one(RowList).display = False
        self.query_one("#fetch-scroll").focus()
        self._look()

    @work(exit_on_error=False, exclusive=True, group="look")
    async def _look(self) -> None:
        """First what it takes, then, by the headers on the Hub, what it is."""
        self._plan = None
        self._show()
        try:
            self._plan = await self._core[Downloads].plan(self._request)
        except SparkError as error:
            self._plan = error
        self._show()
        facts = self._plan.facts if isinstance(self._plan, DownloadPlan) else None
        if facts is None or self._checkpoint is not None:
            return
        try:
            self._checkpoint = inspected(await self._core[Hub].inspect(facts), facts.repo, facts.memory)
        except SparkError as error:
            self._checkpoint = Missing(error.summary)
        self._show()

    def _show(self) -> None:
        plan, page = self._plan, self.query_one(Page)
        if plan is None:
            page.show(inspection.sentence_page("Querying the Hub..."))
        elif isinstance(plan, SparkError):
            page.show(downloads.refusal_page(plan))
        else:
            page.show(downloads.plan_page(plan, self._checkpoint))
            self.hold()
            rows = self.query_one(RowList)
            rows.display = bool(plan.choices)
            if plan.choices:
                rows.styles.height = min(len(plan.choices), 12)
                rows.show_table(downloads.choices_table(plan))
                rows.focus()
        self.query_one("#fetch").border_subtitle = fmt.key_hints(self._keys())

    def _keys(self) -> str:
        plan = self._plan
        if not isinstance(plan, DownloadPlan):
            return "Esc back"
        if plan.choices:
            return "Enter choose   y copy address   Esc back"
        able = not self._core.settings.read_only and plan.refusal is None and not plan.whole
        size = f" {human_bytes(plan.left)}" if plan.left else ""
        launch = "l download and launch   " if not self._core.settings.read_only and plan.refusal is None else ""
        return f"{f'Enter download{size}   ' if able else ''}{launch}a all files   y copy address   Esc back"

    # --- keys -----------------------------------------------------------------------------------------

    def action_fetch(self) -> None:
        """Chooses where there is a choice; else starts the download."""
        plan = self._plan
        if not isinstance(plan, DownloadPlan):
            return
        if plan.choices:
            self._request = replace(self._request, files=(self.query_one(RowList).key,))
            self._look()
        elif self._core.settings.read_only:
            self.notify("Read-only mode: Download is disabled.", severity="warning", markup=False)
        elif plan.refusal is not None:
            self.notify(f"{plan.refusal.summary}\n{plan.refusal.remedy}", severity="error", markup=False)
        elif plan.whole:
            self.notify("Downloaded already.", markup=False)
        else:
            self._start()

    @work(exit_on_error=False, exclusive=True, group="start")
    async def _start(self) -> None:
        try:
            if not await cast(FrameApp, self.app).settle_store():
                return
            id_ = await self._core[Downloads].start(self._request)
        except SparkError as error:
            self._plan = error
            self._show()
        else:
            self.dismiss(id_)

    def action_launch(self) -> None:
        """The draft of a preset: its launch downloads the model first."""
        plan = self._plan
        if not isinstance(plan, DownloadPlan) or plan.facts is None or plan.choices or plan.refusal is not None:
            return
        fetch = f"{human_bytes(plan.left)} first, then the launch" if plan.left else ""
        file = next(iter(self._request.files), "")
        make = partial(self._core[Drafts].of_repo, plan.facts, file)
        dialog = cast(FrameApp, self.app).make_screen(
            "draft", self._core, f"Draft: {plan.facts.repo}", make, fetch=fetch
        )
        self.app.push_screen(dialog, self._launched)

    def _launched(self, name: str | None) -> None:
        if name:
            self.dismiss(None)
            cast(FrameApp, self.app).launched(name)

    def action_everything(self) -> None:
        """All files, also those that no engine reads; or only the needed ones."""
        if isinstance(self._plan, DownloadPlan) and not self._request.files:
            self._request = replace(self._request, everything=not self._request.everything)
            self._look()

    def action_copy(self) -> None:
        """The address of the page with the card and the licence."""
        facts = self._plan.facts if isinstance(self._plan, DownloadPlan) else None
        if facts is not None and facts.page:
            cast(FrameApp, self.app).copy(Yank("Page address", "y", facts.page))

    def action_leave(self) -> None:
        self.dismiss(None)
