"""Commands for images with a start script: their words, and the variables from which they make the server's command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from spark_tui.base.errors import PresetError, UsageError
from spark_tui.base.host.vitals import HostPaths
from spark_tui.catalog.presets.model.dialects.docker_run import from_docker_run
from spark_tui.catalog.presets.model.dialects.recipe_files import ConvertedRecipe
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs
from spark_tui.catalog.presets.model.plan import LaunchPlan, plan
from spark_tui.catalog.presets.model.preset import Origin, Preset
from spark_tui.catalog.presets.model.recipe import preset_from
from spark_tui.catalog.presets.model.rules.check import check
from spark_tui.catalog.presets.model.rules.context import LaunchContext
from tests import TESTS
from tests.cases import all_cases

PACKAGE: Final = TESTS.parent / "spark_tui"
PATHS: Final = HostPaths("/home/nv/vllm", "/home/nv/.cache/spark-tui", "/home/nv")
AVAROK: Final = "avarok/dgx-vllm-nvfp4-kernel:v22"
NEXT: Final = "nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4"
MARLIN: Final = {
    "VLLM_USE_FLASHINFER_MOE_FP4": "0",
    "VLLM_TEST_FORCE_FP8_MARLIN": "1",
    "VLLM_NVFP4_GEMM_BACKEND": "marlin",
}
SERVED: Final = {"MODEL": NEXT, "PORT": "8888", "GPU_MEMORY_UTIL": "0.90", "MAX_NUM_SEQS": "128"}
MTP: Final = """--no-enable-chunked-prefill --speculative-config '{"method":"mtp","num_speculative_tokens":2}'"""
AEON: Final = (
    "docker run --gpus all -p 8000:8000 -e MODEL_PATH=org/m-NVFP4 -e SERVED_MODEL_NAME=m -e DFLASH_DRAFTER=z-lab/m "
    "-e DFLASH_NUM_SPEC_TOKENS=15 -e MAX_NUM_SEQS=4 -e GPU_MEMORY_UTILIZATION=0.85 ghcr.io/aeon-7/vllm-dflash:latest"
)


def written(words: str, env: dict[str, str], options: str = "--network host") -> str:
    variables = " ".join(f'-e {name}="{value}"' for name, value in env.items())
    return f"docker run --gpus all --name q {options} {variables} {AVAROK} {words}"


def preset_of(found: ConvertedRecipe) -> Preset:
    return preset_from(found.document, name="q", origin=Origin.USER, file="q.yaml")


def launched(text: str, **changes: str) -> LaunchPlan:
    return plan(preset_of(from_docker_run(text, PATHS)), overrides_from_pairs(changes), PATHS)


def refused(text: str) -> str:
    try:
        from_docker_run(text, PATHS)
    except UsageError as error:
        return f"{error.summary} {error.remedy}"
    raise AssertionError(text)


@all_cases("words", ["serve", "", "serveTo enable speculation, add options:"])
def test_the_serving_word_and_its_variables_become_the_servers_own_command(words: str) -> None:
    more = {"VLLM_EXTRA_ARGS": "--attention-backend flashinfer --kv-cache-dtype fp8"}
    spec = launched(written(words, {**MARLIN, **SERVED, **more})).spec
    assert spec.entrypoint == ()
    assert " ".join(spec.command) == (
        f"vllm serve {NEXT} --host 127.0.0.1 --port 8888 --gpu-memory-utilization 0.9 --max-model-len 131072 "
        "--max-num-seqs 128 --attention-backend flashinfer --kv-cache-dtype fp8"
    )
    env = {each.name: each.value for each in spec.env}
    assert MARLIN.items() <= env.items()
    assert not set(SERVED) & set(env), "the start script alone reads them"


def test_its_settings_can_be_changed_as_those_of_any_command() -> None:
    spec = launched(written("serve", SERVED), max_num_seqs="4", moe_backend="marlin", port="9000").spec
    assert all(part in " ".join(spec.command) for part in ("--max-num-seqs 4", "--moe-backend marlin", "--port 9000"))


def test_an_option_among_the_further_ones_counts_in_place_of_its_variable() -> None:
    more = {"VLLM_EXTRA_ARGS": "--max-num-seqs 2 --port 9001 --api-key sk-0123456789abcdef"}
    preset = preset_of(from_docker_run(written("serve", {**SERVED, **more}), PATHS))
    assert " ".join(plan(preset, overrides_from_pairs({}), PATHS).spec.command).endswith("--max-num-seqs 2 --port 9001")
    assert dict(preset.defaults) == {
        "port": 9001,
        "gpu_memory_utilization": 0.9,
        "max_num_seqs": 2,
        "max_model_len": 131072,
    }
    assert preset.facts.wants_key


@all_cases("port", ["9" * 6000, "-1", "x", "\N{ARABIC-INDIC DIGIT THREE}"])
def test_a_port_that_is_none_is_refused_or_left_to_the_script_and_never_read_as_a_number(port: str) -> None:
    with pytest.raises(PresetError, match="is not a port"):
        launched(written("serve", {**SERVED, "PORT": port}))
    assert dict(preset_of(from_docker_run(AEON.replace(" -e MAX", f" -e PORT={port} -e MAX"))).defaults)["port"] == 8000


def test_what_became_of_the_variables_is_said() -> None:
    changes = " ".join(from_docker_run(written("serveTo run it:", {**SERVED, "HEAD_IP": "10.0.0.1"}), PATHS).changes)
    assert "MODEL, PORT, GPU_MEMORY_UTIL, MAX_NUM_SEQS: written as vllm serve" in changes
    assert "HEAD_IP: left out" in changes
    assert "--nodes" in changes
    assert "To run it: is left out" in changes


@all_cases("options", [MTP, MTP.replace('"', r"\"")])
def test_drafting_by_the_models_own_layers_brings_the_makers_correction(options: str) -> None:
    """The page's words, put between the double quotes of the variable, lose their own."""
    found = launched(written("serve", {**MARLIN, **SERVED, "VLLM_EXTRA_ARGS": options}), max_num_seqs="4")
    [script] = found.preset.facts.required_files
    assert (script.target, script.url.rpartition("/")[2]) == ("fix_mtp_nvfp4_exclusion.py",) * 2
    assert found.spec.command[:2] == ("bash", "-c")
    assert found.spec.command[2].startswith(f"python3 /models/fix_mtp_nvfp4_exclusion.py && vllm serve {NEXT} ")
    assert not {each.id for each in check(LaunchContext(found))} & {"qwen3_next_mtp_patch", "mtp_old_vllm"}
    fp8 = launched(written("serve", {**SERVED, "MODEL": "org/Next-FP8", "VLLM_EXTRA_ARGS": MTP}))
    assert fp8.spec.command[0] == "vllm"


