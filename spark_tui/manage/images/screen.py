"""Images of Models: the container images of engines, who uses them, moved tags, versions inside, deleting."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content

from spark_tui.base.actions import Scope, key_of
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import NOT_READ_YET, Stale, reason_of, value_of
from spark_tui.base.page import Row, Section
from spark_tui.base.quantities import human_bytes
from spark_tui.base.text import clean_line, quoted
from spark_tui.catalog.fit.screen.presets import PageQuestion, PresetsScreen
from spark_tui.manage.images.model import IMAGES, ImageEntry, ImagesView, TagState
from spark_tui.manage.images.show import images as present
from spark_tui.manage.images.use.images import Images
from spark_tui.manage.images.use.update import Updater, UpdateStage, begin_update
from spark_tui.tui import format as fmt
from spark_tui.tui.frame import acting, bindings
from spark_tui.tui.list_screen import LIST_CSS, ListScreen
from spark_tui.tui.modals import ConfirmScreen
from spark_tui.tui.widgets.line import Line, entitle
from spark_tui.tui.widgets.row_list import NO_ROWS
from spark_tui.tui.yank import Yank

DISK = " DISK "


class SummaryLine(Line):
    """What images take on disk, what is being done, or why the list is out of date."""

    text, style = "", "$dim"

    def say(self, width: int) -> Content:
        return Content.assemble((DISK, "bold"), fmt.safe(self.text, self.style)).truncate(width, ellipsis=True)


class ImagesScreen(ListScreen):
    """A part of Models; Esc goes back there. Docker measures layers in the background, each time it is opened."""

    SCOPE = Scope.IMAGES
    TAB = "show_models"
    CSS_PATH: ClassVar = [LIST_CSS, "screen.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.IMAGES)
    AUTO_FOCUS = "#image-list"
    LIST = "image-list"
    LIST_TITLE = "Images"
    PAGES = (("image", "Image"),)

    def compose_body(self) -> ComposeResult:
        yield SummaryLine(id="disk-line")
        yield from super().compose_body()

    def on_mount(self) -> None:
        entitle(self.query_one("#list-pane"), f"{key_of('show_models')} Models  Images")
        self._busy = ""
        self.bind_slices((IMAGES,), self.show_rows)

    def on_screen_resume(self) -> None:
        self.action_reload_images()

    @property
    def view(self) -> ImagesView | None:
        return value_of(self.world[IMAGES])

    @property
    def entry(self) -> ImageEntry | None:
        """The image under the cursor."""
        entries = self.view.entries if self.view is not None else ()
        return next((each for each in entries if each.name == self.rows.key), None)

    # --- show -----------------------------------------------------------------------------------------

    def show_rows(self) -> None:
        view, reading = self.view, self.world[IMAGES]
        if view is None:
            text = Content.styled("Reading images...", "$dim")
            if reading != NOT_READ_YET:
                again = f"{key_of('reload_images')} tries again."
                text = Content.assemble(fmt.safe(reason_of(reading), "$error"), "\n\n", again)
            self.rows.show_table(NO_ROWS, text)
        else:
            empty = f"No images, and no presets that name one. {key_of('show_presets')} opens Presets."
            self.rows.show_table(present.images_table(view, self.context.clock.now(), grouped=True, empty=empty))
            names = [each for each in view.entries if each.stored is not None]
            moved = sum(each.state is TagState.MOVED for each in view.entries)
            self.show_count(len(names), len(names), f", {moved} moved" if moved else "")
        self.show_selected()

    def show_selected(self) -> None:
        view, entry, reading, line = self.view, self.entry, self.world[IMAGES], self.query_one(SummaryLine)
        self.page("image").show(present.image_page(entry, view, self.context.clock.now()) if entry and view else ())
        line.text, line.style = present.images_summary(view) if view is not None else "", "$dim"
        if self._busy:
            line.text, line.style = self._busy, "bold"
        elif isinstance(reading, Stale):
            line.text, line.style = f"Out of date: {reason_of(reading)}", "$warning"
        line.renew()
        self.show_title(present.short_name(entry.name) if entry is not None else "Image")
        self.name_keys()

    def _set_busy(self, text: str) -> None:
        self._busy = text
        self.show_selected()

    # --- keys -----------------------------------------------------------------------------------------

    def offers(self, id_: str) -> bool:
        entry = self.entry
        match id_:
            case "check_images":
                return self.view is not None
            case "inspect_image" | "delete_image":
                return entry is not None and entry.stored is not None
            case "yank":
                return entry is not None
        return super().offers(id_)

    def yanks(self) -> tuple[Yank, ...]:
        entry = self.entry
        if entry is None:
            return ()
        pull = Yank("Pull", "p", f"docker pull {quoted(entry.name)}")
        digest = (Yank("Digest", "d", entry.digest),) if entry.digest else ()
        return (Yank("Name", "n", entry.name), *digest, *((pull,) if not entry.name.startswith("sha256:") else ()))

    def _toast(self, text: str) -> None:
        self.notify(clean_line(text), markup=False)

    def action_leave_images(self) -> None:
        self.spark.switch_mode("models")

    @work(exit_on_error=False, exclusive=True, group="read-images")
    async def action_reload_images(self) -> None:
        try:
            await self.context[Images].refresh()
        except SparkError:
            self.show_rows()  # the slice has the reason

    @acting("read-images")
    async def action_check_images(self) -> None:
        self._set_busy("Asking registries...")
        try:
            view = await self.context[Images].check()
            failed = sum(each.state in (TagState.GONE, TagState.FAILED) for each in view.entries)
            moved = sum(each.state is TagState.MOVED for each in view.entries)
            known = f"{moved} tags have moved" if moved != 1 else "1 tag has moved"
            self._toast(f"{known}{f', {failed} unknown: see their pages' if failed else ''}.")
        finally:
            self._set_busy("")

    @acting("inspect-image")
    async def action_inspect_image(self) -> None:
        entry = self.entry
        if entry is None:
            self._toast("No image selected.")
            return
        self._set_busy(f"Reading versions in {present.short_name(entry.name)}...")
        try:
            found = await self.context[Images].inspect(entry.name)
            self._toast(f"{present.short_name(entry.name)}: {len(found.versions)} versions read.")
        finally:
            self._set_busy("")

    @work(exit_on_error=False, exclusive=True, group="ask")
    async def action_delete_image(self) -> None:
        """Shows what is freed, and deletes when a person agrees."""
        entry, view = self.entry, self.view
        if entry is None or view is None:
            self._toast("No image selected.")
            return
        unknown = view.starts_unknown
        try:
            plan = await self.context[Images].plan_delete(entry.name, unchecked=bool(unknown))
            plan.check()
            warning = f" Last good starts unknown: {unknown}." if unknown else ""
            question = ConfirmScreen(
                f"Delete {present.short_name(entry.name)}?", f"{present.deletion_text(plan)}{warning}", verb="Delete"
            )
            if await self.app.push_screen_wait(question) is True:
                freed = await self.context[Images].delete(plan, unchecked=bool(unknown))
                size = "" if freed is None else f", {human_bytes(freed)} freed"
                self._toast(f"{present.short_name(entry.name)} deleted{size}.")
        except SparkError as error:
            self.spark.report(error)
        self.show_rows()


class UpdatablePresets(PresetsScreen):
    """Presets, with the update of their images."""

    @acting("update")
    async def action_update_preset(self) -> None:
        """Asks the registry and tries a newer image; of one that is tried or kept, the decision."""
        preset, updater = self.preset, self.context[Updater]
        if preset is None:
            return
        record = updater.record(preset.name)
        engine = record.engine if record is not None else preset.name
        if record is None or record.stage in (UpdateStage.KEPT, UpdateStage.PULL):
            found = await updater.check(preset)
            page, verb, other = present.check_page(found), "Update" if found.moved else "", ""
            if record is not None and record.stage is UpdateStage.KEPT:
                verb, other = (verb, "Go back") if verb else ("Go back", "")
            if not verb:
                self.notify(f"{preset.reference} has not moved.", markup=False)
                return
            what = "Go back to the old image of" if verb == "Go back" else "Update"
            asked = PageQuestion(f"{what} {preset.name}?", page, verb, other=other)
            keep = False if verb == "Go back" else None
        elif record.stage is UpdateStage.DECIDE:
            page = present.trial_page(record, *await updater.starts(record))
            asked, keep = PageQuestion(f"Keep the new image of {preset.name}?", page, "Keep", other="Go back"), True
        else:
            page = (Section(rows=(Row(present.stage_text(record)),)),)
            asked, keep = (
                PageQuestion(f"Continue the update of {preset.name}?", page, "Continue", other="Go back"),
                None,
            )
        yes = await self.app.push_screen_wait(asked)
        if (yes or asked.other_chosen) and await self.spark.may("Update", engine):
            begin_update(self.context, preset, engine, keep=keep if yes else False)
