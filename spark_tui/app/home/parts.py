"""What Home works with. Its first frame shows nothing of it: imported afterwards."""

from __future__ import annotations

from spark_tui.app.home.next_step import NextStep
from spark_tui.catalog.fit.use.fit import LaunchChecks, MemoryGate
from spark_tui.catalog.presets.use.last_launches import LastLaunches
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.memory.use.memory import MemoryInspector
from spark_tui.observe.metrics.use.history import History
from spark_tui.observe.metrics.use.metrics import EngineMetricsCollector
from spark_tui.observe.results.use import read_proofs
from spark_tui.run.launch.use.runner import JobRunner
from spark_tui.run.launch.use.secure import Securing
from spark_tui.run.service.use import BootUnits


class Parts:
    """The use cases of Home, by the names of their classes."""

    EngineMetricsCollector = EngineMetricsCollector
    History = History
    MemoryInspector = MemoryInspector
    NextStep = NextStep
    LaunchChecks = LaunchChecks
    EngineSupervisor = EngineSupervisor
    LastLaunches = LastLaunches
    JobRunner = JobRunner
    Securing = Securing
    BootUnits = BootUnits
    MemoryGate = MemoryGate
    read_proofs = staticmethod(read_proofs)
