"""presets diff: preset, launch and running container side by side."""

from __future__ import annotations

from spark_tui.cli.recipes import find_preset
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.core.preset_diff import container_of, preset_diff
from spark_tui.domain.errors import ContainerNotFound, SparkError
from spark_tui.domain.presets.diff import Diff, DiffRow, as_mapping
from spark_tui.domain.presets.overrides import overrides_from_pairs, pairs_from

NOTHING = "-"


def diff_preset(session: Session, name: str, container: str, settings: tuple[str, ...], *, everything: bool) -> None:
    """Prints the settings that differ, or all of them."""
    overrides = overrides_from_pairs(pairs_from(settings))

    async def work(context: Context) -> Diff:
        preset = find_preset(context, name)
        try:
            containers = await context.docker.containers()
            image = await context.docker.image(preset.reference)
        except SparkError:
            if container:
                raise
            containers, image = (), None  # without Docker the recipe can still be compared with the changes
        if container and container_of(preset, containers, container) is None:
            raise ContainerNotFound(f"There is no container named {container}.", "`spark-tui ps -a` lists them.")
        return preset_diff(context.preflight, preset, overrides, image, containers, container)

    found = session.run(work)
    rows = found.rows if everything else found.differing
    if session.as_json:
        session.out.json(
            {"id": found.preset, "container": found.container or None, "rows": [dict(as_mapping(row)) for row in rows]}
        )
        return
    session.out.line(_head(found, changed=bool(settings)))
    for row in rows:
        session.out.line(row.setting)
        session.out.lines(f"  {column:<8} {text}" for column, text in columns(row, found, changed=bool(settings)))


def _head(found: Diff, *, changed: bool) -> str:
    what = [f"preset {found.preset}"]
    if changed:
        what.append("this launch")
    what.append(f"container {found.container}" if found.container else "no container of it")
    count = len(found.differing)
    told = f"{count} setting{'s differ' if count != 1 else ' differs'}" if count else "nothing differs"
    return f"{', '.join(what)}: {told}"


def columns(row: DiffRow, found: Diff, *, changed: bool) -> list[tuple[str, str]]:
    """The columns that say something: the launch only when there are changes, the container only when there is one."""
    told = [("preset", row.preset or NOTHING)]
    if changed:
        told.append(("launch", row.launch or NOTHING))
    if found.container:
        told.append(("running", row.running or NOTHING))
    return told
