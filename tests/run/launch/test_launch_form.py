"""The launch form: what can be changed, what is wrong with it, and what is launched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from textual.widgets import Button, Input

from spark_tui.app.home.screen import HomeScreen
from spark_tui.base.engine.container import ALL_INTERFACES, LOOPBACK
from spark_tui.base.engine.invocation import SETTABLE
from spark_tui.base.finding import Ok, Severity, value_of
from spark_tui.base.quantities import GIB
from spark_tui.catalog.fit.screen.presets import PresetsScreen
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs
from spark_tui.catalog.presets.model.preset import ContainerOptions, Preset, PresetFacts
from spark_tui.catalog.presets.use.last_launches import LastLaunches
from spark_tui.catalog.presets.use.rights import AllowedPresets
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.run.launch.screen import MAX_FIELDS, EditQuestion, LaunchForm, fields_of
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest
from spark_tui.tui.form_screen import Choice, FieldRow
from spark_tui.tui.help import HelpScreen
from spark_tui.tui.modals import ConfirmScreen
from spark_tui.tui.widgets.page import Page
from tests.fakes_host import IDLE_MEMORY
from tests.kit import Kit
from tests.tui.kit import ESCAPE, GEMMA, MARKUP, PRESET, QWEN, SIZES, Sight, kit_of, seen
from tests.tui.quiet import until

OPEN = replace(PRESET, name="open", command="vllm serve {model} --block-size {block}", defaults=())
RICH = replace(
    PRESET,
    name="rich",
    command="vllm serve {model} --kv-cache-memory-bytes {kv_cache_memory_bytes}",
    defaults=(("port", 8000), ("host", "0.0.0.0"), ("kv_cache_memory_bytes", 4_000_000), ("max_num_seqs", 4)),
)


DRAFTING = replace(
    PRESET,
    name="drafting",
    command="""vllm serve {model} --speculative-config '{"method":"mtp","num_speculative_tokens":3}' """
    f"--max-num-batched-tokens=8192 --kv-cache-memory-bytes {12 * GIB}",
    defaults=(),
)
BY_ITSELF = replace(
    PRESET,
    name="by-itself",
    command="",
    env=(("MAX_MODEL_LEN", "{config.max_model_len}"),),
    defaults=(("max_model_len", 65536),),
    facts=PresetFacts(runs_as_is=True),
)
LLAMA_CPP = replace(PRESET, name="llama", runtime="llama-cpp", command="llama-server -m /models/x.gguf", defaults=())


def field(sight: Sight, key: str) -> FieldRow:
    return next(row for row in sight.on(LaunchForm).query(FieldRow) if row.field.key == key)


def focused(sight: Sight) -> str:
    widget = sight.app.focused
    return next((row.field.key for row in sight.on(LaunchForm).query(FieldRow) if row.input is widget), "")


async def reach(sight: Sight, key: str) -> FieldRow:
    """The field, which may be folded."""
    row = field(sight, key)
    if not row.display:
        sight.on(LaunchForm).action_unfold()
        await sight.pilot.pause()
    row.input.focus()
    await sight.pilot.pause()
    return row


async def write(sight: Sight, key: str, text: str) -> None:
    """Types into a field; of a choice the word is taken as it is."""
    row = await reach(sight, key)
    if isinstance(row.input, Choice):
        row.input.value = text
        await sight.pilot.pause()
    else:
        await sight.type(text)


def form(*presets: Preset, size: tuple[int, int] = (120, 36), kit: Kit | None = None) -> Any:
    return seen(kit or kit_of(*presets), size, "enter")


# --- fields ---------------------------------------------------------------------------------------------


def test_fields_are_what_the_preset_can_take_what_it_needs_first() -> None:
    rich, as_is, llama = ({field.key: field for field in fields_of(each)} for each in (RICH, BY_ITSELF, LLAMA_CPP))
    assert "kv_cache_memory_bytes" in rich
    assert "host" not in rich, "who may reach the port is the exposure's business"
    assert list(rich)[-1] == "extra_args"
    assert len(rich) == len(fields_of(RICH))
    assert all(each.help and (each.placeholder or each.key == "extra_args") for each in rich.values())
    known = replace(QWEN, model="Qwen/Qwen3.6-27B")  # whose family has a tool-call parser
    assert {*SETTABLE, "exposure", "api_key", "extra_args", "extra_env"} <= {field.key for field in fields_of(known)}
    assert "tool_calls" not in {field.key for field in fields_of(replace(QWEN, model="acme/own-1b"))}
    assert "max_model_len" in as_is
    useless = {"max_num_seqs", "kv_cache_dtype", "speculation", "num_speculative_tokens", "extra_args"}
    assert not useless & set(as_is)
    assert {"max_model_len", "max_num_seqs", "extra_args"} <= set(llama)
    assert not {"gpu_memory_utilization", "kv_cache_memory_bytes", "speculation"} & set(llama)
    first = fields_of(OPEN)[0]
    assert (first.key, first.needed) == ("block", True)
    silent = {each.key: each for each in fields_of(replace(PRESET, command="vllm serve {model}", defaults=()))}
    assert silent["max_model_len"].placeholder.startswith("model default")


def test_fields_are_bounded_and_never_of_a_name_that_cannot_be_set() -> None:
    many = tuple((f"value_{number}", number) for number in range(1000))
    names = ((MARKUP, 1), ("a b", 2), ("", 3), ("hf_token", "x"))
    keys = [stated.key for stated in fields_of(replace(PRESET, defaults=(*names, *many)))]
    assert len(keys) == MAX_FIELDS
    assert not {name for name, _ in names} & set(keys)


async def test_long_names_of_fields_are_broken_after_an_underscore() -> None:
    long = "default_chat_template_kwargs"
    preset = replace(PRESET, command=f"vllm serve {{model}} --x {{{long}}}", defaults=((long, "{}"),))
    async with form(preset) as sight:
        sight.on(LaunchForm).action_unfold()
        await sight.pilot.pause()
        assert " default_chat_ " in sight.text
        assert " template_kwargs " in sight.text
        await sight.pilot.resize_terminal(200, 50)
        await sight.until_seen(f" {long} ")


# --- keys -----------------------------------------------------------------------------------------------


async def test_keys_move_between_fields_write_text_and_read_the_command() -> None:
    kit = kit_of(QWEN)
    async with form(kit=kit, size=(80, 24)) as sight:
        assert focused(sight) == "max_model_len"
        await sight.press("up")
        assert focused(sight) == "max_model_len", "no wrap-around"
        for keys, key in ((("down", "down", "down"), "api_key"), (("up",), "exposure"), (("down",), "api_key")):
            await sight.press(*keys)
            assert focused(sight) == key
        await write(sight, "name", "q136?")
        assert field(sight, "name").input.value == "q136?", "digits, q and ? are text"
        await sight.press("backspace")
        await judged(sight)
        assert "--gpus all" not in sight.text
        await sight.press("pagedown")
        assert "--gpus all" in sight.text
        assert focused(sight) == "name"
        await sight.press("escape")
        sight.on(PresetsScreen)
        assert not kit.docker.created
        assert not sight.app.world.jobs


async def test_enter_on_the_last_field_focuses_the_button_and_only_there_it_launches() -> None:
    kit = kit_of(QWEN)
    async with form(kit=kit) as sight:
        await reach(sight, "extra_args")
        await sight.press("enter")
        assert isinstance(sight.app.focused, Button)
        assert not kit.docker.created
        await sight.press("enter")
        await sight.until(lambda: bool(kit.docker.created))
        sight.on(HomeScreen)
        assert kit.docker.created[0].name == "qwen"
        assert kit.docker.created[0].ports[0].host_ip == LOOPBACK


# --- fit and checks -------------------------------------------------------------------------------------


async def judged(sight: Sight) -> None:
    """Waits until fit and checks are there; the debounce is the app's own timer."""
    await until(sight.app, lambda: sight.on(LaunchForm).judgement is not None)


