"""Models: what is in the store, its size and performance; downloading, verifying and deleting."""

from __future__ import annotations

import posixpath
from functools import partial
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Resize
from textual.widgets import TabbedContent

from spark_tui.base.actions import Scope, key_of
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import NOT_READ_YET, Missing, Reading, Stale, reason_of, value_of
from spark_tui.base.page import Page, Row, Section, Tone
from spark_tui.base.quantities import docker_size, human_bytes
from spark_tui.base.text import clean_line
from spark_tui.catalog.fit.use.draft import Drafts
from spark_tui.catalog.fit.use.fit import LaunchChecks
from spark_tui.catalog.library.screen.hub import FetchDialog, HubSearch, SearchDialog
from spark_tui.catalog.library.show import models as present
from spark_tui.catalog.library.show.models import DOWNLOAD, FINDING, OTHER
from spark_tui.catalog.models.feature import DOWNLOADS
from spark_tui.catalog.models.model.download import Download, DownloadPhase, DownloadRequest, Limits, rate_typed
from spark_tui.catalog.models.model.inspection import Inspection, inspected
from spark_tui.catalog.models.model.store import (
    Completeness,
    DeleteExtent,
    DeletePlan,
    Layout,
    MovePlan,
    RepoKind,
    StoredFile,
    StoredModel,
    fetch_again,
    is_commit,
)
from spark_tui.catalog.models.show.downloads import download_files_page, download_page, refusal_page
from spark_tui.catalog.models.show.inspection import checkpoint_page, sentence_page
from spark_tui.catalog.models.use.downloads import Downloads, Hub
from spark_tui.catalog.models.use.ports import Downloader
from spark_tui.catalog.presets.feature import LIBRARY
from spark_tui.catalog.presets.model.library import LibraryEntry, LibraryView
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import PRESETS
from spark_tui.catalog.presets.use.library import Library
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.tui import format as fmt
from spark_tui.tui.format import UNICODE, Glyphs
from spark_tui.tui.frame import acting, bindings
from spark_tui.tui.list_screen import LIST_CSS, TALL_ENOUGH, ListScreen
from spark_tui.tui.modals import ChoiceDialog, ConfirmScreen, TextDialog
from spark_tui.tui.widgets.line import Line, entitle
from spark_tui.tui.widgets.memory_strip import bar
from spark_tui.tui.widgets.row_list import NO_ROWS, RowList
from spark_tui.tui.yank import Yank

NO_MODEL = "No model selected."
SETTLE_SECONDS = 0.15
"""How long the cursor rests on a model before its files are read."""
NOT_READ = sentence_page("Not read yet.")
DISK = " DISK "
MOST_REVISIONS = 20


