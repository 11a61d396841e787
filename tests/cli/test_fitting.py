"""fit: the verdict, the figures, what would help, and the same as data."""

from __future__ import annotations

from dataclasses import replace

from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.presets.preset import PresetCatalogue
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import Missing, Ok
from tests.cli.world import TINY, StaticPresets, World

LLAMA = replace(
    TINY,
    name="llama",
    model="meta-llama/Llama-3.1-8B-Instruct",
    command="vllm serve {model} --port {port} --max-model-len {max_model_len} --gpu-memory-utilization {share}",
    defaults=(("port", 8000), ("max_model_len", 131072), ("share", 0.8)),
    facts=replace(TINY.facts, weights_bytes=16_000_000_000, total_parameters=8e9, quantization="BF16"),
)


def world(available: float = 117.0) -> World:
    found = World(presets=StaticPresets(PresetCatalogue((LLAMA, TINY))))
    size = int(available * GIB)
    found.host.memory_value = Ok(MemInfo(total=int(121.69 * GIB), free=size, available=size), 0.0)
    return found


def test_the_verdict_comes_first_and_the_figures_follow() -> None:
    result = world().run("fit", "llama")
    assert result.code == 0
    assert result.out.split()[0] == "READY"
    assert " 15.0 GiB  Weights  from the recipe" in result.out.splitlines()
    assert "The checkpoint is not in the store" in result.out


def test_what_would_help_is_a_command_to_type() -> None:
    result = world(60).run("fit", "llama")
    assert result.out.split()[0] == "BLOCKED"
    assert "spark-tui fit llama --set gpu_memory_utilization=0.41" in result.err
    assert world(60).run("fit", "llama", "--set", "gpu_memory_utilization=0.41").out.startswith("READY")


def test_the_verdict_as_data() -> None:
    found = world(60).run("fit", "llama", "--json").json
    assert (found["id"], found["verdict"]) == ("llama", "BLOCKED")
    assert found["changes"][0]["set"] == {"gpu_memory_utilization": "0.41"}
    assert found["unknown"] == []
    assert sum(part["bytes"] for part in found["parts"] if part["id"] != "host") == found["need_bytes"]
    assert found["kv"]["bytes_per_token"] == 131072
    assert found["claim_bytes"] > found["available_bytes"]


def test_what_is_not_known_is_null_and_never_zero() -> None:
    found = world().run("fit", "tiny-1b", "--json").json
    assert found["verdict"] == "UNKNOWN"
    assert found["unknown"] == ["kv"]
    assert [part["bytes"] for part in found["parts"] if part["id"] == "kv"] == [None]
    assert (found["need_bytes"], found["kv"]) == (None, None)
    assert found["at_least_bytes"] > 0


def test_without_docker_it_answers_and_says_what_it_does_not_know() -> None:
    found = world()
    found.docker.go_down()
    result = found.run("fit", "llama")
    assert result.code == 0
    assert "Other engines are unknown." in result.err


def test_memory_that_cannot_be_read_is_told() -> None:
    found = world()
    found.host.memory_value = Missing("no /proc here")
    result = found.run("fit", "llama")
    assert result.out.startswith("UNKNOWN   Memory could not be read: no /proc here.")


def test_a_preset_that_does_not_exist_is_wrong_usage_with_near_names() -> None:
    result = world().run("fit", "lama")
    assert result.code == 2
    assert "llama" in result.err


def test_a_setting_that_does_not_exist_is_wrong_usage() -> None:
    assert world().run("fit", "llama", "--set", "max_model_len=many").code == 2


def test_an_engine_that_serves_is_named_and_not_counted_twice() -> None:
    found = world(60)
    found.engine("tiny-1b")
    result = found.run("fit", "llama", "--set", "gpu_memory_utilization=0.41")
    assert result.out.startswith("READY")
    assert "  tiny-1b" in result.out
