"""The Presets screen: what the list and its two pages say, what keys do, and what hostile files cannot do."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from textual.widgets import Input, TabbedContent

from spark_tui.app.home.screen import HomeScreen
from spark_tui.base.context import Context
from spark_tui.base.engine.docker_run import render_text
from spark_tui.base.errors import PresetError
from spark_tui.base.page import Row, Section
from spark_tui.base.quantities import GIB, gib
from spark_tui.base.settings import Settings
from spark_tui.catalog.fit.model.fit import Fit
from spark_tui.catalog.fit.screen.bar import FitBar
from spark_tui.catalog.fit.screen.presets import CompareScreen, PresetsScreen
from spark_tui.catalog.fit.use.finder import order
from spark_tui.catalog.fit.use.fit import LaunchChecks
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import PresetFacts, PublishedSpeed, Tag
from spark_tui.catalog.presets.use.rights import PresetSource
from spark_tui.run.launch.screen import LaunchForm
from spark_tui.tui.format import UNICODE
from spark_tui.tui.help import HelpScreen
from spark_tui.tui.widgets.bars import KeyBar
from spark_tui.tui.widgets.page import Page, dense_lines
from spark_tui.tui.widgets.row_list import RowList
from tests.tui.kit import BROKEN, ESCAPE, GEMMA, IMAGE, MARKUP, MINE, PRESET, QWEN, SIZES, SMOL, Sight, kit_of, seen


def key(sight: Sight) -> str:
    return sight.app.screen.query_one(RowList).key


def row_of(sight: Sight, title: str) -> str:
    """The list's part of the line of that preset."""
    cells = (line.split("│")[1] for line in sight.text.splitlines() if line.startswith("│"))
    return next(cell for cell in cells if f" {title} " in cell)


# --- the list -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_the_list_tells_format_context_speed_and_the_verdict_at_every_size(size: tuple[int, int]) -> None:
    async with seen(kit_of(QWEN, GEMMA), size) as sight:
        await sight.until(lambda: "fits" in row_of(sight, "Qwen3.6-35B-A3B"))
        row = row_of(sight, "Qwen3.6-35B-A3B")
        for word in ("4.1k", "43", "NVFP4"):
            assert word in row
        assert "(ModelOpt)" not in row, "the list shows the first word, the page all"


@pytest.mark.parametrize("size", SIZES)
async def test_a_preset_and_its_variant_are_told_apart_by_their_names(size: tuple[int, int]) -> None:
    titles = ("Nemotron-3-Nano-30B-A3B NVFP4", "Nemotron-3-Nano-30B-A3B NVFP4, 1M context")
    presets = [
        replace(QWEN, name=f"n{number}", facts=replace(QWEN.facts, title=title)) for number, title in enumerate(titles)
    ]
    async with seen(kit_of(*presets), size) as sight:
        rows = [line for line in sight.text.splitlines() if "Nemotron-3-Nano-30B-A3B" in line and " 43 " in line]
        assert len(rows) == 2
        assert "A3B, 1M" in rows[1]


async def test_the_list_goes_by_family_with_the_cpu_last_and_a_sign_at_the_cursor() -> None:
    chosen = sorted((SMOL, QWEN, MINE, GEMMA), key=order)
    assert [preset.name for preset in chosen] == ["gemma", "mine", "qwen", "aaa-smol"]
    async with seen(kit_of(SMOL, QWEN, MINE, GEMMA)) as sight:
        text = sight.text
        assert text.index("Gemma") < text.index("Qwen") < text.index("On the CPU")
        assert key(sight) == "gemma"
        title = next(line for line in text.splitlines() if "tok/s" in line and "preset" in line)
        row = row_of(sight, "Qwen3.6-35B-A3B")
        assert row.index("43") + 2 == title.index("tok/s") + 5 - 1, "numbers stand under its right end; less the border"
        assert "▌ Gemma" in text
        await sight.press("down", "down")
        assert "▌ Qwen3.6" in sight.text
        assert "▌ Gemma" not in sight.text


# --- images ---------------------------------------------------------------------------------------------


