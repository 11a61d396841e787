"""Securing an engine that anyone on the network can use: a restart with the same settings and an API key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from spark_tui.core.launch import LaunchRequest, launched_with
from spark_tui.core.preflight import Preflight
from spark_tui.domain.engine.container import LABEL_SPEC_HASH
from spark_tui.domain.engine.state import Exposure
from spark_tui.domain.errors import RefusedError, SparkError
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.presets.overrides import overrides_from_pairs
from spark_tui.domain.settings import ExposureChoice
from spark_tui.services.ports import PresetSource, SecretStore

_CHANGED: Final = (
    " Since it was launched, its preset, the image, your token or this program has changed: "
    "it starts as the preset is now."
)


@dataclass(frozen=True, slots=True)
class Secured:
    """A launch that gives an engine a key, in `key_file` as `key_variable`; `what` describes it."""

    request: LaunchRequest
    key_file: str
    key_variable: str
    what: str


class Securing:
    """Plans such launches; changes nothing."""

    def __init__(self, presets: PresetSource, preflight: Preflight, secrets: SecretStore) -> None:
        self._presets = presets
        self._preflight = preflight
        self._secrets = secrets

    async def plan(self, view: EngineView) -> Secured:
        """The launch for an engine of ours that is LAN NO KEY. Raises RefusedError, with a remedy, for any other."""
        _check(view)
        container = view.container
        preset = self._presets.load().get(container.preset)
        if preset is None:
            raise RefusedError(
                f"The preset {container.preset}, from which {view.name} was launched, is not here.",
                f"Stop it (spark-tui down {view.name}) and launch another preset with: --expose lan",
            )
        try:
            launched = overrides_from_pairs(launched_with(container))
        except SparkError as error:
            raise RefusedError(
                f"The settings of {view.name} cannot be read from its label.",
                f"Launch it with new settings: spark-tui up {container.preset} --expose lan --replace",
            ) from error
        now = replace(launched, name=view.name, port=view.port, exposure=ExposureChoice.LAN, api_key=False)
        wanted = replace(now, api_key=True)
        proposal = await self._preflight.plan(preset, wanted)  # refuses engines that take no key
        today = await self._preflight.plan(preset, now)  # without a key: the same container as the one that runs?
        note = "" if today.spec.label(LABEL_SPEC_HASH) == container.spec_hash else _CHANGED
        key_file = str(self._secrets.path(view.name))
        variable = preset.server.key_variable
        what = (
            f"{view.name} stops, and starts with the same preset and settings, on port {proposal.host_port}, still "
            f"open to the network, and asks for a key. Its users are cut off until they send it. The key is made for "
            f"you and kept in {key_file}, as {variable}; it is never shown.{note}"
        )
        return Secured(LaunchRequest(preset, wanted, replace_running=True, fetch=False), key_file, variable, what)


def _check(view: EngineView) -> None:
    name, container = view.name, view.container
    if view.exposure in (Exposure.LOCAL, Exposure.NONE):
        raise RefusedError(
            f"Only this machine can reach {name}: it needs no key.",
            "To open it to the network with one: spark-tui up PRESET --expose lan --replace",
        )
    if view.exposure is Exposure.LAN:
        where = f" in {container.api_key_file}" if container.api_key_file else ""
        raise RefusedError(f"{name} asks for a key already{where}.", "Nothing is to be done.")
    if not container.ours:
        port = view.port or 8000
        raise RefusedError(
            f"spark-tui did not start {name}, and cannot restart it with a key.",
            f"Start it yourself with -p 127.0.0.1:{port}:{port}, or with its key in --env-file "
            "(VLLM_API_KEY for vLLM); or launch a preset: spark-tui up PRESET --expose lan",
        )
    if not container.running:
        raise RefusedError(
            f"{name} does not run.", f"Launch it with a key: spark-tui up {container.preset} --expose lan"
        )
