"""What differs between serving runtimes; and of a container: its server, port, reach, model and state."""

from __future__ import annotations

import pytest

from spark_tui.base.engine.container import (
    LABEL_API_KEY_FILE,
    LABEL_PORT,
    LABEL_RUNTIME,
    LABEL_SERVED_NAME,
    ContainerFacts,
    ContainerStatus,
    PublishedPort,
)
from spark_tui.base.engine.metrics_page import WANTED_NAMES, Family
from spark_tui.base.engine.runtimes import (
    ANY,
    KEY_VARIABLES,
    RUNTIMES,
    VLLM,
    KeyDelivery,
    Runtime,
    is_known,
    is_server_program,
    recognised,
    runtime_named,
    server_of,
    with_tag,
)
from spark_tui.base.engine.state import (
    Endpoint,
    EngineState,
    Exposure,
    Health,
    ServedModel,
    api_port,
    bare_engine,
    endpoint_of,
    exposure_of,
    proven,
    runtime_of,
    server_at,
    state_of,
)
from spark_tui.base.secret import Secret, is_secret_name
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.observe.explain.model.view import EngineView
from tests.cases import all_cases
from tests.shipped import SHIPPED_FILES

VLLM_IMAGE = "vllm/vllm-openai:nightly"
SHIPPED = SHIPPED_FILES.load().presets


def container(**changes: object) -> ContainerFacts:
    values: dict[str, object] = {
        "id": "abc",
        "name": "engine",
        "image": "example/engine",
        "image_id": "sha256:1",
        "status": ContainerStatus.RUNNING,
    }
    return ContainerFacts(**(values | changes))  # type: ignore[arg-type]


# --- the table --------------------------------------------------------------------------------------------


def test_vllm_comes_first_and_the_five_are_distinct() -> None:
    assert [runtime.id for runtime in RUNTIMES][:5] == ["vllm", "sglang", "trtllm", "llama-cpp", "ollama"]
    assert RUNTIMES[0] is VLLM
    assert len({runtime.title for runtime in RUNTIMES}) == len(RUNTIMES)


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: runtime.id)
def test_every_runtime_can_be_asked_and_recognised(runtime: Runtime) -> None:
    assert runtime.health_path.startswith("/") and runtime.models_path.startswith("/v1/")
    assert all(path.startswith("/") for path in runtime.version_paths)
    assert 0 < runtime.port < 65536 and runtime.health_seconds > 0
    assert runtime.host_option or runtime.host_variable, "where it listens can be set"
    assert bool(runtime.key_variable) == (runtime.key_way is not KeyDelivery.NONE), (
        "a key travels in a variable or not at all"
    )
    if runtime.key_variable:
        assert is_secret_name(runtime.key_variable)
        assert runtime.key_variable in KEY_VARIABLES
    for words in runtime.programs:
        assert recognised("example/image", words) == runtime.id
        assert runtime_of(container(argv=(*words, "model"))) == runtime.id
    presets = [preset for preset in SHIPPED if preset.engine == runtime.id]
    assert bool(presets) == runtime.launched, "what spark-tui launches has presets"
    assert {recognised(preset.image, ()) for preset in presets} <= {"", runtime.id}


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: runtime.id)
def test_a_file_alone_makes_an_engine_known(runtime: Runtime) -> None:
    if runtime is ANY:
        return
    assert runtime.owners and all(owner == owner.lower() for owner in runtime.owners)
    for mark in runtime.marks:
        assert recognised(f"registry.example/{mark}:latest", ("python3", "main.py")) == runtime.id
    server = server_at("http://10.0.0.7:9000/v1")
    for owner in runtime.owners:
        found = proven(server, (ServedModel("q", owner=owner.upper()),))
        assert found is not None and runtime_of(found) == runtime.id
    assert is_known(runtime.id) == runtime.launched
    for name, family, *_ in (*runtime.series, *runtime.histograms):
        assert Family[family.upper()] and name
        assert any(wanted.startswith(runtime.series_prefix + name) for wanted in WANTED_NAMES)


def test_an_unknown_server_is_asked_as_vllm_is() -> None:
    assert runtime_named("atlas") is VLLM
    assert not is_known("atlas")
    assert is_known("llama-cpp")


@pytest.mark.parametrize(
    ("word", "expected"), [("/app/llama-server", True), ("/bin/ollama", True), ("python3", False), ("bash", False)]
)
def test_a_server_is_told_from_a_launcher(word: str, expected: bool) -> None:
    assert is_server_program(word) is expected


@pytest.mark.parametrize(
    ("name", "listed"),
    [("qwen3", "qwen3:latest"), ("qwen3:32b", "qwen3:32b"), ("host:5000/me/qwen3", "host:5000/me/qwen3:latest")],
)
def test_a_model_of_ollama_has_a_tag(name: str, listed: str) -> None:
    assert with_tag(name) == listed