async def test_images_are_asked_once_for_a_catalogue_each_one_once() -> None:
    kit = kit_of(QWEN, MINE, GEMMA)
    async with seen(kit) as sight:
        await sight.until_seen("fits")
        await sight.press("down", "down", "up")
        assert sorted(kit.docker.asked("image")) == sorted({IMAGE, GEMMA.image})


async def test_without_docker_whether_an_image_is_downloaded_stays_unknown() -> None:
    kit = kit_of(QWEN)
    kit.docker.go_down()
    async with seen(kit, (200, 50)) as sight:
        await sight.until_seen("download state unknown")
        kit.docker.come_back()
        await sight.until(lambda: "download state unknown" not in sight.text)


async def test_the_command_uses_the_real_entrypoint_of_a_downloaded_image() -> None:
    kit = kit_of(QWEN)
    image = kit.docker.add_image(IMAGE, entrypoint=())
    async with seen(kit, (200, 50), "right") as sight:
        await sight.until(lambda: "fits" in row_of(sight, "Qwen3.6-35B-A3B"))
        assert await kit.docker.image(QWEN.reference) == image
        verdict = await kit.context[LaunchChecks].judge(QWEN, Overrides())
        await sight.press("y", "c")
        assert sight.app.clipboard == render_text(verdict.plan.spec)
        assert "not downloaded" not in page(sight, "command")


# --- the pages ------------------------------------------------------------------------------------------


async def test_long_values_are_whole_and_follow_a_resize() -> None:
    words = "one two three four five six seven eight nine ten eleven twelve thirteen"
    async with seen(kit_of(replace(QWEN, facts=replace(QWEN.facts, architecture=words)))) as sight:
        shown = sight.app.screen.query_one("#overview-more", Page)
        narrow = shown.render().plain.splitlines()
        assert f"kind {words}" in " ".join(narrow)
        await sight.pilot.resize_terminal(148, 50)
        await sight.pilot.pause()
        wide = shown.render().plain.splitlines()
        assert f"kind {words}" in " ".join(wide)
        assert len(wide) < len(narrow)


async def test_left_and_right_turn_the_pages_and_the_cursor_stays_in_the_list() -> None:
    async with seen(kit_of(QWEN), (120, 36), "right") as sight:
        assert sight.app.screen.query_one(TabbedContent).active == "command-page"
        assert "docker run -d" in sight.text
        assert isinstance(sight.app.focused, RowList)
        await sight.press("left")
        assert "Multimodal agent model" in sight.text


async def test_y_copies_the_exact_command_however_it_is_wrapped() -> None:
    kit = kit_of(QWEN)
    async with seen(kit, SIZES[0], "right") as sight:
        await sight.until(lambda: "fits" in row_of(sight, "Qwen3.6-35B-A3B"))
        found = await kit.context[LaunchChecks].judge(QWEN, Overrides())
        for size in SIZES:
            await sight.pilot.resize_terminal(*size)
            sight.app.copy_to_clipboard("")
            await sight.press("y", "c")
            assert sight.app.clipboard == render_text(found.plan.spec), size


async def test_a_preset_that_cannot_be_planned_says_why_and_has_no_command_to_copy() -> None:
    async with seen(kit_of(replace(QWEN, min_nodes=2)), (120, 36), "right") as sight:
        assert "needs 2 nodes" in sight.text
        assert "--nodes" in page(sight, "command")
        await sight.until(lambda: "2 nodes" in row_of(sight, "Qwen3.6-35B-A3B"))
        assert "needs 2 nodes" in page(sight, "checks")
        await sight.press("y", "c", "m")
        assert sight.app.clipboard == QWEN.model


async def test_nothing_of_the_last_preset_is_copied_on_an_unreadable_file() -> None:
    async with seen(kit_of(QWEN, problems=[BROKEN])) as sight:
        await sight.press("down")
        assert "bad.yaml:7" in sight.text
        assert "Write key: value lines." in sight.text
        await sight.press("y")
        assert sight.app.clipboard == ""
        await sight.press("enter")
        sight.on(PresetsScreen)


# --- keys -----------------------------------------------------------------------------------------------


