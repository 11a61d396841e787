"""The doctor: reads what its checks need, and runs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base import ports
from spark_tui.base.actions import by_front_end, key_of
from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerSpec, Gpus
from spark_tui.base.engine.state import runtime_of
from spark_tui.base.errors import ImageNotFound, SparkError
from spark_tui.base.executors import in_thread
from spark_tui.base.finding import Finding, Missing, Ok, Reading, Severity
from spark_tui.base.quantities import KIB
from spark_tui.catalog.models.use.ports import ModelStore
from spark_tui.catalog.presets.model.preset import Preset, PresetCatalogue
from spark_tui.catalog.presets.use.rights import PresetSource, drifts
from spark_tui.machine.settings import user_themes
from spark_tui.manage.doctor.model import DockerState, Readings, TerminalState, examine

PROBE_NAME: Final = "spark-tui-doctor"
PROBE_SECONDS: Final = 60.0
TOKEN_BEGINNING: Final = "hf_"  # noqa: S105 - how tokens begin
ASKED_SECONDS: Final = 10.0


class Doctor(Struct, eq=False):
    """One examination per call. Reads; changes nothing but with `gpu_container`, which starts a container and removes
    it again."""

    probe: ports.DoctorProbe
    host: ports.HostProbe
    gpu: ports.GpuProbe
    docker: ports.ContainerEngine
    dropper: ports.CacheDropper
    secrets: ports.SecretStore
    presets: PresetSource
    store: Path
    caches: Path
    themes: Callable[[], Sequence[SparkError]] = tuple
    """What is wrong with the user's themes; called in a thread."""
    guarded: Callable[[], bool] | None = None
    """Whether a memory guard runs. None: this machine has none."""
    drifts: Callable[[Iterable[Preset]], Mapping[str, Finding]] = lambda _: {}
    """Copies of registries' recipes that are outdated, by the preset's name."""
    models: ModelStore | None = None

    @classmethod
    def from_context(cls, context: Context) -> Doctor:
        return cls(
            context.ports.doctor_probe,
            context.host,
            context.ports.gpu,
            context.docker,
            context.ports.dropper,
            context.secrets,
            context[PresetSource],
            store=Path(context.paths.store),
            caches=Path(context.paths.caches),
            themes=lambda: user_themes(context).problems,
            guarded=context.guarding.journal.running if context.ports.has("guarding") else lambda: True,
            drifts=partial(drifts, context),
            models=context.find(ModelStore),
        )

    async def examine(
        self, terminal: TerminalState | None = None, *, gpu_container: bool = False
    ) -> tuple[Finding, ...]:
        """Every check. Takes a few seconds at most, a minute with `gpu_container`. Never raises."""
        seen = await self.readings(terminal or TerminalState(interactive=False), gpu_container=gpu_container)
        test = f"Test it: {by_front_end(key_of('try_gpu_container'), 'spark-tui doctor --gpu-container')}"
        return tuple(
            replace(each, remedy=test) if each.id == "gpu_container" and each.severity is Severity.UNKNOWN else each
            for each in examine(seen)
        )

    async def readings(self, terminal: TerminalState, *, gpu_container: bool = False) -> Readings:
        """What the checks look at."""
        files, gpu, docker, access = await asyncio.gather(
            in_thread(self._read_files),
            self.gpu.read(),
            self._ask_docker(),
            self.dropper.access(),
        )
        running, ours, state = docker
        guarded: Reading[bool] = Missing("no engine of spark-tui runs")
        if ours and self.guarded is not None:
            guarded = Ok(await in_thread(self.guarded))
        catalogue = await in_thread(self.presets.load)
        wanted = sorted({port for preset in catalogue.presets if isinstance(port := preset.default("port"), int)})
        taken = await in_thread(self.probe.taken, wanted)
        tried = await self._try_gpu(catalogue) if gpu_container else Missing("not asked for")
        return replace(
            files,
            gpu=gpu,
            drop=Ok(access),
            engines_run=running,
            guarded=guarded,
            docker=state,
            gpu_container=tried,
            places=Missing("no model store") if self.models is None else Ok(await self.models.scan()),
            copies=Ok(tuple((await in_thread(self.drifts, catalogue.presets)).values())),
            gated=tuple(preset.name for preset in catalogue.presets if preset.facts.gated),
            ports=tuple((port, self.host.port_owner(port) or "another process") for port in taken),
            terminal=terminal,
        )

    def _read_files(self) -> Readings:
        """What needs neither Docker nor the GPU."""
        probe, token = self.probe, self.secrets.hf_token()
        name, root = probe.user()
        links, default = probe.links()
        min_free = probe.kernel_number("vm/min_free_kbytes")
        no_token = Missing("no token in the environment or a token file")
        return Readings(
            identity=self.host.identity(),
            memory=self.host.memory(),
            user=name,
            root=root,
            driver=probe.driver(),
            min_free_bytes=Ok(min_free.value * KIB) if isinstance(min_free, Ok) else min_free,
            watermark_boost=probe.kernel_number("vm/watermark_boost_factor"),
            earlyoom=probe.earlyoom(),
            shared=self.host.shared_files(),
            orphans=probe.engine_processes(),
            clock_synchronised=probe.clock_synchronised(),
            kernel_log=probe.kernel_log(),
            toolkit=probe.toolkit(),
            cdi=probe.cdi(),
            registries=probe.registries(),
            store=probe.folder(self.store),
            caches=probe.folder(self.caches),
            token=no_token if token is None else Ok(token.reveal().startswith(TOKEN_BEGINNING)),
            themes=Ok(tuple(self.themes())),
            links=links,
            default_link=default,
        )

    async def _ask_docker(self) -> tuple[bool, bool, DockerState]:
        """Whether an engine runs, whether one of ours does, and how Docker answers."""
        state = DockerState(reachable=False, relogin=self.probe.relogin())
        try:
            async with asyncio.timeout(ASKED_SECONDS):
                facts = await self.docker.daemon()
                containers = await self.docker.containers()
        except TimeoutError:
            return False, False, replace(state, error=f"no answer within {ASKED_SECONDS:g} s")
        except SparkError as error:
            return False, False, replace(state, error_id=error.id, error=error.summary, remedy=error.remedy)
        running = [each.ours for each in containers if each.running and runtime_of(each)]
        return bool(running), any(running), replace(state, reachable=True, version=facts.version)

    async def _try_gpu(self, catalogue: PresetCatalogue) -> Reading[str]:
        """Starts the first local image of a preset with the GPU and a command that ends at once."""
        identity, presets = "", (preset for preset in catalogue.presets if not preset.cpu_only)
        try:
            references = dict.fromkeys(preset.reference for preset in presets)
            local = (each for each in references if await self.docker.image(each) is not None)
            image = await anext(local, "")
        except SparkError as error:
            return Missing(error.summary)
        if not image:
            return Missing("no preset's image is downloaded")
        spec = ContainerSpec(
            name=PROBE_NAME, image=image, entrypoint=("sleep",), command=("0",), gpus=Gpus(), network="none"
        )
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                identity = await self.docker.create(spec)
                await self.docker.start(identity)
                return Ok("")
        except ImageNotFound as error:
            return Missing(error.summary)
        except TimeoutError:
            return Ok(f"no answer within {PROBE_SECONDS:g} s")
        except SparkError as error:
            return Ok(f"{error.summary} {error.detail}".strip())
        finally:
            if identity:
                await self.docker.remove(identity, force=True)


def terminal_state(
    environ: Mapping[str, str], size: tuple[int, int], encoding: str, *, interactive: bool
) -> TerminalState:
    """What the environment says of the terminal."""
    return TerminalState(
        term=environ.get("TERM", ""),
        colours=environ.get("COLORTERM", ""),
        encoding=encoding,
        width=size[0],
        height=size[1],
        ssh=bool(environ.get("SSH_CONNECTION") or environ.get("SSH_TTY")),
        multiplexer="tmux" if environ.get("TMUX") else "screen" if environ.get("STY") else "",
        interactive=interactive,
    )
