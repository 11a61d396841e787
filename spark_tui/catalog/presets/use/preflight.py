"""What is checked before anything is changed, the plan that follows from what was found, and what it has to fetch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.actions import by_front_end, key_of
from spark_tui.base.context import Context
from spark_tui.base.engine.container import (
    ContainerFacts,
    DaemonFacts,
    ImageFacts,
    local_model_path,
)
from spark_tui.base.engine.invocation import parse
from spark_tui.base.engine.runtimes import ModelName
from spark_tui.base.engine.state import api_port
from spark_tui.base.errors import NameInUse, NoSpaceLeft, PortInUse, RefusedError, SparkError, WrongArchitecture
from spark_tui.base.executors import in_thread
from spark_tui.base.finding import value_of
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.ports import Clock, ContainerEngine, HostProbe, SecretStore
from spark_tui.base.quantities import MIB, human_bytes, human_duration
from spark_tui.base.secret import Secret, secret_variables
from spark_tui.base.text import clean_line
from spark_tui.catalog.models.model.download import Download, DownloadPhase, DownloadPlan, DownloadRequest, room_refusal
from spark_tui.catalog.models.model.hub import sum_known
from spark_tui.catalog.models.model.store import Completeness, Layout
from spark_tui.catalog.models.use.downloads import BUSY_SECONDS, Downloads, combined
from spark_tui.catalog.models.use.ports import ModelStore
from spark_tui.catalog.presets.model.diff import Diff, diff
from spark_tui.catalog.presets.model.fetching import downloads_of, fetch_command, reads_store
from spark_tui.catalog.presets.model.overrides import AUTO, SHARE, Overrides, names_share
from spark_tui.catalog.presets.model.plan import LaunchPlan, key_wanted, plan
from spark_tui.catalog.presets.model.preset import Preset, RequiredFile

LEAST_DISK: Final = 64 * MIB
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class PreflightStatus(Struct, frozen=True):
    """What preflight found. `runs`: the engine runs already with just these settings."""

    image: ImageFacts | None
    existing: ContainerFacts | None
    daemon: DaemonFacts
    plan: LaunchPlan
    runs: bool = False


class Preflight(Struct, eq=False):
    """Checks a launch against Docker and the host."""

    _docker: ContainerEngine
    _host: HostProbe
    _secrets: SecretStore
    paths: HostPaths

    @classmethod
    def from_context(cls, context: Context) -> Preflight:
        return cls(context.docker, context.host, context.secrets, context.paths)

    async def plan(self, preset: Preset, overrides: Overrides) -> LaunchPlan:
        """The plan with the downloaded image, without checking anything else and without writing any key."""
        return self.dry_plan(preset, overrides, await self._docker.image(preset.reference))

    def dry_plan(self, preset: Preset, overrides: Overrides, image: ImageFacts | None = None) -> LaunchPlan:
        """The plan without asking Docker; `image` as it was found before, if it was: else its entrypoint is assumed
        from its name, and the plan notes it."""
        env_file = self.env_file(preset, overrides, write=False)
        return plan(preset, overrides, self.paths, image=image, env_file=env_file)

    async def check(
        self, preset: Preset, overrides: Overrides, *, replace_running: bool = False, fetches: bool = False
    ) -> PreflightStatus:
        """Raises the error of the first check that fails; changes nothing. `fetches`: the launch itself brings what the
        preset needs in the model store."""
        daemon = await self._docker.daemon()
        image = await self._image(preset, daemon)
        proposal = self.dry_plan(preset, overrides, image)
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
        return PreflightStatus(image, existing, daemon, proposal, runs)

    async def finish(self, status: PreflightStatus, preset: Preset, overrides: Overrides) -> LaunchPlan:
        """The plan to carry out, with its keys written. A new one is made only where the image was pulled since: its
        entrypoint is known now."""
        self._check_files(preset)
        decided, env_file = status.plan, self.env_file(preset, overrides, write=True)
        if status.image is None or decided.spec.env_files != ((env_file,) if env_file else ()):
            image = await self._image(preset, status.daemon)
            decided = plan(preset, overrides, self.paths, image=image, env_file=env_file)
        self._host.make_folders([Path(folder) for folder in decided.directories])
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

    def env_file(self, preset: Preset, overrides: Overrides, *, write: bool) -> str | None:
        """The container's private file of keys. Its path depends on the name alone, so that plans compare."""
        name = overrides.name or preset.name
        values = {variable: Secret(text) for variable, text in secret_variables(preset.env).items()}
        # A drafter may be fetched from the Hub within the container, where the model is not.
        uses_hub = local_model_path(preset.model) is None or preset.facts.runs_as_is
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
        inside = local_model_path(proposal.model)
        coming = {file.target for file in proposal.preset.facts.required_files} if fetches else set()
        if inside is None or inside in coming:
            return
        path = Path(self.paths.store) / inside
        if not (self._host.has_folder(path) or self._host.has_file(path)):
            raise RefusedError(
                f"The model {path} does not exist.",
                "Download the model to that place, or set the store root in the settings.",
            )

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