async def test_the_filter_takes_keys_as_text_finds_by_image_and_escape_goes_back_step_by_step() -> None:
    async with seen(kit_of(QWEN, GEMMA)) as sight:

        def named() -> list[str]:
            return [action.id for action in sight.app.screen.query_one(KeyBar).actions]

        await sight.press("slash", *"q3")
        sight.on(PresetsScreen)
        assert sight.app.screen.query_one("#filter", Input).value == "q3"
        assert "next_page" not in named(), "the filter takes that key"
        assert "command_palette" in named()
        assert "Enter list  Esc clear" in sight.text, "its own keys stand beside the count"
        await sight.type("5?")
        assert 'No preset matches: "q35?". Esc clears the text.' in sight.text
        await sight.press("escape")
        await sight.until(lambda: "next_page" in named())

        await sight.press("slash")
        await sight.type("openai:gem")
        assert "1 of 2" in sight.text
        await sight.press("enter")
        assert key(sight) == "gemma"
        assert isinstance(sight.app.focused, RowList)
        assert "Esc clear" not in sight.text
        await sight.press("tab")
        assert not isinstance(sight.app.focused, RowList)
        await sight.press("escape")
        assert isinstance(sight.app.focused, RowList)
        assert "1 of 2" in sight.text
        await sight.press("escape")
        assert "1 of 2" not in sight.text
        sight.on(PresetsScreen)
        await sight.press("escape")
        sight.on(HomeScreen)


async def test_a_search_that_finds_nothing_names_all_that_it_asks_for() -> None:
    async with seen(kit_of(QWEN, GEMMA), (120, 36), "V", "slash", *"qwen") as sight:
        await sight.until_seen('No preset matches: "qwen", vision.', "Esc clears the text", "the rest.")
        await sight.press("escape")
        await sight.until_seen("No preset matches: vision. The keys above change the rest.")
        await sight.press("V")
        await sight.until_seen("Qwen3.6-35B-A3B", "Gemma 31B")


async def test_help_opens_from_the_list_and_unknown_keys_do_nothing() -> None:
    async with seen(kit_of(QWEN)) as sight:
        before = sight.text
        await sight.press("z", "Z", "9", "f5", "ctrl+b", "tilde")
        assert sight.text == before
        await sight.press("question_mark")
        sight.on(HelpScreen)


async def test_enter_opens_the_launch_form_of_the_preset_under_the_cursor() -> None:
    async with seen(kit_of(QWEN, GEMMA), (120, 36), "down", "enter") as sight:
        sight.on(LaunchForm)
        assert "Launch qwen" in sight.text


async def test_in_read_only_mode_there_is_no_launch() -> None:
    kit = kit_of(QWEN)
    kit.context = _read_only(kit.context)
    async with seen(kit, (120, 36), "l", "enter") as sight:
        sight.on(PresetsScreen)
        assert "l Launch" not in sight.text, "no key for it is named"
        assert "Read-only mode: Launch is disabled." in sight.text


def _read_only(context: Context) -> Context:
    context.settings = replace(Settings(), read_only=True)
    return context


async def test_reloading_keeps_the_cursor_on_its_preset_and_shows_what_is_new() -> None:
    kit = kit_of(QWEN)
    async with seen(kit) as sight:
        source: Any = kit.context[PresetSource]
        source.catalogue = replace(source.catalogue, presets=(GEMMA, QWEN), problems=(BROKEN,))
        await sight.press("ctrl+r")
        await sight.until_seen("Gemma", "1 unreadable")
        assert key(sight) == "qwen"
        source.catalogue = replace(source.catalogue, presets=(), problems=())
        await sight.press("ctrl+r")
        await sight.until_seen("No presets. Put recipes")


# --- finder ---------------------------------------------------------------------------------------------

CODER = replace(
    PRESET,
    name="coder",
    model="Qwen/Qwen3.6-27B",
    command="vllm serve {model}",
    facts=PresetFacts(title="Some model", family="Zed", tags=(Tag.CODING, Tag.VISION), weights_bytes=9 * 10**9,
                      published=(PublishedSpeed(80, "one stream", "somebody"),)),
)  # fmt: skip


async def test_the_filter_finds_presets_by_their_use() -> None:
    async with seen(kit_of(QWEN, GEMMA, CODER), (120, 36), "slash") as sight:
        await sight.type("cod")
        assert "1 of 3" in sight.text
        assert key(sight) == "coder"


