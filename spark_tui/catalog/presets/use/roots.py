"""Where the models of a launch lie: in the store, or complete in another Hub cache of this person."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from spark_tui.base.engine.container import repository_folder
from spark_tui.catalog.models.model.store import repository_mounts
from spark_tui.catalog.models.use.ports import ModelStore
from spark_tui.catalog.presets.model.fetching import hub_models
from spark_tui.catalog.presets.model.plan import LaunchPlan, with_repositories


def read_where_complete(
    found: LaunchPlan, hubs: Sequence[Path], has_folder: Callable[[Path], bool], models: Callable[[], ModelStore | None]
) -> LaunchPlan:
    """The launch, with each model that the store has not read from the first of `hubs` that has all of it. Looks into
    folders of those models alone, and asks for `models` only where there is one."""
    wanted = hub_models(found)
    folders = (hub / repository_folder(repo) for hub in hubs for repo in wanted)
    store = models() if any(map(has_folder, folders)) else None
    if store is None:
        return found
    elsewhere = {repo: store.elsewhere(repo, revision) for repo, revision in wanted.items()}
    mounts = repository_mounts(found.store, elsewhere)
    return with_repositories(found, mounts) if mounts else found
