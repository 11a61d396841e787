"""Serving the network with an API key: a restart with the same settings, open to the network, and a key."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.container import outside_docker
from spark_tui.base.engine.state import Exposure
from spark_tui.base.errors import RefusedError
from spark_tui.base.ports import SecretStore
from spark_tui.base.settings import ExposureChoice
from spark_tui.catalog.fit.use.fit import LaunchChecks
from spark_tui.catalog.presets.use.rights import PresetSource
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.run.launch.use.launch import LaunchRequest, request_of

_CHANGED: Final = (
    " The preset, the image, your token or spark-tui has changed since the launch. The current preset applies."
)
_OPEN: Final = "exposure=lan"


class Secured(Struct, frozen=True):
    """A launch that gives an engine a key, in `key_file` as `key_variable`; `what` describes it."""

    request: LaunchRequest
    key_file: str
    key_variable: str
    what: str


class Securing(Struct, eq=False):
    """Plans such launches; changes nothing."""

    _presets: PresetSource
    _checks: LaunchChecks
    _secrets: SecretStore

    @classmethod
    def from_context(cls, context: Context) -> Securing:
        return cls(context[PresetSource], context[LaunchChecks], context.secrets)

    async def plan(self, view: EngineView, *, publish: bool = False) -> Secured:
        """The launch for an engine of ours that is LAN NO KEY, with `publish` also for one that only this machine
        reaches. Raises RefusedError, with a remedy, for any other."""
        _check(view, publish=publish)
        now, local = request_of(view, self._presets.load()), view.exposure is Exposure.LOCAL
        request = replace(now, overrides=replace(now.overrides, exposure=ExposureChoice.LAN, api_key=True), fetch=False)
        # An engine that takes no key is refused here. Without one: is it the same container as the one that runs?
        launches = [await self._checks.launch(now.preset, each) for each in (request.overrides, now.overrides)]
        proposal, today = (each.plan for each in launches)
        note = "" if view.container.made_by(today.spec) else _CHANGED
        key_file = str(self._secrets.path(view.name))
        variable = now.preset.server.key_variable
        reach = "open to the network" if local else "still open to the network"
        what = (
            f"Restarts {view.name} with its preset and settings on port {proposal.host_port}, {reach}. "
            f"Clients are cut off until they send the new key. "
            f"Key file: {key_file} ({variable}). The key is never shown.{note}"
        )
        return Secured(request, key_file, variable, what)


def _check(view: EngineView, *, publish: bool) -> None:
    name, container = view.name, view.container
    if view.exposure is Exposure.NONE or (view.exposure is Exposure.LOCAL and not publish):
        raise RefusedError(
            f"Only this machine can reach {name}: it needs no key.",
            f"To open it to the network, change its settings: {_OPEN}, api_key=yes.",
        )
    if view.exposure is Exposure.LAN:
        where = f" in {container.api_key_file}" if container.api_key_file else ""
        raise RefusedError(f"{name} asks for a key already{where}.", "Nothing is to be done.")
    if container.bare:
        raise outside_docker(container, acts=True)
    if not container.ours:
        port = view.port or 8000
        raise RefusedError(
            f"spark-tui did not start {name}, and cannot restart it with a key.",
            f"Start it yourself with -p 127.0.0.1:{port}:{port}, or with its key in --env-file "
            f"(VLLM_API_KEY for vLLM); or launch a preset with {_OPEN}.",
        )
    if not container.running:
        raise RefusedError(f"{name} does not run.", f"Launch {container.preset} with {_OPEN} and a key.")
