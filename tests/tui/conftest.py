"""Pilots wait for states, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tui.quiet import taken_apart, wait_for_states


@pytest.fixture(autouse=True)
def _pilots_wait_for_states(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    wait_for_states(monkeypatch)
    take_apart = taken_apart(monkeypatch)
    yield
    take_apart()
