"""Presets: every recipe, what is known about it, and the exact command that it becomes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input, TabbedContent, TabPane

from spark_tui.core.actions import Scope, key_of
from spark_tui.domain.engine.container import ContainerFacts, ImageFacts
from spark_tui.domain.engine.docker_run import render_text
from spark_tui.domain.errors import PresetError, SparkError, UnreachableError
from spark_tui.domain.presets.diff import Diff
from spark_tui.domain.presets.fit import Change, Fit, fit_lines
from spark_tui.domain.presets.fit_request import Verdict as FitVerdict
from spark_tui.domain.presets.plan import LaunchPlan, Overrides
from spark_tui.domain.presets.preset import Origin, Preset, PresetFacts
from spark_tui.domain.presets.rules.check import Finding, Severity
from spark_tui.domain.quantities import human_bytes, human_count, short_tokens
from spark_tui.domain.reading import Ok
from spark_tui.domain.text import clean_line, truncate
from spark_tui.tui import format as fmt
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.widgets.fit_bar import FitBar
from spark_tui.tui.widgets.line import entitle
from spark_tui.tui.widgets.page import BLANK, Page, Part, sentence, told
from spark_tui.tui.widgets.row_list import Column, Row, RowList

if TYPE_CHECKING:
    from spark_tui.core.preflight import Preflight


LABEL_WIDTH = 10
Checked: TypeAlias = tuple[Finding, ...] | SparkError
"""What the rules say of a preset, or why it cannot be planned at all."""


def field(label: str, value: str) -> Part:
    """A label and its value."""
    return Content.styled(f"{label:<{LABEL_WIDTH}}", "$dim"), told(value)


def failure_parts(error: SparkError) -> list[Part]:
    """Why a preset cannot be launched."""
    return [
        sentence("This preset cannot be launched.", "bold $error"),
        sentence(error.summary, "$error"),
        sentence(error.remedy),
    ]


# --- checks -----------------------------------------------------------------------------------------------

_SIGNS = {Severity.ERROR: ("error", "$error"), Severity.WARNING: ("warn", "$warning"), Severity.NOTE: ("note", "$dim")}


def verdict(checked: Checked | None) -> Content:
    """One word for the list: the worst that the rules found."""
    if checked is None:
        return Content.styled("...", "$dim")
    if isinstance(checked, SparkError):
        return Content.styled("error", "$error")
    worst = next((level for level in Severity for finding in checked if finding.severity is level), None)
    if worst in (None, Severity.NOTE):
        return Content.styled("ok", "$success")
    return Content.styled(*_SIGNS[worst])


def severity_word(severity: Severity) -> Content:
    """`error`, `warn` or `note` in its colour, as wide as a label."""
    word, style = _SIGNS[severity]
    return Content.styled(f"{word:<{LABEL_WIDTH}}", f"bold {style}")


def fixes_of(findings: tuple[Finding, ...]) -> Iterable[tuple[str, str]]:
    """What ends the findings: of two that change the same setting, the worse one's, which come first."""
    chosen: dict[str, str] = {}
    for finding in findings:
        for key, value in finding.fix:
            chosen.setdefault(key, value)
    return chosen.items()


ABOUT_NOW = frozenset(("engines_exceed_machine", "gated_without_token"))
"""Rules about this machine at this moment: the list, which speaks of the recipe, leaves them out."""


def check_parts(checked: Checked | None) -> list[Part]:
    """Each finding with its remedy, what was seen, and the change that ends it."""
    if checked is None:
        return [sentence("Not checked yet.", "$dim")]
    if isinstance(checked, SparkError):
        return failure_parts(checked)
    if not checked:
        return [sentence("Nothing to say against this preset as it is.", "$success")]
    parts: list[Part] = []
    for finding in checked:
        parts += [
            (severity_word(finding.severity), told(finding.summary, "bold")),
            field("do", finding.remedy),
            *([field("seen", finding.evidence)] if finding.evidence else []),
            *([field("fix", finding.fix_text)] if finding.fix else []),
            *([field("now", "about this machine as it is now: not in the list's word")] if _is_now(finding) else []),
            field("rule", finding.id),
            BLANK,
        ]
    return parts[:-1]


def _is_now(finding: Finding) -> bool:
    return finding.id in ABOUT_NOW


