"""results rm: deletes what was kept of a measurement, once the person has seen what goes."""

from __future__ import annotations

from spark_tui.cli.asking import confirm
from spark_tui.cli.engines import ago
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.domain.bench.result import Result


def remove_results(session: Session, keys: tuple[str, ...], *, yes: bool) -> None:
    """Deletes results by id, by the beginning of one, by engine or model; `last`."""

    async def find(context: Context) -> tuple[tuple[Result, ...], float]:
        found = {result.id: result for result in (context.results.find(key) for key in keys)}
        return tuple(found.values()), context.clock.now()

    found, now = session.run(find)
    if not session.as_json:
        for result in found:
            session.err.say(_line(result, now))
    what = "this result" if len(found) == 1 else f"these {len(found)} results"
    if not confirm(session, f"Delete {what} for good?", yes=yes):
        session.err.say("Nothing was deleted.")
        return

    async def delete(context: Context) -> int:
        return context.results.delete(found)

    count = session.run(delete)
    if session.as_json:
        session.out.json({"id": " ".join(result.id for result in found), "deleted": count})
    else:
        session.err.say(f"Deleted: {count} of {len(found)}.")


def _line(result: Result, now: float) -> str:
    """`3f2a91c04b  2 h ago  benchmarked  qwen  nvidia/Qwen3.6-35B-A3B-NVFP4`."""
    words = (result.id, ago(now - result.at), result.status.value, result.engine, result.model)
    return "  ".join(word for word in words if word)