SHARE = replace(
    QWEN, command="vllm serve {model} --gpu-memory-utilization {gpu_memory_utilization}",
    defaults=(("gpu_memory_utilization", 0.85),),
)  # fmt: skip


def full_kit() -> Kit:
    kit = kit_of(SHARE)
    kit.host.memory_value = Ok(replace(IDLE_MEMORY, available=40 * GIB, free=40 * GIB, cached=0), kit.clock.now())
    return kit


async def test_fit_and_rules_of_what_is_typed_follow_when_typing_rests() -> None:
    async with form(kit=full_kit()) as sight:
        await sight.until(lambda: value_of(sight.app.world.memory) is not None)
        await write(sight, "gpu_memory_utilization", "0.99")
        shown = sight.on(LaunchForm).judgement
        assert shown is None or shown.plan.overrides.gpu_memory_utilization == 0.99, "no old verdict for new values"
        await judged(sight)
        assert "vLLM will refuse to start" in sight.text
        assert "0.99 of 121.0" in sight.on(LaunchForm).judgement.fit.reasons[0]  # type: ignore[union-attr]
        findings = sight.on(LaunchForm).judgement.findings  # type: ignore[union-attr]
        loud = [found for found in findings if found.severity is not Severity.INFO]
        assert loud[0].summary[:30] in " ".join(sight.text.split())
        field(sight, "gpu_memory_utilization").input.value = "0.25"
        await sight.pilot.pause()
        await judged(sight)
        assert "refuse to start" not in sight.text


