"""The program put together: each port's adapter in one table for this machine and one for the demo, and the context."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from spark_tui.base.adapters import Adapter, GuardPorts, Ports
from spark_tui.base.context import Context
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.ports import Clock
from spark_tui.base.settings import Folders, Settings, defaults, folders_of


def _guarding(process: Any, p: Any) -> GuardPorts:
    guard = import_module("spark_tui.observe.memory.adapter.guard")
    docker = import_module("spark_tui.machine.docker.socket").DockerSocket(p.docker_environ)
    journal = guard.FileGuardJournal(p.folders.guard)
    return GuardPorts(
        guard.SystemGuardActuator(docker, p.dropper.drop_silently, p.dropper.compact_silently),
        journal,
        import_module("spark_tui.machine.systemd").SystemdUserUnits(p.folders.home, p.environ),
        process(p.settings, p.docker_environ, journal, p.folders.guard / "guard.log", docker.local),
    )


def _private(folder: Path) -> Any:
    from spark_tui.base.files import PrivateFolder

    return PrivateFolder(folder)


DEMO_HOME: Final = Path("/home/spark")
"""The home of the simulated Spark's user."""

_SHARED: Final[Mapping[str, Adapter]] = {
    "clock": ("spark_tui.base.executors:SystemClock", None),
    "archive": ("spark_tui.base.files:FileLogArchive", lambda make, p: make(p.folders.logs)),
    "screen_files": ("spark_tui.base.files:ScreenFolder", lambda make, p: make(p.folders.state)),
    "builtin_presets": ("spark_tui.catalog.presets.adapter.store:builtin_directory", None),
}

REAL: Final[Mapping[str, Adapter]] = {
    **_SHARED,
    "docker": (
        "spark_tui.machine.docker.engine:DockerEngine",
        lambda make, p: make(p.docker_environ, port_owner=p.host.port_owner),
    ),
    "api": ("spark_tui.machine.engine_api:VllmApi", None),
    "metrics": ("spark_tui.machine.engine_api:HttpMetrics", None),
    "host": ("spark_tui.machine.procfs:ProcfsHost", None),
    "vitals": ("spark_tui.machine.vitals:HostVitals", None),
    "gpu": ("spark_tui.machine.nvml:NvmlGpu", lambda make, p: make(p.clock)),
    "dropper": ("spark_tui.observe.memory.adapter.drop_caches:SystemCacheDropper", None),
    "guarding": ("spark_tui.observe.memory.adapter.guard:GuardProcess", _guarding),
    "boot": (
        "spark_tui.machine.systemd:SystemdBoot",
        lambda make, p: make(p.folders.home, p.environ, p.dropper, str(p.folders.config)),
    ),
    "doctor_probe": ("spark_tui.manage.doctor.adapter:FileDoctorProbe", lambda make, p: make(p.environ)),
    "fabric": ("spark_tui.manage.cluster.adapter.fabric:SystemFabric", lambda make, p: make(p.environ)),
    "presets": (
        "spark_tui.catalog.presets.adapter.store:PresetFiles",
        lambda make, p: import_module("spark_tui.catalog.presets.use.rights").AllowedPresets(
            make(
                p.builtin_presets,
                p.settings.presets,
                p.folders.registries / "presets",
                _private(p.folders.cache / "presets"),
            ),
            p.state,
        ),
    ),
    "ollama": ("spark_tui.catalog.models.adapter.ollama:HttpOllama", lambda make, p: make(p.environ)),
    "registries": (
        "spark_tui.catalog.presets.adapter.registries:GitRegistries",
        lambda make, p: make(p.folders.registries, p.environ),
    ),
    "recipes": (
        "spark_tui.catalog.presets.adapter.imports:FolderRecipeStore",
        lambda make, p: make(p.settings.presets),
    ),
    "checkpoints": (
        "spark_tui.catalog.models.adapter.checkpoints:StoreCheckpoints",
        lambda make, p: make(Path(p.settings.store)),
    ),
    "models": (
        "spark_tui.catalog.models.adapter.store:FolderModelStore",  # what a scan found is kept in the cache folder
        lambda make, p: make(
            Path(p.settings.store), _private(p.folders.cache / "models"), environ=p.environ, home=p.folders.home
        ),
    ),
    "hub": ("spark_tui.catalog.models.adapter.hub_client:HuggingFaceHub", lambda make, p: make(p.environ)),
    "downloader": (
        "spark_tui.catalog.models.adapter.downloads:DetachedDownloads",
        lambda make, p: make(p.folders.downloads, Path(p.settings.store), p.environ),
    ),
    "history": (
        "spark_tui.observe.metrics.adapter.db:HistoryDb",
        lambda make, p: make(p.folders.history, now=p.clock.now),
    ),
    "load": ("spark_tui.use.bench.adapter.driver:HttpLoadDriver", None),
    "results": ("spark_tui.observe.results.adapter:FileResults", lambda make, p: make(p.folders.benchmarks)),
    "proofs": ("spark_tui.observe.results.adapter:FileProofs", lambda make, p: make(p.folders.benchmarks)),
    "conversations": (
        "spark_tui.use.chat.adapter:FileConversations",
        lambda make, p: make(p.folders.conversations),
    ),
    "user_files": ("spark_tui.base.files:SystemUserFiles", lambda make, p: make(p.folders.home)),
    "client_files": ("spark_tui.use.connect.adapter:HomeFiles", lambda make, p: make(p.folders.home, p.environ)),
    "secrets": (
        "spark_tui.machine.secrets:FileSecrets",
        lambda make, p: make(_private(p.folders.secrets), p.environ, p.folders.home),
    ),
    "state": ("spark_tui.base.files:StateFolder", lambda make, p: make(p.folders.state / "launches")),
    "remote_shell": ("spark_tui.machine.ssh:SshHosts", lambda make, p: make(p.environ)),
    "launches": ("spark_tui.manage.cluster.use.monitor:ClusterMonitor", lambda make, _: make),
    "watchers": (
        "spark_tui.machine.detached:DetachedWatchers",
        lambda make, p: make(p.folders.state / "clusters", p.environ),
    ),
    "routers": (
        "spark_tui.machine.detached:DetachedRouters",
        lambda make, p: make(p.folders.state / "clusters", p.environ),
    ),
    "transfers": ("spark_tui.manage.cluster.adapter.copying:SshTransfers", lambda make, p: make(p.docker_environ)),
    "program": ("spark_tui.manage.cluster.adapter.bundle:InstalledProgram", lambda make, p: make(p.builtin_presets)),
    "gateway_server": ("spark_tui.manage.gateway.adapter.server:HttpGateway", None),
}

