"""The shipped recipes beside what their sources publish: image, flags and environment, one recipe after the other.

Only what follows `docker run` differs on purpose: the container's own options are spark-tui's.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

import pytest

from spark_tui.domain.engine.container import ImageFacts
from spark_tui.domain.presets.container_spec import LOOPBACK, RestartPolicy
from spark_tui.domain.presets.plan import HostPaths, LaunchPlan, Overrides, overrides_from_pairs, plan
from spark_tui.domain.presets.preset import Origin, Preset
from spark_tui.domain.presets.shell_words import words_of
from spark_tui.domain.quantities import GIB
from spark_tui.services.preset_files import PresetFiles, builtin_directory

PATHS = HostPaths("/home/ada/vllm", "/home/ada/.cache/spark-tui", "/home/ada")
IMAGE_HERE = ImageFacts("sha256:1", "x", ("/opt/nvidia/nvidia_entrypoint.sh",))
CATALOGUE = PresetFiles(builtin_directory()).load()
PRESETS = {preset.name: preset for preset in CATALOGUE.presets}

NIGHTLY = "vllm/vllm-openai:nightly"
CU130_NIGHTLY = "vllm/vllm-openai:cu130-nightly"
GEMMA4 = "vllm/vllm-openai:gemma4-cu130"
NGC = "nvcr.io/nvidia/vllm:26.04-py3"
AVAROK = "avarok/dgx-vllm-nvfp4-kernel:v22"


@dataclass(frozen=True)
class Published:
    """A recipe as its source gives it. `command` is read by the rules of a shell."""

    image: str
    command: str
    env: dict[str, str] = field(default_factory=dict)


# Deviations, each because the container's options are ours: the model folder of gemma4-coder is /models/gemma4-coder
# instead of a mount of its own at /model; Avarok's variables (MODEL, PORT, ...) stand as the options that the image's
# script makes of them, and its server listens on loopback, because the recipe uses the host's network.
RECIPES = {
    "qwen3.6-35b-a3b-nvfp4-tools": Published(
        NIGHTLY,
        """vllm serve nvidia/Qwen3.6-35B-A3B-NVFP4 --port 8000
        --tensor-parallel-size 1 --trust-remote-code --dtype auto
        --quantization modelopt --kv-cache-dtype fp8
        --attention-backend flashinfer --moe-backend marlin
        --gpu-memory-utilization 0.85 --max-model-len 65536
        --max-num-seqs 4 --max-num-batched-tokens 8192
        --enable-chunked-prefill --async-scheduling --enable-prefix-caching
        --speculative-config '{"method":"mtp","num_speculative_tokens":3,"moe_backend":"triton"}'
        --reasoning-parser qwen3
        --enable-auto-tool-choice --tool-call-parser qwen3_coder""",
        {
            "VLLM_USE_FLASHINFER_MOE_FP4": "0",
            "VLLM_FP8_MOE_BACKEND": "flashinfer_cutlass",
            "FLASHINFER_DISABLE_VERSION_CHECK": "1",
            "CUTE_DSL_ARCH": "sm_121a",
        },
    ),
    "qwen3.6-27b-nvfp4": Published(
        NIGHTLY,
        """vllm serve unsloth/Qwen3.6-27B-NVFP4 --trust-remote-code --dtype bfloat16
        --gpu-memory-utilization 0.85 --max-model-len 65536 --max-num-seqs 4 --reasoning-parser qwen3""",
    ),
    "qwen3.6-27b-nvfp4-mtp": Published(
        NIGHTLY,
        """vllm serve unsloth/Qwen3.6-27B-NVFP4 --trust-remote-code --dtype bfloat16
        --gpu-memory-utilization 0.85 --max-model-len 65536 --max-num-seqs 4 --reasoning-parser qwen3
        --speculative-config '{"method":"mtp","num_speculative_tokens":3}'""",
    ),
    "qwen3.6-27b-nvfp4-yarn-1m": Published(
        NIGHTLY,
        """vllm serve unsloth/Qwen3.6-27B-NVFP4 --trust-remote-code --dtype bfloat16
        --gpu-memory-utilization 0.85 --max-model-len 1010000 --max-num-seqs 4 --reasoning-parser qwen3
        --hf-overrides '{"text_config":{"rope_parameters":{"mrope_interleaved":true,"mrope_section":[11,11,10],"""
        """"rope_type":"yarn","rope_theta":10000000,"partial_rotary_factor":0.25,"factor":4.0,"""
        """"original_max_position_embeddings":262144}}}'""",
        {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"},
    ),
    "qwen3.5-35b-a3b": Published(
        CU130_NIGHTLY,
        """vllm serve Qwen/Qwen3.5-35B-A3B --served-model-name qwen3.5-35b --host 0.0.0.0 --port 8000
        --dtype bfloat16 --gpu-memory-utilization 0.9 --max-model-len 262144
        --enable-prefix-caching --enable-auto-tool-choice --tool-call-parser qwen3_coder --reasoning-parser qwen3""",
    ),
    "qwen3-next-80b-a3b-nvfp4": Published(
        AVAROK,
        """vllm serve nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4 --host 127.0.0.1 --port 8888
        --max-model-len 65536 --gpu-memory-utilization 0.90 --max-num-seqs 128
        --attention-backend flashinfer --kv-cache-dtype fp8""",
        {
            "VLLM_USE_FLASHINFER_MOE_FP4": "0",
            "VLLM_TEST_FORCE_FP8_MARLIN": "1",
            "VLLM_NVFP4_GEMM_BACKEND": "marlin",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        },
    ),
    "qwen3-next-80b-a3b-nvfp4-mtp": Published(
        AVAROK,
        """python3 /models/fix_mtp_nvfp4_exclusion.py &&
        vllm serve nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4 --host 127.0.0.1 --port 8888
        --max-model-len 65536 --gpu-memory-utilization 0.90 --max-num-seqs 128
        --attention-backend flashinfer --kv-cache-dtype fp8
        --speculative-config '{"method":"mtp","num_speculative_tokens":2}' --no-enable-chunked-prefill""",
        {
            "VLLM_USE_FLASHINFER_MOE_FP4": "0",
            "VLLM_TEST_FORCE_FP8_MARLIN": "1",
            "VLLM_NVFP4_GEMM_BACKEND": "marlin",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        },
    ),
    "gemma-4-31b-it-nvfp4": Published(
        GEMMA4,
        """vllm serve nvidia/Gemma-4-31B-IT-NVFP4 --quantization modelopt --tensor-parallel-size 1
        --gpu-memory-utilization 0.85 --max-model-len 65536 --max-num-seqs 4""",
    ),
    "gemma-4-26b-a4b-nvfp4": Published(
        GEMMA4,
        """vllm serve nvidia/Gemma-4-26B-A4B-NVFP4
        --quantization modelopt --tensor-parallel-size 1 --moe-backend marlin --trust-remote-code
        --enable-auto-tool-choice --tool-call-parser gemma4 --reasoning-parser gemma4
        --gpu-memory-utilization 0.85 --max-model-len 65536 --max-num-seqs 4""",
    ),
    "gemma-4-12b-coder-nvfp4": Published(
        NIGHTLY,
        """vllm serve /models/gemma4-coder --served-model-name gemma4-coder
        --max-model-len 16384 --gpu-memory-utilization 0.92 --trust-remote-code""",
    ),
    "gemma-4-12b-coder-nvfp4-mtp": Published(
        NIGHTLY,
        """vllm serve /models/gemma4-coder --served-model-name gemma4-coder
        --max-model-len 16384 --gpu-memory-utilization 0.92 --trust-remote-code --kv-cache-dtype fp8
        --speculative-config '{"method":"mtp","model":"/models/gemma4-coder/assistant","num_speculative_tokens":3}'""",
    ),
    "gemma-4-31b-it-dflash": Published(
        "ghcr.io/z-lab/vllm-openai:gemma4-dflash-cu130",
        """vllm serve google/gemma-4-31B-it --host 0.0.0.0 --port 8000 --tensor-parallel-size 1
        --gpu-memory-utilization 0.85 --max-model-len 65536 --max-num-seqs 4
        --speculative-config '{"method":"dflash","model":"RedHatAI/gemma-4-31B-it-speculator.dflash","""
        """"num_speculative_tokens":8,"attention_backend":"flash_attn"}'
        --attention-backend triton_attn --max-num-batched-tokens 32768 --trust-remote-code""",
    ),
    "diffusiongemma-26b-a4b-nvfp4": Published(
        "vllm/vllm-openai:gemma",
        """vllm serve nvidia/diffusiongemma-26B-A4B-it-NVFP4 --trust-remote-code --max-num-seqs 4
        --attention-backend TRITON_ATTN
        --enable-auto-tool-choice --tool-call-parser gemma4 --reasoning-parser gemma4
        --override-generation-config '{"max_new_tokens": null}'
        --default-chat-template-kwargs '{"enable_thinking":true}'""",
        {"VLLM_USE_V2_MODEL_RUNNER": "1"},
    ),
    "nemotron-3-nano-30b-a3b-nvfp4-1m": Published(
        "nvcr.io/nvidia/vllm:25.12.post1-py3",
        """vllm serve nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4 --served-model-name nemotron-3-nano --port 8000
        --tensor-parallel-size 1 --trust-remote-code --max-model-len 1048576 --max-num-seqs 8 --kv-cache-dtype fp8
        --enable-auto-tool-choice --tool-call-parser qwen3_coder
        --reasoning-parser-plugin /models/nano_v3_reasoning_parser.py --reasoning-parser nano_v3""",
        {
            "VLLM_USE_FLASHINFER_MOE_FP4": "1",
            "VLLM_FLASHINFER_MOE_BACKEND": "throughput",
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
        },
    ),
    "nemotron-3-super-120b-a12b-nvfp4": Published(
        CU130_NIGHTLY,
        """vllm serve nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4
        --served-model-name nemotron-3-super --trust-remote-code
        --max-model-len 131072 --gpu-memory-utilization 0.85 --max-num-seqs 4
        --reasoning-parser nemotron_v3 --enable-auto-tool-choice --tool-call-parser qwen3_coder""",
    ),
    "nemotron-3-super-120b-a12b-nvfp4-mtp": Published(
        NGC,
        """vllm serve nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4
        --host 0.0.0.0 --port 8000 --trust-remote-code
        --max-model-len 131072 --gpu-memory-utilization 0.85 --max-num-seqs 4
        --reasoning-parser nemotron_v3 --speculative-config '{"method":"mtp","num_speculative_tokens":1}'""",
    ),
    "nemotron-cascade-2-30b-a3b-nvfp4": Published(
        "vllm-node-cas",
        """vllm serve chankhavu/Nemotron-Cascade-2-30B-A3B-NVFP4 --kv-cache-dtype fp8 --trust-remote-code
        --gpu-memory-utilization 0.80 --max-num-seqs 512 --enable-prefix-caching --max-cudagraph-capture-size 512
        --mamba-ssm-cache-dtype float32 --reasoning-parser nemotron_v3
        --tool-call-parser qwen3_coder --enable-auto-tool-choice
        --port 8000 --host 0.0.0.0 --max-model-len 262144 --load-format fastsafetensors""",
    ),
    "nemotron3-nano-nvfp4-w4a16": Published(
        "vllm-node-tf6-b12x",
        """vllm serve cybermotaz/nemotron3-nano-nvfp4-w4a16 --served-model-name nemotron-w4a16 --trust-remote-code
        --host 0.0.0.0 --port 8000 --max-model-len 65536 --gpu-memory-utilization 0.85 --max-num-seqs 4""",
        {
            "CUTE_DSL_ARCH": "sm_121a",
            "VLLM_NVFP4_GEMM_BACKEND": "flashinfer-b12x",
            "VLLM_FLASHINFER_MOE_BACKEND": "latency",
        },
    ),
    "mistral-small-4-119b-nvfp4": Published(
        CU130_NIGHTLY,
        """vllm serve mistralai/Mistral-Small-4-119B-2603-NVFP4 --tensor-parallel-size 1 --max-model-len 65536
        --attention-backend TRITON_MLA
        --tool-call-parser mistral --enable-auto-tool-choice --reasoning-parser mistral
        --max-num-batched-tokens 16384 --max-num-seqs 4 --gpu-memory-utilization 0.85""",
    ),
    "gpt-oss-20b": Published(
        NGC,
        """vllm serve openai/gpt-oss-20b --host 0.0.0.0 --port 8000
        --max-model-len 131072 --gpu-memory-utilization 0.85 --max-num-seqs 4 --enable-expert-parallel""",
    ),
    "llama-3.3-70b-instruct-nvfp4": Published(
        NGC,
        """vllm serve nvidia/Llama-3.3-70B-Instruct-NVFP4 --quantization modelopt --max-model-len 131072
        --gpu-memory-utilization 0.85 --max-num-seqs 4""",
    ),
    "phi-4-multimodal-instruct-nvfp4": Published(
        NGC,
        """pip install --no-cache-dir scipy &&
        vllm serve nvidia/Phi-4-multimodal-instruct-NVFP4 --quantization modelopt --trust-remote-code
        --max-model-len 131072 --gpu-memory-utilization 0.85 --max-num-seqs 4""",
    ),
    "laguna-xs.2-dflash": Published(
        NIGHTLY,
        """vllm serve poolside/Laguna-XS.2 --trust-remote-code
        --enable-auto-tool-choice --tool-call-parser poolside_v1 --reasoning-parser poolside_v1
        --speculative-config
        '{"model":"poolside/Laguna-XS.2-speculator.dflash","num_speculative_tokens":7,"method":"dflash"}'""",
        {"VLLM_USE_DEEP_GEMM": "0"},
    ),
}
HELD_ELSEWHERE = {"qwen3.6-35b-a3b-nvfp4", "nemotron-3-nano-30b-a3b-nvfp4", "gpt-oss-120b", "cpu-smollm2"}
"""Their flags are held in test_plan.py."""