async def test_s_sorts_by_the_next_column_and_capital_s_turns_it_round() -> None:
    async with seen(kit_of(QWEN, GEMMA, CODER)) as sight:
        await sight.until(lambda: "fits" in row_of(sight, "Qwen3.6-35B-A3B"))
        await sight.press("down", "s")
        assert "tok/s v" in sight.text
        assert rows(sight) == ("coder", "qwen", "gemma")
        assert key(sight) == "coder", "the best one is under the cursor"
        await sight.press("S")
        assert "tok/s ^" in sight.text
        assert rows(sight) == ("qwen", "coder", "gemma"), "what has no speed stays last"


async def test_quick_filters_leave_out_what_has_it_not() -> None:
    every = ("gemma", "qwen", "coder")
    async with seen(kit_of(QWEN, GEMMA, CODER)) as sight:
        for pressed, left in (("U", ("coder",)), ("V", ("coder",)), ("T", ("coder",)), ("O", ())):
            await sight.press(pressed)
            assert rows(sight) == left, pressed
            assert f"{len(left)} of 3" in sight.text
            for _ in range(20):  # one of several values: the key goes on to the next
                if rows(sight) != every:
                    await sight.press(pressed)
            assert rows(sight) == every, pressed


async def test_context_and_users_drive_the_verdicts_and_go_into_the_form() -> None:
    async with seen(kit_of(GREEDY)) as sight:
        await sight.until(lambda: "fits" in row_of(sight, "Qwen3.6-35B-A3B"))
        await sight.press("greater_than_sign", "right", "right", "down", "1", "enter")
        await sight.until(lambda: "16k" in row_of(sight, "Qwen3.6-35B-A3B"))
        assert "context 16k" in sight.text
        assert "users 1" in sight.text
        await sight.press("enter")
        texts = sight.on(LaunchForm).texts
        assert (texts["max_model_len"], texts["max_num_seqs"]) == ("16384", "1")
        await sight.press("escape", "plus", "up", "escape")  # as it was
        assert "context 16k" in sight.text
        await sight.press("less_than_sign", "ctrl+r", "ctrl+l")
        await sight.until(lambda: "context default" in sight.text)
        assert "users default" in sight.text


async def test_marked_presets_are_compared_side_by_side() -> None:
    async with seen(kit_of(QWEN, GEMMA, CODER)) as sight:
        await sight.press("C")
        sight.on(PresetsScreen)
        await sight.press("space", "down", "space")
        assert "A Gemma 31B" in sight.text
        await sight.press("C")
        sight.on(CompareScreen)
        for word in ("A  gemma", "B  qwen", "quantization", "3B active", "licence", "is not what the makers"):
            assert word in sight.text
        await sight.pilot.resize_terminal(80, 24)
        await sight.until(lambda: any("A  gemma" in line and "B  qwen" in line for line in sight.text.splitlines()))
        assert "…" not in sight.text.partition("Compare presets")[2].partition("scroll")[0], "long texts are wrapped"
        await sight.pilot.resize_terminal(20, 5)
        sight.on(CompareScreen)
        await sight.press("escape", "space")
        assert "B Qwen" not in sight.text


def rows(sight: Sight) -> tuple[str, ...]:
    return sight.app.screen.query_one(RowList).ids


# --- hostile files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    tuple(
        zip(
            (MARKUP, ESCAPE, "x" * 10_000, "漢" * 5_000, "[@click=app.quit]go[/]", "$error \\[ ["),
            (*SIZES, *SIZES),
            strict=True,
        )
    ),
    ids=["markup", "escape", "long", "wide", "action", "style"],
)
async def test_hostile_texts_are_shown_as_text_and_bounded(text: str, size: tuple[int, int]) -> None:
    facts = PresetFacts(
        title=text, description=text, family=text, publisher=text, licence=text, architecture=text, quantization=text,
        notes=(text,), cautions=(text,), modalities=(text,), source=text,
    )  # fmt: skip
    hostile = replace(
        PRESET, name=text[:40], model=text, command=f"vllm serve x '{text}'".replace("\x1b", "").replace("\x07", ""),
        env=(("A", text),), facts=facts, hooks=(text,), mods=(text,), unknown=((text, text),), file=text,
    )  # fmt: skip
    problem = PresetError(text, text, file=text, line=1, detail=text)
    async with seen(kit_of(hostile, problems=[problem]), size) as sight:
        for keys in (("right",), ("down",), ("left",), ("up",), ("enter",), ("escape",), ("slash", "z")):
            await sight.press(*keys)
            assert not {"\x1b", "\x07"} & set(sight.text)
        await sight.press("escape")
        if len(text) < 40:
            assert text.replace("\x1b[31m", "").replace("\x1b[0m\x07", "") in sight.text


