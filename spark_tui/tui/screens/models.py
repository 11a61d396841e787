"""Models: what is in the store, what it takes and what it will do; fetching, verifying and deleting."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, TypeAlias

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus, Resize
from textual.widgets import Input, TabbedContent, TabPane

from spark_tui.core.actions import Scope
from spark_tui.core.library import LibraryEntry, LibraryView
from spark_tui.domain.errors import RefusedError, SparkError, UsageError
from spark_tui.domain.models.download import Download, DownloadPhase, DownloadRequest, Limits
from spark_tui.domain.models.inspection import inspect
from spark_tui.domain.models.store import (
    Completeness,
    DeletePlan,
    Extent,
    Layout,
    OtherCache,
    RepoKind,
    StoredFile,
    StoredModel,
    StoreFinding,
    is_commit,
)
from spark_tui.domain.quantities import docker_size, human_bytes, parse_bytes
from spark_tui.domain.reading import reason_of, value_of
from spark_tui.domain.text import clean_line, truncate
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.screens.models_hub import FetchDialog, HubSearch, SearchDialog
from spark_tui.tui.screens.models_words import (
    COLUMNS,
    DOWNLOAD_COLUMNS,
    ELSEWHERE,
    FINDING,
    LABEL_WIDTH,
    MAX_CELL,
    DiskLine,
    Look,
    download_files,
    download_of,
    download_parts,
    download_row,
    elsewhere_row,
    empty_text,
    file_parts,
    finding_page,
    finding_row,
    fix_command,
    free_words,
    look_parts,
    matches,
    model_row,
    open_downloads,
    order,
    other_page,
    overview,
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
        facts = await self.context.in_thread(self.context.checkpoints.read, model.id, model.commit)
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


NO_MODEL = "Choose a model first."


class ModelsScreen(ModelsGround):
    """What keys do."""

    SCOPE = Scope.MODELS
    TAB = "show_models"
    CSS_PATH = "models.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.MODELS)
    AUTO_FOCUS = "#model-list"

    def on_mount(self) -> None:
        """The last search stays for the next one."""
        self._search = HubSearch()

    def offers(self, id_: str) -> bool:
        """Without a model nothing is verified or deleted, without a download none is paused."""
        entry, download = self.entry, self.download
        match id_:
            case "get_model" | "open_uses":
                return entry is not None or download is not None
            case "verify_model" | "delete_model":
                return entry is not None
            case "pause_download":
                return download is not None and download.phase is not DownloadPhase.DONE
            case "cancel_work":
                return download is not None or (entry is not None and self.context.library.verifying(entry.model.id))
        return super().offers(id_)

    # --- the Hub --------------------------------------------------------------------------------------

    def action_search_hub(self) -> None:
        """Searches the Hub; what is started there is seen here."""
        self.app.push_screen(SearchDialog(self.context, self._search), self._started)

    def action_get_model(self) -> None:
        """Goes on with its download; else tells what would be fetched of it, and fetches that."""
        download, entry = self.download, self.entry
        if download is not None and download.phase.resumable:
            self._resume(download)
        elif download is not None:
            self._tell(f"{download.request.title} is being fetched already.")
        elif entry is None:
            self._tell("Choose a model first; s searches the Hub for others.")
        elif (request := request_for(entry)) is None:
            self._tell("Where this folder is from is not known: search the Hub (s) and fetch it anew.")
        else:
            self.app.push_screen(FetchDialog(self.context, request), self._started)

    def _started(self, id_: str | None) -> None:
        if id_ is not None:
            self._show()
            self.downloads_list.select(id_)

    @work(exit_on_error=False, group="download")
    async def _resume(self, download: Download) -> None:
        try:
            await self.context.downloads.resume(download.id)
        except SparkError as error:
            self.spark.report(error)

    @work(exit_on_error=False, group="download")
    async def action_pause_download(self) -> None:
        """Pauses the download, or goes on with it."""
        download = self.download
        if download is None or download.phase is DownloadPhase.DONE:
            self._tell("No download here to pause.")
            return
        try:
            if download.phase.resumable:
                await self.context.downloads.resume(download.id)
            else:
                await self.context.downloads.pause(download.id)
        except SparkError as error:
            self.spark.report(error)
        self._show()

    @work(exit_on_error=False, exclusive=True, group="ask")
    async def action_cancel_work(self) -> None:
        """Ends the verification, or the download; asks what becomes of what has arrived."""
        entry, download = self.entry, self.download
        if entry is not None and self.context.library.verifying(entry.model.id) and not self._on_download:
            await self.context.library.cancel_verify(entry.model.id)
            self._tell(f"{entry.model.id}: verification ended, nothing of it is kept.")
            self._show()
        elif download is None:
            self._tell("Nothing to cancel here: no download, no verification.")
        elif self.context.settings.read_only:
            self._tell("Read-only: downloads are left alone.")
        else:
            await self._cancel(download)

    async def _cancel(self, download: Download) -> None:
        from spark_tui.tui.screens.chat_dialogs import ChoiceDialog

        here = human_bytes(download.done)
        answer = await self.app.push_screen_wait(
            ChoiceDialog(
                f"Cancel the download of {download.request.title}?",
                (
                    ("leave", "Leave it as it is"),
                    ("keep", f"Cancel; keep the {here} that are here, so that it can go on later"),
                    ("discard", "Cancel, and delete the parts of files that are not whole"),
                ),
            )
        )
        if answer not in ("keep", "discard"):
            return
        try:
            freed = await self.context.downloads.cancel(download.id, discard=answer == "discard")
        except SparkError as error:
            self.spark.report(error)
            return
        self._tell(f"{download.request.title}: cancelled{f', {human_bytes(freed)} freed' if freed else ''}.")
        await self.context.library.refresh()
        self._show()

    @work(exit_on_error=False, exclusive=True, group="ask")
    async def action_limit_downloads(self) -> None:
        """A bandwidth cap for all downloads together."""
        from spark_tui.tui.screens.chat_dialogs import TextDialog

        try:
            now = await self.context.downloads.limits()
            cap = docker_size(int(now.bytes_per_second)) if now.bytes_per_second else ""
            hint = "All downloads together, per second: 50m, 1g. `none` takes the cap away."
            text = await self.app.push_screen_wait(TextDialog("Bandwidth", hint, value=cap, placeholder="no cap"))
            if text is not None:
                await self.context.downloads.set_limits(Limits(_rate(text), now.at_once))
                self._tell(f"Downloads take at most {clean_line(text)}/s together." if _rate(text) else "No cap.")
        except SparkError as error:
            self.spark.report(error)

    # --- verify, delete, mend -------------------------------------------------------------------------

    def action_verify_model(self) -> None:
        """Compares every file with what the Hub says of it, at the disk's speed."""
        entry = self.entry
        if entry is None:
            self._tell(NO_MODEL)
        elif self.download is not None and self.download.phase.active:
            self._tell("It is being fetched: each file is compared when it is whole.")
        else:
            try:
                self.context.library.start_verify(entry.model.id)
            except SparkError as error:
                self.spark.report(error)
        self._show()

    @work(exit_on_error=False, exclusive=True, group="ask")
    async def action_delete_model(self) -> None:
        """Shows what comes free, and deletes when the name was typed."""

        view, entry = self.library, self.entry
        if view is None or entry is None:
            self._tell(NO_MODEL)
            return
        await delete_model(self, entry, view)
        self._show()

    def action_copy_fix(self) -> None:
        """The command that a person has to run themselves."""
        command = fix_command(self.entry, self.context.settings) if self.entry is not None else ""
        if command:
            self.app.copy_to_clipboard(command)
            self._tell(f"Copied: {command}")
        else:
            self._tell("Nothing here needs a command.")

    # --- go elsewhere ---------------------------------------------------------------------------------

    def action_open_uses(self) -> None:
        """The presets that use it; without one, its checkpoint."""
        entry = self.entry
        if self.chosen_download is not None:
            self.query_one(TabbedContent).active = "files-page"
        elif entry is None:
            self._tell(NO_MODEL)
        elif entry.presets:
            self._open_presets(entry)
        else:
            self.query_one(TabbedContent).active = "inspect-page"

    @work(exit_on_error=False, exclusive=True, group="open")
    async def _open_presets(self, entry: LibraryEntry) -> None:
        from spark_tui.tui.screens.presets import PresetsScreen

        await self.spark.switch_mode("presets")
        screen = self.app.screen
        if isinstance(screen, PresetsScreen):
            screen.call_after_refresh(partial(screen.look_for, entry.model.id, entry.presets))

    def action_next_model_page(self) -> None:
        """The page to the right; the cursor stays in the list."""
        self.turn(1)

    def action_previous_model_page(self) -> None:
        """The page to the left."""
        self.turn(-1)

    @work(exit_on_error=False, exclusive=True, group="refresh")
    async def action_reload_models(self) -> None:
        """Looks into the store now, and reads all checkpoints again."""
        self._looks.clear()
        self._files.clear()
        self._looked_at = ()
        await self.context.library.refresh()
        self._changed()
        self._tell("The store was looked through again.")

    # --- the filter -----------------------------------------------------------------------------------

    def action_filter_models(self) -> None:
        """Opens the filter."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def on_input_changed(self, _: Input.Changed) -> None:
        """The list follows the filter."""
        self._show()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Enter goes to the list; an empty filter goes away."""
        self._leave_filter(keep=True)

    def _leave_filter(self, *, keep: bool) -> None:
        box = self.query_one("#filter", Input)
        if not keep:
            box.value = ""
        box.display = bool(box.value)
        self.models_list.focus()

    def key_escape(self) -> None:
        """One step back: from pages and downloads to the list, then without the filter, then Home."""
        box = self.query_one("#filter", Input)
        if box.display and (box.has_focus or self.models_list.has_focus):
            self._leave_filter(keep=False)
        elif not self.models_list.has_focus:
            self.models_list.focus()
        else:
            self.spark.switch_mode("home")

    def key_down(self) -> None:
        """From the filter into what it found, and from the last model to the downloads."""
        if self.query_one("#filter", Input).has_focus:
            self.models_list.focus()
        elif self.models_list.has_focus and self.downloads_list.display:
            self.downloads_list.focus()

    def key_up(self) -> None:
        """From the first download to the models."""
        if self.downloads_list.has_focus:
            self.models_list.focus()

    def _tell(self, text: str) -> None:
        self.notify(clean_line(text), markup=False)


