"""The simulated Spark as the adapters reach it: one socket, on which the Host header says who is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_tui.base.errors import RefusedError
from spark_tui.simulator.docker import SimulatedDaemon
from spark_tui.simulator.engine import SimulatedEngines
from spark_tui.simulator.server import Answer, Request, Server
from spark_tui.simulator.world import DemoWorld


class SimulatedSpark:
    """`folder` is a private one: its socket and the docker program's settings are there."""

    def __init__(self, world: DemoWorld, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        # Without any login the SDK reads those of the user of this machine.
        (folder / "config.json").write_text('{"auths": {"registry.invalid": {}}}', encoding="utf-8")
        self.socket = str(folder / "spark.sock")
        self._daemon, self._engines = SimulatedDaemon(world), SimulatedEngines(world)
        self.reached_by = Server(folder / "spark.sock", self._answer).reached_by
        self.docker_environ: Mapping[str, str] = {
            "DOCKER_HOST": f"unix://{self.socket}",
            "DOCKER_CONFIG": str(folder),
            "HOME": str(folder),
        }

    async def _answer(self, request: Request) -> Answer:
        """An engine is asked by its port, the daemon without one."""
        asked = self._engines if ":" in request.headers.get("host", "") else self._daemon
        return await asked.answer(request)

    def ask(self, *_: object) -> Any:
        """Canned answers prove nothing: raises RefusedError."""
        raise RefusedError("A simulated engine cannot be proved.", "Start without --demo.")
