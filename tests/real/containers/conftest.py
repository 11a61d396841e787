"""Containers without vLLM, on a Docker engine beside the shared one: another worker than that of the vLLMs has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.lab import Lab, PrivateEngine
from tests.real.lab.images import ensure_busybox


@pytest.fixture(scope="session")
def engine(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    """The engine of this folder, with busybox: a second after it is asked for. Tests use names of their own in it."""
    engine = PrivateEngine(tmp_path_factory.mktemp("engine"), lab.toolbox)
    try:
        engine.start()
        ensure_busybox(engine, lab.toolbox)
        yield engine
    finally:
        engine.purge()
