"""The Models screen's ground: its lists and pages, and what they are filled from. What keys do is in models.py."""

from __future__ import annotations

import asyncio
from typing import ClassVar, TypeAlias

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus, Resize
from textual.widgets import Input, TabbedContent, TabPane

from spark_tui.core.library import LibraryEntry, LibraryView
from spark_tui.domain.errors import SparkError
from spark_tui.domain.models.download import Download
from spark_tui.domain.models.inspection import inspect
from spark_tui.domain.models.store import OtherCache, StoredFile, StoredModel, StoreFinding
from spark_tui.domain.reading import reason_of, value_of
from spark_tui.domain.text import clean_line, truncate
from spark_tui.tui.screens.frame import FrameScreen
from spark_tui.tui.screens.models_pages import (
    LABEL_WIDTH,
    download_files,
    download_parts,
    file_parts,
    finding_page,
    look_parts,
    other_page,
    overview,
)
from spark_tui.tui.screens.models_words import (
    COLUMNS,
    DOWNLOAD_COLUMNS,
    ELSEWHERE,
    FINDING,
    MAX_CELL,
    DiskLine,
    Look,
    download_of,
    download_row,
    elsewhere_row,
    empty_text,
    finding_row,
    free_words,
    matches,
    model_row,
    open_downloads,
    order,
)
from spark_tui.tui.widgets.line import entitle
from spark_tui.tui.widgets.page import BLANK, Page, Part, sentence
from spark_tui.tui.widgets.row_list import Row, RowList

PAINT_SECONDS = 1.0
"""Progress arrives up to ten times a second; a person over SSH needs it once."""
SETTLE_SECONDS = 0.15
"""How long the cursor rests on a model before its files are read."""
MOST_DOWNLOADS = 5

Files: TypeAlias = tuple[StoredFile, ...] | SparkError


