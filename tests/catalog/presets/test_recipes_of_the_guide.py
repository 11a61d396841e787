"""The shipped recipes beside what their sources publish: image, flags and environment, one recipe after the other.

The guide's own, and one for each of the other serving runtimes. Only what follows `docker run` differs on purpose: the
container's own options are spark-tui's (tests/fixtures/published/recipes.yaml says which).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_API_KEY_FILE, LOOPBACK, ImageFacts, RestartPolicy
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.quantities import GIB
from spark_tui.base.shell import words_of
from spark_tui.catalog.presets.adapter.store import builtin_directory
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs
from spark_tui.catalog.presets.model.plan import LaunchPlan, plan
from spark_tui.catalog.presets.model.preset import Origin, Preset, fetch_command
from tests import TESTS
from tests.cases import all_cases
from tests.shipped import SHIPPED_FILES

PATHS = HostPaths("/home/ada/vllm", "/home/ada/.cache/spark-tui", "/home/ada")
IMAGE_HERE = ImageFacts("sha256:1", "x", ("/opt/nvidia/nvidia_entrypoint.sh",))
CATALOGUE = SHIPPED_FILES.load()
PRESETS = {preset.name: preset for preset in CATALOGUE.presets if preset.min_nodes == 1}
"""Those of several nodes are held in test_cluster_presets.py."""
RECIPES = yaml.safe_load((TESTS / "fixtures/published/recipes.yaml").read_text())
HELD_ELSEWHERE = {"qwen3.6-35b-a3b-nvfp4", "nemotron-3-nano-30b-a3b-nvfp4", "gpt-oss-120b", "cpu-smollm2"}
"""Their flags are held in test_plan.py."""

STARTS = {
    "voxtral-mini-4b-realtime": ("bash", "-c"),
    "glm-5.3-flash-exl3": ("bash", "-c"),
    "phi-4-multimodal-instruct-nvfp4": ("bash", "-lc"),
    "qwen3-next-80b-a3b-nvfp4-mtp": ("bash", "-c"),
    "qwen3.5-27b-dflash": (),
    "qwen3-8b-nvfp4-sglang": ("python3", "-m"),
    "qwen3-30b-a3b-nvfp4-trtllm": ("bash", "-c"),
    "qwen3-30b-a3b-gguf-llama-cpp": ("llama-server", "--model"),
    "qwen3-32b-ollama": ("bash", "-c"),
}
"""The others start with `vllm serve`."""

OURS = {
    "vllm": {
        "HF_HOME": "/models",
        "VLLM_ENGINE_READY_TIMEOUT_S": "3600",
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1800",
    },
    "ollama": {"OLLAMA_HOST": "0.0.0.0:11434"},
}
OURS_ELSEWHERE = {"HF_HOME": "/models"}

# What decides about memory, by runtime: the setting, and where it must turn up.
MEMORY_SETTINGS = {
    "vllm": {
        "gpu_memory_utilization": "--gpu-memory-utilization",
        "max_model_len": "--max-model-len",
        "max_num_seqs": "--max-num-seqs",
    },
    "sglang": {
        "gpu_memory_utilization": "--mem-fraction-static",
        "max_model_len": "--context-length",
        "max_num_seqs": "--max-running-requests",
    },
    "trtllm": {"max_num_seqs": "--max_batch_size"},
    "llama-cpp": {"max_model_len": "--ctx-size", "max_num_seqs": "--parallel"},
}
MEMORY_VARIABLES = {
    "qwen3.5-27b-dflash": {
        "gpu_memory_utilization": "GPU_MEMORY_UTILIZATION",
        "max_model_len": "MAX_MODEL_LEN",
        "max_num_seqs": "MAX_NUM_SEQS",
    },
    "qwen3-32b-ollama": {"max_model_len": "OLLAMA_CONTEXT_LENGTH", "max_num_seqs": "OLLAMA_NUM_PARALLEL"},
}
VALUES = {"gpu_memory_utilization": "0.5", "max_model_len": "4096", "max_num_seqs": "2"}

# No source gives these numbers, and a guess would be taken for a fact.
SIZE_UNPUBLISHED = {
    "qwen3.5-35b-a3b",
    "qwen3-next-80b-a3b-nvfp4",
    "qwen3-next-80b-a3b-nvfp4-mtp",
    "gemma-4-31b-it-dflash",
    "nemotron-3-super-120b-a12b-nvfp4",
    "nemotron-3-super-120b-a12b-nvfp4-mtp",
    "nemotron-cascade-2-30b-a3b-nvfp4",
    "nemotron3-nano-nvfp4-w4a16",
    "llama-3.3-70b-instruct-nvfp4",
    "phi-4-multimodal-instruct-nvfp4",
    "laguna-xs.2-dflash",
    "cpu-smollm2",
    "qwen3-30b-a3b-nvfp4-trtllm",
    "nemotron-3.5-lightning-nvfp4-dspark",
    "qwen3.8-27b-nvfp4-dflash2",
    "qwen3.8-flash-next-nvfp4",
    "laguna-xs-2.1-dflash",
    "qwen3-embedding-8b",
    "qwen3-reranker-8b",
    "voxtral-mini-4b-realtime",
}
CONTEXT_UNPUBLISHED = {"gemma-4-12b-coder-nvfp4", "gemma-4-12b-coder-nvfp4-mtp"}

BANDWIDTH = 273e9
"""Bytes per second, NVIDIA's data sheet of the DGX Spark."""


