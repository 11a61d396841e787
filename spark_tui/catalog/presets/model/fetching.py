"""Everything that a preset's launch reads from the Hub, as downloads: model, drafter, plugin files."""

from __future__ import annotations

import re
from typing import Final

from spark_tui.base.engine.container import hub_of
from spark_tui.catalog.models.model.download import DownloadRequest
from spark_tui.catalog.presets.model.plan import LaunchPlan, hub_source
from spark_tui.catalog.presets.model.preset import RequiredFile
from spark_tui.catalog.presets.model.rules.context import LaunchContext

_REPO: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def downloads_of(plan: LaunchPlan) -> tuple[DownloadRequest, ...]:
    """What to fetch before the launch, in the order in which it is needed; nothing for what is in the store by path.

    The launch's own settings count: a drafter or a model that was changed on the form is the one that is fetched.
    """
    preset, launch = plan.preset, LaunchContext(plan)
    found = [_required(file, preset.name) for file in preset.facts.required_files]
    drafter = launch.speculation.drafter if launch.speculation is not None else ""
    if preset.engine != "ollama":  # it has a registry and a store of its own
        revision, load_format = preset.model_revision or "main", launch.value("load_format") or ""
        if _REPO.fullmatch(plan.model):
            found.append(DownloadRequest(plan.model, revision, load_format=load_format, preset=preset.name))
        if _REPO.fullmatch(drafter):
            found.append(DownloadRequest(drafter, preset=preset.name))
    return tuple(dict.fromkeys(found))


def reads_store(plan: LaunchPlan) -> bool:
    """Whether the engine looks for Hub models in our store: its container may have a cache of its own."""
    if plan.repositories:
        return True
    env = {each.name: each.value for each in plan.spec.env}
    return "HF_HOME" in env and hub_source(plan.spec.mounts, env) == hub_of(plan.store)


def hub_models(plan: LaunchPlan) -> dict[str, str]:
    """The models that the engine itself looks for in its Hub cache, each with its revision; none where its command
    names a cache of its own."""
    if not reads_store(plan) or LaunchContext(plan).value("download_dir"):
        return {}
    return {each.repo: each.revision for each in downloads_of(plan) if not each.target}


def _required(file: RequiredFile, preset: str) -> DownloadRequest:
    if file.url:
        return DownloadRequest(target=file.target, single=True, url=file.url, preset=preset)
    if file.is_folder:
        return DownloadRequest(file.repo, target=file.target, preset=preset)
    return DownloadRequest(file.repo, files=(file.file,), target=file.target, single=True, preset=preset)