async def test_what_cannot_fit_is_launched_only_when_its_name_is_typed() -> None:
    kit = full_kit()
    async with form(kit=kit) as sight:
        await sight.until(lambda: value_of(sight.app.world.memory) is not None)
        await write(sight, "gpu_memory_utilization", "0.9")
        await judged(sight)
        await sight.press("ctrl+l")
        sight.on(ConfirmScreen)
        await sight.press("enter")
        assert not sight.app.world.jobs
        await sight.type("qwen")
        await sight.press("enter")
        await sight.until(lambda: bool(kit.docker.created))


async def test_a_launch_before_the_verdict_is_refused_by_the_launch_itself() -> None:
    kit = full_kit()
    async with form(kit=kit) as sight:
        await sight.until(lambda: value_of(sight.app.world.memory) is not None)
        await write(sight, "gpu_memory_utilization", "0.9")
        await judged(sight)
        sight.on(LaunchForm).judgement = None  # as until it is there; a key may come too late on a slow machine
        sight.on(LaunchForm).action_submit()
        await sight.until(lambda: any(job.error for job in sight.app.world.jobs))
        assert "does not fit" in sight.app.world.jobs[0].error
        assert not kit.docker.created


# --- rights ---------------------------------------------------------------------------------------------


TAKING = replace(QWEN, options=ContainerOptions(privileged=True, devices=("/dev/sda",)))


def asking_kit() -> Kit:
    kit = kit_of(TAKING)
    kit.presets = AllowedPresets(kit.presets, kit.state)  # type: ignore[assignment]
    kit.context = kit.opened()
    return kit


async def test_a_recipe_that_takes_the_machine_is_launched_only_when_its_rights_are_typed() -> None:
    kit = asking_kit()
    async with form(kit=kit) as sight:
        await judged(sight)
        await sight.until_seen("privileged=true", "/dev/sda")
        await sight.press("ctrl+l")
        await sight.until(lambda: isinstance(sight.app.screen, ConfirmScreen))
        await sight.press("enter")
        await sight.press("escape")
        assert not sight.app.world.jobs and not kit.docker.created
        assert kit.presets.load().presets[0].allowed == ()
        sight.on(LaunchForm)
        await sight.press("ctrl+l")
        await sight.until(lambda: isinstance(sight.app.screen, ConfirmScreen))
        await sight.type("privileged devices")
        await sight.press("enter")
        await sight.until(lambda: bool(kit.docker.created))
    assert kit.presets.load().presets[0].allowed == ("privileged", "devices")


