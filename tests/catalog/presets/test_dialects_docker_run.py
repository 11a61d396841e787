"""A `docker run` command becomes a preset: whole, changed in words, or refused by name; never with a key in it."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerSpec
from spark_tui.base.engine.docker_run import render_text
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.secret import mask_secrets
from spark_tui.base.shell import find_commands
from spark_tui.catalog.presets.adapter.store import PresetFiles, parse
from spark_tui.catalog.presets.model.dialects.docker_run import from_docker_run
from spark_tui.catalog.presets.model.dialects.found_files import with_commands
from spark_tui.catalog.presets.model.dialects.importing import (
    CollectedFiles,
    ExaminedRecipe,
    FoundFile,
    Registry,
    examine,
)
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs
from spark_tui.catalog.presets.model.plan import plan
from spark_tui.catalog.presets.model.preset import Origin, Preset
from spark_tui.catalog.presets.model.recipe import Dialect, preset_from
from tests import TESTS
from tests.cases import all_cases

ROOT = TESTS.parent
SHARED = ROOT / "tests" / "fixtures" / "docker_run" / "shared.md"
PATHS = HostPaths("/home/nv/vllm", "/home/nv/.cache/spark-tui", "/home/nv")
SHIPPED = tuple(each for each in PresetFiles(ROOT / "presets", ROOT / "nowhere").load().presets if each.min_nodes == 1)
VLLM = "vllm/vllm-openai:nightly"
HUB = "/root/.cache/huggingface"


def examined(text: str, name: str = "") -> tuple[ExaminedRecipe, ...]:
    """Every command of a text, as an import reads it; mounts are held against a store in ~/vllm."""
    return tuple(
        examine(each, CollectedFiles(Registry("")), name, paths=PATHS, chosen=bool(name))
        for each in with_commands(FoundFile("shared.md", text))
    )


def one(text: str) -> ExaminedRecipe:
    (found,) = examined(text)
    return found


def imported(text: str) -> Preset:
    """The preset that a command becomes, read back from the file that is written."""
    found = one(text)
    assert found.problem is None, found.problem
    return preset_from(parse(found.text, "x.yaml"), name=found.name, origin=Origin.USER, file="x.yaml")  # type: ignore[arg-type]


def refused(text: str) -> str:
    found = one(text)
    assert found.problem is not None
    assert found.problem.remedy
    return str(found.problem)


def launched(preset: Preset, **changes: str) -> ContainerSpec:
    return plan(preset, overrides_from_pairs(changes), PATHS).spec


# --- there and back -----------------------------------------------------------------------------------


@all_cases("preset", SHIPPED, ids=lambda preset: preset.name)
def test_every_shipped_preset_comes_back_from_its_own_command(preset: Preset) -> None:
    spec = plan(preset, Overrides(), PATHS).spec
    again = launched(imported(render_text(spec)))
    assert len(SHIPPED) > 30
    assert render_text(replace(again, labels=())) == render_text(replace(spec, labels=()))


@all_cases("preset", SHIPPED, ids=lambda preset: preset.name)
def test_without_our_labels_it_is_the_same_server(preset: Preset) -> None:
    """As a stranger's command: an image that runs as it is, and Ollama's library, tell their model in other words."""
    spec = plan(preset, Overrides(), PATHS).spec
    found = one(render_text(replace(spec, labels=())))
    if found.preset is None:
        assert preset.engine == "ollama"
        assert "no model" in str(found.problem)
        return
    assert found.preset.runtime == preset.engine
    again = replace(launched(found.preset), labels=())
    assert again.command == spec.command
    assert again.env == spec.env
    assert again.mounts == spec.mounts


# --- what people share --------------------------------------------------------------------------------

IMPORTED = (
    ("qwen36-35b", "vllm", "nvidia/Qwen3.6-35B-A3B-NVFP4"),
    ("qwen36-27b", "vllm", "unsloth/Qwen3.6-27B-NVFP4"),
    ("qwen35", "vllm", "Qwen/Qwen3.5-35B-A3B"),
    ("gemma4-31b", "vllm", "nvidia/Gemma-4-31B-IT-NVFP4"),
    ("gemma4-26b", "vllm", "nvidia/Gemma-4-26B-A4B-NVFP4"),
    ("gemma4-coder", "vllm", "/models/gemma4-coder"),
    ("diffgemma", "vllm", "nvidia/diffusiongemma-26B-A4B-it-NVFP4"),
    ("nemotron-nano", "vllm", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4"),
    ("nemotron", "vllm", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4"),
    ("mistral-small4", "vllm", "mistralai/Mistral-Small-4-119B-2603-NVFP4"),
    ("gptoss", "vllm", "openai/gpt-oss-120b"),
    ("llama70", "vllm", "nvidia/Llama-3.3-70B-Instruct-NVFP4"),
    ("phi4mm", "vllm", "nvidia/Phi-4-multimodal-instruct-NVFP4"),
    ("mtp", "vllm", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4"),
    ("vllm-dflash", "vllm", "/models/DFlash-Qwen3.5-27B-Uncensored-NVFP4"),
    ("laguna", "vllm", "poolside/Laguna-XS.2"),
    ("vllm-nvfp4", "vllm", "nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4"),
)
REFUSED = (
    "nvidia-smi starts no server that spark-tui knows",
    "still has <HF_MODEL_HANDLE> to be filled in",
    "words vllm --version, which start no vLLM",
    "uses $(pwd), which only your shell can fill in",
    "... stands for options that are missing",
    "`ray-head` starts a Ray head node",
    "`ray-worker` starts a Ray worker node",
    "`bash` starts an interactive shell",
)


@cache
def shared() -> tuple[ExaminedRecipe, ...]:
    return examined(SHARED.read_text())


def test_shared_commands_are_imported() -> None:
    found = [(e.name, e.preset.runtime, e.preset.model) for e in shared() if e.preset]
    assert found == list(IMPORTED)


@all_cases("at", range(len(IMPORTED)), ids=[name for name, *_ in IMPORTED])
def test_an_imported_command_can_be_launched_with_other_settings(at: int) -> None:
    preset = [each.preset for each in shared() if each.preset][at]
    assert launched(preset).name == IMPORTED[at][0]
    if not preset.facts.runs_as_is and "bash" not in preset.command:
        words = launched(preset, max_model_len="4096", gpu_memory_utilization="0.5", kv_cache_dtype="fp8", port="8123")
        text = render_text(words)
        port = "--port 8123" if preset.options.network == "host" else ":8123:"
        assert all(part in text for part in ("--max-model-len 4096", "utilization 0.5", "dtype fp8", port))


def test_shared_commands_that_no_preset_can_hold_are_refused_with_a_sentence() -> None:
    problems = [each.problem for each in shared() if each.problem]
    assert len(problems) == len(REFUSED)
    for problem, says in zip(problems, REFUSED, strict=True):
        assert says in str(problem)
        assert problem.remedy
        assert SHARED.read_text().splitlines()[problem.line - 1].startswith("docker run")


def test_a_command_with_its_keys_masked_is_the_same_command() -> None:
    """As the import form shows it."""
    for each in with_commands(FoundFile("shared.md", SHARED.read_text())):
        masked = FoundFile(each.path, command=mask_secrets(each.command), line=each.line)
        (again,) = find_commands(masked.command)
        shown = examine(replace(masked, command=again.text), CollectedFiles(Registry("")), "", paths=PATHS)
        as_written = examine(each, CollectedFiles(Registry("")), "", paths=PATHS)
        assert (shown.text, str(shown.problem)) == (as_written.text, str(as_written.problem))


# --- where a command stands ---------------------------------------------------------------------------

COMMAND = f"docker run --gpus all --name q {VLLM} vllm serve org/m --port 8000"


@all_cases(
    "text",
    [
        COMMAND,
        f"sudo {COMMAND}",
        f"sudo -E {COMMAND}",
        f"$ {COMMAND}",
        f"  {COMMAND}  # the large one\n",
        COMMAND.replace(" --", "   --"),
        COMMAND.replace(" --", " \t--"),
        f"#!/bin/bash\n# docker run old\nset -e\n\n{COMMAND}\n\ndocker logs -f q\n",
        f"# Title\n\nText: `docker run` it.\n\n```bash\n{COMMAND}\n```\nMore: text\n",
        COMMAND.replace(" --", " \\\n    --"),
        COMMAND.replace(" --", " \\  \n    --"),
        COMMAND.replace(" --", " \\\r\n\t--"),
        "# a paste\r" + COMMAND.replace(" --", " \\\r  --") + "\r```\r",
        COMMAND.replace(" --", " \\ --"),
        COMMAND.replace(" --name", " \\\n  # its name\n  --name"),
        COMMAND.replace("org/m", "$MODEL").join(("export MODEL=org/m\n", "\n")),
        COMMAND.replace("org/m", '"${MODEL}"').join(("MODEL='org/m'  # which\n", "\n")),
        COMMAND.replace("org/m", "${MODEL:-org/m}"),
        COMMAND.replace("docker run", "docker container run"),
        COMMAND.replace("docker run", "/usr/bin/docker run"),
        COMMAND.replace(" ", "\N{NO-BREAK SPACE}"),
        "He wrote:\n> " + COMMAND.replace(" --", " \\\n> --") + "\n> It works.\n",
        ">" + COMMAND.replace(" --", " \\\n>  --"),
        "$ " + COMMAND.replace(" --", " \\\n> --"),
    ],
)
def test_a_command_is_found_wherever_people_write_it(text: str) -> None:
    preset = imported(text)
    assert (preset.name, preset.model, preset.image) == ("q", "org/m", VLLM)
    assert preset.command.replace(" \\\n ", "") == "vllm serve {model} --port {port}"
    assert dict(preset.defaults) == {"port": 8000}


AS_A_WORD = COMMAND.replace("\n", " ").replace("\\", "")


@all_cases(
    "text",
    [
        f"exec {COMMAND}",
        f"nohup {AS_A_WORD} > vllm.log 2>&1 &",
        f"sudo nohup {AS_A_WORD} &>> vllm.log &",
        f"ssh spark '{AS_A_WORD}'",
        f'ssh -p 22 -i ~/.ssh/key user@spark.local "sudo {AS_A_WORD}"',
        f"ssh -t spark {AS_A_WORD}",
        f"ID=$({AS_A_WORD})\ndocker logs -f $ID",
        f'ID="$({AS_A_WORD})"; docker logs -f "$ID"',
        f"ID=`{AS_A_WORD}`",
        AS_A_WORD.replace("docker", "podman", 1),
        "sudo " + AS_A_WORD.replace("docker run", "podman run --replace --security-opt label=disable", 1),
    ],
)
def test_a_command_behind_another_program_is_the_same(text: str) -> None:
    preset = imported(text)
    assert (preset.name, preset.model, preset.image) == ("q", "org/m", VLLM)
    assert preset.command.replace(" \\\n ", "") == "vllm serve {model} --port {port}"


def test_both_streams_of_a_script_are_in_the_log_anyway_so_that_its_settings_can_be_changed() -> None:
    preset = imported(f"docker run --gpus all -p 8000:8000 {VLLM} bash -c 'vllm serve org/m --max-num-seqs 512 2>&1'")
    found = plan(preset, overrides_from_pairs({"max_num_seqs": "4", "moe_backend": "marlin"}), PATHS)
    assert " ".join(found.spec.command).endswith("org/m --max-num-seqs 4 --moe-backend marlin")
    assert any("2>&1 is left out" in note for note in found.notes)
    kept = launched(imported(f"docker run --gpus all -p 8000:8000 {VLLM} bash -c 'cd /x && vllm serve org/m 2>&1'"))
    assert kept.command == ("bash", "-c", "cd /x && vllm serve org/m 2>&1")


def test_the_shell_s_own_ids_are_those_of_the_person_who_imports() -> None:
    command = COMMAND.replace("--name", "-u $(id -u):$(id -g) --name")
    assert "$(id -u)" in refused(command), "whose is not known"
    document = from_docker_run(command, replace(PATHS, owner=(1000, 100))).document
    assert preset_from(document, name="q", origin=Origin.USER, file="x.yaml").options.user == "1000:100"


def test_a_command_s_output_that_goes_elsewhere_is_still_refused_within_it() -> None:
    assert "shell" in refused(f"{AS_A_WORD} | tee log")


@pytest.mark.parametrize("word", ["--served-model-name '<name>'", '--max-model-len="<max len>"', "--quantization <q>"])
def test_what_is_still_to_be_filled_in_is_refused(word: str) -> None:
    assert "to be filled in" in refused(f"docker run {VLLM} vllm serve org/m {word}")


def test_json_whose_quotes_a_shell_took_has_them_again() -> None:
    json = '{"method":"mtp","num_speculative_tokens":2,"model":"org/4B","x":true,"y":0.5}'
    for text in (f"bash -c \"vllm serve org/m --speculative-config '{json}'\"", f'vllm serve org/m -sc "{json}"'):
        found = one(f"docker run --gpus all -p 8000:8000 {VLLM} {text}")
        assert any("put back" in change for change in found.changes)
        assert json in " ".join(launched(imported(f"docker run --gpus all -p 8000:8000 {VLLM} {text}")).command)
    kept = """-e A='{a}' -e B='${C:-d}' -e D='x{e:f}' -e E='{"g":"h"}'"""
    assert not any("put back" in change for change in one(f"docker run {kept} {VLLM} vllm serve org/m").changes)


def test_words_of_a_model_in_angle_brackets_are_no_placeholder() -> None:
    assert one(f"docker run {VLLM} vllm serve org/m --x '<think>' --y '<|im_end|>'").problem is None


SNAPSHOT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("target", ["/models", "/m", "/root/model"])
def test_a_mounted_repository_of_the_cache_is_named_as_on_the_hub(target: str) -> None:
    preset = imported(
        f"docker run --gpus all -p 8000:8000 -v ~/.cache/huggingface/hub/models--Qwen--Qwen3-8B:{target} {VLLM} "
        f"vllm serve {target}/snapshots/{SNAPSHOT}"
    )
    assert (preset.model, preset.model_revision, preset.mounts) == ("Qwen/Qwen3-8B", SNAPSHOT, ())
    assert f"Qwen/Qwen3-8B --revision {SNAPSHOT}" in " ".join(launched(preset).command)


COMPOSE = f"""\
x-env: &env {{OMP_NUM_THREADS: 4}}
services:
  chat:
    image: {VLLM}
    container_name: q
    command: >
      vllm serve org/m
      --port 8000
      --served-model-name ${{NAME:-mine}}
    ports: ["8123:8000"]
    environment:
      <<: *env
      HF_TOKEN: ${{HF_TOKEN}}
      COST: "$$5"
    ipc: host
    ulimits: {{memlock: -1, stack: {{soft: 1, hard: 2}}}}
    volumes:
      - ~/.cache/huggingface:/root/.cache/huggingface
      - {{type: bind, source: ~/vllm/notes, target: /notes, read_only: true}}
    deploy:
      resources: {{reservations: {{devices: [{{driver: nvidia, count: all, capabilities: [gpu]}}]}}}}
    healthcheck: {{test: [CMD, "true"]}}
    depends_on: [db]
    restart: unless-stopped
  llama:
    image: ghcr.io/ggml-org/llama.cpp:server-cuda
    command: ["-hf", "org/m-GGUF", "--port", "9000"]
    gpus: all
    ports: [{{target: 9000, published: "9000", host_ip: 127.0.0.1}}]
  db:
    image: postgres:16
