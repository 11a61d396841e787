"""One vLLM for all tests of this folder, which ask it and leave it as it is.

A test that stops, kills or changes an engine does not belong here: it has one of its own, or launches one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.real.lab.lab import Lab
from tests.real.lab.models import SMOLLM2_THINK
from tests.real.lab.serving import Lent, Served, serve

NAME = f"test-serving-{os.getpid()}"
"""Of this run alone: others use the lab too."""
MODEL = "smol"
CONTEXT = 640
"""Two long questions fill it."""
FLAGS = (
    *("--max-model-len", str(CONTEXT), "--max-num-seqs", "2", "--kv-cache-memory-bytes", "64M", "--enforce-eager"),
    *("--reasoning-parser", "qwen3", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
)


@pytest.fixture(scope="package")
def lent(vllm_lab: Lab, take_port: Callable[[], int]) -> Iterator[Lent]:
    """SmolLM2 that thinks aloud. It ends with the last test here: others count the engines of this Docker."""
    engine = vllm_lab.engine
    engine.try_docker("rm", "--force", NAME)
    try:
        model = vllm_lab.model(SMOLLM2_THINK)
        yield Lent(engine, serve(engine, model, name=NAME, port=take_port(), served_as=MODEL, flags=FLAGS))
    finally:
        engine.try_docker("rm", "--force", "--volumes", NAME)


@pytest.fixture
def server(lent: Lent, request: pytest.FixtureRequest) -> Iterator[Served]:
    """The engine. Who does not leave it as it was fails by name, and so do all who come after."""
    if lent.changed:
        pytest.fail(f"the shared engine is spoilt: {lent.changed}", pytrace=False)
    yield lent.served
    change = lent.change()
    if change:
        lent.changed = f"{request.node.nodeid} left it so that {change}"
        pytest.fail(f"the shared engine is only to be asked: {lent.changed}", pytrace=False)


@pytest.fixture
def environment(vllm_lab: Lab, tmp_path: Path) -> Mapping[str, str]:
    """A new user's home on the lab's engine."""
    return {
        **os.environ,
        **vllm_lab.variables(),
        "HOME": str(tmp_path),
        **{f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")},
    }