# --- fit --------------------------------------------------------------------------------------------------

FIT_LABEL_WIDTH = 12
_FIT_STYLES = {
    FitVerdict.READY: "$success",
    FitVerdict.SLOW: "$warning",
    FitVerdict.BLOCKED: "$error",
    FitVerdict.UNKNOWN: "$dim",
}


def fit_word(fit: Fit | None) -> Content:
    """READY, SLOW, BLOCKED, BUSY where only other engines are in the way, or that it cannot be told."""
    if fit is None:
        return Content("")
    if fit.only_neighbours:
        return Content.styled("BUSY", "$warning")
    return Content.styled(fit.verdict.value, _FIT_STYLES[fit.verdict])


def fit_verdict_parts(fit: Fit | None) -> list[Part]:
    """The verdict with its reasons, and what would help."""
    if fit is None:
        return [sentence("Not worked out yet, or this preset cannot be launched: see Checks.", "$dim")]
    head = fit.reasons[0] if fit.reasons else ""
    parts: list[Part] = [
        (Content(""), Content.assemble(fit_word(fit).stylize("bold"), "  ", told(head))),
        *(sentence(reason, bullet="- ") for reason in fit.reasons[1:]),
    ]
    if fit.only_neighbours:
        parts.append(sentence("BUSY: blocked by the engines that run now alone; without them it fits.", "$dim"))
    if fit.changes:
        parts += [BLANK, sentence("What would help", "bold")]
        parts += [sentence(change_text(change), bullet="- ") for change in fit.changes]
    return [*parts, BLANK]


def fit_figure_parts(fit: Fit | None) -> list[Part]:
    """What it takes and what the machine has, line by line."""
    if fit is None:
        return []
    parts: list[Part] = [
        (
            told(f"{row.value:>{FIT_LABEL_WIDTH - 2}}  ", "$error" if row.value.startswith("-") else ""),
            Content.assemble(told(row.label.strip(), "bold"), "  ", told(row.note, "$dim")),
        )
        for row in fit_lines(fit)
    ]
    parts += [part for note in fit.notes for part in (BLANK, sentence(note, "$dim"))]
    return parts


def change_text(change: Change) -> str:
    """What would help, with the setting that does it."""
    pairs = " ".join(f"{key}={value}" for key, value in change.pairs)
    return f"{change.summary} ({pairs})" if pairs else change.summary


MAX_CELL = 200
CPU_GROUP = "On the CPU"
NO_FAMILY = "Others"
UNREADABLE_GROUP = "Unreadable files"
PROBLEM = "problem:"
"""Before the number of an unreadable file: its row's key. No preset is named so: names become container names."""

# The name keeps 28 cells, which tell each preset from its variants; the verdicts go before the facts.
COLUMNS = (
    Column("preset", maximum=56),
    Column("size", width=8, hide_below=56),
    Column("quant", width=5, hide_below=68),
    Column("ctx", width=4, hide_below=73, right=True),
    Column("tok/s", width=5, hide_below=58, right=True),
    Column("checks", width=6, hide_below=30),
    Column("fit", width=7, hide_below=40),
    Column("image", width=5, hide_below=79),
    Column("", width=5, hide_below=84),
)


@dataclass(frozen=True, slots=True)
class ImageStanding:
    """Whether a preset's image is on this machine. `known` False: Docker has not said, `why` tells the reason."""

    known: bool = False
    image: ImageFacts | None = None
    why: str = "not looked at yet"

    @property
    def word(self) -> str:
        """`here`, `no`, `?`."""
        return ("here" if self.image else "no") if self.known else "?"

    @property
    def words(self) -> str:
        """The same in a sentence."""
        if not self.known:
            return f"whether it is here is not known: {self.why}"
        return "it is here" if self.image else "not here: the launch pulls it"


UNKNOWN_IMAGE = ImageStanding()


# --- the list ---------------------------------------------------------------------------------------------


def matches(preset: Preset, words: list[str]) -> bool:
    """Whether every word of the filter occurs in what identifies the preset."""
    facts = preset.facts
    texts = (preset.name, facts.title, facts.family, facts.quantization, facts.publisher, preset.model, preset.runtime)
    text = " ".join((*texts, preset.image, facts.category, preset.origin.value)).lower()
    return all(word in text for word in words)


