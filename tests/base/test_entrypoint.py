"""A server is never told its own name twice, and never left without it."""

from __future__ import annotations

import pytest

from spark_tui.base.engine.image import arrange, assumed_entrypoint, with_program
from tests.cases import all_cases

SERVE = ("vllm", "serve")
API_SERVER = ("python3", "-m", "vllm.entrypoints.openai.api_server")
NGC = ("/opt/nvidia/nvidia_entrypoint.sh",)
COMMAND = ("vllm", "serve", "org/m", "--port", "8000")
SCRIPT = ("bash", "-lc", "pip install scipy && vllm serve org/m")


@all_cases(
    ("argv", "image", "expected"),
    [
        (COMMAND, SERVE, ("org/m", "--port", "8000")),
        (COMMAND, ("/usr/local/bin/vllm", "serve"), ("org/m", "--port", "8000")),
        (COMMAND, ("vllm",), ("serve", "org/m", "--port", "8000")),
        (COMMAND, API_SERVER, ("--model", "org/m", "--port", "8000")),
        ((*API_SERVER, "--model", "org/m", "--seed", "1"), SERVE, ("org/m", "--seed", "1")),
        ((*API_SERVER, "--model", "org/m"), API_SERVER, ("--model", "org/m")),
        (COMMAND, NGC, COMMAND),
        (COMMAND, (), COMMAND),
        (COMMAND, ("tini", "--"), COMMAND),
        (COMMAND, ("/bin/bash", "/start.sh"), COMMAND),
        (SCRIPT, NGC, SCRIPT),
        (("llama-server", "-m", "x"), ("/app/llama-server",), ("-m", "x")),
        (("ollama", "serve"), ("/bin/ollama",), ("serve",)),
        (("trtllm-serve", "org/m"), NGC, ("trtllm-serve", "org/m")),
    ],
)
def test_the_command_fits_the_images_entrypoint(
    argv: tuple[str, ...], image: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    arranged = arrange(argv, None, image)
    assert (arranged.command, arranged.entrypoint, arranged.note) == (expected, None, "")


@pytest.mark.parametrize(
    ("argv", "image"),
    [
        (SCRIPT, SERVE),
        (SCRIPT, ("/bin/ollama",)),
        (SCRIPT, ("/app/llama-server",)),
        (COMMAND, ("/bin/sh", "-c", "vllm serve $MODEL")),
        (COMMAND, ("bash",)),
        (COMMAND, ("python3",)),
    ],
)
def test_an_entrypoint_that_would_swallow_the_command_is_cleared_and_that_is_said(
    argv: tuple[str, ...], image: tuple[str, ...]
) -> None:
    arranged = arrange(argv, None, image)
    assert (arranged.command, arranged.entrypoint) == (argv, ())
    assert "cleared" in arranged.note


def test_an_unknown_entrypoint_is_kept_with_a_warning() -> None:
    arranged = arrange(COMMAND, None, ("/opt/serve-anything",))
    assert (arranged.command, arranged.entrypoint) == (COMMAND, None)
    assert "executor_config.entrypoint" in arranged.note


@pytest.mark.parametrize("image", [SERVE, NGC, ()])
def test_a_recipe_that_clears_the_entrypoint_keeps_its_command_whole(image: tuple[str, ...]) -> None:
    arranged = arrange(COMMAND, "", image)
    assert (arranged.command, arranged.entrypoint) == (COMMAND, ())


def test_a_recipe_that_names_an_entrypoint_does_not_repeat_it() -> None:
    assert arrange(COMMAND, "vllm", ()).command == ("serve", "org/m", "--port", "8000")
    assert arrange(COMMAND, "vllm", ()).entrypoint == ("vllm",)


@all_cases(
    ("image", "expected"),
    [
        ("vllm/vllm-openai:nightly", SERVE),
        ("docker.io/vllm/vllm-openai:cu130-nightly@sha256:" + "a" * 64, SERVE),
        ("vllm/vllm-openai-rocm:v0.33.0", SERVE),
        ("nvcr.io/nvidia/vllm:26.04-py3", NGC),
        ("spark-tui/vllm-cpu:0.32.0", SERVE),
        ("lmsysorg/sglang:latest-cu130", NGC),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc6", NGC),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda13", ("/app/llama-server",)),
        ("ollama/ollama:latest", ("/bin/ollama",)),
        ("ghcr.io/example-org/something:1", ()),
    ],
)
def test_absent_images_are_judged_by_their_name(image: str, expected: tuple[str, ...]) -> None:
    assert assumed_entrypoint(image) == expected


def test_options_alone_are_given_their_program() -> None:
    assert with_program(("org/m", "--seed", "1"), "org/m") == ("vllm", "serve", "org/m", "--seed", "1")
    assert with_program(("--model", "/model"), "/model") == ("vllm", "serve", "--model", "/model")
    assert with_program(COMMAND, "org/m") == COMMAND
