"""Which client asks which engine, and what of its prompts is read again."""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct, field

from spark_tui.base.gateway import ClientCosts
from spark_tui.observe.metrics.model.agents import AgentTurn, PromptPrint, costs_after, repeat_of

MOST_CLIENTS: Final = 32
"""Of all engines together. The one that asked longest ago gives way, and is counted under `OTHERS`."""
OTHERS: Final = "(others)"
_MOST_PROMPTS: Final = 8
"""Of a client that are compared with its next one: an agent has some conversations at a time."""


class _ClientPrompts(Struct):
    costs: ClientCosts
    prompts: deque[PromptPrint] = field(default_factory=lambda: deque(maxlen=_MOST_PROMPTS))
    crowded: bool = False
    """Another client asked the same engine since."""


class AgentLens:
    """Counts turns by client and engine, in bounded memory."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str], _ClientPrompts] = {}
        self._others = ClientCosts(OTHERS, "")

    def add(self, turn: AgentTurn) -> None:
        key = turn.client, turn.engine
        client = self._clients.pop(key, None) or _ClientPrompts(ClientCosts(*key))
        client.costs = costs_after(client.costs, turn, repeat_of(turn, client.prompts, crowded=client.crowded))
        client.prompts.append(turn.prompt)
        client.crowded = False
        for (_, engine), each in self._clients.items():
            each.crowded |= engine == turn.engine
        self._clients[key] = client
        if len(self._clients) > MOST_CLIENTS:
            oldest = self._clients.pop(next(iter(self._clients)))
            self._others = self._others.joined(oldest.costs)

    def costs(self) -> tuple[ClientCosts, ...]:
        """The most active first, those without a row of their own last."""
        found = sorted((each.costs for each in self._clients.values()), key=lambda each: -each.requests)
        return (*found, *([self._others] if self._others.requests else []))