SHELLS = {
    "phi-4-multimodal-instruct-nvfp4": ("bash", "-lc"),
    "qwen3-next-80b-a3b-nvfp4-mtp": ("bash", "-c"),
}

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
}
CONTEXT_UNPUBLISHED = {"gemma-4-12b-coder-nvfp4", "gemma-4-12b-coder-nvfp4-mtp"}

BANDWIDTH = 273e9
"""Bytes per second, NVIDIA's data sheet of the DGX Spark."""


def planned(preset: Preset, **pairs: str) -> LaunchPlan:
    return plan(preset, overrides_from_pairs(pairs), PATHS, image=IMAGE_HERE)


def said_words(launch: LaunchPlan) -> list[str]:
    """The command's words, within a shell those of its script."""
    return list(words_of(launch.spec.command))


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def number(word: str) -> str:
    """0.90 and 0.9 are the same setting."""
    return str(float(word)) if re.fullmatch(r"0\.\d+", word) else word


# --- beside the source ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_gives_the_published_command(name: str) -> None:
    launch = planned(PRESETS[name])
    expected = shlex.split(RECIPES[name].command)
    assert [number(word) for word in said_words(launch)] == [number(word) for word in expected]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_gives_the_published_image_and_environment(name: str) -> None:
    spec = planned(PRESETS[name]).spec
    ours = {"HF_HOME": "/models", "VLLM_ENGINE_READY_TIMEOUT_S": "3600", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1800"}
    assert spec.image == RECIPES[name].image
    assert {variable.name: variable.value for variable in spec.env} == ours | RECIPES[name].env


@pytest.mark.parametrize("name", RECIPES)
def test_only_recipes_with_a_step_before_the_server_run_a_shell(name: str) -> None:
    command = planned(PRESETS[name]).spec.command
    assert command[:2] == SHELLS.get(name, ("vllm", "serve"))


def test_every_shipped_recipe_is_held_beside_its_source() -> None:
    assert set(PRESETS) == set(RECIPES) | HELD_ELSEWHERE


# --- every shipped preset ---------------------------------------------------------------------------------


def test_every_shipped_file_is_read_without_a_problem() -> None:
    assert CATALOGUE.problems == ()
    assert {preset.name for preset in CATALOGUE.presets} == {path.stem for path in builtin_directory().iterdir()}


@pytest.mark.parametrize("name", PRESETS)
def test_a_shipped_preset_is_planned_where_its_image_is_not_here_yet(name: str) -> None:
    launch = plan(PRESETS[name], Overrides(), PATHS)
    assert launch.spec.name == name
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,62}", name), "the name of a container, and of a host"