class ModelList(RowList, inherit_bindings=False):
    """A RowList that leaves `g` to the screen: here it downloads a model."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "edge(-1)", "First", show=False) if isinstance(each, Binding) and each.key == "home,g" else each
        for each in RowList.BINDINGS
    ]


class DiskLine(Line):
    """What takes the disk, drawn to scale, and the figures; why where the store is out of date."""

    text = ""
    stale = False
    shares: tuple[tuple[str, int], ...] = ()

    def say(self, width: int) -> Content:
        if self.stale or not self.shares:
            return fmt.safe(self.text, "$warning" if self.stale else "$dim").truncate(width, ellipsis=True)
        total = sum(size for _, size in self.shares)
        words = "  ".join(f"{name} {human_bytes(size)}" for name, size in self.shares)
        figures = f"  {words} of {human_bytes(total)} "
        glyphs: Glyphs = getattr(self.app, "glyphs", UNICODE)
        marks, styles = (glyphs.engine, glyphs.apps, glyphs.free), ("$mem-engine", "$mem-apps", "$mem-free")
        pieces = bar(marks, styles, [size for _, size in self.shares], width - len(DISK) - len(figures))
        return Content.assemble((DISK, "bold"), *pieces, fmt.safe(figures, "$dim"))


class ModelsScreen(ListScreen):
    """The store and the downloads on the left, pages of the selected one on the right."""

    SCOPE = Scope.MODELS
    TAB = "show_models"
    CSS_PATH: ClassVar = [LIST_CSS, "models.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.MODELS)
    AUTO_FOCUS = "#model-list"
    LIST = "model-list"
    LIST_TITLE = "Models"
    FILTER = "filter: name, state, format, preset, engine"
    PAGES = (("overview", "Overview"), ("files", "Files"), ("inspect", "Inspect"))
    MORE = "Checkpoint and files"

    action_filter_models = ListScreen.action_filter
    action_next_model_page = ListScreen.action_next_tab
    action_previous_model_page = ListScreen.action_previous_tab

    def compose_body(self) -> ComposeResult:
        yield DiskLine(id="disk-line")
        yield from super().compose_body()

    def compose_list(self) -> ComposeResult:
        yield ModelList(titles=True, gap=1, id=self.LIST)

    def on_mount(self) -> None:
        entitle(self.query_one("#list-pane"), f"Models  {key_of('open_images')} Images")
        self._search = HubSearch()
        self._looks: dict[str, tuple[StoredModel, Reading[Inspection]]] = {}
        self._files: dict[str, tuple[StoredModel, tuple[StoredFile, ...] | SparkError]] = {}
        self._looked_at: tuple[object, ...] = ()
        self._serving: dict[str, tuple[LibraryEntry, present.Serving]] = {}
        self.bind_slices((LIBRARY, DOWNLOADS), self._changed)

    def on_screen_resume(self) -> None:
        self._watch_store()
        self.show_rows()

    def on_resize(self, event: Resize) -> None:
        """The disk's bar is as wide as the screen."""
        self.call_after_refresh(self.show_rows)

    def on_screen_suspend(self) -> None:
        """Nothing is read for a hidden screen."""
        self.workers.cancel_group(self, "store")
        self.workers.cancel_group(self, "looks")
        self._looked_at = ()

    @work(exit_on_error=False, exclusive=True, group="store")
    async def _watch_store(self) -> None:
        await self.context[Library].run()

    # --- what there is --------------------------------------------------------------------------------

    @property
    def library(self) -> LibraryView | None:
        return value_of(self.world[LIBRARY])

    @property
    def downloads(self) -> tuple[Download, ...]:
        return value_of(self.world[DOWNLOADS]) or ()

    @property
    def entry(self) -> LibraryEntry | None:
        """The model under the cursor."""
        entries = self.library.entries if self.library is not None else ()
        return next((entry for entry in entries if entry.model.id == self.rows.key), None)

    @property
    def elsewhere(self) -> LibraryEntry | None:
        """The model of another cache under the cursor."""
        entries = self.library.elsewhere if self.library is not None else ()
        return next((entry for entry in entries if f"{OTHER}{entry.model.path}" == self.rows.key), None)

    @property
    def tool_file(self) -> LibraryEntry | None:
        """The file under the cursor that another tool has downloaded."""
        found = self.elsewhere
        return found if found is not None and found.model.layout is Layout.FOLDER else None

    @property
    def download(self) -> Download | None:
        """The download that keys act on: the one under the cursor, or that of the model there."""
        key = self.rows.key
        if key.startswith(DOWNLOAD):
            return next((each for each in self.downloads if each.id == key.removeprefix(DOWNLOAD)), None)
        return present.download_of(self.entry.model, self.downloads) if self.entry is not None else None

    # --- show -----------------------------------------------------------------------------------------

    def _changed(self) -> None:
        self._look_again()
        self.repaint_soon()

    def show_rows(self) -> None:
        words, view, before = self.filter_words, self.library, self.rows.key
        if view is not None:
            looks = {id_: look for id_, (_, look) in self._looks.items()}
            found, now = present.shown_entries(view.entries, looks, words), self.context.clock.now()
            marks = self.spark.glyphs.full, self.spark.glyphs.empty
            self.rows.show_table(
                present.list_table(view, found, looks, self.downloads, now, marks, rest=not words, empty=self._empty())
            )
            self._follow(before)
            self.show_count(len(found), len(view.entries))
        else:
            self.rows.show_table(
                NO_ROWS, fmt.safe(self._empty(), "" if self.world[LIBRARY] == NOT_READ_YET else "$error")
            )
        disk, library = self.query_one(DiskLine), self.world[LIBRARY]
        disk.stale = isinstance(library, Stale)
        disk.text = f"out of date: {reason_of(library)}" if disk.stale else present.disk_summary(view) if view else ""
        disk.shares = present.disk_shares(view) if view is not None else ()
        disk.renew()
        self.show_selected()

    def _follow(self, key: str) -> None:
        """The cursor stays on a download whose model is listed now."""
        if key.startswith(DOWNLOAD) and self.rows.key != key:
            id_ = key.removeprefix(DOWNLOAD)
            self.rows.select(next((present.model_id_of(each) for each in self.downloads if each.id == id_), ""))

    def _empty(self) -> str:
        library = self.world[LIBRARY]
        if library == NOT_READ_YET:
            return "Scanning models..."
        if isinstance(library, Missing):
            return f"The store cannot be read: {library.reason}. Check the setting `store`."
        if self.filter_words:
            return "No model matches. Esc clears the filter."
        search, presets = key_of("search_hub"), key_of("show_presets")
        return (
            f"No models in {library.value.contents.root}. {search} search the Hub, or {presets} launch a preset, which "
            "downloads what it needs."
        )

    def show_selected(self) -> None:
        """The pages of the model, download, cache or finding under the cursor."""
        view, entry, download = self.library, self.entry, self.download
        title, key = "", self.rows.key
        about: Page = ()
        files: Page = ()
        inspection: Page = ()
        if entry is not None:
            title = entry.model.id
            _, look = self._looks.get(title, (None, None))
            _, serving = self._serving.get(title, (None, None))
            unknown, now = view.engines_unknown if view is not None else "", self.context.clock.now()
            about = (*present.model_page(entry, look, download, now, unknown, serving), _hints(download, entry))
            _, listed = self._files.get(title, (None, None))
            if download is not None and download.files:
                files = download_files_page(download)
            elif isinstance(listed, SparkError):
                files = refusal_page(listed)
            else:
                files = NOT_READ if listed is None else present.files_page(listed, entry.check)
            inspection = NOT_READ
            if isinstance(look, Missing):
                inspection = sentence_page(f"No format information: {look.reason}.", Tone.WARNING)
            elif look is not None:
                inspection = checkpoint_page(look)
        elif download is not None:
            title, files = download.request.title, download_files_page(download)
            about = (*download_page(download), _hints(download))
        elif view is not None and (other := self.elsewhere) is not None:
            title = other.model.id
            about = present.model_page(other, None, None, self.context.clock.now(), view.engines_unknown)
        elif view is not None and key.startswith(OTHER):
            about = next(present.other_cache_page(o) for o in view.contents.others if o.path == key.removeprefix(OTHER))
        elif view is not None and key.startswith(FINDING):
            found = present.finding_rows((view.contents.findings[int(key.removeprefix(FINDING))],))
            about = (*(() if view.entries else sentence_page(self._empty(), Tone.PLAIN)), Section(rows=found))
        more: Page = ()
        if entry is not None:  # what the other pages have, where there is room
            more = tuple(section for section in (*inspection, *files) if section not in (*NOT_READ, *about))
        if not self.show_more(more) and self.app.size.height >= TALL_ENOUGH:
            about = (*about, *more)
        self.page("overview").show(about)
        self.page("files").show(files)
        self.page("inspect").show(inspection)
        self.show_title(title)
        self.name_keys()

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        self.show_selected()
        self._look_again()

    # --- read checkpoints -----------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Reads what is new or has changed, the selected model first."""
        view, entry = self.library, self.entry
        if view is None:
            return
        running = tuple(each.name for each in self.world.known(ENGINES) if each.container.running)
        seen = (tuple(each.model for each in view.entries), entry.model if entry is not None else None, running)
        if seen != self._looked_at:
            self._looked_at = seen
            self._look()

    @work(exit_on_error=False, exclusive=True, group="looks")
    async def _look(self) -> None:
        await self.context.clock.sleep(SETTLE_SECONDS)
        entry, view = self.entry, self.library
        if entry is not None:
            model = entry.model
            if self._files.get(model.id, (None,))[0] != model:
                listed: tuple[StoredFile, ...] | SparkError = ()
                try:
                    listed = await self.context[Library].files(model.id) if model.revisions else ()
                except SparkError as error:
                    listed = error
                self._files = {model.id: (model, listed)}  # of one model: a store may have very many files
            await self._read_checkpoint(model)
            self.show_selected()
            await self._read_serving(entry)
            self.show_selected()
        for each in view.entries if view is not None else ():
            if await self._read_checkpoint(each.model):
                self._changed()

    async def _read_serving(self, entry: LibraryEntry) -> None:
        """How the selected model would be served, and whether it fits now; what is incomplete says so already."""
        self._serving.clear()
        if entry.model.writing or entry.model.completeness in (Completeness.PARTIAL, Completeness.CORRUPT):
            return
        presets = [each for each in self.world[PRESETS].presets if each.name in entry.presets]
        published = tuple(speed for each in presets if each.model == entry.model.id for speed in each.facts.published)
        try:
            draft = await self.context[Drafts].of_stored(entry)
            verdict = await self.context[LaunchChecks].judge(draft.preset, Overrides(auto_share=True))
            found = present.Serving(draft, verdict, published)
        except SparkError as error:
            found = present.Serving(error, None, published)
        self._serving[entry.model.id] = (entry, found)

    async def _read_checkpoint(self, model: StoredModel) -> bool:
        """Whether something was read: configs and headers, never a tensor."""
        kept = self._looks.get(model.id)
        if kept is not None and kept[0] == model:
            return False
        facts = await self.context.in_thread(self.context.checkpoints.read, model.id, model.commit)
        self._looks[model.id] = (model, inspected(facts, model.id, self.context[Hub].memory))
        return True

    # --- keys: download -------------------------------------------------------------------------------

    def offers(self, id_: str) -> bool:
        entry, download = self.entry, self.download
        match id_:
            case "get_model" | "open_uses":
                return entry is not None or download is not None or (id_ == "open_uses" and self.tool_file is not None)
            case "verify_model" | "delete_model" | "yank":
                return entry is not None
            case "move_model":
                return entry is not None or (self.elsewhere is not None and self.tool_file is None)
            case "pause_download":
                return download is not None and download.phase is not DownloadPhase.DONE
            case "cancel_work":
                return download is not None or (entry is not None and self.context[Library].verifying(entry.model.id))
        return super().offers(id_)

    def undoes(self, id_: str) -> bool:
        return self.download is not None and self.download.phase.resumable

    def _toast(self, text: str) -> None:
        self.notify(clean_line(text), markup=False)

    def action_search_hub(self) -> None:
        self.app.push_screen(SearchDialog(self.context, self._search), self._started)

    def action_get_model(self) -> None:
        """Resumes its download; else shows what would be downloaded."""
        download, entry = self.download, self.entry
        if download is not None and download.phase.resumable:
            self._switch(download)
        elif download is not None:
            self._toast(f"{download.request.title} is already downloading.")
        elif entry is None:
            self._toast(f"{NO_MODEL} {key_of('search_hub')} searches the Hub.")
        elif (request := request_for(entry)) is None:
            self._toast(f"Source of this folder unknown. Search the Hub ({key_of('search_hub')}) to download it again.")
        else:
            self.app.push_screen(FetchDialog(self.context, request), self._started)

    def _started(self, id_: str | None) -> None:
        if id_ is not None:
            self.show_rows()
            filled = next((present.model_id_of(each) for each in self.downloads if each.id == id_), "")
            self.rows.select(filled)
            self.rows.select(f"{DOWNLOAD}{id_}")

    def action_pause_download(self) -> None:
        download = self.download
        if download is None or download.phase is DownloadPhase.DONE:
            self._toast("No download to pause.")
        else:
            self._switch(download)

    @work(exit_on_error=False, group="download")
    async def _switch(self, download: Download) -> None:
        try:
            if download.phase.resumable:
                await self.context[Downloads].resume(download.id)
            else:
                await self.context[Downloads].pause(download.id)
        except SparkError as error:
            self.spark.report(error)
        self.show_rows()

    @acting("ask")
    async def action_cancel_work(self) -> None:
        """Cancels the verification, or the download; asks what to do with the downloaded data."""
        entry, download = self.entry, self.download
        if entry is not None and self.context[Library].verifying(entry.model.id):
            await self.context[Library].cancel_verify(entry.model.id)
            self._toast(f"{entry.model.id}: verification cancelled.")
            self.show_rows()
            return
        if download is None:
            self._toast("Nothing to cancel: no download, no verification.")
            return
        if self.context.settings.read_only:
            self._toast("Read-only mode: Cancel is disabled.")
            return
        choices = (
            ("leave", "Do not cancel"),
            ("keep", f"Cancel, keep {human_bytes(download.done)} to resume later"),
            ("discard", "Cancel, delete partial files"),
        )
        title = download.request.title
        answer = await self.app.push_screen_wait(ChoiceDialog(f"Cancel the download of {title}?", choices))
        if answer not in ("keep", "discard"):
            return
        freed = await self.context[Downloads].cancel(download.id, discard=answer == "discard")
        self._toast(f"{title}: cancelled{f', {human_bytes(freed)} freed' if freed else ''}.")
        await self.context[Library].refresh()
        self.show_rows()

    @acting("ask")
    async def action_limit_downloads(self) -> None:
        now = await self.context[Downloader].limits()
        cap = docker_size(int(now.bytes_per_second)) if now.bytes_per_second else ""
        hint = "All downloads together, per second: 50m, 1g, or none."
        text = await self.app.push_screen_wait(TextDialog("Bandwidth cap", hint, value=cap, placeholder="no cap"))
        if text is not None:
            rate = rate_typed(text, "Bandwidth cap") or None
            await self.context[Downloader].set_limits(Limits(rate, now.at_once))
            self._toast(f"Bandwidth cap: {text}/s for all downloads." if rate else "No bandwidth cap.")

    # --- keys: verify, delete, repair -----------------------------------------------------------------

    def action_verify_model(self) -> None:
        entry = self.entry
        if entry is None:
            self._toast(NO_MODEL)
        elif self.download is not None and self.download.phase.active:
            self._toast("Downloading: each file is verified once it is complete.")
        else:
            try:
                self.context[Library].start_verify(entry.model.id)
            except SparkError as error:
                self.spark.report(error)
        self.show_rows()

    @work(exit_on_error=False, exclusive=True, group="ask")
    async def action_delete_model(self) -> None:
        """Shows what is freed, and deletes when the name was typed."""
        view, entry = self.library, self.entry
        if view is None or entry is None:
            self._toast(NO_MODEL)
            return
        unknown = view.engines_unknown
        try:
            plan = await self._delete_plan(entry, unchecked=bool(unknown))
            if plan is not None:
                plan.check()
                warning = f" Cannot list engines: {unknown}" if unknown else ""
                title = f"Delete {plan.model}?"
                confirm = ConfirmScreen(
                    title,
                    f"{plan.sentence}{warning}",
                    verb="Delete",
                    type_to_confirm=clean_line(plan.name),
                    because="This cannot be undone.",
                )
                if await self.app.push_screen_wait(confirm) is True:
                    done = await self.context[Library].delete(plan, plan.name, unchecked=bool(unknown))
                    self._toast(f"{plan.model}: {human_bytes(done.freed)} freed.")
        except SparkError as error:
            self.spark.report(error)
        self.show_rows()

    @acting("ask")
    async def action_move_model(self) -> None:
        """One of another cache into the store; one of the store into another cache: asks which."""
        view, entry = self.library, self.entry or self.elsewhere
        if view is None or entry is None:
            self._toast(NO_MODEL)
            return
        model, folder = entry.model, ""
        if entry is self.entry:
            others = [(other.path, other.path) for other in view.contents.others if other.mine and not other.tool]
            if not others:
                self._toast("The store is the only folder of models. Add one in the setting model_roots.")
                return
            chosen = await self.app.push_screen_wait(ChoiceDialog(f"Move {model.id} where?", others))
            if chosen is None:
                return
            folder = chosen
        plan = await self.context[Library].plan_move(model.id, folder, unchecked=bool(view.engines_unknown))
        warning = f" Cannot list engines: {view.engines_unknown}" if view.engines_unknown else ""
        confirm = ConfirmScreen(f"Move {model.id}?", f"{plan.sentence}{warning}", verb="Move")
        if await self.app.push_screen_wait(confirm) is True:
            self._move(plan)

    @acting("move", exclusive=False)
    async def _move(self, plan: MovePlan) -> None:
        self._toast(f"Moving {plan.model}.")
        async for _ in self.context[Library].move(plan):
            pass
        self._toast(f"{plan.model}: moved to {posixpath.dirname(plan.target)}.")
        self.show_rows()

    async def _delete_plan(self, entry: LibraryEntry, *, unchecked: bool) -> DeletePlan | None:
        """All of it, one revision, or its leftovers: asks only where there is a choice."""
        model, library = entry.model, self.context[Library]
        wanted = [(DeleteExtent.MODEL, "")]
        if len(model.revisions) > 1:
            wanted += [(DeleteExtent.REVISION, each.commit) for each in model.revisions[:MOST_REVISIONS]]
        if model.loose or model.partials:
            wanted.append((DeleteExtent.LEFTOVERS, ""))
        plans = [await library.plan_delete(model.id, extent, commit, unchecked=unchecked) for extent, commit in wanted]
        if len(plans) == 1:
            return plans[0]
        names = {DeleteExtent.MODEL: "all of it", DeleteExtent.LEFTOVERS: "leftovers of downloads and unused data"}
        choices = []
        for number, plan in enumerate(plans):
            revision = " ".join(("revision", plan.revision[:7], *plan.refs))
            choices.append((str(number), f"{names.get(plan.extent, revision)}, frees {human_bytes(plan.freed)}"))
        answer = await self.app.push_screen_wait(ChoiceDialog(f"Delete how much of {model.id}?", choices))
        return plans[int(answer)] if answer is not None else None

    def yanks(self) -> tuple[Yank, ...]:
        """Where the model is, what recipes call it, and the command that fixes it."""
        entry = self.entry
        if entry is None:
            return ()
        model, check = entry.model, entry.check
        owned = (finding.remedy for finding in model.findings if finding.remedy.startswith("sudo "))
        wrong = [each.name for each in check.wrong] if check is not None else []
        revision = check.revision if check is not None else ""
        fix = next(owned, "") or fetch_again(model, wrong, self.context.settings, revision=revision)
        return (Yank("Path", "p", model.path), Yank("Name", "n", model.id), *([Yank("Fix", "f", fix)] if fix else ()))

    # --- keys: go elsewhere ---------------------------------------------------------------------------

    def action_open_uses(self) -> None:
        """The presets that use it; without one, the draft of a preset."""
        entry = self.entry or self.tool_file
        if entry is None and self.download is not None:
            self.query_one(TabbedContent).active = "files-page"
        elif entry is None:
            self._toast(NO_MODEL)
        elif entry.presets:
            self._open_presets(entry)
        else:
            make = partial(self.context[Drafts].of_stored, entry)
            self.app.push_screen(
                self.spark.make_screen("draft", self.context, f"Draft: {entry.model.id}", make), self.spark.launched
            )

    @work(exit_on_error=False, exclusive=True, group="open")
    async def _open_presets(self, entry: LibraryEntry) -> None:
        await self.spark.switch_mode("presets")
        screen = self.app.screen
        if isinstance(screen, ListScreen):
            screen.call_after_refresh(partial(screen.look_for, entry.model.id, entry.presets))

    def action_open_images(self) -> None:
        self.spark.switch_mode("images")

    @work(exit_on_error=False, exclusive=True, group="refresh")
    async def action_reload_models(self) -> None:
        self._looks.clear()
        self._files.clear()
        self._looked_at = ()
        await self.context[Library].refresh()
        self._changed()
        self._toast("Store scanned.")