def request_for(entry: LibraryEntry) -> DownloadRequest | None:
    """What mends or completes a model, at the commit that is here; for a whole one, what the Hub has now. None: it is
    not known where it is from."""
    model, revision = entry.model, entry.model.current
    if model.layout is not Layout.CACHE or model.kind is not RepoKind.MODEL:
        return None
    commit = model.commit if is_commit(model.commit) else "main"
    wrong = tuple(each.name for each in entry.check.wrong) if entry.check is not None else ()
    if not wrong and model.completeness is Completeness.CORRUPT and revision is not None:
        wrong = revision.missing
    if wrong:
        return DownloadRequest(model.id, commit, wrong, again=True)
    whole = model.completeness in (Completeness.COMPLETE, Completeness.UNREFERENCED)
    return DownloadRequest(model.id, "main" if whole else commit)


def _rate(text: str) -> float | None:
    """`50m` -> bytes per second; None for no cap. Raises UsageError."""
    if text.lower() in ("none", "off", "0"):
        return None
    try:
        return float(parse_bytes(text)) or None
    except ValueError as error:
        raise UsageError(f"Not a speed: {error}.", "Write for example 50m, or none.") from None


MOST_REVISIONS = 20
_NO_WAY_BACK = "There is no way back."


async def delete_model(screen: ModelsGround, entry: LibraryEntry, view: LibraryView) -> None:
    """Asks how much of it where there is a choice, shows what comes free, and does it when the name was typed."""
    unchecked = bool(view.engines_unknown)
    try:
        plan = await _chosen(screen, entry, unchecked=unchecked)
        if plan is not None and await _confirmed(screen, plan, view.engines_unknown):
            done = await screen.context.library.delete(plan, plan.name, unchecked=unchecked)
            screen.notify(f"{clean_line(plan.model)}: {human_bytes(done.freed)} freed.", markup=False)
    except SparkError as error:
        screen.spark.report(error)