DEMO: Final[Mapping[str, Adapter]] = {
    **_SHARED,
    "world": ("spark_tui.simulator.world:DemoWorld", lambda make, p: make(p.clock)),
    "simulator": (
        "spark_tui.simulator.spark:SimulatedSpark",
        lambda make, p: make(p.world, p.demo_folder.path / "wire"),
    ),
    "docker": (
        "spark_tui.machine.docker.engine:DockerEngine",
        lambda make, p: p.simulator.reached_by(
            make(p.simulator.docker_environ, port_owner=p.host.port_owner, read_env_file=p.key_folder.content)
        ),
    ),
    "api": (
        "spark_tui.machine.engine_api:VllmApi",
        lambda make, p: p.simulator.reached_by(make(uds=p.simulator.socket), ask=p.simulator.ask),
    ),
    "metrics": (
        "spark_tui.machine.engine_api:HttpMetrics",
        lambda make, p: p.simulator.reached_by(make(uds=p.simulator.socket)),
    ),
    "machine": (
        "spark_tui.simulator.machine:Machine",
        lambda make, p: make(p.world, p.demo_folder, lambda: p.downloader.rate if "downloader" in p.made() else 0.0),
    ),
    "host": (
        "spark_tui.simulator.machine:SimulatedHost",
        lambda make, p: p.machine.fresh(make(p.machine.root, now=p.clock.now)),
    ),
    "vitals": (
        "spark_tui.machine.vitals:HostVitals",
        lambda make, p: p.machine.fresh(make(p.machine.root, monotonic=p.clock.monotonic, now=p.clock.now)),
    ),
    "gpu": ("spark_tui.simulator.machine:SimulatedGpu", lambda make, p: make(p.world)),
    "dropper": ("spark_tui.simulator.machine:SimulatedDropper", lambda make, p: make(p.machine)),
    "boot": ("spark_tui.simulator.machine:SimulatedBoot", None),
    "doctor_probe": (
        "spark_tui.simulator.machine:SimulatedDoctor",
        lambda make, p: p.machine.fresh(make({"HOME": str(p.machine.root)}, p.machine.root)),
    ),
    "demo_folder": ("spark_tui.simulator.folder:DemoFolder", None),  # what is kept there lasts as long as the program
    "folders": (
        "spark_tui.simulator.folder:own_folders",
        lambda make, p: make(p.demo_folder),
    ),  # without those of a user
    "presets": (
        "spark_tui.catalog.presets.adapter.store:PresetFiles",
        lambda make, p: import_module("spark_tui.catalog.presets.use.rights").AllowedPresets(
            make(p.builtin_presets, p.demo_folder.path), p.state
        ),
    ),
    "folder_recipes": (
        "spark_tui.catalog.presets.adapter.imports:FolderRecipeStore",
        lambda make, p: make(p.demo_folder.path),
    ),
    "recipes": (
        "spark_tui.simulator.folders:DemoRecipes",
        lambda make, p: make(p.folder_recipes, p.demo_folder.path),
    ),
    "checkpoints": ("spark_tui.simulator.models:DemoModels", lambda _, p: p.models),
    "models": ("spark_tui.simulator.models:DemoModels", lambda make, p: make(p.clock)),
    "simulated_hub": (
        "spark_tui.simulator.hub:SimulatedHub",
        lambda make, p: make(p.clock, p.demo_folder.path / "hub.sock"),
    ),
    "hub": (
        "spark_tui.catalog.models.adapter.hub_client:HuggingFaceHub",
        lambda make, p: p.simulated_hub.reached_by(
            make({"HF_ENDPOINT": p.simulated_hub.endpoint}, uds=p.simulated_hub.socket)
        ),
    ),
    "downloader": ("spark_tui.simulator.downloads:DemoDownloads", lambda make, p: make(p.clock, p.models)),
    "history": (
        "spark_tui.simulator.history:SimulatedHistory",
        lambda make, p: make(p.demo_folder.path / "history", p.world),
    ),
    "load": ("spark_tui.simulator.load:DemoLoad", lambda make, p: make(p.world)),
    "results": ("spark_tui.observe.results.adapter:FileResults", lambda make, p: make(p.demo_folder.path)),
    "proofs": ("spark_tui.observe.results.adapter:FileProofs", lambda make, p: make(p.demo_folder.path)),
    "conversations": (
        "spark_tui.use.chat.adapter:FileConversations",
        lambda make, p: make(p.demo_folder.path / "conversations"),
    ),
    "client_files": ("spark_tui.use.connect.adapter:MemoryFiles", None),
    "key_folder": (
        "spark_tui.simulator.folder:SimulatedFolder",
        lambda make, p: make(Path("/home/demo/.config/spark-tui/secrets"), p.demo_folder.path / "secrets"),
    ),
    "secrets": ("spark_tui.machine.secrets:FileSecrets", lambda make, p: make(p.key_folder, {}, p.demo_folder.path)),
    "state": ("spark_tui.base.files:StateFolder", lambda make, p: make(p.demo_folder.path / "launches")),
}