class ModelList(RowList, inherit_bindings=False):
    """A RowList that leaves `g` to the screen: here it gets a model."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "edge(-1)", "First", show=False) if isinstance(each, Binding) and "g" in each.key else each
        for each in RowList.BINDINGS
    ]


class ModelsGround(FrameScreen):
    """Shows the store and the downloads, and reads what the selected model's files say of it."""

    def compose_body(self) -> ComposeResult:
        """Models, downloads and the disk on the left, pages on the right; one above the other when it is narrow."""
        with Horizontal(id="columns"):
            with Container(id="list-pane", classes="pane") as pane:
                pane.border_title = "Models"
                yield Input(placeholder="filter: name, state, format, preset, engine", id="filter", compact=True)
                yield ModelList(COLUMNS, Content(""), titles=True, gap=1, id="model-list")
                yield ModelList(DOWNLOAD_COLUMNS, Content(""), titles=True, gap=1, id="download-list")
                yield DiskLine(id="disk-line")
            with Container(id="model-pane", classes="pane"), TabbedContent(id="pages"):
                for title, name in (("Overview", "overview"), ("Files", "files"), ("Inspect", "inspect")):
                    with TabPane(title, id=f"{name}-page"), VerticalScroll(id=f"{name}-scroll"):
                        yield Page(LABEL_WIDTH, id=name)

    def on_mount(self) -> None:
        """Binds the lists to the store and to the downloads."""
        self._looks: dict[str, tuple[StoredModel, Look]] = {}
        self._files: dict[str, tuple[StoredModel, Files]] = {}
        self._looked_at: tuple[object, ...] = ()
        self._shown = ""
        self._on_download = False
        self._painted_at = float("-inf")
        self._paint_waits = False
        self.query_one("#filter").display = False
        self.downloads_list.display = False
        self.bind_slice("library", lambda _: self._changed())
        self.bind_slice("downloads", lambda _: self._changed())

    def on_screen_resume(self) -> None:
        """Somebody looks: the store is looked through again and again."""
        self._watch_store()
        self._show()

    def on_resize(self, event: Resize) -> None:
        """In a short list the disk has no line of its own."""
        self.call_after_refresh(self._show)

    def on_screen_suspend(self) -> None:
        """Nobody looks."""
        self.workers.cancel_group(self, "store")
        self.workers.cancel_group(self, "looks")
        self._looked_at = ()

    @work(exit_on_error=False, exclusive=True, group="store")
    async def _watch_store(self) -> None:
        await self.context.library.run()

    # --- what there is --------------------------------------------------------------------------------

    @property
    def models_list(self) -> ModelList:
        """The upper list."""
        return self.query_one("#model-list", ModelList)

    @property
    def downloads_list(self) -> ModelList:
        """The lower list."""
        return self.query_one("#download-list", ModelList)

    @property
    def library(self) -> LibraryView | None:
        """The store as it was last seen."""
        return value_of(self.spark.library)

    @property
    def downloads(self) -> tuple[Download, ...]:
        """All that are known."""
        return value_of(self.spark.downloads) or ()

    @property
    def entry(self) -> LibraryEntry | None:
        """The model under the cursor, or the one that the selected download fills."""
        view = self.library
        if view is None:
            return None
        if not self._on_download:
            return next((entry for entry in view.entries if entry.model.id == self.models_list.key), None)
        return next((entry for entry in view.entries if self.download_for(entry) == self.chosen_download), None)

    @property
    def chosen_download(self) -> Download | None:
        """The download under the cursor of the lower list, while that is the one in use."""
        key = self.downloads_list.key if self._on_download else ""
        return next((each for each in self.downloads if each.id == key), None)

    @property
    def download(self) -> Download | None:
        """The download that keys speak of: the chosen one, or the one of the model under the cursor."""
        if self._on_download:
            return self.chosen_download
        return self.download_for(self.entry) if self.entry is not None else None

    def download_for(self, entry: LibraryEntry) -> Download | None:
        """The one that fills a model."""
        return download_of(entry.model, self.downloads)

    def look_at(self, model: StoredModel) -> Look | None:
        """What its files say, as far as they have been read; of an earlier state rather than nothing."""
        kept = self._looks.get(model.id)
        return kept[1] if kept is not None else None

    def _other(self) -> OtherCache | None:
        view, key = self.library, self.models_list.key
        return view.contents.others[int(key.removeprefix(ELSEWHERE))] if view and key.startswith(ELSEWHERE) else None

    def _finding(self) -> StoreFinding | None:
        view, key = self.library, self.models_list.key
        return view.contents.findings[int(key.removeprefix(FINDING))] if view and key.startswith(FINDING) else None

    # --- show -----------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Paints at most once a second: now, or when that second is over."""
        self._look_again()
        if self._paint_waits:
            return
        left = self._painted_at + PAINT_SECONDS - self.context.clock.monotonic()
        if left <= 0:
            self._show()
        else:
            self._paint_waits = True
            self._show_later(left)

    @work(exit_on_error=False, group="paint")
    async def _show_later(self, seconds: float) -> None:
        await self.context.clock.sleep(seconds)
        self._paint_waits = False
        if self.is_current:
            self._show()

    def _show(self) -> None:
        """Both lists, the disk, and the pages. Only rows that differ are repainted."""
        self._painted_at = self.context.clock.monotonic()
        words = self.query_one("#filter", Input).value.lower().split()
        rows = self._rows(words)
        self._show_downloads()
        self.models_list.show(rows, empty_text(self.spark.library, bool(words)))
        disk = self.query_one(DiskLine)
        disk.library = self.spark.library
        disk.renew()
        self._show_selected()

    def _rows(self, words: list[str]) -> list[Row]:
        view, now = self.library, self.context.clock.now()
        if view is None:
            return []
        chosen = [entry for entry in view.entries if matches(entry, self.look_at(entry.model), words)]
        rows = [
            model_row(entry, self.look_at(entry.model), self.download_for(entry), now)
            for entry in sorted(chosen, key=order)
        ]
        shown = f"{len(chosen)} of {len(view.entries)}" if words else str(len(chosen))
        free = f", {free_words(view)}" if self.has_class("-short") else ""  # there the disk has no line
        entitle(self.query_one("#list-pane"), f"{shown}{free}", below=True)
        if not words:
            rows += [elsewhere_row(index, each) for index, each in enumerate(view.contents.others)]
            rows += [finding_row(index, each) for index, each in enumerate(view.contents.findings)]
        return rows

    def _show_downloads(self) -> None:
        found, glyphs = open_downloads(self.downloads), self.spark.glyphs
        rows = self.downloads_list
        if bool(found) != rows.display:
            if rows.has_focus and not found:
                self.models_list.focus()
            rows.display = bool(found)
        height = min(len(found), 2 if self.has_class("-short") else MOST_DOWNLOADS) + 1
        if found:
            rows.styles.height = height  # the same again costs nothing
        rows.show([download_row(each, glyphs.engine, glyphs.cache) for each in found])
        if not found:
            self._on_download = False

    def on_row_list_moved(self, _: RowList.Moved) -> None:
        """Another model, or another download."""
        self._show_selected()
        self._look_again()

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """The pages speak of the list that was used last."""
        if isinstance(event.widget, ModelList):
            self._on_download = event.widget is self.downloads_list
            self._show_selected()
            self._look_again()

    def _show_selected(self) -> None:
        entry, download = self.entry, self.chosen_download
        about, files = self.query_one("#overview", Page), self.query_one("#files", Page)
        if download is not None:
            title = download.request.title
            about.tell(download_parts(download))
            files.tell(download_files(download))
        elif entry is not None:
            title = entry.model.id
            unknown = self.library.engines_unknown if self.library is not None else ""
            look = self.look_at(entry.model)
            about.tell(overview(entry, look, self.download_for(entry), self.context.clock.now(), unknown))
            kept = self._files.get(title)
            files.tell(file_parts(kept[1] if kept is not None else None, entry.check))
        else:
            title = self._tell_other(about)
            files.tell(())
        look_page = look_parts(self.look_at(entry.model)) if entry is not None else ()
        self.query_one("#inspect", Page).tell(look_page)
        entitle(self.query_one("#model-pane"), truncate(clean_line(title), MAX_CELL))
        self.name_keys()
        self._to_the_top(title)

    def _tell_other(self, page: Page) -> str:
        other, finding = self._other(), self._finding()
        if other is not None:
            page.tell(other_page(other))
            return "Another cache"
        if finding is not None:
            page.tell([*self._first_steps(), *finding_page(finding)])
            return "To know"
        stale = reason_of(self.spark.library) if self.library is not None else ""
        page.tell([sentence(stale, "$warning")] if stale else [])
        return ""

    def _first_steps(self) -> list[Part]:
        """What to do next, where there is no model: with something to know in the list, the list cannot say it."""
        view = self.library
        return [] if view is None or view.entries else [(Content(""), empty_text(self.spark.library, False)), BLANK]

    def _to_the_top(self, title: str) -> None:
        if title != self._shown:
            self._shown = title
            for page in self.query("#pages VerticalScroll"):
                page.scroll_home(animate=False)

    # --- look into files ------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Reads what is new or has changed: the selected model first."""
        view, entry = self.library, self.entry
        if view is None:
            return
        grounds = (tuple(each.model for each in view.entries), entry.model if entry is not None else None)
        if grounds != self._looked_at:
            self._looked_at = grounds
            self._look()

    @work(exit_on_error=False, exclusive=True, group="looks")
    async def _look(self) -> None:
        await self.context.clock.sleep(SETTLE_SECONDS)
        entry, view = self.entry, self.library
        if entry is not None:
            await self._read_files(entry.model)
            await self._read_checkpoint(entry.model)
            self._show_selected()
        for each in view.entries if view is not None else ():
            if await self._read_checkpoint(each.model):
                self._changed()

    async def _read_files(self, model: StoredModel) -> None:
        kept = self._files.get(model.id)
        if kept is not None and kept[0] == model:
            return
        found: Files = ()
        try:
            if model.revisions:
                found = await self.context.library.files(model.id)
        except SparkError as error:
            found = error
        self._files = {model.id: (model, found)}  # of one model: a store may have very many files

    async def _read_checkpoint(self, model: StoredModel) -> bool:
        """Whether something was read. Reads in a thread: configs and headers, never a tensor."""
        kept = self._looks.get(model.id)
        if kept is not None and kept[0] == model:
            return False
        facts = await asyncio.to_thread(self.context.checkpoints.read, model.id, model.commit)
        value = value_of(facts)
        look = Look(inspect(value, model.id)) if value is not None else Look(None, reason_of(facts))
        self._looks[model.id] = (model, look)
        return True

    # --- pages ----------------------------------------------------------------------------------------

    def turn(self, step: int) -> None:
        """The next page, or the one before."""
        pages = self.query_one(TabbedContent)
        names = [str(pane.id) for pane in pages.query(TabPane)]
        pages.active = names[(names.index(pages.active) + step) % len(names)]
