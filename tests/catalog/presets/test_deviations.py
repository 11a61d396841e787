"""What a launch does otherwise than its recipe says."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.docker_run import render_argv
from spark_tui.base.host.vitals import HostPaths
from spark_tui.catalog.presets.adapter.store import PresetFiles, builtin_directory
from spark_tui.catalog.presets.model.dialects.docker_run import from_docker_run
from spark_tui.catalog.presets.model.overrides import SHARE, overrides_from_pairs
from spark_tui.catalog.presets.model.plan import plan, with_share
from spark_tui.catalog.presets.model.preset import ContainerOptions, Origin, Preset
from spark_tui.catalog.presets.model.recipe import preset_from
from spark_tui.catalog.presets.model.rules.check import Deviation, deviations

PATHS = HostPaths("/home/ada/vllm", "/caches", "/home/ada", (1000, 100))
SHIPPED = {each.name: each for each in PresetFiles(builtin_directory(), None).load().presets}
GPT = SHIPPED["gpt-oss-20b"]
OWN = replace(GPT, origin=Origin.USER, facts=replace(GPT.facts, source=""))


def found(preset: Preset, share: float | None = None, **pairs: str) -> dict[str, Deviation]:
    """By id, of a launch with these settings; with `share` its automatic memory share has that number."""
    launch = plan(preset, overrides_from_pairs(pairs), PATHS)
    return {each.id: each for each in deviations(launch if share is None else with_share(launch, share))}


def of_command(command: str) -> dict[str, Deviation]:
    """Of a docker run command, imported."""
    text = from_docker_run(f"docker run -d --gpus all {command} vllm/vllm-openai:nightly vllm serve o/m", PATHS)
    return found(preset_from(text.document, name="mine", file="mine.yaml", origin=Origin.USER))


@pytest.mark.parametrize("name", [name for name, each in SHIPPED.items() if each.min_nodes == 1])
def test_each_is_short_and_has_its_reason_and_its_words_stand_in_the_command(name: str) -> None:
    launch = plan(SHIPPED[name], overrides_from_pairs({}), PATHS)
    command = " ".join(render_argv(launch.spec))
    said = deviations(launch)
    assert len({each.id for each in said}) == len(said) and SHARE not in {each.id for each in said}
    for each in said:
        assert each.why and len(each.text) < 300 and each.text.startswith(each.launch)
        words = each.launch.partition(" and ")[0].removesuffix("--restart no")
        assert all(word in command for word in words.split()), "what is said is what is done"


def test_an_automatic_share_is_said_beside_the_recipes_and_a_persons_own_is_not() -> None:
    assert (found(GPT, 0.24)[SHARE].source, found(GPT, 0.24)[SHARE].launch) == ("0.85", "memory share 0.24 (auto)")
    assert SHARE not in found(GPT, 0.85), "the same number"
    assert SHARE not in found(GPT, gpu_memory_utilization="0.3")
    unnamed = found(SHIPPED["laguna-xs.2-dflash"], 0.84)[SHARE]
    assert unnamed.source == "" and "vLLM's own is 0.92" in unnamed.why


def test_an_image_that_reads_its_share_from_a_variable_is_said_alike() -> None:
    env = (("GPU_MEMORY_UTIL", "{config.gpu_memory_utilization}"),)
    script = replace(SHIPPED["qwen3-next-80b-a3b-nvfp4"], command="", env=env)
    script = replace(script, facts=replace(script.facts, runs_as_is=True), options=ContainerOptions())
    assert found(script, 0.4)[SHARE].source == "0.9"


def test_what_published_commands_have_is_said_of_recipes_that_leave_it_out() -> None:
    said = {id_: (each.source, each.launch) for id_, each in found(GPT).items()}
    assert said["ipc"] == ("--ipc host", "--shm-size 10g")
    assert said["restart"] == ("unless-stopped", "--restart no")
    assert said["exposure"] == ("-p 8000:8000", "-p 127.0.0.1:8000:8000")
    given = replace(GPT, options=ContainerOptions(ipc="host", restart_policy="always"))
    assert not {"ipc", "shm_size", "restart"} & found(given).keys()
    own = found(OWN)
    assert (own["shm_size"].source, own["exposure"].source) == ("Docker's 64m", "") and "restart" not in own


def test_what_the_person_asks_for_is_no_deviation() -> None:
    assert "exposure" not in found(GPT, exposure="lan")
    assert found(GPT)["parsers"].launch == "--tool-call-parser openai --enable-auto-tool-choice"
    assert "parsers" not in found(GPT, tool_calls="on") and "parsers" not in found(GPT, tool_calls="off")
    assert "-e A=1" not in found(GPT, extra_env="A=1")["limits"].launch
    assert "parsers" not in found(OWN)


def test_on_the_hosts_network_the_address_of_the_server_is_the_exposure() -> None:
    on_host = replace(GPT, options=ContainerOptions(network="host"))
    said = found(on_host)["exposure"]
    assert (said.source, said.launch) == ("--host 0.0.0.0", "--host 127.0.0.1")
    assert "exposure" not in found(on_host, exposure="lan")


def test_an_imported_command_has_what_it_says() -> None:
    bare, full = of_command(""), of_command("--ipc=host --restart unless-stopped -p 8000:8000")
    assert bare["shm_size"].source == "Docker's 64m" and "restart" not in bare
    assert not {"ipc", "shm_size", "restart"} & full.keys()


@pytest.mark.parametrize("user", ["$(id -u):$(id -g)", "`id -u`:`id -g`", "$UID:$GID", '"${UID}:${GID}"'])
def test_the_persons_own_user_is_filled_in(user: str) -> None:
    made = from_docker_run(f"docker run --user {user} vllm/vllm-openai:nightly vllm serve o/m", PATHS)
    preset = preset_from(made.document, name="mine", file="mine.yaml", origin=Origin.USER)
    assert preset.options.user == "1000:100"


def test_a_mount_of_the_recipes_own_at_the_stores_place_is_none_of_ours() -> None:
    own = replace(OWN, model="/models/m", mounts=("/data:/models",), env=(("HF_HOME", "/hf"),))
    words = found(own)["folders"].launch
    assert "/data" not in words and "-v /home/ada/vllm:/hf" in words and "4 compile caches" in words