# --- changes --------------------------------------------------------------------------------------------


async def test_a_change_is_marked_by_a_word_and_is_in_the_command() -> None:
    async with form(QWEN, size=SIZES[0]) as sight:
        assert "changed" not in sight.text
        await write(sight, "port", "9001")
        assert field(sight, "port").mark == "changed"
        await judged(sight)
        for size in SIZES:
            await sight.pilot.resize_terminal(*size)
            await sight.until_seen("changed")
            for _ in range(5):  # on a small screen the command stands below the verdict
                if "127.0.0.1:9001:8000" not in sight.text:
                    await sight.press("pagedown")
            assert "127.0.0.1:9001:8000" in sight.text, size


async def test_drafting_shows_the_commands_own_values_and_is_changed_and_ended_by_its_fields() -> None:
    kit = kit_of(DRAFTING)
    async with form(kit=kit, size=(200, 50)) as sight:
        shown = {row.field.key: row.field.value for row in sight.on(LaunchForm).query(FieldRow)}
        keys = ("speculation", "num_speculative_tokens", "max_num_batched_tokens", "kv_cache_memory_bytes")
        assert [shown[key] for key in keys] == ["mtp", "3", "8192", str(12 * GIB)]
        for key, text in (("port", "8000"), ("speculation", "mtp"), ("kv_cache_memory_bytes", "12GiB")):
            await write(sight, key, text)
            assert field(sight, key).mark == "", "what the preset has is no change"
        field(sight, "speculation").input.value = ""
        await write(sight, "num_speculative_tokens", "1")
        assert '"num_speculative_tokens":1' in sight.text
        await write(sight, "speculation", "off")
        assert "--speculative-config '" not in sight.text
        await sight.press("ctrl+l")
        await sight.until(lambda: bool(kit.docker.created))
        assert "--speculative-config" not in kit.docker.created[0].command


async def test_what_was_written_is_what_is_launched() -> None:
    kit = kit_of(RICH)
    async with form(kit=kit) as sight:
        for key, text in {
            "name": "other",
            "port": "9001",
            "exposure": "lan",
            "kv_cache_memory_bytes": "12GiB",
            "extra_args": "--seed 7",
            "extra_env": "FOO=1 BAR='two words'",
        }.items():
            await write(sight, key, text)
        await sight.press("ctrl+l")
        await sight.until(lambda: bool(kit.docker.created))
        spec, env = kit.docker.created[0], {each.name: each.value for each in kit.docker.created[0].env}
        assert (spec.name, sight.app.selected) == ("other", "other")
        assert (spec.ports[0].host_ip, spec.ports[0].host_port) == (ALL_INTERFACES, 9001)
        assert "--seed 7" in " ".join(spec.command)
        assert f"--kv-cache-memory-bytes {12 * GIB}" in " ".join(spec.command)
        assert spec.env_files, "an engine on the LAN gets a key from a private file"
        assert (env["FOO"], env["BAR"]) == ("1", "two words")


# --- what is wrong --------------------------------------------------------------------------------------

WRONG = (
    ("port", "99999", "port must be"), ("exposure", "wan", "exposure must be"), ("api_key", "maybe", ""),
    ("max_model_len", "many", ""), ("gpu_memory_utilization", "1.5", ""),
    ("kv_cache_memory_bytes", "12", "KV cache size must be a size from 1MiB to 1TiB"), ("max_num_seqs", "0", ""),
    ("max_num_batched_tokens", "-1", ""), ("kv_cache_dtype", "fp8;", ""), ("speculation", "ngrm", ""),
    ("speculation", "ngram", "For example: drafted tokens 3"), ("speculation", "dflash", ""),
    ("num_speculative_tokens", "65", ""), ("num_speculative_tokens", "3", ""), ("served_model_name", "a b", ""),
    ("name", "-x", ""), ("extra_env", "FOO", ""), ("extra_env", "HF_TOKEN=hf_x", ""), ("extra_args", "'open", ""),
    ("extra_args", "--api-key secret", ""),
)  # fmt: skip