def planned(preset: Preset, **pairs: str) -> LaunchPlan:
    return plan(preset, overrides_from_pairs(pairs), PATHS, image=IMAGE_HERE)


def words_in(launch: LaunchPlan) -> list[str]:
    """The command's words, within a shell those of its script."""
    return list(words_of(launch.spec.command))


def env_of(launch: LaunchPlan) -> dict[str, str]:
    return {variable.name: variable.value for variable in launch.spec.env}


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def number(word: str) -> str:
    """0.90 and 0.9 are the same setting."""
    return str(float(word)) if re.fullmatch(r"0\.\d+", word) else word


# --- beside the source ------------------------------------------------------------------------------------


@all_cases("name", RECIPES)
def test_a_recipe_gives_the_published_image_command_and_environment(name: str) -> None:
    as_written = replace(PRESETS[name], origin=Origin.USER)  # a built-in one gets parsers on top
    launch, published = planned(as_written), RECIPES[name]
    runtime = published.get("runtime", "vllm")
    assert (launch.spec.image, PRESETS[name].engine) == (published["image"], runtime)
    assert [*map(number, words_in(launch))] == [*map(number, shlex.split(published.get("command", "")))]
    assert env_of(launch) == OURS.get(runtime, OURS_ELSEWHERE) | published.get("env", {})
    assert launch.spec.command[:2] == STARTS.get(name, ("vllm", "serve")), "a shell only for a step before the server"


def test_every_shipped_recipe_is_held_beside_its_source() -> None:
    assert set(PRESETS) == set(RECIPES) | HELD_ELSEWHERE
    assert CATALOGUE.problems == ()
    assert {preset.name for preset in CATALOGUE.presets} == {path.stem for path in builtin_directory().iterdir()}


# --- every shipped preset ---------------------------------------------------------------------------------


@all_cases("name", PRESETS)
def test_a_shipped_preset_says_what_it_is_and_where_it_is_from(name: str) -> None:
    preset, facts = PRESETS[name], PRESETS[name].facts
    assert preset.origin is Origin.BUILTIN
    assert preset.unknown == (), "a key that nothing reads is a misspelt one"
    assert preset.hooks == () and preset.mods == ()
    assert facts.title and facts.description and facts.family and facts.publisher and facts.licence
    assert facts.source and facts.architecture and facts.total_parameters and facts.modalities
    assert facts.quantization or preset.cpu_only
    assert (facts.weights_bytes is None) == (name in SIZE_UNPUBLISHED)
    assert (facts.context_tokens is None) == (name in CONTEXT_UNPUBLISHED)
    assert facts.notes or facts.cautions


@all_cases("name", PRESETS)
def test_a_shipped_preset_stays_on_this_machine_and_starts_once(name: str) -> None:
    launch = planned(PRESETS[name])
    spec, words, facts = launch.spec, words_in(launch), PRESETS[name].facts
    assert (spec.restart, spec.privileged, spec.ipc, spec.shm_size) == (RestartPolicy(), False, "", 10 * GIB)
    if spec.network == "host":
        assert option(words, "--host") == LOOPBACK
    else:
        assert {port.host_ip for port in spec.ports} == {LOOPBACK}
    assert plan(PRESETS[name], Overrides(), PATHS).spec.name == name, "also where its image is not downloaded"
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,62}", name), "the name of a container, and of a host"
    for step in facts.required_steps:
        assert spec.command[0] == "bash" and step.command in " ".join(spec.command)
        assert any(step.command in note for note in launch.notes)
    named = {word for word in words if re.fullmatch(r"/models/[^/]+", word)}
    assert named <= {f"/models/{file.target}" for file in facts.required_files} | {"/models/smollm2"}
    own = facts.context_tokens
    if "--max-model-len" in words and own is not None and int(option(words, "--max-model-len")) > own:
        assert "VLLM_ALLOW_LONG_MAX_MODEL_LEN" in env_of(launch), "a context beyond the model's own is explicit"
        assert "--hf-overrides" in words


