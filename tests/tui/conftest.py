"""Pilots wait for states."""

from __future__ import annotations

import pytest

from tests.tui.quiet import wait_for_states


@pytest.fixture(autouse=True)
def _pilots_wait_for_states(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_states(monkeypatch)
