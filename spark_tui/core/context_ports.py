"""What the core reaches of the world outside, gathered: simulated or given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_tui.services.ports import (
        CacheDropper,
        CheckpointSource,
        Clock,
        ContainerEngine,
        EngineApi,
        GpuProbe,
        GuardHands,
        GuardJournal,
        GuardStarter,
        HostProbe,
        LogArchive,
        PresetSource,
        RecipeShelf,
        SecretStore,
        UserUnits,
    )
    from spark_tui.services.ports_bench import LoadDriver, ResultStore
    from spark_tui.services.ports_chat import ConversationStore, PersonFiles
    from spark_tui.services.ports_doctor import DoctorProbe
    from spark_tui.services.ports_history import HistoryLedger
    from spark_tui.services.ports_hosts import RemoteShell
    from spark_tui.services.ports_hub import Downloader, HubClient
    from spark_tui.services.ports_metrics import MetricsSource
    from spark_tui.services.ports_store import ModelStore
    from spark_tui.services.ports_vitals import VitalsProbe


@dataclass(frozen=True)
class GuardPorts:
    """What the memory guard works with."""

    hands: GuardHands
    journal: GuardJournal
    units: UserUnits
    starter: GuardStarter | None = None


@dataclass(frozen=True)
class Ports:
    """The outside world, simulated or given."""

    clock: Clock
    docker: ContainerEngine
    api: EngineApi
    host: HostProbe
    gpu: GpuProbe
    presets: PresetSource
    secrets: SecretStore
    archive: LogArchive
    dropper: CacheDropper | None = None
    guarding: GuardPorts | None = None
    recipes: RecipeShelf | None = None
    checkpoints: CheckpointSource | None = None
    metrics: MetricsSource | None = None
    models: ModelStore | None = None
    hub: HubClient | None = None
    downloader: Downloader | None = None
    vitals: VitalsProbe | None = None
    conversations: ConversationStore | None = None
    person_files: PersonFiles | None = None
    history: HistoryLedger | None = None
    load: LoadDriver | None = None
    results: ResultStore | None = None
    doctor_probe: DoctorProbe | None = None
    remote_shell: RemoteShell | None = None
