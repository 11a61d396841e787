"""The shipped recipes beside what their sources publish: image, flags and environment, one recipe after the other.

The guide's own, and one for each of the other serving runtimes.

Only what follows `docker run` differs on purpose: the container's own options are spark-tui's.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spark_tui.domain.engine.container import LABEL_API_KEY_FILE, LOOPBACK, ImageFacts, RestartPolicy
from spark_tui.domain.host.identity import HostPaths
from spark_tui.domain.presets.fetching import fetch_command
from spark_tui.domain.presets.overrides import Overrides, overrides_from_pairs
from spark_tui.domain.presets.plan import LaunchPlan, plan
from spark_tui.domain.presets.preset import Origin, Preset
from spark_tui.domain.quantities import GIB
from spark_tui.domain.shell import words_of
from spark_tui.services.presets.store import PresetFiles, builtin_directory

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
    runtime: str = "vllm"


# Deviations, each because the container's options are ours: the model folder of gemma4-coder is /models/gemma4-coder
# instead of a mount of its own at /model; Avarok's variables (MODEL, PORT, ...) stand as the options that the image's
# script makes of them, and its server listens on loopback, because the recipe uses the host's network. AEON-7's image
# runs as it is, on a published port instead of the host's network, with its target model where the store has it
# instead of a mount of its own. SGLang's and llama.cpp's metrics pages are turned on. TensorRT-LLM's settings are JSON
# in one line instead of a here-document.
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
RECIPES |= {
    "qwen3.5-27b-dflash": Published(
        "ghcr.io/aeon-7/vllm-dflash:latest",
        "",
        {
            "MODEL_PATH": "/models/DFlash-Qwen3.5-27B-Uncensored-NVFP4",
            "SERVED_MODEL_NAME": "dflash-qwen3.5-27b",
            "DFLASH_DRAFTER": "z-lab/Qwen3.5-27B-DFlash",
            "DFLASH_NUM_SPEC_TOKENS": "15",
            "MAX_MODEL_LEN": "65536",
            "MAX_NUM_SEQS": "4",
            "GPU_MEMORY_UTILIZATION": "0.85",
            "MAX_NUM_BATCHED_TOKENS": "65536",
        },
    ),
    "qwen3-8b-nvfp4-sglang": Published(
        "lmsysorg/sglang:latest-cu130",
        """python3 -m sglang.launch_server --model-path nvidia/Qwen3-8B-NVFP4 --host 0.0.0.0 --port 30000
        --trust-remote-code --tp 1 --attention-backend flashinfer --mem-fraction-static 0.75
        --quantization modelopt_fp4 --enable-metrics""",
        runtime="sglang",
    ),
    "qwen3-30b-a3b-nvfp4-trtllm": Published(
        "nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc6",
        """echo '{"print_iter_log":false,"kv_cache_config":{"dtype":"auto","free_gpu_memory_fraction":0.9},"""
        """"cuda_graph_config":{"enable_padding":true},"disable_overlap_scheduler":true}'
        > /tmp/extra-llm-api-config.yml && exec trtllm-serve nvidia/Qwen3-30B-A3B-NVFP4 --host 0.0.0.0 --port 8355
        --max_batch_size 64 --trust_remote_code --extra_llm_api_options /tmp/extra-llm-api-config.yml""",
        runtime="trtllm",
    ),
    "qwen3-30b-a3b-gguf-llama-cpp": Published(
        "ghcr.io/ggml-org/llama.cpp:server-cuda13",
        """llama-server --model /models/Qwen3-30B-A3B-Q4_K_M.gguf --alias qwen3-30b-a3b --host 0.0.0.0 --port 8080
        --n-gpu-layers 99 --ctx-size 32768 --parallel 1 --threads 8 --jinja --metrics""",
        runtime="llama-cpp",
    ),
    "qwen3-32b-ollama": Published(
        "ollama/ollama:latest",
        """( until ollama list > /dev/null 2 >& 1 ; do sleep 1 ; done ; ollama pull qwen3:32b 2 > /tmp/pull.log &&
        echo "pulled qwen3:32b" || tail -c 400 /tmp/pull.log ) & exec ollama serve""",
        {
            "OLLAMA_MODELS": "/models/ollama",
            "OLLAMA_CONTEXT_LENGTH": "32768",
            "OLLAMA_NUM_PARALLEL": "1",
            "OLLAMA_KEEP_ALIVE": "-1",
        },
        runtime="ollama",
    ),
}
HELD_ELSEWHERE = {"qwen3.6-35b-a3b-nvfp4", "nemotron-3-nano-30b-a3b-nvfp4", "gpt-oss-120b", "cpu-smollm2"}
"""Their flags are held in test_plan.py."""

STARTS = {
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
    ours = OURS.get(RECIPES[name].runtime, OURS_ELSEWHERE)
    assert spec.image == RECIPES[name].image
    assert {variable.name: variable.value for variable in spec.env} == ours | RECIPES[name].env


@pytest.mark.parametrize("name", RECIPES)
def test_only_recipes_with_a_step_before_the_server_run_a_shell(name: str) -> None:
    command = planned(PRESETS[name]).spec.command
    assert command[:2] == STARTS.get(name, ("vllm", "serve"))
    assert PRESETS[name].engine == RECIPES[name].runtime


@pytest.mark.parametrize("name", PRESETS)
def test_what_a_container_does_before_its_server_is_said_and_is_what_it_does(name: str) -> None:
    launch = planned(PRESETS[name])
    script = " ".join(launch.spec.command)
    for step in PRESETS[name].facts.required_steps:
        assert step.command in script
        assert any(step.command in note for note in launch.notes)
    if PRESETS[name].facts.required_steps:
        assert launch.spec.command[0] == "bash"


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


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in MEMORY_VARIABLES])
def test_the_settings_that_decide_about_memory_can_be_changed(name: str) -> None:
    settings = MEMORY_SETTINGS[PRESETS[name].engine]
    words = said_words(planned(PRESETS[name], **{key: VALUES[key] for key in settings}))
    for key, flag in settings.items():
        assert option(words, flag) == VALUES[key]
        assert words.count(flag) == 1


@pytest.mark.parametrize("name", MEMORY_VARIABLES)
def test_they_can_be_changed_where_they_stand_in_the_environment(name: str) -> None:
    settings = MEMORY_VARIABLES[name]
    launch = planned(PRESETS[name], **{key: VALUES[key] for key in settings})
    env = {variable.name: variable.value for variable in launch.spec.env}
    assert {key: env[variable] for key, variable in settings.items()} == {key: VALUES[key] for key in settings}


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


@pytest.mark.parametrize("name", PRESETS)
def test_every_file_of_the_store_that_a_command_names_is_known_as_needed(name: str) -> None:
    preset = PRESETS[name]
    needed = {f"/models/{file.target}" for file in preset.facts.required_files}
    named = {word for word in said_words(planned(preset)) if re.fullmatch(r"/models/[^/]+", word)}
    assert named <= needed | {"/models/smollm2"}


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


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.facts.published])
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