def container_of(preset: Preset, containers: Sequence[ContainerFacts], name: str = "") -> ContainerFacts | None:
    """The container to compare with: the one of that name, else one launched from the preset, running ones first."""
    if name:
        return next((container for container in containers if container.name == name), None)
    ours = [container for container in containers if container.preset == preset.name]
    return min(ours, key=lambda container: not container.running, default=None)


def preset_diff(
    preflight: Preflight,
    preset: Preset,
    overrides: Overrides,
    image: ImageFacts | None,
    containers: Sequence[ContainerFacts],
    name: str = "",
) -> Diff:
    """Raises SparkError when the preset cannot be launched with these changes."""
    container, plain = container_of(preset, containers, name), Overrides()
    if container is not None and f'"{SHARE}": "{AUTO}"' in container.overrides:  # its share is no difference
        share = parse(container.argv, preset.server.id).number(SHARE)
        plain, overrides = (
            each if names_share(each) else replace(each, auto_share=True, gpu_memory_utilization=share)
            for each in (plain, overrides)
        )
    specs = [preflight.dry_plan(preset, each, image).spec for each in (plain, overrides)]
    return diff(preset.name, specs[0], specs[1], container)


# --- downloads -------------------------------------------------------------------------------------------


Detail = Callable[[str, float | None], None]
"""Takes how far it is: in words, and as a fraction (None: not known)."""

_RESUMES: Final = 3
"""How often a download whose process died is resumed by itself."""


class MissingFiles(Struct, frozen=True):
    """What a launch has to fetch first: dry runs of what is not downloaded. `here`: it needs something, and all of it
    is downloaded. Sizes in bytes, None where they are unknown."""

    plans: tuple[DownloadPlan, ...] = ()
    here: bool = False

    @property
    def left(self) -> int | None:
        return sum_known(plan.left for plan in self.plans)

    @property
    def free(self) -> int | None:
        return next((free for plan in self.plans if (free := value_of(plan.free)) is not None), None)

    @property
    def refusal(self) -> SparkError | None:
        """Why it cannot be fetched now: terms to accept, no room."""
        return next((plan.refusal for plan in self.plans if plan.refusal is not None), None)

    @property
    def titles(self) -> str:
        """`acme/tiny, acme/drafter`."""
        return ", ".join(dict.fromkeys(clean_line(plan.request.title) for plan in self.plans))

    @property
    def words(self) -> str:
        """`acme/tiny, acme/drafter: 18.4 GiB to fetch, 412 GiB free`; empty when nothing is to be fetched."""
        if not self.plans:
            return ""
        size = "unknown size" if self.left is None else f"{human_bytes(self.left)} to download"
        return f"{self.titles}: {size}" + ("" if self.free is None else f", {human_bytes(self.free)} free")