@all_cases("name", PRESETS)
def test_the_settings_that_decide_about_memory_can_be_changed(name: str) -> None:
    variables = MEMORY_VARIABLES.get(name)
    settings = variables or MEMORY_SETTINGS[PRESETS[name].engine]
    launch = planned(PRESETS[name], **{key: VALUES[key] for key in settings})
    for key, place in settings.items():
        assert (env_of(launch)[place] if variables else option(words_in(launch), place)) == VALUES[key]
        assert variables or words_in(launch).count(place) == 1


# --- what the guide warns about ---------------------------------------------------------------------------


def test_dflash_recipes_leave_the_kv_cache_in_bf16() -> None:
    found = [name for name in PRESETS if '"method":"dflash"' in " ".join(words_in(planned(PRESETS[name])))]
    of_two = {"glm-5.3-flash-exl3", "qwen3.8-27b-nvfp4-dflash2"}  # DFlash2 takes one in FP8
    assert found == sorted({"gemma-4-31b-it-dflash", "laguna-xs-2.1-dflash", "laguna-xs.2-dflash", *of_two})
    for name in sorted({*found} - of_two):
        assert "--kv-cache-dtype" not in words_in(planned(PRESETS[name]))
        assert any("fp8" in caution for caution in PRESETS[name].facts.cautions)


def test_quantization_is_never_named_for_compressed_tensors() -> None:
    found = [name for name, preset in PRESETS.items() if "compressed-tensors" in preset.facts.quantization]
    assert len(found) == 7
    for name in found:
        assert "--quantization" not in words_in(planned(PRESETS[name]))


def test_the_settings_that_ruin_qwen3_5_are_cautioned_against_and_absent() -> None:
    preset = PRESETS["qwen3.5-35b-a3b"]
    words, cautions = words_in(planned(preset)), " ".join(preset.facts.cautions)
    for flag in ("--enable-chunked-prefill", "--kv-cache-dtype"):
        assert flag not in words
        assert flag in cautions


@all_cases(
    ("name", "said"),
    [
        ("gemma-4-12b-coder-nvfp4-mtp", "needs --kv-cache-dtype fp8"),
        ("gemma-4-12b-coder-nvfp4", "enable_thinking"),
        ("gemma-4-26b-a4b-nvfp4", "one GPU only"),
        ("diffusiongemma-26b-a4b-nvfp4", "provisional"),
        ("mistral-small-4-119b-nvfp4", "SYSTEM_PROMPT.txt"),
        ("phi-4-multimodal-instruct-nvfp4", "scipy"),
        ("qwen3.6-27b-nvfp4-mtp", "validated"),
        ("qwen3.6-27b-nvfp4-yarn-1m", "short inputs"),
        ("qwen3-next-80b-a3b-nvfp4-mtp", "fix_mtp_nvfp4_exclusion.py"),
        ("nemotron-cascade-2-30b-a3b-nvfp4", "cannot be pulled"),
        ("nemotron3-nano-nvfp4-w4a16", "kv_cache_memory_bytes"),
        ("laguna-xs.2-dflash", "0.21.0"),
        ("llama-3.3-70b-instruct-nvfp4", "gated"),
        ("qwen3.5-27b-dflash", "refusals were removed"),
        ("qwen3-8b-nvfp4-sglang", "Mixtures of experts in NVFP4 do not run on SGLang"),
        ("qwen3-30b-a3b-nvfp4-trtllm", "no API keys"),
        ("qwen3-30b-a3b-gguf-llama-cpp", "q4_0"),
        ("qwen3-32b-ollama", "no API keys"),
    ],
)
def test_what_bites_people_is_said_beside_the_recipe(name: str, said: str) -> None:
    assert any(said in caution for caution in PRESETS[name].facts.cautions)