def order(preset: Preset) -> tuple[bool, str, str]:
    """By family; what needs no GPU comes last."""
    return (_on_cpu(preset), preset.facts.family.lower() or "~", preset.name)


def _on_cpu(preset: Preset) -> bool:
    return preset.facts.category == "cpu" or preset.cpu_only


def preset_row(preset: Preset, standing: ImageStanding, checked: Checked | None, fit: Fit | None) -> Row:
    """One line of the list."""
    facts = preset.facts
    speed = _best_speed(facts)
    return Row(
        preset.name,
        (
            _cell(_short_title(preset)),
            _cell(_size(facts), "$dim"),
            _cell(_format(facts), "$secondary"),
            _cell(short_tokens(facts.context_tokens) if facts.context_tokens else "", "$dim"),
            _cell(f"{speed:.0f}" if speed else ""),
            verdict(checked),
            fit_word(fit),
            _cell(standing.word, "$success" if standing.image else "$dim"),
            _cell("yours" if preset.origin is Origin.USER else "", "$accent"),
        ),
        CPU_GROUP if _on_cpu(preset) else truncate(clean_line(facts.family), MAX_CELL) or NO_FAMILY,
    )


def problem_row(index: int, problem: PresetError) -> Row:
    """A file that could not be read."""
    file = problem.file.rsplit("/", 1)[-1]
    place = f"{file}:{problem.line}" if problem.line else file
    text = Content.assemble(
        ("unreadable ", "bold $error"), _cell(place), "  ", _cell(problem.summary, "$dim"),
    )  # fmt: skip
    return Row(f"{PROBLEM}{index}", (text, *(Content("") for _ in COLUMNS[1:])), UNREADABLE_GROUP)


def _format(facts: PresetFacts) -> str:
    """The first word of `NVFP4 (ModelOpt), KV cache FP8`; the page has all of it."""
    return facts.quantization[:MAX_CELL].partition(" ")[0].strip(",;")


def _short_title(preset: Preset) -> str:
    """The title without the number format, which has a column of its own."""
    title, word = preset.facts.title[:MAX_CELL], _format(preset.facts)
    return (title.replace(f" {word}", "") if word else title) or preset.name


def _cell(text: str, style: str = "") -> Content:
    return fmt.safe(text[:MAX_CELL], style)


def _best_speed(facts: PresetFacts) -> float | None:
    return max((speed.tokens_per_second for speed in facts.published), default=None)


def _size(facts: PresetFacts) -> str:
    total, active = facts.total_parameters, facts.active_parameters
    if total is None:
        return ""
    if active is None or active == total:
        return _rounded(total)
    return f"{_rounded(total).removesuffix('B')}/{_rounded(active)}"


def _billions(count: float) -> str:
    return f"{count / 1e9:.3g}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


def _rounded(count: float) -> str:
    return f"{count / 1e9:.0f}B" if count >= 20e9 else _billions(count)


# --- running ----------------------------------------------------------------------------------------------


def running_page(
    preflight: Preflight, preset: Preset, image: ImageFacts | None, containers: Sequence[ContainerFacts]
) -> list[Part]:
    """The preset beside its container; or why the preset cannot be launched."""
    from spark_tui.core.preflight import preset_diff  # only when a preset is looked at

    try:
        return _running_parts(preset_diff(preflight, preset, Overrides(), image, containers))
    except SparkError as error:
        return failure_parts(error)


def _running_parts(found: Diff) -> list[Part]:
    """Where the container of a preset is not what the preset says."""
    if not found.container:
        return [sentence("No container of this preset is here. Launch it, and this page compares the two.", "$dim")]
    rows = found.differing
    if not rows:
        return [sentence(f"{found.container} runs exactly what this preset says.", "$success")]
    count = "one setting differs" if len(rows) == 1 else f"{len(rows)} settings differ"
    parts: list[Part] = [sentence(f"{found.container}: {count} from this preset.", "bold"), BLANK]
    for row in rows:
        parts += [
            sentence(row.setting, "bold"),
            field("preset", row.preset or "absent"),
            (Content.styled(f"{'running':<{LABEL_WIDTH}}", "$dim"), told(row.running or "absent", "$warning")),
            BLANK,
        ]
    return parts[:-1]


