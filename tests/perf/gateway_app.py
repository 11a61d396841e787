"""A gateway in a process of its own, in front of the engine whose port is given; prints its own port."""

from __future__ import annotations

import asyncio
import sys

from spark_tui.manage.gateway.adapter.server import HttpGateway
from spark_tui.observe.metrics.model.agents import AgentTurn
from spark_tui.observe.metrics.use.agent_lens import AgentLens
from tests.gateway_kit import ScriptedRouter


class CountingRouter(ScriptedRouter):
    """Counts by client, as the core's router does."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.lens = AgentLens()

    def answered(self, turn: AgentTurn) -> None:
        self.lens.add(turn)


def ready(port: int) -> None:
    print(port, flush=True)


if __name__ == "__main__":
    asyncio.run(HttpGateway().serve(CountingRouter(int(sys.argv[1])), "127.0.0.1", 0, ready))