FETCHED = {
    "nemotron-3-nano-30b-a3b-nvfp4-1m": "hf download nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4"
    " nano_v3_reasoning_parser.py --local-dir /home/ada/vllm",
    "gemma-4-12b-coder-nvfp4": "hf download sakamakismile/gemma-4-12B-coder-fable5-composer2.5-MTP-NVFP4"
    " --local-dir /home/ada/vllm/gemma4-coder",
    "qwen3.5-27b-dflash": "hf download AEON-7/DFlash-Qwen3.5-27B-Uncensored-NVFP4"
    " --local-dir /home/ada/vllm/DFlash-Qwen3.5-27B-Uncensored-NVFP4",
    "mistral-small-4-119b-nvfp4": "hf download mistralai/Mistral-Small-4-119B-2603-NVFP4 SYSTEM_PROMPT.txt"
    " --local-dir /home/ada/vllm/mistral-small-4",
    "qwen3-30b-a3b-gguf-llama-cpp": "hf download Qwen/Qwen3-30B-A3B-GGUF Qwen3-30B-A3B-Q4_K_M.gguf"
    " --local-dir /home/ada/vllm",
    "qwen3-next-80b-a3b-nvfp4-mtp": "curl -fL --create-dirs -o /home/ada/vllm/fix_mtp_nvfp4_exclusion.py"
    " https://raw.githubusercontent.com/Avarok-Cybersecurity/dgx-vllm/HEAD/fix_mtp_nvfp4_exclusion.py",
}


@pytest.mark.parametrize("name", FETCHED)
def test_what_must_be_fetched_before_is_said_with_the_command_that_fetches_it(name: str) -> None:
    [file] = PRESETS[name].facts.required_files
    assert fetch_command(file, "/home/ada/vllm") == FETCHED[name]


def test_the_image_that_runs_as_it_is_gets_its_key_in_a_file_and_never_runs_without() -> None:
    launch = plan(PRESETS["qwen3.5-27b-dflash"], Overrides(), PATHS, env_file="/run/keys/q.env")
    assert (launch.spec.command, launch.spec.entrypoint) == ((), None)
    assert launch.spec.env_files == ("/run/keys/q.env",)
    assert launch.spec.label(LABEL_API_KEY_FILE) == "/run/keys/q.env"
    assert launch.served_name == "dflash-qwen3.5-27b"


STAND_IN = """#!/bin/sh
case "$1" in
    list) exit 0 ;;
    pull) echo "pulling $2" >&2; if [ -n "$FAILS" ]; then echo "Error: $FAILS" >&2; exit 1; fi ;;
    serve) while [ ! -e "$DONE" ]; do :; done; echo "served as $$" ;;
esac
"""


@pytest.mark.parametrize(
    ("fails", "said"), [("", "pulled qwen3:32b"), ("no such model", "Error: no such model")], ids=["pulls", "fails"]
)
def test_ollama_pulls_beside_its_server_and_says_how_that_went(tmp_path: Path, fails: str, said: str) -> None:
    program = tmp_path / "ollama"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    shell, flag, script = planned(PRESETS["qwen3-32b-ollama"]).spec.command
    script = script.replace("/tmp/pull.log", str(tmp_path / "pull.log"))
    # The server ends once the pull has spoken.
    script = script.replace(") &", "; touch $DONE) &")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FAILS": fails, "DONE": str(tmp_path / "done")}
    with subprocess.Popen([shell, flag, script], env=environment, stdout=subprocess.PIPE, text=True) as run:
        told = run.communicate(timeout=30)[0]
    assert said in told
    assert f"served as {run.pid}" in told, "the server is PID 1: it gets the signal that stops the container"


# --- published speeds -------------------------------------------------------------------------------------


@all_cases("name", [name for name, preset in PRESETS.items() if preset.facts.published])
def test_a_published_speed_says_how_it_was_measured_and_is_possible(name: str) -> None:
    facts = PRESETS[name].facts
    parameters = facts.active_parameters or facts.total_parameters
    assert parameters is not None
    ceiling = BANDWIDTH / (parameters / 2)  # four bits a weight, each active one read for each token
    for speed in facts.published:
        assert speed.conditions and speed.source
        assert "one stream" in speed.conditions
        drafted = "MTP" in speed.conditions or "DFlash" in speed.conditions
        assert speed.tokens_per_second < ceiling or drafted