def test_a_dense_page_keeps_its_order_and_breaks_no_value_that_fits_a_line() -> None:
    rows = (Row("fits"), Row("Leaves 6 GiB.", "-"), Row("org/some-model", "model"), Row("built in", "file"))
    kind = Row("a kind that takes more than one line", "kind")
    lines = dense_lines((Section(rows=(*rows, kind, Row("Qwen", "family"))),), 24, "|")
    assert [line.plain for line in lines] == [
        "fits", "- Leaves 6 GiB.", "model org/some-model", "file built in",
        "kind a kind that takes", "more than one line", "family Qwen",
    ]  # fmt: skip
    wider = dense_lines((Section(rows=(kind, Row("Qwen", "family"))),), 36, "|")
    assert wider[-1].plain == "line | family Qwen", "the last line of a broken value has room for another"


# --- layout ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(80, 24), (120, 36)], ids=["80x24", "120x36"])
async def test_layout(size: tuple[int, int], snapshot: Any) -> None:
    from pytest_textual_snapshot import SVGImageExtension

    async with seen(kit_of(SMOL, QWEN, MINE, GEMMA, problems=[BROKEN]), size) as sight:
        await sight.until_seen("fits", "docker OK", "GPU")
        await sight.press("down", "down")
        picture = sight.app.export_screenshot(title="presets", simplify=True)
    assert picture == snapshot.use_extension(SVGImageExtension)


# --- checks and fit -------------------------------------------------------------------------------------

GREEDY = replace(
    QWEN,
    name="greedy",
    command="vllm serve {model} --gpu-memory-utilization {gpu_memory_utilization}",
    defaults=(("gpu_memory_utilization", 0.92),),
)


async def test_the_checks_page_tells_what_was_seen_and_the_change_that_helps() -> None:
    async with seen(kit_of(GREEDY), (80, 24), "right", "right") as sight:
        await sight.until(lambda: "modelopt_without_quantization" in page(sight, "checks"))
        text = page(sight, "checks")
        assert "quantization=modelopt" in text
        assert "weights in ModelOpt's format" in text


async def test_the_fit_page_gives_the_verdict_and_draws_the_memory_to_scale_with_the_launch_in_it() -> None:
    async with seen(kit_of(GREEDY), (120, 36), "left") as sight:
        await sight.until(lambda: "fits with 0.38" in page(sight, "fit"))
        assert "262k context for 4 users" in page(sight, "fit")
        await sight.press("left")
        for width in (20, 48, 99, 200):
            bar, *legend = sight.app.screen.query_one(FitBar).say(width).plain.split("\n")
            assert len(bar) == width
            share = bar.count(UNICODE.engine) / width
            assert share == pytest.approx(17.8 / 121.7, abs=2 / width), "the weights' share"
            assert "weights 17.8" in " ".join(legend)
            assert f"free {gib(fits(sight).left or 0)} GiB" in " ".join(legend)
        shown = fits(sight)
        sight.app.screen.query_one(FitBar).show(replace(shown, left=-GIB))
        assert "1.0 GiB too much" in sight.app.screen.query_one(FitBar).say(100).plain


def fits(sight: Sight) -> Fit:
    found = sight.app.screen.query_one(FitBar)._forecast
    assert found is not None
    return found


def page(sight: Sight, which: str) -> str:
    """The whole text of a page, also what is scrolled away."""
    return sight.app.screen.query_one(f"#{which}", Page).say(100).plain