@all_cases("word", ["ray-head", "ray-worker"])
@all_cases("options", ["...", "--network host -e HEAD_IP=10.0.0.1"])
def test_a_ray_node_is_refused_with_the_way_to_serve_on_several_machines(word: str, options: str) -> None:
    said = refused(f"docker run {options} {AVAROK} {word}")
    assert f"`{word}` starts a Ray" in said
    assert "--nodes CLUSTER" in said


@all_cases(
    ("text", "says"),
    [
        (f"docker run -it {AVAROK} bash", "interactive shell"),
        (f"docker run ... {AVAROK} serve", "stands for options that are missing"),
        (f"docker run \N{HORIZONTAL ELLIPSIS} {AVAROK}", "stands for options that are missing"),
        (f"docker run -e PORT=8888 {AVAROK} serve", "reads it from MODEL"),
        (written("serve", {**SERVED, "VLLM_EXTRA_ARGS": "--x 'y"}), "VLLM_EXTRA_ARGS is not closed"),
        (f"docker run {AVAROK} status", "takes is serve, ray-head, ray-worker, bash"),
    ],
)
def test_what_serves_nothing_is_refused_with_its_reason(text: str, says: str) -> None:
    assert says in refused(text)


@all_cases("program", ["vllm serve", "python vllm_serve_v7.py serve"])
def test_a_command_of_its_own_clears_the_script_which_would_refuse_it(program: str) -> None:
    spec = launched(f"docker run --gpus all -p 8000:8000 -e VLLM_NVFP4_SPARSE_V7=1 {AVAROK} {program} {NEXT}").spec
    assert spec.entrypoint == ()
    assert " ".join(spec.command).startswith(f"{program} {NEXT}")


