"""Hosts without a launch over both, on a rig beside that of the launches: another worker than theirs has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.conftest import available
from tests.real.lab import Lab, Rig
from tests.real.lab.support import Say


@pytest.fixture(scope="session")
def rig(lab: Lab, say: Say) -> Iterator[Rig]:
    """Two hosts and a desk, as all rigs are."""
    with available(lab.second_rig.lease(say)):
        yield lab.second_rig