async def test_the_message_is_on_screen_at_the_field_that_is_wrong_and_it_is_not_launched() -> None:
    async with form(QWEN, size=SIZES[0]) as sight:
        await write(sight, "max_num_seqs", "12")
        larger = [(size, *wrong) for size in SIZES[1:] for wrong in (WRONG[0], WRONG[-1])]
        for size, key, text, says in (*((SIZES[0], *wrong) for wrong in WRONG), *larger):
            if size != sight.app.size:
                await sight.pilot.resize_terminal(*size)
            row = await reach(sight, key)
            row.input.value = text
            await sight.pilot.pause()
            assert [each.field.key for each in sight.on(LaunchForm).query(FieldRow) if each.problem] == [key], text
            assert row.mark == "wrong"
            assert says in row.problem
            assert sight.on(LaunchForm).query_one("#submit", Button).disabled
            fields = sight.on(LaunchForm).query_one("#fields")
            await sight.until(lambda row=row, fields=fields: fields.region.contains_region(row.region))
            row.input.value = "12" if key == "max_num_seqs" else ""
        await write(sight, "exposure", "wan")
        field(sight, "port").input.focus()
        await sight.press("ctrl+l")
        assert not sight.app.world.jobs
        assert focused(sight) == "exposure", "the focus moves to the wrong field"


async def test_two_wrong_fields_have_their_own_messages_and_a_fix_brings_the_command_back() -> None:
    async with form(QWEN) as sight:
        await write(sight, "port", "99999")
        await write(sight, "exposure", "wan")
        assert "port" in field(sight, "port").problem
        assert "exposure" in field(sight, "exposure").problem
        assert "docker run" not in sight.text
        field(sight, "exposure").input.value = ""
        field(sight, "port").input.value = "9999"
        await sight.pilot.pause()
        assert "9999:8000" in sight.text
        assert field(sight, "port").problem == ""


async def test_a_field_that_only_fails_within_the_command_is_found() -> None:
    shell = replace(PRESET, name="shell", command="bash -c 'pip install x && vllm serve {model}'", defaults=())
    async with form(shell) as sight:
        await write(sight, "port", "9000")
        await write(sight, "max_num_seqs", "8")
        assert field(sight, "max_num_seqs").mark == "wrong"
        assert "shell script" in field(sight, "max_num_seqs").problem
        assert field(sight, "port").mark == "changed"


async def test_a_preset_that_cannot_be_launched_says_why() -> None:
    async with form(replace(QWEN, min_nodes=2)) as sight:
        assert "This preset cannot be launched." in sight.text
        assert "needs 2 nodes" in sight.text
        await sight.press("ctrl+l")
        sight.on(LaunchForm)
        assert not sight.app.world.jobs


async def test_what_the_preset_needs_is_asked_for_and_then_it_can_be_launched() -> None:
    kit = kit_of(OPEN)
    async with form(kit=kit) as sight:
        assert focused(sight) == "block"
        assert "Required: block" in sight.text
        assert field(sight, "block").mark == "needed"
        await sight.press("ctrl+l")
        assert not sight.app.world.jobs
        await write(sight, "block", "16")
        await sight.press("ctrl+l")
        await sight.until(lambda: bool(kit.docker.created))
        assert "--block-size 16" in " ".join(kit.docker.created[0].command)


async def test_a_second_launch_of_the_same_name_is_refused_and_the_form_stays() -> None:
    kit = kit_of(QWEN)
    kit.docker.hold("containers")
    async with form(kit=kit) as sight:
        await sight.press("ctrl+l")
        await sight.press("3", "enter")
        await sight.press("ctrl+l")
        sight.on(LaunchForm)
        assert len(sight.app.context.store.world.jobs) == 1
        kit.docker.release()


# --- last values, suggestions, choices --------------------------------------------------------------------


