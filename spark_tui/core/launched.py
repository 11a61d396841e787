"""What a container was launched with, by its own label."""

from __future__ import annotations

import json

from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.errors import RefusedError


def launched_with(container: ContainerFacts) -> dict[str, str]:
    """The changes to its preset that a container was launched with. Raises RefusedError for a label that nobody here
    wrote."""
    problem = RefusedError(
        f"The settings of {container.name} cannot be read from its label.", "Launch it anew from its preset."
    )
    try:
        pairs = json.loads(container.overrides or "{}")
    except ValueError:
        raise problem from None
    if not isinstance(pairs, dict) or not all(isinstance(value, str) for value in pairs.values()):
        raise problem
    return pairs
