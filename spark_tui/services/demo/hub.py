"""A simulated Hub: a shelf of repositories, each with what a person meets there. Nothing is asked of the real one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from spark_tui.domain.models import hub_errors
from spark_tui.domain.models.checkpoint import CheckpointFacts, WeightFormat
from spark_tui.domain.models.hub import (
    FormatBasis,
    Formats,
    Gating,
    RepoFacts,
    RepoFile,
    SearchHit,
    SearchQuery,
    ranked,
)
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.domain.secret import Secret
from spark_tui.services.demo.checkpoints import KNOWN
from spark_tui.services.demo.shelf import GATED, SHELF
from spark_tui.services.ports import Clock

ENDPOINT: Final = "https://hub.invalid"
COMMIT: Final = "4f2c1e7a9b3d5860c1f2e3d4a5b6978812345678"
_ANSWER_SECONDS: Final = 0.4
_DAY: Final = 86_400.0
_PACKED: Final = {
    WeightFormat.NVFP4: "U8",
    WeightFormat.NVFP4_W4A16: "U8",
    WeightFormat.MXFP4: "U8",
    WeightFormat.FP8: "F8_E4M3",
}


class DemoHub:
    """The HubClient port."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now = clock.now()
        self._shelf: Mapping[str, RepoFacts] = {each[0]: _facts(now, *each) for each in SHELF}

    async def search(self, query: SearchQuery, token: Secret | None = None) -> tuple[SearchHit, ...]:
        """By words of the name."""
        await self._clock.sleep(_ANSWER_SECONDS)
        words = query.text.lower().split()
        found = (_hit(facts) for facts in self._shelf.values() if all(word in facts.repo.lower() for word in words))
        return ranked(found, query)

    async def repo(self, repo: str, revision: str = "main", token: Secret | None = None) -> RepoFacts:
        """One of the shelf."""
        await self._clock.sleep(_ANSWER_SECONDS)
        return replace(self.card(repo, known=token is not None), revision=revision)

    def card(self, repo: str, *, known: bool = False) -> RepoFacts:
        """The same at once. Raises HubRepoMissing."""
        if repo not in self._shelf:
            raise hub_errors.repo_missing(repo, known=known)
        return self._shelf[repo]

    async def access(self, repo: str, token: Secret | None = None) -> None:
        """Nobody has accepted any terms here."""
        if repo in GATED:
            raise hub_errors.gated(ENDPOINT, repo, known=False)

    async def inspect(self, facts: RepoFacts, token: Secret | None = None) -> Reading[CheckpointFacts]:
        """Of those that are in the simulated store too."""
        await self._clock.sleep(_ANSWER_SECONDS)
        found = KNOWN.get(facts.repo)
        if found is None:
            return Missing("the simulation knows its card only")
        return Ok(replace(found, weights=replace(found.weights, complete=True) if found.weights else None, findings=()))

    async def close(self) -> None:
        """Nothing to end."""


def _facts(
    now: float, repo: str, gib: float, shards: int, form: WeightFormat, licence: str, thousands: int, days: int
) -> RepoFacts:
    size = int(gib * GIB)
    files = [RepoFile(f"model-{at:05d}-of-{shards:05d}.safetensors", size // shards) for at in range(1, shards + 1)]
    files += [RepoFile("config.json", 4_812), RepoFile("tokenizer.json", 12_807_982), RepoFile("README.md", 18_204)]
    if repo.startswith("openai/"):
        files += [RepoFile("original/model.safetensors", size), RepoFile("metal/model.bin", size)]
    dtypes = ((_PACKED[form], size),) if form in _PACKED else (("BF16", size // 2),)
    return RepoFacts(
        repo, "main", COMMIT, tuple(sorted(files, key=lambda file: file.path)), page=f"{ENDPOINT}/{repo}",
        publisher=repo.partition("/")[0], gating=Gating.AUTO if repo in GATED else Gating.OPEN, licence=licence,
        downloads=thousands * 1000, likes=thousands, modified=now - days * _DAY, task="text-generation",
        library="transformers", dtypes=dtypes, formats=Formats((form,), FormatBasis.CONFIG), storage=size,
    )  # fmt: skip


def _hit(facts: RepoFacts) -> SearchHit:
    return SearchHit(
        facts.repo, facts.publisher, facts.formats, facts.parameters, facts.weights, facts.storage, facts.gating,
        facts.private, facts.downloads, facts.likes, facts.modified, facts.task, facts.licence,
    )  # fmt: skip