def _hints(download: Download | None, entry: LibraryEntry | None = None) -> Section:
    """The keys that act on a download, on what is missing or damaged, and on its users."""
    get, pause, cancel = key_of("get_model"), key_of("pause_download"), key_of("cancel_work")
    hints = []
    if download is not None and download.phase.active:
        hints.append(f"{pause} pause  {cancel} cancel  Continues when spark-tui exits.")
    elif download is not None and download.phase is not DownloadPhase.DONE:
        hints.append(f"{get} or {pause} resumes, {cancel} removes it from the list.")
    if entry is not None:
        model, check = entry.model, entry.check
        if download is None and model.completeness in (Completeness.PARTIAL, Completeness.CORRUPT):
            hints.append(f"{get} downloads the missing files.")
        if check is not None and check.over and check.wrong:
            hints.append(f"{get} downloads those files again, {key_of('yank')} f copies the command.")
        if any(finding.remedy.startswith("sudo ") for finding in model.findings):
            hints.append(f"{key_of('yank')} f copies the fix.")
        hints.append(f"{key_of('open_uses')} {'opens its presets' if entry.presets else 'drafts a preset for it'}.")
    return Section(rows=tuple(Row(hint, tone=Tone.QUIET) for hint in hints))


def request_for(entry: LibraryEntry) -> DownloadRequest | None:
    """What repairs or completes a model, at the downloaded commit; for a complete one, what the Hub has now. None:
    its source is unknown."""
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