async def test_the_last_launch_is_three_keys_away_with_its_values() -> None:
    kit = kit_of(GEMMA, QWEN)
    kit.context[LastLaunches].keep(QWEN, overrides_from_pairs({"max_model_len": "2k", "exposure": "lan"}))
    async with seen(kit, (120, 36), "1") as sight:
        await sight.press("l")
        await sight.until(lambda: isinstance(sight.app.screen, PresetsScreen))
        await sight.press("enter")
        await sight.until(lambda: isinstance(sight.app.screen, LaunchForm))
        assert field(sight, "max_model_len").mark == "yours"
        await sight.press("ctrl+l")
        await sight.until(lambda: bool(kit.docker.created))
        spec = kit.docker.created[0]
        assert (spec.name, spec.ports[0].host_ip) == ("qwen", ALL_INTERFACES)
        assert "--max-model-len 2048" in " ".join(spec.command)


async def test_reset_is_the_presets_and_what_it_no_longer_takes_is_left_out_with_a_note() -> None:
    kit = kit_of(QWEN)
    kit.context[LastLaunches].keep(QWEN, overrides_from_pairs({"max_model_len": "2k", "gone_value": "7"}))
    async with form(kit=kit) as sight:
        await judged(sight)
        assert sight.on(LaunchForm).left_out == ("gone_value",)
        assert "Left out: gone_value" in sight.text
        await sight.press("ctrl+r")
        assert sight.on(LaunchForm).texts == {}


async def test_damaged_memory_is_no_memory() -> None:
    kit = kit_of(QWEN)
    values = b'{"presets": {"qwen": {"port": 7, "api_key": "sk", "name": "-x"}}}'
    async with seen(kit) as sight:
        for data in (b"{", b"[]", b'{"presets": 3}', values):
            kit.state.write("last-launches", data)
            await sight.press("enter")
            assert sight.on(LaunchForm).texts == {}, data
            await sight.press("escape")
            sight.on(PresetsScreen)


async def test_one_key_takes_the_suggestion() -> None:
    async with form(kit=full_kit()) as sight:
        await sight.until(lambda: value_of(sight.app.world.memory) is not None)
        await write(sight, "gpu_memory_utilization", "0.99")
        await judged(sight)
        suggested = dict(sight.on(LaunchForm).suggested)
        assert "gpu_memory_utilization" in suggested
        await sight.press("ctrl+a")
        assert field(sight, "gpu_memory_utilization").text == suggested["gpu_memory_utilization"]


async def test_choices_follow_arrows_space_and_letters_and_help_leaves_the_values() -> None:
    async with form(QWEN) as sight:
        row = await reach(sight, "exposure")
        for key, value in (("right", "lan"), ("space", ""), ("l", "local"), ("left", "lan")):
            await sight.press(key)
            assert (row.text or "local") == (value or "local"), key
        await sight.press("f1")
        assert isinstance(sight.app.screen, HelpScreen)
        assert "All settings" in sight.text
        await sight.press("escape", "ctrl+o")
        assert focused(sight) == "name"
        assert row.text == "lan"


# --- an engine that runs ----------------------------------------------------------------------------------


async def serving(kit: Kit, pairs: dict[str, str]) -> None:
    """An engine of QWEN that runs with these settings."""
    request = LaunchRequest(QWEN, overrides_from_pairs(pairs))
    task = asyncio.create_task(kit.context[Launcher].launch(request, kit.report))
    await kit.until(task.done)
    task.result()


def contexts(kit: Kit) -> list[str]:
    return [each.command[each.command.index("--max-model-len") + 1] for each in kit.docker.created]


