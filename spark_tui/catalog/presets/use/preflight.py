"""What is checked before anything is changed, the plan that follows from what was found, and what it has to fetch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from spark_tui.base.actions import by_front_end, key_of
from spark_tui.base.context import Context
from spark_tui.base.engine.container import (
    STORE_TARGET,
    ContainerFacts,
    DaemonFacts,
    ImageFacts,
)
from spark_tui.base.engine.runtimes import ModelName
from spark_tui.base.engine.state import api_port
from spark_tui.base.errors import DockerError, NameInUse, NoSpaceLeft, PortInUse, RefusedError, WrongArchitecture
from spark_tui.base.executors import in_thread
from spark_tui.base.finding import value_of
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.ports import ContainerEngine, HostProbe, SecretStore
from spark_tui.base.quantities import MIB, human_bytes
from spark_tui.base.secret import Secret, secret_variables
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.plan import TOOL_TARGET, LaunchPlan, key_wanted, on_host, plan
from spark_tui.catalog.presets.model.preset import Preset, RequiredFile, fetch_command
from spark_tui.catalog.presets.model.rules.context import LaunchContext

if TYPE_CHECKING:
    from spark_tui.catalog.models.use.ports import ModelStore

LEAST_DISK: Final = 64 * MIB
_ABSENT: Final = 'for each; do test -e "$each" || printf "%s\\n" "$each"; done'
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class PreflightStatus(Struct, frozen=True):
    """What preflight found. `runs`: the engine runs already with just these settings."""

    image: ImageFacts | None
    existing: ContainerFacts | None
    daemon: DaemonFacts
    runs: bool = False


class Preflight(Struct, eq=False):
    """Checks a launch against Docker and the host. `_models` gives the ModelStore, None where there is none."""

    _docker: ContainerEngine
    _host: HostProbe
    _secrets: SecretStore
    paths: HostPaths
    _models: Callable[[], ModelStore | None]

    @classmethod
    def from_context(cls, context: Context) -> Preflight:
        models = partial(context.ports.get, "models")
        return cls(context.docker, context.host, context.secrets, context.paths, models)

    def dry_plan(self, preset: Preset, overrides: Overrides, image: ImageFacts | None = None) -> LaunchPlan:
        """The plan without asking Docker; `image` as it was found before, if it was: else its entrypoint is assumed
        from its name, and the plan notes it."""
        return self._plan(preset, overrides, image, self.env_file(preset, overrides, write=False))

    def _plan(self, preset: Preset, overrides: Overrides, image: ImageFacts | None, env_file: str | None) -> LaunchPlan:
        """The plan, with models read where they are complete: the store's, else another cache's of the person."""
        found = plan(preset, overrides, self.paths, image=image, env_file=env_file)
        hubs = [hub for hub in map(Path, self.paths.hubs) if self._host.has_folder(hub)]
        if not hubs:
            return found
        from spark_tui.catalog.presets.use.roots import read_where_complete

        return read_where_complete(found, hubs, self._host.has_folder, self._models)

    async def check(
        self, proposal: LaunchPlan, *, replace_running: bool = False, fetches: bool = False
    ) -> PreflightStatus:
        """Raises the error of the first check that fails; changes nothing. `fetches`: the launch itself brings what the
        preset needs in the model store."""
        preset, daemon = proposal.preset, await self._docker.daemon()
        image = await self._image(preset, daemon)
        await self._look_inside(proposal, image)
        if not fetches:
            self._check_files(preset)
        self._check_model(proposal, fetches=fetches)
        containers = await self._docker.containers()
        existing = next((c for c in containers if c.name == proposal.spec.name), None)
        runs = existing is not None and _runs_already(proposal, existing, replace_running=replace_running)
        if preset.trial and existing is not None:
            runs = runs and image is not None and existing.image_id == image.id
        if not runs:
            await self._check_port(proposal.host_port, containers, existing)
            if existing is not None and existing.running:
                self._check_disk(daemon)
        return PreflightStatus(image, existing, daemon, runs)

    async def finish(self, status: PreflightStatus, decided: LaunchPlan) -> LaunchPlan:
        """The plan to carry out, with its keys written. A new one is made only where the image was pulled since: its
        entrypoint is known now."""
        preset, overrides = decided.preset, decided.overrides
        self._check_files(preset)
        env_file = self.env_file(preset, overrides, write=True)
        if decided.image is None or decided.spec.env_files != ((env_file,) if env_file else ()):
            image = await self._image(preset, status.daemon)
            if decided.image is None:
                await self._look_inside(decided, image)
            decided = self._plan(preset, overrides, image, env_file)
        folders = (Path(folder) for folder in decided.directories)
        store = Path(self.paths.store)
        self._host.make_folders([each for each in folders if each == store or not self._host.has_file(each)])
        return decided

    async def _image(self, preset: Preset, daemon: DaemonFacts) -> ImageFacts | None:
        """The downloaded image. Raises WrongArchitecture."""
        image = await self._docker.image(preset.reference)
        if image is not None and image.architecture and daemon.architecture:
            built, here = (_ARCHITECTURES.get(each, each) for each in (image.architecture, daemon.architecture))
            if built != here:
                raise WrongArchitecture(
                    f"The image {image.reference} is built for {image.architecture}, "
                    f"this machine is {daemon.architecture}.",
                    "Choose a tag that is built for this processor (on a DGX Spark: arm64).",
                )
        return image

    async def _look_inside(self, proposal: LaunchPlan, image: ImageFacts | None) -> None:
        """Raises RefusedError where the command reads files that only the image could have, and it has not."""
        files = LaunchContext(proposal).unmounted_files
        if image is None or not files:
            return
        try:
            lines = await self._docker.run_once(image.id, ("sh", "-c", _ABSENT, "sh", *files))
        except DockerError:
            return  # an image without a shell cannot be asked: the check's warning stands
        if absent := [each for each in files if each in lines]:
            raise RefusedError(
                f"The command reads {', '.join(absent)}, which neither a mount nor the image has.",
                f"Put it into the model store ({self.paths.store}) and name it as {STORE_TARGET}/NAME, or remove the "
                "option.",
            )

    def env_file(self, preset: Preset, overrides: Overrides, *, write: bool) -> str | None:
        """The container's private file of keys. Its path depends on the name alone, so that plans compare."""
        name = overrides.name or preset.name
        values = {variable: Secret(text) for variable, text in secret_variables(preset.env).items()}
        # A drafter may be fetched from the Hub within the container, where the model is not.
        uses_hub = not preset.model.startswith("/") or preset.facts.runs_as_is
        asks_hub = uses_hub and preset.server.model_name is not ModelName.TAG
        if asks_hub and "HF_TOKEN" not in values and (token := self._secrets.hf_token()):
            values["HF_TOKEN"] = token
        if key_wanted(preset, overrides):
            kept = self._secrets.api_key(str(self._secrets.path(name)))
            values[preset.server.key_variable] = kept or self._secrets.new_key()
        if not values:
            return None
        return str(self._secrets.env_file(name, values) if write else self._secrets.path(name))

    # --- checks ---------------------------------------------------------------------------------------

    def missing_files(self, preset: Preset) -> tuple[RequiredFile, ...]:
        return tuple(file for file in preset.facts.required_files if not self.has_file(file))

    def has_file(self, file: RequiredFile) -> bool:
        path = Path(self.paths.store) / file.target
        return self._host.has_folder(path) if file.is_folder else self._host.has_file(path)

    def _check_files(self, preset: Preset) -> None:
        missing = [file for file in self.missing_files(preset) if not file.for_chat]
        if missing:
            names = ", ".join(file.target for file in missing)
            raise RefusedError(
                f"{preset.name} needs {names} in the model store ({self.paths.store}).",
                "Download it first: " + " && ".join(fetch_command(file, self.paths.store) for file in missing),
            )

    def _check_model(self, proposal: LaunchPlan, *, fetches: bool) -> None:
        path = Path(on_host(proposal.spec.mounts, proposal.model))
        store = Path(self.paths.store)
        coming = {store / file.target for file in proposal.preset.facts.required_files} if fetches else set()
        if path in (Path(), *coming) or self._host.has_folder(path) or self._host.has_file(path):
            return
        remedy = "Download the model to that place, or set the store root in the settings."
        if proposal.model.startswith(f"{TOOL_TARGET}/"):
            remedy = "Download it again with the tool that had it, or choose another model."
        elif not path.is_relative_to(store):
            remedy = f"Put it there, or correct the mount in {proposal.preset.file}."
        raise RefusedError(f"The model {path} does not exist.", remedy)

    def _check_disk(self, daemon: DaemonFacts) -> None:
        """What replaces an engine needs a little room for keys, logs and its container: known before anything stops."""
        for folder in (self.paths.home or "/", daemon.root):
            free = value_of(self._host.free_disk(Path(folder)))
            if free is not None and free < LEAST_DISK:
                raise NoSpaceLeft(f"The disk of {folder} has {human_bytes(free)} free.", "Free space, then try again.")

    async def _check_port(
        self, port: int, containers: tuple[ContainerFacts, ...], existing: ContainerFacts | None
    ) -> None:
        for other in containers:
            if other.running and other != existing and port in _host_ports(other):
                raise PortInUse(
                    f"Port {port} is taken by the container {other.name}.",
                    f"Stop it (spark-tui down {other.name}) or choose another port, for example {port + 1}.",
                )
        owner = await in_thread(self._host.port_owner, port)
        own = existing is not None and existing.running and port in _host_ports(existing)
        if owner is not None and not own:
            raise PortInUse(
                f"Port {port} is taken by {owner}.",
                f"Stop that process or choose another port, for example {port + 1}.",
            )


def _host_ports(container: ContainerFacts) -> set[int | None]:
    return {api_port(container), *(port.host_port for port in container.ports)}


def _runs_already(proposal: LaunchPlan, existing: ContainerFacts, *, replace_running: bool) -> bool:
    """Whether a container of that name serves with just these settings. Raises NameInUse for one that must not be
    replaced."""
    name = existing.name
    if not existing.ours:
        raise NameInUse(
            f"A container named {name} exists ({existing.status.value}), not made by spark-tui.",
            f"Launch under another name, for example {name}-2, or remove it yourself: docker rm {name}",
        )
    same = existing.made_by(proposal.spec)
    if existing.running and not same and not replace_running:
        raise NameInUse(
            f"{name} is already running with other settings.",
            by_front_end(
                f"Change it on Home: {key_of('edit_engine')}. Or stop it first: {key_of('stop')}.",
                f"Change it: spark-tui edit {name} --set KEY=VALUE. Or launch with --replace.",
            ),
        )
    return existing.running and same


# --- downloads -------------------------------------------------------------------------------------------
