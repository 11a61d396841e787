"""Start at boot: which engines start with the machine, and which stop and start at set times."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.container import LABEL_LAUNCH
from spark_tui.base.engine.state import Exposure
from spark_tui.base.engine.units import (
    BootStatus,
    Schedule,
    ScheduleStatus,
    boot_unit,
    schedule_unit,
    timer_name,
    unit_name,
)
from spark_tui.base.errors import ContainerNotFound, RefusedError
from spark_tui.base.executors import in_thread
from spark_tui.base.ports import Clock, Units
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.run.launch.use.launch import launched_with
from spark_tui.run.launch.use.service import due_now


class BootUnits(Struct, eq=False):
    """The units of this machine. `known` and `schedules` are what the last look found, by engine."""

    _port: Units
    _supervisor: EngineSupervisor
    _clock: Clock
    known: Mapping[str, BootStatus] = {}
    schedules: Mapping[str, ScheduleStatus] = {}

    @classmethod
    def from_context(cls, context: Context) -> BootUnits:
        return cls(context.ports.boot, context[EngineSupervisor], context.clock)

    async def look(self) -> Mapping[str, BootStatus]:
        """What systemd says of every unit. Raises SparkError."""
        self.known = {each.name: each for each in await in_thread(self._port.all)}
        return self.known

    async def look_at_schedules(self) -> Mapping[str, ScheduleStatus]:
        """What systemd says of every timer. Raises SparkError."""
        self.schedules = {each.name: each for each in await in_thread(self._port.schedules)}
        return self.schedules

    async def status(self, name: str) -> BootStatus:
        """Of one engine; `off` without a unit."""
        return (await self.look()).get(name, BootStatus(name))

    async def enable(self, name: str, *, system: bool = False) -> BootStatus:
        """The engine starts with the machine from now on, with the settings that it runs with. Raises SparkError."""
        unit = boot_unit(name, self.words(await self._view(name)))
        await in_thread(self._port.install, unit, system=system)
        return await self.status(name)

    async def disable(self, name: str) -> BootStatus:
        """It does not start with the machine any more; the engine keeps running."""
        if not await in_thread(self._port.remove, unit_name(name)):
            raise RefusedError(f"{name} does not start at boot.", "See which engines do: spark-tui boot status")
        return await self.status(name)

    def words(self, view: EngineView) -> tuple[str, ...]:
        """The launch that brings this engine up as it is now. Raises RefusedError for a foreign one, and for a rank."""
        container = view.container
        if not container.ours:
            raise RefusedError(
                f"{view.name} was not started by spark-tui.", "Import the engine as a preset, and launch that preset."
            )
        if container.label(LABEL_LAUNCH):
            raise RefusedError(
                f"{view.name} runs on several nodes: a unit of one machine cannot start it.",
                f"Start it yourself: spark-tui up {container.preset} --nodes CLUSTER",
            )
        lan = view.exposure in (Exposure.LAN, Exposure.LAN_NO_KEY)
        pairs = {
            **launched_with(container),
            "name": view.name,
            "exposure": "lan" if lan else "local",
            "api_key": "yes" if container.api_key_file else "no",
            **({"port": str(view.port)} if view.port else {}),
        }
        changes = (word for key, value in pairs.items() for word in ("--set", f"{key}={value}"))
        return ("up", container.preset, "--service", *changes)

    # --- schedules --------------------------------------------------------------------------------------

    async def schedule(self, name: str, schedule: Schedule, *, system: bool = False) -> ScheduleStatus:
        """The engine stops and starts at these times from now on. Raises SparkError."""
        self.words(await self._view(name))  # refused where it could not be started again
        unit = schedule_unit(name, replace(schedule, since=self._clock.now()))
        await in_thread(self._port.install, unit, system=system)
        return (await self.look_at_schedules())[name]

    async def unschedule(self, name: str) -> None:
        """The engine neither stops nor starts by itself any more. Raises SparkError."""
        if name not in await self.look_at_schedules():
            raise RefusedError(f"{name} has no schedule.", "See which engines have one: spark-tui schedule")
        await in_thread(self._port.remove, f"{timer_name(name)}.timer")
        await self.look_at_schedules()

    async def due_command(self, name: str) -> tuple[str, ...]:
        """The command that its schedule asks for now: to stop the engine, or to launch it as it was launched last.
        Empty where there is nothing to do."""
        due, runs = await due_now(self._port, self._supervisor, self._clock, name)
        if not due or runs == (due == "start"):
            return ()
        if due == "stop":
            return ("down", name)
        return tuple(word for word in self.words(await self._view(name)) if word != "--service")

    async def _view(self, name: str) -> EngineView:
        views = {view.name: view for view in self._supervisor.views() or await self._supervisor.look()}
        if name not in views:
            raise ContainerNotFound(f"No engine named {name}.", "See which there are: spark-tui ps")
        return views[name]
