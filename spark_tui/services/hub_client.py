"""The HubClient port on huggingface_hub, which is imported when the Hub is first asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.models.hub import RepoFacts, SearchHit, SearchQuery, asked, ranked
from spark_tui.domain.reading import Reading
from spark_tui.domain.secret import Secret
from spark_tui.services.executors import CallPool
from spark_tui.services.hub_session import Asked, calling, endpoint_of, prepare, token_of

WORKERS: Final = 4
_MARGIN: Final = 4
"""Hits asked for beyond the wish, times the wish: filters take some away."""
_MOST_ASKED: Final = 200
_TOLD: Final = (
    "author", "config", "downloads", "gated", "gguf", "lastModified", "likes", "pipeline_tag", "private", "safetensors",
    "tags", "usedStorage",
)  # fmt: skip


class HuggingFaceHub:
    """The Hub of `HF_ENDPOINT`, else huggingface.co."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.endpoint = endpoint_of(environ)
        self._pool = CallPool("hub", WORKERS)

    async def search(self, query: SearchQuery, token: Secret | None = None) -> tuple[SearchHit, ...]:
        """What fits the query, best first; empty when nothing does."""
        return await self._pool.run(self._search, query, token)

    async def repo(self, repo: str, revision: str = "main", token: Secret | None = None) -> RepoFacts:
        """One revision: facts of its card, and all its files with sizes."""
        return await self._pool.run(self._repo, repo, revision, token)

    async def access(self, repo: str, token: Secret | None = None) -> None:
        """Returns when this token may fetch the repository's files; raises HubGated, HubTokenRejected, ..."""
        await self._pool.run(self._access, repo, token)

    async def inspect(self, facts: RepoFacts, token: Secret | None = None) -> Reading[CheckpointFacts]:
        """What a checkpoint's config, index and tensor headers say of it, without fetching a tensor."""
        return await self._pool.run(self._inspect, facts, token)

    async def close(self) -> None:
        """Ends its threads."""
        self._pool.close()

    # --- on a thread --------------------------------------------------------------------------------------

    def _api(self, token: Secret | None) -> Any:
        prepare()
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.endpoint, token=token_of(token))

    def _search(self, query: SearchQuery, token: Secret | None) -> tuple[SearchHit, ...]:
        from spark_tui.services.hub_answers import hit_of

        filtered = bool(query.formats) or query.fits or query.most_bytes is not None
        limit = min(_MOST_ASKED, query.limit * (_MARGIN if filtered else 1) + 10)
        hits: list[SearchHit] = []
        for words, tag in asked(query):

            def ask(words: str = words, tag: str = tag) -> list[SearchHit]:
                found = self._api(token).list_models(
                    search=words or None, filter=tag or None, author=query.publisher or None, sort=query.sort.value,
                    limit=limit, expand=list(_TOLD),
                )  # fmt: skip
                return [hit_of(info) for info in found]

            hits += calling(Asked(self.endpoint, token=token), ask)
        return ranked(hits, query)

    def _repo(self, repo: str, revision: str, token: Secret | None) -> RepoFacts:
        from spark_tui.services.hub_answers import facts_of, files_of

        def ask() -> RepoFacts:
            api = self._api(token)
            info = api.model_info(repo, revision=revision)
            tree = api.list_repo_tree(repo, recursive=True, revision=info.sha or revision)
            return facts_of(info, files_of(tree), revision, self.endpoint)

        return calling(Asked(self.endpoint, repo, revision=revision, token=token), ask)

    def _access(self, repo: str, token: Secret | None) -> None:
        calling(Asked(self.endpoint, repo, token=token), lambda: self._api(token).auth_check(repo))

    def _inspect(self, facts: RepoFacts, token: Secret | None) -> Reading[CheckpointFacts]:
        from spark_tui.services.hub_remote import RemoteFiles

        prepare()
        return RemoteFiles(facts, self.endpoint, token).checkpoint()
