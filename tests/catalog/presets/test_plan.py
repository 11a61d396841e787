"""From preset to container: the shipped recipes hold the guide's flags exactly, and nothing is exposed by accident."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from spark_tui.base.engine.container import (
    LABEL_API_KEY_FILE,
    LABEL_MODEL,
    LABEL_PORT,
    LABEL_PRESET,
    LABEL_RUNTIME,
    LABEL_SERVED_NAME,
    LABEL_SPEC_HASH,
    Gpus,
    ImageFacts,
    Mount,
    PublishedPort,
    RestartPolicy,
    Ulimit,
    local_model_path,
)
from spark_tui.base.errors import PresetError, RefusedError, SparkError, UsageError
from spark_tui.base.host.vitals import HostPaths
from spark_tui.catalog.presets.adapter.store import builtin_directory, parse
from spark_tui.catalog.presets.model.command import missing_values
from spark_tui.catalog.presets.model.fetching import reads_store
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs
from spark_tui.catalog.presets.model.plan import LaunchPlan, plan
from spark_tui.catalog.presets.model.preset import Origin, Preset
from spark_tui.catalog.presets.model.recipe import preset_from
from tests import TESTS

FIXTURES = TESTS / "fixtures" / "presets"
PATHS = HostPaths("/home/ada/vllm", "/home/ada/.cache/spark-tui", "/home/ada")
BASE = "model: org/m\ncontainer: vllm/vllm-openai:nightly\n"
SERVE = ImageFacts("sha256:1", "vllm/vllm-openai:nightly", ("vllm", "serve"))
NGC = ImageFacts("sha256:2", "nvcr.io/nvidia/vllm:26.04-py3", ("/opt/nvidia/nvidia_entrypoint.sh",))


def read(text: str, name: str = "r") -> Preset:
    return preset_from(parse(text, "r.yaml"), name=name, origin=Origin.USER, file="r.yaml")


def shipped(name: str) -> Preset:
    return read((builtin_directory() / f"{name}.yaml").read_text(), name)


def fixture(name: str) -> Preset:
    return read((FIXTURES / name).read_text())


def planned(
    preset: Preset | str, *, image: ImageFacts | None = SERVE, env_file: str | None = None, **pairs: str
) -> LaunchPlan:
    preset = read(preset) if isinstance(preset, str) else preset
    return plan(preset, overrides_from_pairs(pairs), PATHS, image=image, env_file=env_file)


def env(launch: LaunchPlan) -> dict[str, str]:
    return {variable.name: variable.value for variable in launch.spec.env}


# --- the shipped recipes, flag by flag --------------------------------------------------------------------

# Each as published for the DGX Spark by the model's makers (see `source` in the file), one flag a line.
PUBLISHED_COMMANDS = {
    "qwen3.6-35b-a3b-nvfp4": """
        vllm serve nvidia/Qwen3.6-35B-A3B-NVFP4
        --port 8000
        --tensor-parallel-size 1
        --trust-remote-code
        --dtype auto
        --quantization modelopt
        --kv-cache-dtype fp8
        --attention-backend flashinfer
        --moe-backend marlin
        --gpu-memory-utilization 0.85
        --max-model-len 65536
        --max-num-seqs 4
        --max-num-batched-tokens 8192
        --enable-chunked-prefill
        --async-scheduling
        --enable-prefix-caching
        --speculative-config {"method":"mtp","num_speculative_tokens":3,"moe_backend":"triton"}
        --reasoning-parser qwen3
    """,
    "nemotron-3-nano-30b-a3b-nvfp4": """
        vllm serve nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4
        --served-model-name nemotron-3-nano
        --port 8000
        --tensor-parallel-size 1
        --trust-remote-code
        --max-model-len 262144
        --max-num-seqs 8
        --kv-cache-dtype fp8
        --enable-auto-tool-choice
        --tool-call-parser qwen3_coder
        --reasoning-parser-plugin /models/nano_v3_reasoning_parser.py
        --reasoning-parser nano_v3
    """,
    "gpt-oss-120b": """
        vllm serve openai/gpt-oss-120b
        --host 0.0.0.0
        --port 8000
        --max-model-len 131072
        --gpu-memory-utilization 0.85
        --max-num-seqs 4
        --enable-expert-parallel
    """,
    "cpu-smollm2": """
        vllm serve /models/smollm2
        --port 8000
        --served-model-name smollm2
        --max-model-len 2048
        --max-num-seqs 4
        --enforce-eager
        --kv-cache-memory-bytes 64M
    """,
}
PUBLISHED_ENV = {
    "qwen3.6-35b-a3b-nvfp4": {
        "VLLM_USE_FLASHINFER_MOE_FP4": "0",
        "VLLM_FP8_MOE_BACKEND": "flashinfer_cutlass",
        "FLASHINFER_DISABLE_VERSION_CHECK": "1",
        "CUTE_DSL_ARCH": "sm_121a",
    },
    "nemotron-3-nano-30b-a3b-nvfp4": {
        "VLLM_USE_FLASHINFER_MOE_FP4": "1",
        "VLLM_FLASHINFER_MOE_BACKEND": "throughput",
    },
    "gpt-oss-120b": {},
}
IMAGES = {
    "qwen3.6-35b-a3b-nvfp4": "vllm/vllm-openai:nightly",
    "nemotron-3-nano-30b-a3b-nvfp4": "nvcr.io/nvidia/vllm:25.12.post1-py3",
    "gpt-oss-120b": "nvcr.io/nvidia/vllm:26.04-py3",
    "cpu-smollm2": "spark-tui/vllm-cpu:0.32.0",
}


def words(lines: str) -> tuple[str, ...]:
    return tuple(word for line in lines.split("\n") for word in line.split())


@pytest.mark.parametrize("name", PUBLISHED_COMMANDS)
def test_a_shipped_recipe_gives_the_published_command(name: str) -> None:
    launch = planned(shipped(name), image=NGC)
    assert launch.spec.command == words(PUBLISHED_COMMANDS[name])
    assert launch.spec.image == IMAGES[name]


@pytest.mark.parametrize("name", PUBLISHED_ENV)
def test_a_shipped_recipe_gives_the_published_environment(name: str) -> None:
    ours = {"HF_HOME": "/models", "VLLM_ENGINE_READY_TIMEOUT_S": "3600", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1800"}
    assert env(planned(shipped(name))) == ours | PUBLISHED_ENV[name]


@pytest.mark.parametrize("name", PUBLISHED_COMMANDS)
def test_a_shipped_recipe_says_what_it_is_and_where_it_is_from(name: str) -> None:
    facts = shipped(name).facts
    assert facts.title and facts.description and facts.family and facts.publisher and facts.licence and facts.source
    assert facts.total_parameters and facts.context_tokens and facts.modalities
    assert all(speed.conditions for speed in facts.published)


def test_qwen_clears_the_entrypoint_so_that_any_image_runs_its_command() -> None:
    for image in (SERVE, NGC, None):
        launch = planned(shipped("qwen3.6-35b-a3b-nvfp4"), image=image)
        assert (launch.spec.entrypoint, launch.spec.command[:2]) == ((), ("vllm", "serve"))


def test_the_cpu_preset_starts_without_a_gpu_on_an_image_that_serves_by_itself() -> None:
    launch = planned(shipped("cpu-smollm2"))
    assert launch.spec.command[0] == "/models/smollm2"
    assert launch.spec.gpus is None
    assert launch.served_name == "smollm2"
    assert "VLLM_ENGINE_READY_TIMEOUT_S" not in env(launch)
    assert [mount.target for mount in launch.spec.mounts] == ["/models", "/root/.cache/vllm"]


# --- the container ----------------------------------------------------------------------------------------


def test_the_defaults_of_a_container() -> None:
    launch = planned(BASE, image=SERVE)
    spec = launch.spec
    assert (spec.name, spec.image, spec.entrypoint) == ("r", "vllm/vllm-openai:nightly", None)
    assert spec.command == words("org/m --host 0.0.0.0 --port 8000")
    assert spec.gpus == Gpus()
    assert (spec.ipc, spec.shm_size, spec.network) == ("", 10 * 1024**3, "")
    assert spec.ports == (PublishedPort(8000, 8000, "127.0.0.1"),)
    assert spec.ulimits == (Ulimit("memlock", -1, -1), Ulimit("stack", 67108864, 67108864))
    assert spec.restart == RestartPolicy("no")
    assert spec.oom_score_adj == 800
    assert not spec.privileged
    assert spec.env_files == ()
    assert spec.mounts == (
        Mount("/home/ada/vllm", "/models"),
        Mount("/home/ada/.cache/spark-tui/vllm-vllm-openai/vllm", "/root/.cache/vllm"),
        Mount("/home/ada/.cache/spark-tui/vllm-vllm-openai/flashinfer", "/root/.cache/flashinfer"),
        Mount("/home/ada/.cache/spark-tui/vllm-vllm-openai/triton", "/root/.triton"),
        Mount("/home/ada/.cache/spark-tui/vllm-vllm-openai/tilelang", "/root/.tilelang"),
    )
    assert launch.directories == tuple(mount.source for mount in spec.mounts)
    assert launch.base_url == "http://127.0.0.1:8000"
    assert launch.notes == ()


def test_labels_say_what_runs() -> None:
    spec = planned(BASE + "defaults: {served_model_name: otter}\nruntime: vllm-distributed\n", port="8123").spec
    assert dict(spec.labels[:-1]) == {
        LABEL_PRESET: "r",
        LABEL_MODEL: "org/m",
        LABEL_SERVED_NAME: "otter",
        LABEL_RUNTIME: "vllm",
        LABEL_PORT: "8123",
    }
    assert spec.labels[-1][0] == LABEL_SPEC_HASH


def test_the_fingerprint_changes_with_any_setting_and_with_nothing_else() -> None:
    hashes = {planned(BASE, **pairs).spec.label(LABEL_SPEC_HASH) for pairs in ({}, {"port": "8001"}, {"env.A": "1"})}
    assert len(hashes) == 3
    assert planned(BASE).spec == planned(BASE).spec


def test_keys_travel_in_a_file_and_only_its_path_is_seen() -> None:
    launch = planned(BASE, env_file="/run/keys/r.env", api_key="yes")
    assert launch.spec.env_files == ("/run/keys/r.env",)
    assert launch.spec.label(LABEL_API_KEY_FILE) == "/run/keys/r.env"
    assert planned(BASE, env_file="/run/keys/r.env").spec.label(LABEL_API_KEY_FILE) == ""


@pytest.mark.parametrize(
    ("text", "pairs", "port"),
    [
        ("", {"exposure": "lan"}, PublishedPort(8000, 8000, "0.0.0.0")),
        ("defaults: {port: 9000}\ncommand: vllm serve {model} --port {port}\n", {"port": "8500"},
            PublishedPort(9000, 8500)),
        ("defaults: {port: 9000}\ncommand: vllm serve {model}\n", {}, PublishedPort(8000, 9000)),
    ],
    ids=["lan", "port within", "only the host's"],
)  # fmt: skip
def test_the_port_of_the_host_is_not_the_one_within(text: str, pairs: dict[str, str], port: PublishedPort) -> None:
    assert planned(BASE + text, **pairs).spec.ports == (port,)


@pytest.mark.parametrize("command", ["vllm serve {model} --host {host}", "vllm serve {model} --host localhost"])
def test_a_server_that_listens_to_itself_alone_is_opened_within_its_container(command: str) -> None:
    launch = planned(BASE + f"defaults: {{host: 127.0.0.1}}\ncommand: {command}\n")
    assert launch.spec.command == ("org/m", "--host", "0.0.0.0")
    assert launch.spec.ports[0].host_ip == "127.0.0.1"
    assert any("0.0.0.0" in note for note in launch.notes)


HOST_NETWORK = BASE + "executor_config: {network: host}\ndefaults: {port: 8000, host: 0.0.0.0}\n"


@pytest.mark.parametrize(
    "command", ["vllm serve {model} --host {host} --port {port}", "vllm serve {model} --port 8000", ""]
)
def test_on_the_hosts_network_the_server_itself_keeps_to_loopback(command: str) -> None:
    text = HOST_NETWORK + (f"command: {command}\n" if command else "")
    local, lan = planned(text, port="8700"), planned(text, port="8700", exposure="lan")
    assert local.spec.network == "host"
    assert local.spec.ports == ()
    assert local.host_port == 8700
    for launch, host in ((local, "127.0.0.1"), (lan, "0.0.0.0")):
        command_words = launch.spec.command
        assert command_words[command_words.index("--host") + 1] == host
        assert command_words[command_words.index("--port") + 1] == "8700"


def test_a_script_on_the_hosts_network_that_cannot_be_kept_to_loopback_is_refused() -> None:
    text = HOST_NETWORK + "command: cd /x && vllm serve {model}\n"
    with pytest.raises(PresetError, match=r"must listen on 127\.0\.0\.1"):
        planned(text)
    with_host = HOST_NETWORK + "command: cd /x && vllm serve {model} --host {host} --port {port}\n"
    assert "--host 127.0.0.1" in planned(with_host).spec.command[2]


def test_a_recipes_own_container_options_win() -> None:
    text = """