async def test_home_edits_what_runs_in_four_keys() -> None:
    kit = kit_of(QWEN)
    await serving(kit, {"max_model_len": "2k", "port": "8123"})
    async with seen(kit, (120, 36), "1") as sight:
        await sight.until_seen("ready")
        await sight.press("e")
        await sight.until(lambda: isinstance(sight.app.screen, LaunchForm))
        assert field(sight, "port").text == "8123"
        assert "name" not in {row.field.key for row in sight.on(LaunchForm).fields}
        assert focused(sight) == "max_model_len"
        preview = sight.app.screen.query_one("#preview", Page)
        await sight.until(lambda: sight.on(LaunchForm).judgement is not None)
        assert preview.say(100).plain.count("(auto)") == 1, "it says what differs from the recipe"
        await sight.press("ctrl+l")
        assert not isinstance(sight.app.screen, EditQuestion), "nothing is changed"
        await sight.type("1k")
        await sight.press("ctrl+l")
        await sight.until(lambda: isinstance(sight.app.screen, EditQuestion))
        assert "2,048  ->  1,024" in sight.text
        await sight.press("g")
        assert not sight.on(EditQuestion).rollback
        await sight.press("y")
        await sight.until(lambda: contexts(kit) == ["2048", "1024"])
        assert kit.docker.created[1].ports[0].host_port == 8123


async def test_a_launch_over_a_running_engine_asks_and_no_keeps_the_form() -> None:
    kit = kit_of(QWEN)
    await serving(kit, {})
    async with form(kit=kit) as sight:
        await sight.until(lambda: bool(sight.app.world.known(ENGINES)))
        await write(sight, "max_model_len", "2048")
        await sight.press("ctrl+l")
        await sight.until(lambda: isinstance(sight.app.screen, EditQuestion))
        await sight.press("escape")
        assert field(sight, "max_model_len").text == "2048"
        await sight.press("ctrl+l")
        await sight.until(lambda: isinstance(sight.app.screen, EditQuestion))
        await sight.press("y")
        await sight.until(lambda: contexts(kit) == ["4096", "2048"])
        sight.on(HomeScreen)


# --- notes ----------------------------------------------------------------------------------------------


async def test_what_a_person_should_know_is_above_the_command() -> None:
    gated = replace(QWEN, image="vllm/vllm-openai:other", facts=PresetFacts(gated=True))
    async with form(gated, size=(200, 50)) as sight:
        await sight.until_seen("Image not downloaded", "The model is gated")
        await write(sight, "exposure", "lan")
        assert "(no API key)" not in sight.text
        await write(sight, "api_key", "no")
        await sight.until(lambda: "(no API key)" in " ".join(sight.text.split()))


async def test_without_docker_the_form_works_and_says_what_is_not_known() -> None:
    kit = kit_of(QWEN)
    kit.docker.go_down()
    async with form(kit=kit, size=(200, 50)) as sight:
        await sight.until_seen("download state unknown: Cannot reach Docker")
        assert "docker run -d" in sight.text


# --- hostile files --------------------------------------------------------------------------------------


async def test_hostile_defaults_are_hints_as_text() -> None:
    presets = [
        replace(PRESET, name=f"p{text[:30]}", model=text, defaults=(("served_model_name", text), ("v", text)))
        for text in (MARKUP, ESCAPE, "x" * 10_000, "漢" * 5_000)
    ]
    async with seen(kit_of(*presets), SIZES[0]) as sight:
        for preset in presets:
            sight.app.push_screen(LaunchForm(sight.kit.context, preset))
            await sight.until(lambda: isinstance(sight.app.screen, LaunchForm) and bool(sight.app.screen.fields))
            await sight.press("down", "down", "9", "pagedown", "ctrl+l")
            assert "\x1b" not in sight.text, preset.name
            inputs = [*sight.app.screen.query("FieldRow Input").results(Input)]
            assert inputs
            assert all(len(each.placeholder) <= 200 for each in inputs)
            await sight.press("escape")
            sight.on(PresetsScreen)


@pytest.mark.parametrize("size", [(120, 36)], ids=["120x36"])
async def test_layout(size: tuple[int, int], snapshot: Any) -> None:
    from pytest_textual_snapshot import SVGImageExtension

    async with form(QWEN, size=size) as sight:
        await sight.until(lambda: "not checked yet" not in sight.text and "docker OK" in sight.text)
        await sight.until(lambda: sight.on(LaunchForm).judgement is not None)
        await write(sight, "exposure", "wan")
        await write(sight, "max_model_len", "65536")
        picture = sight.app.export_screenshot(title="launch form", simplify=True)
    assert picture == snapshot.use_extension(SVGImageExtension)