@pytest.mark.parametrize("name", PRESETS)
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


@pytest.mark.parametrize("name", PRESETS)
def test_a_shipped_preset_stays_on_this_machine_and_starts_once(name: str) -> None:
    launch = planned(PRESETS[name])
    spec = launch.spec
    assert spec.restart == RestartPolicy()
    assert (spec.privileged, spec.ipc, spec.shm_size) == (False, "", 10 * GIB)
    if spec.network == "host":
        assert option(said_words(launch), "--host") == LOOPBACK
    else:
        assert {port.host_ip for port in spec.ports} == {LOOPBACK}


@pytest.mark.parametrize("name", PRESETS)
def test_the_settings_that_decide_about_memory_can_be_changed(name: str) -> None:
    words = said_words(planned(PRESETS[name], gpu_memory_utilization="0.5", max_model_len="4096", max_num_seqs="2"))
    assert option(words, "--gpu-memory-utilization") == "0.5"
    assert option(words, "--max-model-len") == "4096"
    assert option(words, "--max-num-seqs") == "2"
    assert [words.count(name) for name in ("--gpu-memory-utilization", "--max-model-len", "--max-num-seqs")] == [1] * 3


@pytest.mark.parametrize("name", PRESETS)
def test_a_context_beyond_the_models_own_is_allowed_explicitly(name: str) -> None:
    launch = planned(PRESETS[name])
    words, own = said_words(launch), PRESETS[name].facts.context_tokens
    if "--max-model-len" in words and own is not None and int(option(words, "--max-model-len")) > own:
        assert "VLLM_ALLOW_LONG_MAX_MODEL_LEN" in {variable.name for variable in launch.spec.env}
        assert "--hf-overrides" in words