"""


def compose(text: str) -> tuple[ExaminedRecipe, ...]:
    found = with_commands(FoundFile("docker-compose.yml", text, parse(text, "docker-compose.yml")))
    return tuple(examine(each, CollectedFiles(Registry("")), "compose", paths=PATHS) for each in found)


def test_each_engine_of_a_compose_file_is_imported() -> None:
    chat, llama = compose(COMPOSE)
    assert chat.problem is None
    assert chat.preset is not None
    spec = launched(chat.preset)
    assert (spec.name, chat.preset.model, spec.image) == ("q", "org/m", VLLM)
    assert spec.command == ("org/m", "--port", "8123", "--served-model-name", "mine")
    assert {each.name: each.value for each in spec.env}.items() >= {("OMP_NUM_THREADS", "4"), ("COST", "$5")}
    assert "HF_TOKEN" not in chat.text.partition("env:")[2]
    assert spec.gpus is not None
    assert any(mount.target == "/notes" and mount.read_only for mount in spec.mounts)
    assert llama.preset is not None, llama.problem
    assert (llama.name, llama.preset.runtime) == ("llama", "llama-cpp")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("${NAME:-mine}", "${NAME}", "has no value for NAME."),
    ],
)
def test_a_service_that_no_preset_can_hold_is_refused_by_name(old: str, new: str, says: str) -> None:
    problem = compose(COMPOSE.replace(old, new))[0].problem
    assert says in str(problem)
    assert problem is not None
    assert problem.line == 3


def test_a_compose_file_without_an_engine_says_so() -> None:
    (found,) = compose("services: {db: {image: postgres}}\n")
    assert "No service" in str(found.problem)


@pytest.mark.parametrize(
    "text", ["", "docker ps", "# docker run x", "Use docker run for it.", "podman ps", "dockerrun x", "ssh h docker ps"]
)
def test_what_is_no_command_is_not_taken_for_one(text: str) -> None:
    assert find_commands(text) == ()
    recipe = "model: org/m\ncontainer: x\ncommand: |\n  docker run x\n"
    found = FoundFile("r.yaml", recipe, parse(recipe, "r.yaml"))
    assert with_commands(found) == (found,), "a recipe that names docker run stays a recipe"


@settings(deadline=None)
@given(st.text())
def test_no_text_breaks_the_import(text: str) -> None:
    for attempt in (text, f"docker run {text}", f"docker run {VLLM} vllm serve org/m {text}"):
        for found in examined(attempt):
            assert (found.preset is None) != (found.problem is None)


# --- names --------------------------------------------------------------------------------------------


def test_the_name_is_the_containers_else_the_models_else_the_persons() -> None:
    unnamed = COMMAND.replace(" --name q", "").replace("org/m", "Org/Big_Model-8B")
    assert one(COMMAND).name == "q"
    assert one(unnamed).name == "big_model-8b"
    assert examined(COMMAND, "mine")[0].name == "mine"


# --- keys ---------------------------------------------------------------------------------------------

KEY = "Xk7-not-for-any-file-93"


@all_cases(
    "text",
    [
        COMMAND.replace("--name", f"-e HF_TOKEN={KEY} --name"),
        COMMAND.replace("--name", f"-e 'HUGGING_FACE_HUB_TOKEN={KEY}' --name"),
        COMMAND.replace("--name", f"--env VLLM_API_KEY={KEY} --name"),
        COMMAND.replace("--name", f"-e WANDB_API_KEY={KEY} --name"),
        COMMAND.replace("--name", "-e HF_TOKEN --name"),
        COMMAND.replace("--name", '-e HF_TOKEN="$HF_TOKEN" --name'),
        COMMAND.replace("--name", '-e "HF_TOKEN=${HF_TOKEN}" --name'),
        COMMAND.replace("--name", f'-e "HF_TOKEN=$(cat {KEY})" --name'),
        COMMAND.replace("--name", "-e TOKEN_FROM=$HF_TOKEN --name"),
        f"export HF_TOKEN={KEY}\n" + COMMAND.replace("--name", "-e HF_TOKEN=$HF_TOKEN --name"),
        f"HF_TOKEN={KEY} {COMMAND.replace('--name', '-e HF_TOKEN --name')}",
        f"{COMMAND} --api-key {KEY}",
        f"{COMMAND} --api-key={KEY} --dtype auto",
        f"{COMMAND} --api-key {KEY} {KEY}2 --dtype auto",
        f"{COMMAND} --api-key $(openssl rand -hex 32)",
        f"{COMMAND} --hf-token {KEY}",
    ],
)
def test_a_key_is_taken_out_and_the_person_is_told_where_it_belongs(text: str) -> None:
    found = one(text)
    assert found.problem is None
    assert KEY not in found.text + repr(found)
    assert "TOKEN:" not in found.text
    (told,) = (change for change in found.changes if "`" in change)
    assert any(words in told for words in ("private file", "a preset holds no keys"))


def test_a_server_that_had_a_key_gets_one_at_every_launch() -> None:
    assert imported(f"{COMMAND} --api-key {KEY}").facts.wants_key
    assert imported(COMMAND.replace("--name", "-e VLLM_API_KEY=$K --name").join(("K=x\n", ""))).facts.wants_key
    assert not imported(COMMAND).facts.wants_key


def test_a_key_within_a_script_is_refused() -> None:
    said = refused(f"docker run --gpus all {VLLM} bash -c 'sleep 1; vllm serve org/m --api-key {KEY}'")
    assert KEY not in said
    assert "key or token" in said


# --- servers ------------------------------------------------------------------------------------------


@all_cases(
    ("image", "command", "runtime", "model"),
    [
        (VLLM, "--model org/m", "vllm", "org/m"),
        (VLLM, "org/m --dtype auto", "vllm", "org/m"),
        (VLLM, "org/m", "vllm", "org/m"),
        ("acme/own:1", "vllm serve org/m", "vllm", "org/m"),
        ("acme/own:1", "python -m vllm.entrypoints.openai.api_server --model org/m", "vllm", "org/m"),
        ("acme/own:1", "bash -lc 'pip install x && vllm serve org/m'", "vllm", "org/m"),
        ("lmsysorg/sglang:spark", "python3 -m sglang.launch_server --model-path org/m", "sglang", "org/m"),
        ("lmsysorg/sglang:spark", "sglang serve --model-path org/m", "sglang", "org/m"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0", "trtllm-serve org/m --port 8355", "trtllm", "org/m"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0", "trtllm-serve serve org/m", "trtllm", "org/m"),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda13", "-m /models/q.gguf", "llama-cpp", "/models/q.gguf"),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda13", "-hf org/m:Q4_K_M", "llama-cpp", "org/m:Q4_K_M"),
        ("acme/own:1", "/app/llama-server -m /models/q.gguf", "llama-cpp", "/models/q.gguf"),
    ],
)
def test_the_runtime_and_the_model_are_recognised(image: str, command: str, runtime: str, model: str) -> None:
    preset = imported(f"docker run --gpus all {image} {command}")
    assert (preset.runtime, preset.model) == (runtime, model)
    assert launched(preset).image == image


def test_a_variable_of_the_container_names_the_model_of_its_script() -> None:
    preset = imported(
        "export MODEL_HANDLE=openai/gpt-oss-120b\n"
        'docker run --rm -it --gpus all --ipc host --network host -e MODEL_HANDLE="$MODEL_HANDLE" \\\n'
        "  nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc6 bash -c '\n"
        '    hf download $MODEL_HANDLE && trtllm-serve "$MODEL_HANDLE" --max_batch_size 64 --port 8355\n  \'\n'
    )
    assert preset.model == "openai/gpt-oss-120b"
    script = launched(preset, max_num_seqs="8").command[-1]
    assert 'trtllm-serve "$MODEL_HANDLE" --host 127.0.0.1 --max_batch_size 8 --port 8355' in script


# --- what is changed, and what is refused -------------------------------------------------------------


@all_cases(
    ("options", "says"),
    [
        ("--rm", "an ended container is kept"),
        ("-it", "A terminal (-it) is left out"),
        ("--init", "--init is left out"),
        ("--label a=b", "Labels are left out: a."),
        ("--oom-score-adj 100", "every launch has 800"),
        ("-p 8000:8000", "open to this machine alone"),
        ("--network host", "listens to this machine alone"),
        (
            "-v ~/.cache/huggingface:/root/.cache/huggingface",
            "~/.cache/huggingface is replaced by spark-tui's model store",
        ),
        ("-v hf:/root/.cache", "The volume hf at /root/.cache is replaced by spark-tui's model store"),
        ("-v notes:/notes", "-v notes:/notes is left out"),
        ("-v /srv/other:/data", "-v /srv/other:/data is kept: allow it"),
        ("-v /etc/other:/data", "-v /etc/other:/data is left out: no launch mounts folders of the system"),
        ("-v $HOME/vllm-compile-cache:/root/.cache/vllm", "keeps the compile caches of every image itself"),
        ("-e HF_HOME=/root/.cache/huggingface", "HF_HOME is left out"),
        ("--device nvidia.com/gpu=all", "is --gpus all here"),
    ],
)
def test_what_becomes_something_else_is_told(options: str, says: str) -> None:
    found = one(COMMAND.replace("--name", f"{options} --name"))
    assert found.problem is None
    assert any(says in change for change in found.changes), found.changes
    assert any(says in line for line in found.text.splitlines() if line.startswith("# Changed: "))


@all_cases(
    ("options", "says"),
    [
        ("-p 8265:8265", "is not the server's port, which is 8000. A preset publishes one port"),
        ("-p 8000:8000 -p 8001:8000", "A preset publishes one port"),
        ("--env-file ./keys.env", "Write the whole path"),
        ("--env-file /etc/keys.env", "is not read by a preset"),
        ("--memory 100g", "does not bound what the GPU takes"),
        ("--hostname h", "--hostname is not supported here"),
        (
            "-e A=$UNKNOWN",
            "uses $UNKNOWN, which only your shell can fill in. Write its value out, or put UNKNOWN=VALUE",
        ),
        ("-u $(id -u):$(id -g)", "uses $(id -u), which only your shell can fill in"),
        ("\N{EN DASH}ipc=host", "long dashes or curly quotes"),
        ("-e \N{LEFT DOUBLE QUOTATION MARK}A=b\N{RIGHT DOUBLE QUOTATION MARK}", "long dashes or curly quotes"),
    ],
)
def test_what_a_preset_cannot_hold_is_refused_by_name(options: str, says: str) -> None:
    assert says in refused(COMMAND.replace("--name", f"{options} --name"))


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (f"docker run --gpus all {VLLM}", "names no model. Name it after the image: vllm serve OWNER/NAME"),
        ("docker run --gpus all ollama/ollama", "Ollama loads the one that a request names"),
        ("docker run --gpus all postgres:17", "starts no server that spark-tui knows. A preset is for vLLM, SGLang"),
        (f"docker run {VLLM} vllm serve /somewhere/m", "lies in no folder that is mounted"),
        (f"{COMMAND} && docker logs -f q", "uses the shell: &&"),
        (f"{COMMAND} --chat-template '{{name}}'", "words in single braces"),
    ],
)
def test_what_starts_no_server_is_refused(command: str, says: str) -> None:
    assert says in refused(command)


def test_settings_of_the_container_are_kept() -> None:
    preset = imported(
        f"docker run --gpus '\"device=0,1\"' --ipc=host --shm-size 16g --ulimit nofile=1024 --restart on-failure:3 "
        f"-u 1000:1000 --cap-add IPC_LOCK --security-opt seccomp=unconfined --privileged --device /dev/infiniband "
        f"-v ~/vllm/adapters:/adapters:ro -e A=1 -e 'B=two  words' -p 9000:8000 "
        f"{VLLM} org/m --lora-modules a=/adapters/a"
    )
    spec = launched(preset)
    text = render_text(spec)
    for part in (
        "device=0,1", "--ipc host", "--shm-size 16g", "nofile=1024:1024", "on-failure:3", "--user 1000:1000",
        "--cap-add IPC_LOCK", "seccomp=unconfined", "--privileged", "--device /dev/infiniband",
        "-v /home/nv/vllm/adapters:/adapters:ro", "-e A=1", "-e 'B=two  words'", "127.0.0.1:9000:8000",
    ):  # fmt: skip
        assert part in text
    assert one(COMMAND).dialect is Dialect.DOCKER_RUN