executor_config: {ipc: host, restart_policy: "on-failure:3", gpus: "device=0", ulimit: [memlock=1024, nofile=5:6],
  privileged: true, cap_add: [IPC_LOCK], devices: /dev/infiniband, user: "1000:1000"}
"""
    launch = planned(BASE + text)
    spec = launch.spec
    assert (spec.ipc, spec.shm_size) == ("host", 0)
    assert spec.restart == RestartPolicy("on-failure", 3)
    assert spec.gpus == Gpus(device_ids=("0",))
    assert spec.ulimits == (Ulimit("memlock", 1024, 1024), Ulimit("stack", 67108864, 67108864), Ulimit("nofile", 5, 6))
    assert (spec.privileged, spec.cap_add, spec.devices, spec.user) == (
        True,
        ("IPC_LOCK",),
        ("/dev/infiniband",),
        "1000:1000",
    )
    assert [mount.target for mount in spec.mounts] == ["/models"], "the caches lie in root's home"


def test_restarting_without_end_is_said() -> None:
    for policy in ("unless-stopped", "always", "on-failure"):
        assert any(
            "without end" in note for note in planned(BASE + f"executor_config: {{restart_policy: {policy}}}").notes
        )
    assert planned(BASE + "executor_config: {restart_policy: 'on-failure:3'}").notes == ()


@pytest.mark.parametrize(("stated", "size"), [("shm_size: 16g", 16 * 1024**3), ("ipc: host\n  shm_size: 1g", 1024**3)])
def test_shared_memory_is_as_stated(stated: str, size: int) -> None:
    assert planned(BASE + f"executor_config:\n  {stated}\n").spec.shm_size == size


# --- the command ------------------------------------------------------------------------------------------


def test_a_sparkrun_recipe_of_others_is_planned() -> None:
    launch = planned(fixture("sparkrun-solo.yaml"), image=ImageFacts("sha256:3", "x", ()))
    assert launch.spec.command == words(
        """vllm serve example-org/Otter-30B-A3B-NVFP4 --trust-remote-code --gpu-memory-utilization 0.82 -tp 1 -pp 1
        --max-model-len 131072 --load-format fastsafetensors --enable-auto-tool-choice --tool-call-parser hermes
        --reasoning-parser qwen3 --host 0.0.0.0 --port 8010"""
    )
    assert env(launch)["WORKDIR_NOTE"] == "131072 tokens of example-org/Otter-30B-A3B-NVFP4"
    assert launch.spec.ports == (PublishedPort(8010, 8010),)


def test_without_a_command_the_flags_come_from_the_defaults() -> None:
    launch = planned(fixture("sparkrun-without-command.yaml"), image=NGC)
    assert launch.spec.command == (
        *words("vllm serve example-org/Wren-8B --host 0.0.0.0 --port 8000 --max-model-len 32768 --speculative-config"),
        '{"method":"ngram","num_speculative_tokens":3}',
        *words("--no-enable-prefix-caching --trust-remote-code"),
    )
    assert any("favourite_colour" in note for note in launch.notes)


def test_a_command_that_installs_first_stays_one_script() -> None:
    launch = planned(fixture("needs-shell.yaml"), image=NGC)
    assert launch.spec.command[:2] == ("bash", "-lc")
    assert launch.spec.command[2].startswith("pip install --no-cache-dir scipy && ")
    assert launch.spec.command[2].endswith("--max-model-len 131072")
    assert "\\" not in launch.spec.command[2]


def test_a_command_that_needs_a_shell_gets_one_and_that_is_said() -> None:
    launch = planned(BASE + "command: pip install scipy && vllm serve {model} --port {port}\n", image=SERVE)
    assert launch.spec.command == ("bash", "-c", "pip install scipy && vllm serve org/m --port 8000")
    assert launch.spec.entrypoint == (), "vllm serve would take bash for a model"
    assert any("&&" in note for note in launch.notes)


def test_a_value_cannot_smuggle_shell_into_a_command() -> None:
    with pytest.raises(UsageError, match="read by the shell"):
        planned(BASE + "command: vllm serve {model} --dtype {dtype}\ndefaults: {dtype: auto}\n", dtype="auto;reboot")


def test_a_missing_template_value_is_named_with_its_remedy() -> None:
    text = BASE + "command: vllm serve {model} --max-model-len {max_model_len} --moe-backend {moe_backend}\n"
    assert missing_values(read(text)) == ("max_model_len", "moe_backend")
    with pytest.raises(PresetError, match="max_model_len, moe_backend") as raised:
        planned(text)
    assert "max_model_len=" in raised.value.remedy
    launch = planned(text, max_model_len="4096", moe_backend="marlin")
    assert launch.spec.command == words("org/m --max-model-len 4096 --moe-backend marlin")


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ({"max_model_len": "4096"}, "org/m --max-num-seqs 4 --max-model-len 4096"),
        ({"max_num_seqs": "2"}, "org/m --max-num-seqs 2"),
        ({"served_model_name": "otter"}, "org/m --max-num-seqs 4 --served-model-name otter"),
        ({"kv_cache_dtype": "fp8"}, "org/m --max-num-seqs 4 --kv-cache-dtype fp8"),
        ({"gpu_memory_utilization": "0.5"}, "org/m --max-num-seqs 4 --gpu-memory-utilization 0.5"),
        ({"enable_prefix_caching": "no"}, "org/m --max-num-seqs 4 --no-enable-prefix-caching"),
        ({"extra_args": "--seed 7"}, "org/m --max-num-seqs 4 --seed 7"),
    ],
)
def test_an_override_has_effect_even_where_the_template_has_no_place_for_it(
    pairs: dict[str, str], expected: str
) -> None:
    assert planned(BASE + "command: vllm serve {model} --max-num-seqs 4\n", **pairs).spec.command == words(expected)


def test_an_override_reaches_its_place_in_the_template() -> None:
    launch = planned(
        shipped("qwen3.6-35b-a3b-nvfp4"), max_model_len="32768", served_model_name="q", kv_cache_dtype="auto"
    )
    command = launch.spec.command
    assert command[command.index("--max-model-len") + 1] == "32768"
    assert command[command.index("--kv-cache-dtype") + 1] == "auto"
    assert launch.served_name == "q"
    assert launch.spec.label(LABEL_SERVED_NAME) == "q"


@pytest.mark.parametrize(
    ("key", "near"),
    [("prot", "port"), ("max_model_length", "max_model_len"), ("gpu_memory_utilisation", "gpu_memory_utilization")],
)
def test_a_misspelt_key_is_answered_with_the_right_one(key: str, near: str) -> None:
    with pytest.raises(UsageError) as raised:
        planned(BASE, **{key: "1"})
    assert near in raised.value.remedy


def test_an_override_without_a_place_in_a_script_is_refused() -> None:
    with pytest.raises(UsageError, match="shell script"):
        planned(fixture("needs-shell.yaml"), max_num_seqs="2")
    assert "--max-model-len 99" in planned(fixture("needs-shell.yaml"), max_model_len="99").spec.command[2]


def test_an_api_key_in_the_command_never_reaches_it() -> None:
    with pytest.raises(UsageError):
        planned(BASE, extra_args="--api-key x")
    preset = read(BASE + "defaults: {flag: --api-k}\ncommand: vllm serve {model} {flag}ey x\n")
    with pytest.raises(PresetError, match="API key"):
        planned(preset)


def test_an_api_key_for_an_engine_that_we_do_not_know_is_refused() -> None:
    with pytest.raises(UsageError, match="atlas"):
        planned(BASE + "runtime: atlas\ncommand: atlas-server {model}\n", api_key="yes")


# --- other serving runtimes -------------------------------------------------------------------------------

ANY = ImageFacts("i", "x")


@pytest.mark.parametrize("runtime", ["trtllm", "ollama"])
def test_a_key_for_a_server_that_knows_none_is_refused_with_what_to_do(runtime: str) -> None:
    text = BASE + f"runtime: {runtime}\ncommand: serve-it {{model}} --host 0.0.0.0\n"
    with pytest.raises(UsageError, match="has no API keys") as raised:
        planned(text, exposure="lan")
    assert "api_key=no" in raised.value.remedy
    assert planned(text, exposure="lan", api_key="no").spec.env_files == ()


def test_a_server_that_takes_its_key_by_option_reads_it_from_a_file_that_its_container_writes() -> None:
    text = BASE + "runtime: sglang\ncommand: sglang serve --model-path {model} --host {host} --port {port}\n"
    launch = planned(text, image=ANY, env_file="/k/r.env", api_key="yes")
    shell, flag, script, name, *server = launch.spec.command
    assert (shell, flag, name) == ("sh", "-c", "sh")
    assert "$SGLANG_API_KEY" in script and script.endswith('exec "$@"')
    assert server[-2] == "--config" and server[-1] in script
    assert tuple(server[:-2]) == planned(text, image=ANY).spec.command
    assert launch.spec.label(LABEL_API_KEY_FILE) == "/k/r.env"
    with pytest.raises(UsageError, match="--config"):
        planned(text, api_key="yes", extra_args="--config mine.yaml")


def test_the_key_file_that_is_written_is_yaml_for_the_owner_alone(tmp_path: Path) -> None:
    text = BASE + "runtime: sglang\ncommand: cat --host 0.0.0.0\n"
    command = planned(text, image=ANY, env_file="/k/r.env", api_key="yes").spec.command
    file = tmp_path / "key.yaml"
    run = ("sh", "-c", command[2].replace(command[-1], str(file)), "sh", "cat", str(file))
    environment = {"SGLANG_API_KEY": "s3cret", "PATH": os.environ["PATH"]}
    told = subprocess.run(run, env=environment, capture_output=True, check=True)
    assert told.stdout == b'api-key: "s3cret"\n'
    assert file.stat().st_mode & 0o777 == 0o600


def test_another_engine_runs_its_own_command() -> None:
    text = BASE + "runtime: llama-cpp\ncommand: llama-server -m /models/x.gguf --port {port}\n"
    launch = planned(text, image=ANY)
    assert launch.spec.command == words("llama-server -m /models/x.gguf --port 8080")
    assert launch.spec.label(LABEL_RUNTIME) == "llama-cpp"
    with pytest.raises(UsageError, match="moe_backend"):
        planned(BASE + "command: llama-server -m x\n", moe_backend="marlin")


@pytest.mark.parametrize(
    ("command", "pairs", "expected"),
    [
        ("llama-server -m x -c 8", {"max_model_len": "4096"}, "llama-server -m x --ctx-size 4096"),
        ("llama-server -m x", {"max_num_seqs": "2"}, "llama-server -m x --parallel 2"),
        (
            "trtllm-serve m --host 0.0.0.0 --max_seq_len 8",
            {"max_model_len": "4096"},
            "trtllm-serve m --host 0.0.0.0 --max_seq_len 4096",
        ),
        (
            "sglang serve --model-path m --host 0.0.0.0 --mem-fraction-static=0.9",
            {"gpu_memory_utilization": "0.5"},
            "sglang serve --model-path m --host 0.0.0.0 --mem-fraction-static 0.5",
        ),
        ("sglang serve --model-path m", {}, "sglang serve --model-path m --host 0.0.0.0"),
        ("trtllm-serve m", {}, "trtllm-serve m --host 0.0.0.0"),
    ],
)  # fmt: skip
def test_an_override_is_spelt_as_the_engine_spells_it(command: str, pairs: dict[str, str], expected: str) -> None:
    assert planned(BASE + f"command: {command}\n", image=ANY, **pairs).spec.command == words(expected)


@pytest.mark.parametrize(
    ("command", "served"),
    [
        ("llama-server -m x --alias q", "q"),
        ("llama-server -m x -a q", "q"),
        ("sglang serve --model-path m --served-model-name q", "q"),
        ("trtllm-serve m --served_model_name q", "q"),
        ("trtllm-serve m", "org/m"),
    ],
)
def test_the_served_name_is_where_the_engine_has_it(command: str, served: str) -> None:
    assert planned(BASE + f"command: {command}\n", image=ANY).served_name == served


OLLAMA = "model: qwen3:32b\ncontainer: ollama/ollama\nruntime: ollama\ncommand: ollama serve\n"


def test_ollama_is_told_its_address_in_a_variable_and_needs_no_hub() -> None:
    launch = planned(OLLAMA, image=ImageFacts("i", "x", ("/bin/ollama",)), port="9000")
    assert launch.spec.command == ("serve",)
    assert env(launch) == {"OLLAMA_HOST": "0.0.0.0:11434"}
    assert launch.spec.ports == (PublishedPort(11434, 9000),)
    assert [mount.target for mount in launch.spec.mounts] == ["/models"], "it compiles nothing"
    inner = planned(OLLAMA + "defaults: {port: 7000}\n", image=ANY)
    assert env(inner) == {"OLLAMA_HOST": "0.0.0.0:7000"}
    assert inner.spec.ports == (PublishedPort(7000, 7000),)


def test_ollama_on_the_hosts_network_keeps_to_loopback_whatever_the_recipe_says() -> None:
    text = OLLAMA + "executor_config: {network: host}\nenv: {OLLAMA_HOST: '0.0.0.0'}\n"
    assert env(planned(text, image=ANY))["OLLAMA_HOST"] == "127.0.0.1:11434"
    assert env(planned(text, image=ANY, port="7000"))["OLLAMA_HOST"] == "127.0.0.1:7000"
    assert env(planned(text, image=ANY, exposure="lan", api_key="no"))["OLLAMA_HOST"] == "0.0.0.0:11434"


# --- images that run as they are --------------------------------------------------------------------------

AS_IS = (
    "model: org/m\ncontainer: example/image:1\nmetadata: {spark_tui: {runs_as_is: true}}\n"
    "defaults: {port: 9000, max_model_len: 8, served_model_name: q}\n"
    "env: {LENGTH: '{config.max_model_len}', NAME: '{config.served_model_name}'}\n"
)


def test_an_image_that_runs_as_it_is_takes_its_settings_from_its_environment() -> None:
    launch = planned(AS_IS, max_model_len="16", port="9100")
    assert (launch.spec.command, launch.spec.entrypoint) == ((), None)
    assert (env(launch)["LENGTH"], env(launch)["NAME"]) == ("16", "q")
    assert launch.served_name == "q"
    assert launch.spec.ports == (PublishedPort(9000, 9100),)
    assert env(planned(AS_IS, **{"env.LENGTH": "32"}))["LENGTH"] == "32"


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ({"max_num_seqs": "2"}, "`max_num_seqs` cannot be set"),
        ({"extra_args": "--seed 1"}, "runs as it is"),
        ({"without": "seed"}, "runs as it is"),
    ],
)
def test_what_such_an_image_cannot_be_told_is_refused(pairs: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        planned(AS_IS, **pairs)


def test_a_setting_that_the_image_reads_from_a_variable_is_named_with_it() -> None:
    with pytest.raises(UsageError) as raised:
        planned(AS_IS.replace("example/image:1", "ghcr.io/aeon-7/vllm-dflash:latest"), kv_cache_dtype="fp8")
    assert raised.value.remedy == "Set it: env.KV_CACHE_DTYPE=VALUE"


def test_such_an_image_is_never_put_on_the_hosts_network() -> None:
    with pytest.raises(PresetError, match="host's network"):
        planned(AS_IS + "executor_config: {network: host}\n")


def test_a_pinned_image_and_a_pinned_revision_are_asked_for() -> None:
    assert planned(BASE + "model_revision: abc1\ncommand: vllm serve {model}\n").spec.command[1:] == (
        "--revision",
        "abc1",
    )
    digest = "sha256:" + "a1" * 32
    preset = read(BASE + f"metadata: {{spark_tui: {{image_digest: '{digest}'}}}}\n")
    assert planned(preset).spec.image == f"vllm/vllm-openai:nightly@{digest}"
    assert preset.image == "vllm/vllm-openai:nightly"


# --- what is not here yet, and what is refused ------------------------------------------------------------


@pytest.mark.parametrize(
    ("container", "command", "note"),
    [
        ("vllm/vllm-openai:nightly", ("org/m",), "vllm serve"),
        ("nvcr.io/nvidia/vllm:26.04-py3", ("vllm", "serve", "org/m"), "nvidia_entrypoint.sh"),
        ("example/other:1", ("vllm", "serve", "org/m"), "runs its arguments"),
    ],
)
def test_an_absent_image_is_planned_by_its_name_and_that_is_said(
    container: str, command: tuple[str, ...], note: str
) -> None:
    launch = planned(f"model: org/m\ncontainer: {container}\ncommand: vllm serve {{model}}\n", image=None)
    assert launch.spec.command == command
    assert any("not downloaded" in said and note in said for said in launch.notes)


def test_a_cluster_recipe_is_refused_on_one_spark() -> None:
    with pytest.raises(RefusedError, match="needs 2 nodes"):
        planned(fixture("sparkrun-cluster.yaml"))


def test_hooks_and_mods_are_said_and_not_run() -> None:
    text = BASE + "pre_exec: [echo hi]\nmods: [patches/x]\noverrides: [{when: {nodes: 1}, defaults: {port: 1}}]\n"
    notes = " ".join(planned(text).notes)
    assert "does not run them" in notes
    assert "patches/x" in notes
    assert "overrides" in notes
    assert "echo" not in str(planned(text).spec)


@pytest.mark.parametrize(
    ("model", "inside"),
    [
        ("/models/otter", "/models/otter"),
        ("~/vllm/otter", "/models/otter"),
        ("/home/ada/vllm/hub/otter", "/models/hub/otter"),
        ("org/m", "org/m"),
        ("org/m:Q4_K_M", "org/m:Q4_K_M"),
    ],
)
def test_a_model_of_the_store_is_named_as_the_container_sees_it(model: str, inside: str) -> None:
    launch = planned(f"model: {model}\ncontainer: x\ncommand: vllm serve {{model}}\n", image=NGC)
    assert launch.model == inside
    assert launch.spec.command[2] == inside
    assert launch.spec.label(LABEL_MODEL) == inside


def test_folders_of_the_store_are_told_from_hub_names() -> None:
    names = {"/models/a": "a", "/models/hub/a/": "hub/a", "/models": ".", "org/m": None, "/modelsx/a": None}
    assert {model: local_model_path(model) for model in names} == names


@pytest.mark.parametrize("model", ["/etc/models/x", "~/other/x", "/home/ada/vllm2/x"])
def test_a_model_outside_the_store_is_refused(model: str) -> None:
    with pytest.raises(RefusedError, match="outside the model store"):
        planned(f"model: {model}\ncontainer: x\n")


def test_a_recipes_mounts_stay_within_the_store() -> None:
    text = (
        BASE + "executor_config: {volumes: ['~/vllm/draft:/draft:ro', notes:/notes, /home/ada/vllm/t:/root/.triton]}\n"
    )
    mounts = planned(text).spec.mounts
    assert Mount("/home/ada/vllm/draft", "/draft", True) in mounts
    assert Mount("/home/ada/vllm/notes", "/notes") in mounts
    assert [m.source for m in mounts if m.target == "/root/.triton"] == ["/home/ada/vllm/t"]


@pytest.mark.parametrize("source", ["/", "/etc", "/var/run/docker.sock", "~", "~/.ssh"])
def test_a_mount_of_anything_else_is_refused(source: str) -> None:
    with pytest.raises(PresetError, match="outside the model store"):
        planned(BASE + f"executor_config: {{volumes: ['{source}:/x']}}\n")


def test_what_speaks_against_a_launch_is_the_rules_to_say_and_no_note() -> None:
    text = BASE + "metadata: {spark_tui: {gated: true, required_files: [{target: f.py, repo: org/m, file: f.py}]}}\n"
    assert planned(text, exposure="lan", api_key="no").notes == ()


def test_a_persons_environment_wins_over_the_recipes_and_ours() -> None:
    text = BASE + "env: {A: '1', VLLM_ENGINE_READY_TIMEOUT_S: '60'}\n"
    assert env(planned(text))["VLLM_ENGINE_READY_TIMEOUT_S"] == "60"
    assert env(planned(text, **{"env.A": "2"}))["A"] == "2"


@pytest.mark.parametrize(
    ("given", "mount"),
    [
        ("HF_HOME: /hf", Mount("/home/ada/vllm", "/hf")),
        ("HF_HOME: /hf/", Mount("/home/ada/vllm", "/hf")),
        ("HF_HUB_CACHE: /weights", Mount("/home/ada/vllm/hub", "/weights")),
        ("HF_HOME: /elsewhere, HUGGINGFACE_HUB_CACHE: /weights", Mount("/home/ada/vllm/hub", "/weights")),
        ("HF_HUB_CACHE: /models/hub", None),
    ],
)
def test_the_store_lies_where_the_environment_has_the_engine_look(given: str, mount: Mount | None) -> None:
    usual, launch = planned(BASE).spec.mounts, planned(BASE + f"env: {{{given}}}\n")
    assert launch.spec.mounts == (*usual, *([mount] if mount else ()))
    assert set(launch.directories) == {each.source for each in launch.spec.mounts}, "Docker makes none of them as root"
    assert reads_store(launch)
    assert launch.notes == ()


def test_a_cache_that_a_recipe_mounts_itself_is_left_alone() -> None:
    launch = planned(BASE + "executor_config: {volumes: ['own:/own']}\nenv: {HF_HOME: /own}\n")
    assert [each.source for each in launch.spec.mounts if each.target == "/own"] == ["/home/ada/vllm/own"]
    assert not reads_store(launch)
    assert any("not read from the store" in note for note in launch.notes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("defaults: {a: 'x{b}', b: 'y{a}'}\ncommand: vllm serve {model} {a}\n", "circle"),
        ("command: vllm serve {model} --x 'a\n", "not closed"),
    ],
)
def test_a_command_that_cannot_be_read_is_refused(text: str, says: str) -> None:
    with pytest.raises(PresetError, match=says):
        planned(BASE + text)


@pytest.mark.parametrize("paths", [("vllm", "/c"), ("/v:w", "/c"), ("/v", "~/c")])
def test_host_paths_are_absolute(paths: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="absolute"):
        HostPaths(*paths)


def test_every_error_of_a_plan_says_what_to_do() -> None:
    for text in ("model: /x\ncontainer: x\n", BASE + "min_nodes: 2\n", BASE + "command: vllm serve {x}\n"):
        with pytest.raises(SparkError) as raised:
            plan(read(text), Overrides(), PATHS)
        assert raised.value.summary.endswith(".")
        assert raised.value.remedy