class LaunchDownloads(Struct, eq=False):
    """Finds what is missing for a launch, and fetches it. `has_file`: whether a required file is in the store."""

    _downloads: Downloads
    _models: ModelStore
    _has_file: Callable[[RequiredFile], bool]
    _clock: Clock
    _folder: str
    _let_go: bool = False

    def let_go(self) -> None:
        """Downloads continue when a launch that waits for them ends: this program is being closed."""
        self._let_go = True

    async def look(self, plan: LaunchPlan) -> MissingFiles:
        """What is missing. The Hub is asked only when something is.

        Raises the Hub's errors when it cannot list the files to download; what would stop the fetching itself
        is the answer's `refusal`.
        """
        missing = await self.missing(plan)
        try:
            found = [await self._downloads.plan(request) for request in missing]
        except SparkError as error:
            way = by_front_end("^f in the launch form", "--no-fetch")
            error.remedy = f"{error.remedy} Or let the engine download it ({way}).".strip()
            raise
        # Which of a repository's GGUF files is meant, the engine's own command says.
        plans = tuple(each for each in found if not each.whole and not each.choices)
        return MissingFiles(plans, here=bool(requests_of(plan)) and all(each.whole for each in found))

    async def missing(self, plan: LaunchPlan) -> tuple[DownloadRequest, ...]:
        """What of it is not in the store, by the store alone."""
        requests = requests_of(plan)
        if not requests:
            return ()
        there = {file.target for file in plan.preset.facts.required_files if self._has_file(file)}
        contents = await self._models.scan(others=False)

        def here(request: DownloadRequest) -> bool:
            """Whether an engine that asks for this model finds all of it in the store's Hub cache."""
            if request.target:
                return request.target in there
            model = contents.find(request.repo)
            revision = model.revision(request.revision) if model is not None and model.layout is Layout.CACHE else None
            return revision is not None and revision.completeness is Completeness.COMPLETE

        return tuple(each for each in requests if not here(each))

    async def fetch(self, wanted: MissingFiles, detail: Detail) -> str:
        """Fetches all of it, and returns what was fetched in words. Cancelled, it pauses what runs; what has arrived is
        kept. Raises the error of a download that fails, and DiskFull when all of it does not fit."""
        refusal = wanted.refusal or room_refusal(wanted.plans, self._folder)
        if refusal is not None:
            raise refusal
        requests = {each.request.id: each.request for each in wanted.plans}
        detail(wanted.words, None)
        try:
            for request in requests.values():
                await self._downloads.start(request)
            await self._follow(requests, detail)
        except asyncio.CancelledError:
            running = () if self._let_go else await self._downloads.refresh()
            for each in running:
                if each.id in requests and each.phase.active:
                    await self._downloads.pause(each.id)
            raise
        return f"downloaded {wanted.titles}" + ("" if wanted.left is None else f", {human_bytes(wanted.left)}")

    async def _follow(self, requests: dict[str, DownloadRequest], detail: Detail) -> None:
        resumes = dict.fromkeys(requests, 0)
        while True:
            known = {each.id: each for each in await self._downloads.refresh()}
            for id_, request in requests.items():
                each = known.get(id_)
                if each is None:
                    words = f"The download of {request.title} was cancelled, so the launch stopped."
                    raise RefusedError(words, "Launch it again.")
                if each.failure is not None and each.phase is DownloadPhase.FAILED:
                    raise each.failure.error
                if each.phase is DownloadPhase.INTERRUPTED and resumes[id_] < _RESUMES:
                    resumes[id_] += 1
                    await self._downloads.start(request)
            found = [known[id_] for id_ in requests]
            if all(each.phase is DownloadPhase.DONE for each in found):
                return
            detail(*_progress(found))
            await self._clock.sleep(BUSY_SECONDS)


def requests_of(plan: LaunchPlan) -> tuple[DownloadRequest, ...]:
    """Files of the store by path always; Hub models where the engine looks for them in the store."""
    return tuple(each for each in downloads_of(plan) if each.target or reads_store(plan))


def _progress(found: Sequence[Download]) -> tuple[str, float | None]:
    """`7.6 GiB of 18.4 GiB, 112 MiB/s, 1m36s left`, and the fraction."""
    done, total, speed = combined(found)
    parts = [f"{human_bytes(done)} of {human_bytes(total)}" if total else human_bytes(done)]
    held = [each for each in found if each.phase is not DownloadPhase.DONE]
    stopped = [each for each in held if each.phase.resumable]
    if stopped:
        parts.append(f"{clean_line(stopped[0].request.title)} is {stopped[0].phase}: resume it in Models")
    waiting = next((each.waiting for each in held if each.waiting), "")
    if waiting:
        parts.append(waiting)
    if speed:
        parts.append(f"{human_bytes(speed)}/s")
        if total and total > done:
            parts.append(f"{human_duration((total - done) / speed)} left")
    return ", ".join(parts), done / total if total else None


def launch_downloads(context: Context) -> LaunchDownloads | None:
    """None without a Hub."""
    if not context.ports.has("hub"):
        return None
    downloads, preflight = context[Downloads], context[Preflight]
    return LaunchDownloads(downloads, context[ModelStore], preflight.has_file, context.clock, context.paths.store)