def real_ports(settings: Settings, folders: Folders, environ: Mapping[str, str]) -> Ports:
    """This machine. Docker is the settings' own, else that of DOCKER_HOST or of the current context."""
    host = settings.docker_host
    docker_environ = {**environ, "DOCKER_HOST": host} if host else environ
    return Ports(REAL, settings=settings, folders=folders, environ=environ, docker_environ=docker_environ)


def demo_ports(folders: Folders | None = None, clock: Clock | None = None) -> Ports:
    """One simulated Spark behind all ports. Logs that the person saves are real files in `folders.logs`; without
    `folders` they last as long as the program."""
    given = {"folders": folders, "clock": clock}
    return Ports(DEMO, **{name: value for name, value in given.items() if value is not None})


def build(settings: Settings, folders: Folders, environ: Mapping[str, str]) -> Context:
    """This machine."""
    return Context(settings, real_ports(settings, folders, environ), _host_paths(settings, folders))


def build_demo(
    settings: Settings | None = None, folders: Folders | None = None, *, clock: Clock | None = None
) -> Context:
    """A simulated Spark, fed with recordings of a real one. Of `settings` only the looks count, and read-only. Uses no
    Docker; a saved log is a real file."""
    simulated, given = folders_of({}, DEMO_HOME), settings or Settings()
    shown = replace(
        defaults(simulated), read_only=given.read_only, refresh_seconds=given.refresh_seconds,
        theme=given.theme, glyphs=given.glyphs, keymap=given.keymap, notify=given.notify,
    )  # fmt: skip
    return Context(shown, demo_ports(folders, clock), _host_paths(shown, simulated), demo=True)


def _host_paths(settings: Settings, folders: Folders) -> HostPaths:
    return HostPaths(store=str(settings.store), caches=str(settings.caches), home=str(folders.home))
