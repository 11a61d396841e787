"""What a container is, where it serves, who can reach it, and which state that makes."""

from __future__ import annotations

import pytest

from spark_tui.domain.engine.container import (
    LABEL_API_KEY_FILE,
    LABEL_PORT,
    LABEL_RUNTIME,
    ContainerFacts,
    ContainerStatus,
    PublishedPort,
)
from spark_tui.domain.engine.state import (
    EngineState,
    Exposure,
    Health,
    ServedModel,
    api_port,
    exposure_of,
    runtime_of,
    state_of,
)


def container(**changes: object) -> ContainerFacts:
    values: dict[str, object] = {
        "id": "abc",
        "name": "engine",
        "image": "vllm/vllm-openai:nightly",
        "image_id": "sha256:1",
        "status": ContainerStatus.RUNNING,
    }
    return ContainerFacts(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
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
        ("postgres:17", ("postgres",), (), ""),
        ("my/thing", ("python", "-c", "print('talk of vllm later')"), (), ""),
    ],
)
def test_a_serving_container_is_recognised(image: str, argv: tuple, labels: tuple, runtime: str) -> None:
    assert runtime_of(container(image=image, argv=argv, labels=labels)) == runtime


@pytest.mark.parametrize(
    ("changes", "port"),
    [
        ({"labels": ((LABEL_PORT, "8123"),)}, 8123),
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
    assert api_port(container(**changes)) == port


LAN = (PublishedPort(8000, 8000, "0.0.0.0"),)


@pytest.mark.parametrize(
    ("changes", "exposure"),
    [
        ({"ports": (PublishedPort(8000, 8000, "127.0.0.1"),)}, Exposure.LOCAL),
        ({"ports": (PublishedPort(8000, 8000, "::1"),)}, Exposure.LOCAL),
        ({"ports": LAN}, Exposure.LAN_NO_KEY),
        ({"ports": (PublishedPort(8000, 8000, ""),)}, Exposure.LAN_NO_KEY),
        ({"ports": LAN, "labels": ((LABEL_API_KEY_FILE, "/k"),)}, Exposure.LAN),
        ({"ports": LAN, "environment": ("PATH", "VLLM_API_KEY")}, Exposure.LAN),
        ({"network_mode": "host"}, Exposure.LAN_NO_KEY),
        ({"network_mode": "host", "argv": ("vllm", "serve", "m", "--host", "127.0.0.1")}, Exposure.LOCAL),
        ({}, Exposure.NONE),
    ],
)
def test_exposure_comes_from_the_real_bindings(changes: dict, exposure: Exposure) -> None:
    facts = container(**changes)
    assert exposure_of(facts, api_port(facts)) is exposure


MODELS = (ServedModel("m"),)


@pytest.mark.parametrize(
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