# --- what the guide warns about ---------------------------------------------------------------------------


def test_dflash_recipes_leave_the_kv_cache_in_bf16() -> None:
    found = [name for name in PRESETS if '"method":"dflash"' in " ".join(said_words(planned(PRESETS[name])))]
    assert found == ["gemma-4-31b-it-dflash", "laguna-xs.2-dflash"]
    for name in found:
        assert "--kv-cache-dtype" not in said_words(planned(PRESETS[name]))
        assert any("fp8" in caution for caution in PRESETS[name].facts.cautions)


def test_quantization_is_never_named_for_compressed_tensors() -> None:
    found = [name for name, preset in PRESETS.items() if "compressed-tensors" in preset.facts.quantization]
    assert len(found) == 6
    for name in found:
        assert "--quantization" not in said_words(planned(PRESETS[name]))


def test_the_settings_that_ruin_qwen3_5_are_cautioned_against_and_absent() -> None:
    preset = PRESETS["qwen3.5-35b-a3b"]
    words, cautions = said_words(planned(preset)), " ".join(preset.facts.cautions)
    for flag in ("--enable-chunked-prefill", "--kv-cache-dtype"):
        assert flag not in words
        assert flag in cautions


@pytest.mark.parametrize(
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
    ],
)
def test_what_bites_people_is_said_beside_the_recipe(name: str, said: str) -> None:
    assert any(said in caution for caution in PRESETS[name].facts.cautions)


def test_a_parser_that_the_command_names_is_a_file_to_fetch() -> None:
    launch = planned(PRESETS["nemotron-3-nano-30b-a3b-nvfp4-1m"])
    assert any("nano_v3_reasoning_parser.py" in note and "--local-dir /home/ada/vllm" in note for note in launch.notes)


# --- published speeds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.facts.published])
def test_a_published_speed_says_how_it_was_measured_and_is_possible(name: str) -> None:
    facts = PRESETS[name].facts
    parameters = facts.active_parameters or facts.total_parameters
    assert parameters is not None
    ceiling = BANDWIDTH / (parameters / 2)  # four bits a weight, each active one read for each token
    for speed in facts.published:
        assert speed.conditions and speed.source
        assert "one stream" in speed.conditions
        assert speed.tokens_per_second < ceiling or "MTP" in speed.conditions