def test_a_recipe_for_such_an_image_starts_its_server_without_the_script() -> None:
    preset = preset_of(from_docker_run(f"docker run --gpus all -p 8000:8000 {AVAROK} vllm serve {NEXT}", PATHS))
    found = plan(replace(preset, options=replace(preset.options, entrypoint=None)), overrides_from_pairs({}), PATHS)
    assert (found.spec.entrypoint, found.spec.command[0]) == ((), "vllm")
    assert "it is cleared" in " ".join(found.notes)


def test_a_script_for_a_shell_is_no_call_for_an_interactive_one() -> None:
    spec = launched(f"docker run --gpus all -p 8000:8000 {AVAROK} bash -c 'cd /app && vllm serve {NEXT}'").spec
    assert (spec.entrypoint, spec.command[2]) == ((), f"cd /app && vllm serve {NEXT}")


def test_the_variables_of_an_image_that_runs_as_it_is_are_settings() -> None:
    spec = launched(AEON, max_num_seqs="8", gpu_memory_utilization="0.6", num_speculative_tokens="5").spec
    env = {each.name: each.value for each in spec.env}
    assert spec.command == ()
    assert spec.label("io.spark-tui.served-name") == "m"
    assert {name: env[name] for name in ("MAX_NUM_SEQS", "GPU_MEMORY_UTILIZATION", "DFLASH_NUM_SPEC_TOKENS")} == {
        "MAX_NUM_SEQS": "8",
        "GPU_MEMORY_UTILIZATION": "0.6",
        "DFLASH_NUM_SPEC_TOKENS": "5",
    }


NEW: Final = """
names = ["org/own-vllm"]
source = "github.com/org/own-vllm"
default = "start"
server = ["vllm", "serve"]
model = "WEIGHTS"
extra = "MORE"
[words.start]
about = "the server"
[variables.WEIGHTS]
about = "the model"
[variables.MORE]
about = "more options"
[variables.WINDOW]
about = "context tokens"
option = "max_model_len"
default = "4096"
"""


def test_another_image_is_one_file(tmp_path: Path) -> None:
    """The program as it is shipped, with one file more."""
    for folder in (PACKAGE, PACKAGE / "base", PACKAGE / "base" / "engine"):
        copy = tmp_path / folder.relative_to(PACKAGE.parent)
        copy.mkdir()
        for each in folder.iterdir():
            if each.name not in ("base", "engine", "start_scripts", "__pycache__"):
                (copy / each.name).symlink_to(each)
    (tmp_path / "presets").symlink_to(PACKAGE.parent / "presets")
    scripts = tmp_path / "spark_tui" / "base" / "engine" / "start_scripts"
    shutil.copytree(PACKAGE / "base" / "engine" / "start_scripts", scripts)
    (scripts / "own.toml").write_text(NEW)
    (tmp_path / "q.txt").write_text(
        "docker run --gpus all -p 8000:8000 --name q -e WEIGHTS=org/m -e WINDOW=8192 org/own-vllm:1 start\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "c")}
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "spark_tui", *words.split()], capture_output=True, cwd=tmp_path, env=env, text=True
        )
        for words in ("presets import q.txt", "up q --dry-run", "presets check q --set env.WINDOWS=8192")
    ]
    assert [each.returncode for each in outputs[:2]] == [0, 0], outputs
    assert "vllm serve org/m" in outputs[1].stdout
    assert "--max-model-len 8192" in outputs[1].stdout
    assert "image_variable_without_effect" in outputs[2].stdout