async def _chosen(screen: ModelsGround, entry: LibraryEntry, *, unchecked: bool) -> DeletePlan | None:
    """All of it, one of its revisions, or what interrupted downloads have left: a question only when there are two."""
    from spark_tui.tui.screens.chat_dialogs import ChoiceDialog

    model, library = entry.model, screen.context.library
    wanted = [(Extent.MODEL, "")]
    if len(model.revisions) > 1:
        wanted += [(Extent.REVISION, each.commit) for each in model.revisions[:MOST_REVISIONS]]
    if model.partials or model.loose:
        wanted.append((Extent.LEFTOVERS, ""))
    plans = [await library.plan_delete(model.id, extent, revision, unchecked=unchecked) for extent, revision in wanted]
    if len(plans) == 1:
        return plans[0]
    choices = [(str(number), _words(plan)) for number, plan in enumerate(plans)]
    answer = await screen.app.push_screen_wait(ChoiceDialog(f"Delete how much of {model.id}?", choices))
    return plans[int(answer)] if answer is not None else None


def _words(plan: DeletePlan) -> str:
    what = {
        Extent.MODEL: "all of it",
        Extent.REVISION: " ".join(("revision", plan.revision[:7], *plan.refs)),
        Extent.LEFTOVERS: "leftovers of downloads, and data without a use",
    }[plan.extent]
    return f"{human_bytes(plan.freed):>9} freed   {what}"


async def _confirmed(screen: ModelsGround, plan: DeletePlan, unknown: str) -> bool:
    """Raises RefusedError when something stands in its way."""
    from spark_tui.tui.screens.modals import ConfirmScreen

    if plan.obstacles:
        first = plan.obstacles[0]
        raise RefusedError(f"{plan.model} is not deleted: {first.what}.", first.remedy or "Nothing was changed.")
    engines = f" Which engines use it is not known: {unknown}" if unknown else ""
    question = f"Delete {plan.model}: {human_bytes(plan.freed)} come free?"
    text = f"{plan.sentence}{engines}"
    confirm = ConfirmScreen(question, text, verb="Delete", type_to_confirm=clean_line(plan.name), because=_NO_WAY_BACK)
    return await screen.app.push_screen_wait(confirm) is True
