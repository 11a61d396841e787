"""models inspect --hub: a checkpoint that is not here, by its card and the headers of its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spark_tui.cli.inspecting import checkpoint_object, finding_lines, verdict_lines
from spark_tui.cli.pull_shapes import repo_object
from spark_tui.cli.session import Session
from spark_tui.cli.tables import labelled
from spark_tui.core.context import Context
from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.models.hub import RepoFacts
from spark_tui.domain.models.inspection import Inspection, inspect
from spark_tui.domain.models.inspection_words import inspection_rows
from spark_tui.domain.quantities import human_bytes
from spark_tui.domain.reading import Reading, reason_of, value_of
from spark_tui.domain.text import clean_line


@dataclass(frozen=True, slots=True)
class RemoteLook:
    """A checkpoint on the Hub: what its card says, what its files say, and what follows; None where they do not."""

    repo: RepoFacts
    facts: Reading[CheckpointFacts]
    found: Inspection | None


async def inspect_remote(context: Context, repo: str, revision: str = "") -> RemoteLook:
    """A repository that need not be here. Raises the errors of `domain.models.hub_errors`."""
    card = await context.hub.repo(repo, revision or "main")
    facts = await context.hub.inspect(card)
    value = value_of(facts)
    return RemoteLook(card, facts, None if value is None else inspect(value, card.repo))


def inspect_on_hub(session: Session, repo: str, revision: str, *, files: bool) -> None:
    """Prints the verdict, then what it rests on."""

    async def work(context: Context) -> RemoteLook:
        return await inspect_remote(context, repo, revision)

    look = session.run(work)
    if session.as_json:
        session.out.json(_object(look))
        return
    session.out.lines(clean_line(line) for line in _lines(look, session.out.terminal.width))
    if files:
        session.out.line()
        session.out.lines(f"{_size(each.size):>10}  {clean_line(each.path)}" for each in look.repo.files)
    if look.found is None:
        session.err.note(f"Its files do not tell more: {reason_of(look.facts)}.")


def _lines(look: RemoteLook, width: int | None) -> Iterator[str]:
    found = look.found
    yield from verdict_lines(found, width)
    yield from labelled([*_pairs(look.repo), *(inspection_rows(found) if found is not None else ())], width)
    problems = [look.repo.formats.doubt] if look.repo.formats.doubt else []
    problems += found.facts.findings if found is not None else ()
    yield from finding_lines(problems, width)


def _pairs(card: RepoFacts) -> list[tuple[str, str]]:
    return [
        ("model", card.repo),
        ("page", card.page),
        ("revision", card.commit),
        ("size", _size(card.size)),
        ("access", "private" if card.private else card.gating.value),
        ("made from", ", ".join(card.base_models)),
        ("terms", card.licence_link),
    ]


def _size(size: int | None) -> str:
    return "not told" if size is None else human_bytes(size)


def _object(look: RemoteLook) -> dict[str, Any]:
    if look.found is None:
        return repo_object(look.repo) | {"checkpoint": None, "checkpoint_reason": reason_of(look.facts)}
    return repo_object(look.repo) | {"checkpoint": checkpoint_object(look.found)}
