"""fit: the verdict, the figures, what would help, and the same as data."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from spark_tui.base.finding import Missing, Ok
from spark_tui.base.host.memory import MemInfo
from spark_tui.base.quantities import GIB
from spark_tui.catalog.presets.model.preset import PresetCatalogue
from tests.cli.world import TINY, StaticPresets, World, in_process
from tests.shipped import SHIPPED_FILES

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
    assert result.out.startswith("fits with 0.72\n")
    assert "15.0 GiB Weights from the recipe" in " ".join(result.out.split())
    assert "131k context for 4 users; 5 users at 131k" in result.out
    assert "The checkpoint is not in the store" in result.out


def test_a_share_that_is_named_is_kept_and_what_would_help_is_a_command_to_type() -> None:
    named = ("fit", "llama", "--set", "gpu_memory_utilization=0.8")
    result = world(60).run(*named)
    assert result.out.startswith("fits with 0.41")
    assert "vLLM will refuse to start" in result.out
    assert "spark-tui fit llama --set gpu_memory_utilization=0.41" in result.err
    assert world(60).run("fit", "llama", "--set", "gpu_memory_utilization=0.41").out.startswith("fits\n")
    found = world(60).run(*named, "--json").json
    assert (found["verdict"], found["launchable"]) == ("fits_with", False)
    assert found["change"] == {"gpu_memory_utilization": "0.41"}
    assert found["claim_bytes"] > found["available_bytes"]


def test_the_preset_s_share_counts_where_the_settings_say_so() -> None:
    found = world(60)
    found.settings = replace(found.settings, memory_share="preset")
    assert found.run("fit", "llama", "--json").json["memory_share"] == 0.8
    auto = found.run("fit", "llama", "--set", "gpu_memory_utilization=auto", "--json").json
    assert (auto["memory_share"], auto["memory_share_auto"], auto["launchable"]) == (0.41, True, True)


def test_the_verdict_as_data() -> None:
    found = world(60).run("fit", "llama", "--json").json
    assert (found["id"], found["verdict"], found["text"]) == ("llama", "fits_with", "fits with 0.41")
    assert (found["memory_share"], found["memory_share_auto"], found["launchable"]) == (0.41, True, True)
    assert found["reach"]["most_users_now"] == 1
    assert found["unknown"] == []
    assert sum(part["bytes"] for part in found["parts"] if part["id"] != "host") == found["need_bytes"]
    assert found["kv"]["bytes_per_token"] == 131072


def test_what_is_not_known_is_null_and_never_zero() -> None:
    found = world().run("fit", "tiny-1b", "--json").json
    assert found["verdict"] == "unknown"
    assert found["unknown"] == ["kv"]
    assert [part["bytes"] for part in found["parts"] if part["id"] == "kv"] == [None]
    assert (found["need_bytes"], found["kv"], found["reach"]) == (None, None, None)
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
    assert " ".join(result.out.split()).startswith("unknown - Memory could not be read: no /proc here.")


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
    assert result.out.startswith("fits\n")
    assert "  tiny-1b" in result.out


def test_what_would_help_passes_the_check_too() -> None:
    """A context that the model has without YaRN is not proposed beside it."""
    found = world(60)
    found.presets = SHIPPED_FILES
    (shorter,) = found.run("fit", "qwen3.6-27b-nvfp4-yarn-1m", "--json").json["changes"]
    assert shorter["set"]["max_model_len"] and "hf_overrides" in shorter["set"]["without"]
    assert "YaRN" in shorter["summary"] and "  " not in shorter["summary"]


def test_what_a_person_marked_as_failed_is_known_to_the_check_until_it_works(tmp_path: Path) -> None:
    def run(*words: str) -> str:
        done = in_process([*words], {"HOME": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def failed() -> list[str]:
        (checked,) = json.loads(run("presets", "check", "gpt-oss-20b", "--json"))
        return [each["evidence"] for each in checked["findings"] if each["id"] == "marked_failed"]

    model = ("results", "mark", "openai/gpt-oss-20b")
    for other in (("--runtime", "sglang"), ("--quantization", "NVFP4")):
        run(*model, "failed", "not here", *other)
    assert failed() == []
    run(*model, "failed", "CUDA driver error 35", "--runtime", "vllm")
    assert failed() == ["CUDA driver error 35"]
    run(*model, "pending")
    assert failed() == ["CUDA driver error 35"], "still to be tried says nothing"
    run(*model, "working")
    assert failed() == []
