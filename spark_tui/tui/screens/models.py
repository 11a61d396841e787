"""Models: what is in the store, what it takes and what it will do; fetching, verifying and deleting."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual import work
from textual.binding import BindingType
from textual.widgets import Input, TabbedContent

from spark_tui.core.actions import Scope
from spark_tui.core.library import LibraryEntry
from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.domain.models.download import Download, DownloadPhase, DownloadRequest, Limits
from spark_tui.domain.models.store import Completeness, Layout, RepoKind
from spark_tui.domain.models.store_rules import is_commit
from spark_tui.domain.quantities import docker_size, human_bytes, parse_bytes
from spark_tui.domain.text import clean_line
from spark_tui.tui.keymap import bindings
from spark_tui.tui.screens.models_ground import ModelsGround
from spark_tui.tui.screens.models_hub import FetchDialog, HubSearch, SearchDialog
from spark_tui.tui.screens.models_words import fix_command

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
        from spark_tui.tui.screens.models_delete import delete_model

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