def test_a_preset_knows_its_server() -> None:
    assert Preset("a", SHIPPED[0].origin, "a.yaml", "m", "i", runtime="vllm-ray").server is VLLM


# --- containers -------------------------------------------------------------------------------------------


@all_cases(
    ("image", "argv", "labels", "runtime"),
    [
        ("vllm/vllm-openai:nightly", (), (), "vllm"),
        ("nvcr.io/nvidia/vllm:26.04-py3", ("/opt/entry.sh",), (), "vllm"),
        ("vllm-node", ("sleep", "infinity"), (), "vllm"),
        ("my/thing", ("vllm", "serve", "m"), (), "vllm"),
        ("lmsysorg/sglang:spark", (), (), "sglang"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1", (), (), "trtllm"),
        ("x", ("/app/llama-server", "-m", "x.gguf"), (), "llama-cpp"),
        ("ollama/ollama", (), (), "ollama"),
        ("my/thing", (), ((LABEL_RUNTIME, "vllm"),), "vllm"),
        ("my/thing", ("/run.sh",), ((LABEL_RUNTIME, "atlas"),), "atlas"),
        (VLLM_IMAGE, ("/run.sh", "sglang", "serve"), ((LABEL_RUNTIME, "vllm"),), "sglang"),
        (VLLM_IMAGE, ("tini", "--", "/usr/bin/python3.12", "/usr/local/bin/vllm", "serve", "m"), (), "vllm"),
        ("x", ("bash", "-lc", "pip install x && HF_HOME=/x exec vllm serve m | tee log"), (), "vllm"),
        (VLLM_IMAGE, ("bash", "-c", "hf download a/b && /start.sh"), (), "vllm"),
        (VLLM_IMAGE, ("sh", "-c", 'exec "$@"', "sh", "python3", "-m", "sglang.launch_server"), (), "sglang"),
        ("postgres:17", ("postgres",), (), ""),
        ("my/thing", ("python", "-c", "print('talk of vllm later')"), (), ""),
    ],
)
def test_a_serving_container_is_recognised(image: str, argv: tuple, labels: tuple, runtime: str) -> None:
    assert runtime_of(container(image=image, argv=argv, labels=labels)) == runtime


@all_cases(
    "command",
    [
        "vllm bench serve --model m", "vllm chat --url http://127.0.0.1:8000/v1", "vllm complete -q x",
        "/opt/nvidia/nvidia_entrypoint.sh vllm bench latency", "python3 -m vllm.benchmarks.serve",
        "python3 -m sglang.bench_serving --backend vllm", "tini -- /usr/bin/python3 /app/benchmark_serving.py",
        "lm_eval --model local-completions", "python -m lm_eval --model vllm", "genai-perf profile -m m",
        "curl -s http://127.0.0.1:8000/health", "huggingface-cli download a/b", "hf download a/b", "ollama run qwen3",
    ],
)  # fmt: skip
def test_a_container_that_runs_a_client_is_no_engine(command: str) -> None:
    """In an engine's image too, also within a shell, and with our labels on it."""
    waits = f"until curl -s http://127.0.0.1:8000/health; do sleep 1; done; {command} | tee log"
    for argv in (tuple(command.split()), ("bash", "-c", waits)):
        assert runtime_of(container(image=VLLM_IMAGE, argv=argv)) == ""
        assert runtime_of(container(image=VLLM_IMAGE, argv=argv, labels=((LABEL_RUNTIME, "vllm"),))) == ""


@all_cases(
    ("changes", "port"),
    [
        ({"labels": ((LABEL_PORT, "8123"),)}, None),
        ({"labels": ((LABEL_PORT, "8123"),), "network_mode": "host"}, 8123),
        ({"labels": ((LABEL_PORT, "8123"),), "network_mode": "host", "argv": ("vllm", "serve", "--port", "1")}, 1),
        ({"labels": ((LABEL_PORT, "8123"),), "ports": (PublishedPort(8000, 9000),)}, 9000),
        ({"labels": ((LABEL_PORT, "2"),), "ports": (PublishedPort(70, 1), PublishedPort(80, 2))}, 2),
        ({"labels": ((LABEL_PORT, "3"),), "ports": (PublishedPort(70, 1), PublishedPort(80, 2))}, 1),
        ({"ports": (PublishedPort(8000, 9000),)}, 9000),
        (
            {
                "argv": ("vllm", "serve", "m", "--port", "8080"),
                "ports": (PublishedPort(9100, 1), PublishedPort(8080, 2)),
            },
            2,
        ),
        ({"argv": ("vllm", "serve", "m", "--port=8080"), "network_mode": "host"}, 8080),
        ({"network_mode": "host"}, 8000),
        ({"ports": (PublishedPort(8000, 9000, protocol="udp"),)}, None),
        ({}, None),
    ],
)
def test_the_api_port_is_the_published_one(changes: dict, port: int | None) -> None:
    assert api_port(container(**({"image": VLLM_IMAGE} | changes))) == port


@pytest.mark.parametrize(
    ("image", "argv", "port"),
    [
        ("lmsysorg/sglang:spark", (), 30000),
        ("ghcr.io/ggml-org/llama.cpp:server", ("/app/llama-server", "-m", "x"), 8080),
        ("ollama/ollama", ("/bin/ollama", "serve"), 11434),
        ("nvcr.io/nvidia/tensorrt-llm/release:1", ("trtllm-serve", "m"), 8000),
        ("vllm/vllm-openai:nightly", (), 8000),
    ],
)
def test_the_port_of_a_foreign_server_is_its_own_default(image: str, argv: tuple[str, ...], port: int) -> None:
    ports = (PublishedPort(1234, 1), PublishedPort(port, 4000))
    assert api_port(container(image=image, argv=argv, ports=ports)) == 4000
    assert api_port(container(image=image, argv=argv, network_mode="host")) == port


LAN = (PublishedPort(8000, 8000, "0.0.0.0"),)


@all_cases(
    ("changes", "exposure"),
    [
        ({"image": VLLM_IMAGE, "ports": (PublishedPort(8000, 8000, "127.0.0.1"),)}, Exposure.LOCAL),
        ({"image": VLLM_IMAGE, "ports": (PublishedPort(8000, 8000, "::1"),)}, Exposure.LOCAL),
        ({"image": VLLM_IMAGE, "ports": LAN}, Exposure.LAN_NO_KEY),
        ({"image": VLLM_IMAGE, "ports": (PublishedPort(8000, 8000, ""),)}, Exposure.LAN_NO_KEY),
        ({"image": VLLM_IMAGE, "ports": LAN, "labels": ((LABEL_API_KEY_FILE, "/k"),)}, Exposure.LAN),
        ({"image": VLLM_IMAGE, "ports": LAN, "environment": ("PATH", "VLLM_API_KEY")}, Exposure.LAN),
        ({"image": VLLM_IMAGE, "network_mode": "host"}, Exposure.LAN_NO_KEY),
        (
            {"image": VLLM_IMAGE, "network_mode": "host", "argv": ("vllm", "serve", "m", "--host", "127.0.0.1")},
            Exposure.LOCAL,
        ),
        ({}, Exposure.NONE),
        ({"argv": ("llama-server", "--api-key-file", "/k"), "ports": LAN}, Exposure.LAN),
        ({"argv": ("llama-server",), "environment": ("LLAMA_API_KEY",), "ports": LAN}, Exposure.LAN),
        ({"argv": ("sglang", "serve", "--api-key=x"), "ports": LAN}, Exposure.LAN),
        ({"argv": ("llama-server",), "environment": ("VLLM_API_KEY",), "ports": LAN}, Exposure.LAN_NO_KEY),
        ({"image": "ollama/ollama", "environment": ("OLLAMA_API_KEY",), "ports": LAN}, Exposure.LAN_NO_KEY),
        ({"argv": ("sglang", "serve"), "network_mode": "host"}, Exposure.LOCAL),
        ({"argv": ("trtllm-serve", "m"), "network_mode": "host"}, Exposure.LOCAL),
        ({"argv": ("sglang", "serve", "--host", "0.0.0.0"), "network_mode": "host"}, Exposure.LAN_NO_KEY),
        ({"argv": ("llama-server",), "environment": ("LLAMA_ARG_HOST",), "network_mode": "host"}, Exposure.LAN_NO_KEY),
        ({"image": "ollama/ollama", "environment": ("OLLAMA_HOST",), "network_mode": "host"}, Exposure.LAN_NO_KEY),
    ],
)
def test_exposure_knows_each_servers_address_and_key(changes: dict[str, object], exposure: Exposure) -> None:
    facts = container(**changes)
    assert exposure_of(facts, api_port(facts)) is exposure


@pytest.mark.parametrize(
    ("image", "argv", "model"),
    [
        ("x", ("vllm", "serve", "org/m", "--port", "1"), "org/m"),
        ("x", ("python3", "-m", "sglang.launch_server", "--model-path", "org/m"), "org/m"),
        ("x", ("trtllm-serve", "org/m"), "org/m"),
        ("x", ("trtllm-serve", "serve", "org/m"), "org/m"),
        ("x", ("/app/llama-server", "-hf", "org/m:Q4_K_M"), "org/m:Q4_K_M"),
        ("x", ("/app/llama-server", "--model=/models/m.gguf"), "/models/m.gguf"),
        ("ollama/ollama", ("/bin/ollama", "serve"), ""),
    ],
)
def test_the_model_is_read_from_the_command_of_each_server(image: str, argv: tuple[str, ...], model: str) -> None:
    view = EngineView(container(image=image, argv=argv), EngineState.STARTING, "", Exposure.LOCAL)
    assert view.model == model


def test_an_endpoint_says_how_its_server_is_asked() -> None:
    labels = ((LABEL_RUNTIME, "ollama"), (LABEL_PORT, "9000"), (LABEL_SERVED_NAME, "qwen3:32b"))
    key, ports = Secret("k"), (PublishedPort(11434, 9001),)
    found = endpoint_of(container(labels=labels, ports=ports), key)
    assert found == Endpoint("http://127.0.0.1:9001", key, "ollama", "qwen3:32b")
    assert endpoint_of(container(), None) is None


def test_of_many_models_the_one_that_was_launched_is_served() -> None:
    models = (ServedModel("llama3:latest"), ServedModel("qwen3:latest"))
    facts = container(labels=((LABEL_SERVED_NAME, "qwen3"),))
    assert EngineView(facts, EngineState.SERVING, "ollama", Exposure.LOCAL, models=models).served_name == "qwen3:latest"
    assert (
        EngineView(container(), EngineState.SERVING, "", Exposure.LOCAL, models=models).served_name == "llama3:latest"
    )


MODELS = (ServedModel("m"),)


@all_cases(
    ("status", "exit_code", "health", "models", "was_serving", "state"),
    [
        (ContainerStatus.CREATED, None, Health.UNKNOWN, (), False, EngineState.CREATED),
        (ContainerStatus.RUNNING, None, Health.NOT_LISTENING, (), False, EngineState.STARTING),
        (ContainerStatus.RUNNING, None, Health.OK, (), False, EngineState.STARTING),
        (ContainerStatus.RUNNING, None, Health.OK, MODELS, False, EngineState.SERVING),
        (ContainerStatus.RUNNING, None, Health.NOT_LISTENING, MODELS, True, EngineState.NOT_ANSWERING),
        (ContainerStatus.RUNNING, None, Health.DEAD, (), False, EngineState.NOT_ANSWERING),
        (ContainerStatus.PAUSED, None, Health.OK, MODELS, True, EngineState.PAUSED),
        (ContainerStatus.RESTARTING, 1, Health.UNKNOWN, (), False, EngineState.RESTARTING),
        (ContainerStatus.EXITED, 0, Health.UNKNOWN, (), False, EngineState.STOPPED),
        (ContainerStatus.EXITED, 143, Health.UNKNOWN, (), True, EngineState.STOPPED),
        (ContainerStatus.EXITED, 137, Health.UNKNOWN, (), True, EngineState.FAILED),
        (ContainerStatus.EXITED, 1, Health.UNKNOWN, (), False, EngineState.FAILED),
    ],
)
def test_running_proves_nothing_and_serving_needs_health_and_models(
    status: ContainerStatus, exit_code: int | None, health: Health, models: tuple, was_serving: bool, state: EngineState
) -> None:
    assert state_of(container(status=status, exit_code=exit_code), health, models, was_serving) is state


# --- which process is a server ------------------------------------------------------------------------------


@all_cases(
    ("command", "expected"),
    [
        ("vllm serve acme/tiny", "vllm"),
        ("/usr/bin/python3 /usr/local/bin/vllm serve acme/tiny", "vllm"),
        ("python3.12 -u -m vllm.entrypoints.openai.api_server --model acme/tiny", "vllm"),
        ("python -m sglang.launch_server --model-path acme/tiny", "sglang"),
        ("python3 /opt/bin/trtllm-serve acme/tiny", "trtllm"),
        ("/home/me/llama.cpp/build/bin/llama-server -m tiny.gguf", "llama-cpp"),
        ("ollama serve", "ollama"),
        ("vllm bench serve --model acme/tiny", ""),
        ("docker run vllm/vllm-openai vllm serve acme/tiny", ""),
        ("vim vllm", ""),
        ("python3 train.py vllm serve", ""),
        ("python3", ""),
        ("", ""),
    ],
)
def test_a_server_is_known_by_its_command_and_what_names_it_is_none(command: str, expected: str) -> None:
    found = server_of(tuple(command.split()))
    assert (found.id if found else "") == expected


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("vllm serve acme/tiny", "vllm-8000"),
        ("python3 -m sglang.launch_server --port=31000", "sglang-31000"),
        ("vllm serve acme/tiny --headless", ""),
        ("ollama serve", ""),
    ],
)
def test_a_bare_engine_is_named_by_its_port_where_it_has_an_api_of_its_own(command: str, name: str) -> None:
    found = bare_engine(7, tuple(command.split()), (), 1.0)
    assert (found.name if found else "") == name
