"""Containers that give way to others."""

from __future__ import annotations

from contextlib import aclosing

from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.errors import SparkError
from spark_tui.base.ports import ContainerEngine, LogArchive, LogLine


async def clear_container(docker: ContainerEngine, archive: LogArchive, existing: ContainerFacts) -> str:
    """Makes room for a container of the same name. Returns what became of the old one's log, which is kept."""
    if existing.running:
        await docker.stop(existing.id)
    lines: list[LogLine] = []
    async with aclosing(docker.logs(existing.id, follow=False)) as batches:
        async for batch in batches:
            lines.extend(batch)
    try:
        kept = f"old log kept in {archive.save(existing.name, lines)}" if lines else "replaces an earlier one"
    except OSError as error:
        why = f"The log of {existing.name} cannot be saved: {error.strerror or error}."
        raise SparkError(why, f"Free space on that disk, or remove it: docker rm {existing.name}") from error
    await docker.remove(existing.id)
    return kept