# --- the pages --------------------------------------------------------------------------------------------


def overview(preset: Preset, standing: ImageStanding) -> list[Part]:
    """Everything that the recipe says, and whether its image is here."""
    facts = preset.facts
    parts = [sentence(facts.title or preset.name, "bold")]
    if facts.description:
        parts.append(sentence(facts.description, "$dim"))
    parts.append(BLANK)
    parts += [field(label, value) for label, value in _values(preset, standing) if value]
    parts += [
        field("speed", f"{speed.tokens_per_second:g} tok/s: {speed.conditions}. {speed.source}")
        for speed in facts.published
    ]
    parts += _list("Cautions", facts.cautions, "$warning")
    parts += _list("Notes", facts.notes)
    parts += _list("Hooks, never run by spark-tui", preset.hooks, "$dim")
    parts += _list("Mods, not applied by spark-tui", preset.mods, "$dim")
    parts += _list("Kept, not used", tuple(f"{key}: {value}" for key, value in preset.unknown), "$dim")
    if facts.source:
        parts += [BLANK, field("source", facts.source)]
    return parts


def _values(preset: Preset, standing: ImageStanding) -> tuple[tuple[str, str], ...]:
    facts = preset.facts
    return (
        ("model", preset.model),
        ("publisher", facts.publisher),
        ("family", facts.family),
        ("kind", facts.architecture),
        ("size", _size_words(facts)),
        ("quantized", facts.quantization),
        ("context", f"{human_count(facts.context_tokens)} tokens" if facts.context_tokens else ""),
        ("input", ", ".join(facts.modalities)),
        ("licence", _licence(facts)),
        ("image", f"{preset.image}, {standing.words}"),
        ("runtime", preset.runtime),
        ("sampling", ", ".join(f"{key} {value}" for key, value in facts.sampling)),
        ("includes", ", ".join(preset.includes)),
        ("file", _place(preset)),
    )


def problem_page(problem: PresetError) -> list[Part]:
    """What is wrong with a file, where, and what to do."""
    parts = [sentence(problem.where, "bold"), sentence(problem.summary, "$error"), sentence(problem.remedy)]
    if problem.detail:
        parts += [BLANK, *(sentence(line, "$dim") for line in problem.detail.split("\n")[:40])]
    return parts


def note_parts(plan: LaunchPlan, standing: ImageStanding) -> list[Part]:
    """What a person should know before this launch, above the command."""
    notes = [] if standing.known else [f"Image: {standing.words}"]
    notes += plan.notes
    return [*(sentence(note, "$warning", bullet="! ") for note in notes), *([BLANK] if notes else [])]


def _place(preset: Preset) -> str:
    """The whole path of a file that the person can edit; ours by its name."""
    path = preset.file if preset.origin is Origin.USER else preset.file.rpartition("/")[2]
    return f"{path} ({preset.origin.value})"


def _list(title: str, texts: tuple[str, ...], style: str = "") -> list[Part]:
    if not texts:
        return []
    return [BLANK, sentence(title, "bold"), *(sentence(text, style, bullet="- ") for text in texts)]


def _size_words(facts: PresetFacts) -> str:
    words = []
    if facts.total_parameters:
        words.append(f"{_billions(facts.total_parameters)} parameters")
    if facts.active_parameters and facts.active_parameters != facts.total_parameters:
        words.append(f"{_billions(facts.active_parameters)} active")
    if facts.weights_bytes:
        words.append(f"{human_bytes(facts.weights_bytes)} of weights")
    return ", ".join(words)


def _licence(facts: PresetFacts) -> str:
    gate = _GATED.get(facts.gated, "") if facts.licence or facts.gated is not None else ""
    return ", ".join(filter(None, (facts.licence, gate)))


_GATED = {
    True: "gated: accept it on the model's page first",
    False: "not gated",
    None: "whether it is gated is not known",
}


NO_MATCH = "No preset matches. Esc clears the filter."


def no_presets() -> str:
    """What stands in an empty list."""
    return f"No presets. Put recipe files (*.yaml) into the presets folder, then press {key_of('reload_presets')}."


