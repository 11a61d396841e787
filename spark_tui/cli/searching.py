"""models search: repositories on the Hub, with what matters on a Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_tui.cli.engines import ago
from spark_tui.cli.pull_shapes import hit_object
from spark_tui.cli.session import Session
from spark_tui.cli.sizes import size_typed
from spark_tui.cli.tables import Cell, Column, Table
from spark_tui.core.context import Context
from spark_tui.domain.errors import UsageError
from spark_tui.domain.models.checkpoint import WeightFormat
from spark_tui.domain.models.hub import Fits, Gating, SearchHit, SearchQuery, Sort
from spark_tui.domain.models.weights import format_in
from spark_tui.domain.quantities import human_bytes, short_tokens

_COLUMNS: Final = (
    Column("MODEL", flexible=True, name=True),
    Column("FORMAT"),
    Column("WEIGHTS", right=True),
    Column("ONE SPARK", spare=1),
    Column("DOWNLOADS", right=True, spare=3),
    Column("UPDATED", right=True, spare=4),
    Column("ACCESS", spare=2),
)
_FITS_STYLE: Final = {Fits.YES: "green", Fits.TIGHT: "yellow", Fits.NO: "red", Fits.UNKNOWN: "dim"}


def search_models(
    session: Session, words: Sequence[str], *, formats: Sequence[str], publisher: str, max_size: str, fits: bool,
    gguf: bool, sort: str, limit: int,
) -> None:  # fmt: skip
    """Repositories on the Hub, with what matters on a Spark."""
    query = SearchQuery(
        " ".join(words), tuple(_format(word) for word in formats), publisher, size_typed(max_size, "--max-size"), fits,
        unknown=not (fits or max_size), gguf=gguf, sort=Sort[sort.upper()], limit=limit,
    )  # fmt: skip

    async def work(context: Context) -> tuple[tuple[SearchHit, ...], float]:
        return await context.hub.search(query), context.clock.now()

    hits, now = session.run(work)
    if session.as_json:
        session.out.json([hit_object(hit) for hit in hits])
        return
    if hits:
        session.out.table(Table(_COLUMNS, tuple(_row(hit, now) for hit in hits)))
    else:
        session.err.say("Nothing on the Hub fits that. Fewer words or another --format may find more.")
    for hit in hits:
        if hit.formats.doubt:
            session.err.note(f"{hit.repo} is {hit.formats.doubt}.")


def _row(hit: SearchHit, now: float) -> tuple[Cell | str, ...]:
    access = "private" if hit.private else "" if hit.gating is Gating.OPEN else hit.gating.value
    return (
        Cell(hit.repo, "bold"),
        hit.formats.words or ("GGUF" if hit.gguf else "?"),
        "?" if hit.weights is None else human_bytes(hit.weights),
        Cell(hit.fits.value if hit.fits is not Fits.UNKNOWN else "?", _FITS_STYLE[hit.fits]),
        "?" if hit.downloads is None else short_tokens(hit.downloads),
        "?" if hit.modified is None else ago(now - hit.modified),
        Cell(access, "yellow"),
    )


def _format(word: str) -> WeightFormat:
    found = format_in(word)
    if found is None:
        raise UsageError(f"{word!r} is no format of weights.", "Write for example: nvfp4, fp8, mxfp4, bf16, int4")
    return found
