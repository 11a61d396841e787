"""What a preset's own command and environment say of the settings that a person may change."""

from __future__ import annotations

import re

import pytest

from spark_tui.base.host.vitals import HostPaths
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs
from spark_tui.catalog.presets.model.plan import plan
from spark_tui.catalog.presets.model.rules.context import given_settings
from tests.cases import all_cases
from tests.shipped import SHIPPED_FILES

PATHS = HostPaths("/home/ada/vllm", "/home/ada/.cache/spark-tui", "/home/ada")
PRESETS = {preset.name: preset for preset in SHIPPED_FILES.load().presets if preset.min_nodes == 1}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "qwen3.6-35b-a3b-nvfp4",
            {"speculation": "mtp", "num_speculative_tokens": "3", "max_num_batched_tokens": "8192", "port": "8000"},
        ),
        ("llama-3.3-70b-instruct-nvfp4", {"speculation": "off", "max_num_seqs": "4"}),
        (
            "qwen3.5-27b-dflash",
            {"speculation": "dflash", "num_speculative_tokens": "15", "max_num_batched_tokens": "65536"},
        ),
        ("qwen3-next-80b-a3b-nvfp4-mtp", {"speculation": "mtp", "num_speculative_tokens": "2", "port": "8888"}),
        ("qwen3-8b-nvfp4-sglang", {"gpu_memory_utilization": "0.75", "port": "30000"}),
        ("qwen3-30b-a3b-gguf-llama-cpp", {"max_model_len": "32768", "max_num_seqs": "1"}),
        ("cpu-smollm2", {"kv_cache_memory_bytes": "64M"}),
    ],
)
def test_it_is_read_wherever_it_stands(name: str, says: dict[str, str]) -> None:
    found = given_settings(plan(PRESETS[name], Overrides(), PATHS))
    assert says.items() <= found.items()


def test_what_is_not_said_is_left_out() -> None:
    found = given_settings(plan(PRESETS["diffusiongemma-26b-a4b-nvfp4"], Overrides(), PATHS))
    assert not {"gpu_memory_utilization", "kv_cache_memory_bytes", "num_speculative_tokens"} & found.keys()
    assert "speculation" not in given_settings(plan(PRESETS["qwen3-32b-ollama"], Overrides(), PATHS))


@all_cases("name", PRESETS)
def test_saying_it_again_changes_no_command(name: str) -> None:
    plain = plan(PRESETS[name], Overrides(), PATHS)
    again = {key: value for key, value in given_settings(plain).items() if key not in ("speculation", "kv_cache_dtype")}
    if PRESETS[name].facts.runs_as_is or plain.spec.command[:1] == ("bash",):
        again = {key: value for key, value in again.items() if key in dict(PRESETS[name].defaults)}
    found = plan(PRESETS[name], overrides_from_pairs(again), PATHS).spec
    said = [str(int(word[:-1]) << 20) if re.fullmatch(r"\d+M", word) else word for word in plain.spec.command]
    assert said == list(found.command)
    assert found.env == plain.spec.env