class PresetsScreen(FrameScreen):
    """The list, and the selected preset's pages."""

    SCOPE = Scope.PRESETS
    TAB = "show_presets"
    CSS_PATH = "presets.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.PRESETS)
    AUTO_FOCUS = "#preset-list"

    def compose_body(self) -> ComposeResult:
        """List on the left, pages on the right; one above the other when it is narrow."""
        with Horizontal(id="columns"):
            with Container(id="list-pane", classes="pane") as pane:
                pane.border_title = "Presets"
                yield Input(placeholder="filter: name, family, quantization, model, image", id="filter", compact=True)
                yield RowList(COLUMNS, Content(no_presets()), titles=True, gap=1, id="preset-list")
            with Container(id="preset-pane", classes="pane"), TabbedContent(id="pages"):
                with TabPane("Overview", id="overview-page"), VerticalScroll(id="overview-scroll"):
                    yield Page(LABEL_WIDTH, id="overview")
                with TabPane("Command", id="command-page"), VerticalScroll(id="command-scroll"):
                    yield Page(LABEL_WIDTH, id="command")
                with TabPane("Checks", id="checks-page"), VerticalScroll(id="checks-scroll"):
                    yield Page(LABEL_WIDTH, id="checks")
                with TabPane("Fit", id="fit-page"), VerticalScroll(id="fit-scroll"):
                    yield Page(FIT_LABEL_WIDTH, id="fit")
                    yield FitBar(self.spark.glyphs, id="fit-bar")
                    yield Page(FIT_LABEL_WIDTH, id="fit-figures")
                with TabPane("Running", id="running-page"), VerticalScroll(id="running-scroll"):
                    yield Page(LABEL_WIDTH, id="running")

    def on_mount(self) -> None:
        """Binds the list to the catalogue, and to what may change which images are here."""
        self._plan: LaunchPlan | SparkError | None = None
        self._shown = ""
        self._images: dict[str, ImageStanding] = {}
        self._findings: dict[str, Checked] = {}
        self._fits: dict[str, Fit] = {}
        self._looked_at: tuple[object, ...] = ()
        self.query_one("#filter").display = False
        self.bind_slice("presets", lambda _: self._take_catalogue())
        self.bind_slice("docker", lambda _: self._look_again())
        self.bind_slice("jobs", lambda _: self._look_again())
        self.bind_slice("identity", lambda _: self._look_again())
        self.bind_slice("engines", lambda _: self._take_engines())

    # --- images ---------------------------------------------------------------------------------------

    def _take_catalogue(self) -> None:
        self._show()
        self._look_again()

    def _take_engines(self) -> None:
        self._look_again()
        self._show_running()

    def _look_again(self) -> None:
        """Asks for the images and checks again when the answer may be another: presets, Docker, a launch ended, an
        engine came or went."""
        ended = tuple(job.id for job in self.spark.jobs if job.state.over)
        running = frozenset(view.name for view in self.engines() if view.container.running)
        grounds = (self.spark.presets, isinstance(self.spark.docker, Ok), ended, self.spark.identity, running)
        if grounds != self._looked_at:
            self._looked_at = grounds
            self._look_at_images()

    @work(exit_on_error=False, exclusive=True, group="images")
    async def _look_at_images(self) -> None:
        """One question per image; a Docker that does not answer is asked once."""
        found: dict[str, ImageStanding] = {}
        references = dict.fromkeys(preset.reference for preset in self.spark.presets.presets)
        for reference in references:
            try:
                found[reference] = ImageStanding(True, await self.context.docker.image(reference))
            except UnreachableError as error:
                found |= {left: ImageStanding(why=error.summary) for left in references if left not in found}
                break
            except SparkError as error:
                found[reference] = ImageStanding(why=error.summary)
        if found != self._images:
            self._images = found
            self._show()
        self._check_all()

    @work(exit_on_error=False, exclusive=True, group="checks")
    async def _check_all(self) -> None:
        """The rules and the fit of every preset, one at a time: keys go first."""
        found: dict[str, Checked] = {}
        fits: dict[str, Fit] = {}
        for preset in self.spark.presets.presets:
            found[preset.name] = await self._checked(preset)
            with contextlib.suppress(SparkError):  # the Checks page tells it
                fits[preset.name] = await self.context.fitting.fit(preset, Overrides())
            await asyncio.sleep(0)
        if (found, fits) != (self._findings, self._fits):
            self._findings, self._fits = found, fits
            self._show()

    async def _checked(self, preset: Preset) -> Checked:
        try:
            return await self.context.checks.check_with(self._standing(preset).image, preset, Overrides())
        except SparkError as error:
            return error

    def _alone(self, preset: Preset) -> Checked | None:
        """Without what the engines that run now have to do with it: the list speaks of the recipe."""
        checked = self._findings.get(preset.name)
        if checked is None or isinstance(checked, SparkError):
            return checked
        return tuple(finding for finding in checked if finding.id not in ABOUT_NOW)

    def _standing(self, preset: Preset) -> ImageStanding:
        return self._images.get(preset.reference, UNKNOWN_IMAGE)

    # --- show -----------------------------------------------------------------------------------------

    def _show(self) -> None:
        words = self.query_one("#filter", Input).value.lower().split()
        catalogue = self.spark.presets
        chosen = sorted((preset for preset in catalogue.presets if matches(preset, words)), key=order)
        rows = [
            preset_row(preset, self._standing(preset), self._alone(preset), self._fits.get(preset.name))
            for preset in chosen
        ]
        if not words:
            rows += [problem_row(index, problem) for index, problem in enumerate(catalogue.problems)]
        self.query_one(RowList).show(rows, Content(NO_MATCH if words else no_presets()))
        shown = f"{len(chosen)} of {len(catalogue.presets)}" if words else str(len(chosen))
        broken = f", {len(catalogue.problems)} unreadable" if catalogue.problems else ""
        entitle(self.query_one("#list-pane"), f"{shown}{broken}", below=True)
        self._show_selected()

    def _row(self, preset: Preset) -> Row:
        return preset_row(preset, self._standing(preset), self._alone(preset), self._fits.get(preset.name))

    @property
    def preset(self) -> Preset | None:
        """The preset under the cursor."""
        return self.spark.presets.get(self.query_one(RowList).key)

    @property
    def problem(self) -> PresetError | None:
        """The unreadable file under the cursor."""
        key = self.query_one(RowList).key
        if not key.startswith(PROBLEM):
            return None
        number = int(key.removeprefix(PROBLEM))
        problems = self.spark.presets.problems
        return problems[number] if number < len(problems) else None

    def on_row_list_moved(self, _: RowList.Moved) -> None:
        """Another preset."""
        self._show_selected()

    def _show_selected(self) -> None:
        preset, problem = self.preset, self.problem
        pane = self.query_one("#preset-pane")
        about, command = self.query_one("#overview", Page), self.query_one("#command", Page)
        checks = self.query_one("#checks", Page)
        self._plan = None
        if preset is not None:
            entitle(pane, truncate(clean_line(preset.name), MAX_CELL))
            about.tell(overview(preset, self._standing(preset)))
            self._show_command(preset, command)
            checks.tell(check_parts(self._findings.get(preset.name)))
        else:
            entitle(pane, "Unreadable file" if problem is not None else "")
            about.tell(problem_page(problem) if problem is not None else ())
            command.tell(())
            checks.tell(())
        self._show_fit(preset)
        self._show_running()
        self.name_keys()
        key = self.query_one(RowList).key
        if key != self._shown:
            self._shown = key
            for page in self.query("#pages VerticalScroll"):
                page.scroll_home(animate=False)

    def _show_fit(self, preset: Preset | None) -> None:
        fit = self._fits.get(preset.name) if preset is not None else None
        self.query_one("#fit", Page).tell(fit_verdict_parts(fit) if preset is not None else ())
        self.query_one(FitBar).show(fit)
        self.query_one("#fit-figures", Page).tell(fit_figure_parts(fit))

    def offers(self, id_: str) -> bool:
        """Where no preset is chosen, none is launched or copied."""
        if id_ in ("launch_preset", "copy_command"):
            return self.preset is not None
        return super().offers(id_)

    def _show_command(self, preset: Preset, page: Page) -> None:
        """The command with the image's real entrypoint when it is here; else with the one that its name implies."""
        standing = self._standing(preset)
        try:
            plan = self.context.preflight.dry_plan(preset, Overrides(), standing.image)
            text = render_text(plan.spec)
        except SparkError as error:
            self._plan = error
            page.tell(failure_parts(error))
            return
        self._plan = plan
        page.tell(note_parts(plan, standing), text)

    def _show_running(self) -> None:
        """Where the container of this preset differs from what the preset says now."""
        preset, page = self.preset, self.query_one("#running", Page)
        if preset is None:
            page.tell(())
            return
        containers = tuple(view.container for view in self.engines())
        page.tell(running_page(self.context.preflight, preset, self._standing(preset).image, containers))

    # --- act ------------------------------------------------------------------------------------------

    def action_launch_preset(self) -> None:
        """Opens the launch form."""
        from spark_tui.tui.screens.launch_form import LaunchForm

        if self.preset is not None:
            self.app.push_screen(LaunchForm(self.context, self.preset), self._launched)
        elif self.problem is not None:
            again = key_of("reload_presets")
            self.notify(f"This file cannot be launched: mend it, then press {again}.", severity="warning", markup=False)

    def action_import_recipes(self) -> None:
        """Asks for a path, and shows what became of each recipe."""
        from spark_tui.tui.screens.import_form import ImportForm

        self.app.push_screen(ImportForm(self.context), lambda imported: self._imported(imported is True))

    def _imported(self, imported: bool) -> None:
        if imported:
            self.action_reload_presets()

    def action_apply_fixes(self) -> None:
        """The launch form with what ends the findings."""
        from spark_tui.tui.screens.launch_form import LaunchForm

        preset = self.preset
        checked = self._findings.get(preset.name) if preset is not None else None
        fixes = {} if checked is None or isinstance(checked, SparkError) else dict(fixes_of(checked))
        if preset is None or not fixes:
            self.notify("The checks propose no change here.", markup=False)
            return
        self.app.push_screen(LaunchForm(self.context, preset, fixes), self._launched)

    def _launched(self, name: str | None) -> None:
        if name:
            self.spark.selected = name
            self.spark.switch_mode("home")

    def action_copy_command(self) -> None:
        """The docker run text to the clipboard, just as it is."""
        if isinstance(self._plan, SparkError):
            self.spark.report(self._plan)
        elif self._plan is not None:
            self.app.copy_to_clipboard(render_text(self._plan.spec))
            self.notify("Copied: docker run ...", markup=False)

    def action_next_page(self) -> None:
        """The page to the right; the cursor stays in the list."""
        self._turn(1)

    def action_previous_page(self) -> None:
        """The page to the left."""
        self._turn(-1)

    def _turn(self, step: int) -> None:
        pages = self.query_one(TabbedContent)
        names = [str(pane.id) for pane in pages.query(TabPane)]
        pages.active = names[(names.index(pages.active) + step) % len(names)]

    def action_filter_presets(self) -> None:
        """Opens the filter."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def look_for(self, text: str, names: Sequence[str]) -> None:
        """Shows these presets, asked for by another screen: those that `text` finds, when it finds them all, else the
        first of them among all others."""
        wanted = [preset for preset in self.spark.presets.presets if preset.name in names]
        if not wanted:
            return
        found = all(matches(preset, text.lower().split()) for preset in wanted)
        box = self.query_one("#filter", Input)
        box.value = text if found else wanted[0].name if len(wanted) == 1 else ""
        box.display = bool(box.value)
        self._show()
        self.query_one(RowList).select(min(wanted, key=order).name)
        self.query_one(RowList).focus()

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
        self.query_one(RowList).focus()

    def key_escape(self) -> None:
        """One step back: from the pages to the list, then without the filter, then Home."""
        box, presets = self.query_one("#filter", Input), self.query_one(RowList)
        if box.display and (box.has_focus or presets.has_focus):
            self._leave_filter(keep=False)
        elif not presets.has_focus:
            presets.focus()
        else:
            self.spark.switch_mode("home")

    def key_down(self) -> None:
        """From the filter into what it found."""
        if self.query_one("#filter", Input).has_focus:
            self.query_one(RowList).focus()

    def action_reload_presets(self) -> None:
        """Reads the folders again, and asks for the images again."""
        self.context.collectors.load_presets()
        self._looked_at = ()
        self._look_again()
        problems = len(self.context.store.world.presets.problems)
        self.notify(f"Presets read again{f', {problems} unreadable' if problems else ''}.", markup=False)
