"""The Hub's own HTTP over a shelf of repositories, as far as our client asks. It is not on the simulated Spark: it has
a socket of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from spark_tui.base.checkpoint import WeightFormat
from spark_tui.base.ports import Clock
from spark_tui.base.quantities import GIB
from spark_tui.catalog.models.model.weights import CONFIG
from spark_tui.simulator.facts import SHELF, Card
from spark_tui.simulator.models import COMMIT
from spark_tui.simulator.server import Answer, Request, Server, as_json
from spark_tui.simulator.shelf import ShelfFile, files_on

GATED: Final = ("google/gemma-3-27b-it",)
_ANSWER_SECONDS: Final = 0.4
_PATH: Final = re.compile(
    r"/(?:api/models/)?([^/]+/[^/]+)(?:/(revision|tree|auth-check|resolve)(?:/[^/]+(?:/(.+))?)?)?"
)
_RANGE: Final = re.compile(r"bytes=(\d+)-(\d+)")
_STATED: Final = {
    WeightFormat.NVFP4: ("U8", {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
    WeightFormat.NVFP4_W4A16: ("U8", {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}),
    WeightFormat.MXFP4: ("U8", {"quant_method": "mxfp4"}),
    WeightFormat.FP8: ("F8_E4M3", {"quant_method": "fp8"}),
    WeightFormat.OTHER: ("U8", {"quant_method": "exl3"}),
}
"""The dtype of most tensors, and what the config says."""


class SimulatedHub:
    """`path` is where its socket comes to be. The first answer to a question takes its time; what the same question
    needs besides comes at once. Every revision of a repository is the same."""

    endpoint = "https://hub.invalid"

    def __init__(self, clock: Clock, path: Path) -> None:
        self._clock = clock
        self._cards = {card[0]: _described(card, clock.now()) for card in SHELF}
        self.socket = str(path)
        self.reached_by = Server(path, self._answer).reached_by

    async def _answer(self, request: Request) -> Answer:
        found = _PATH.fullmatch(request.path)
        repo, kind, path = found.groups("") if found else ("", "", "")
        if path == CONFIG or (request.path.startswith("/api/models") and kind not in ("tree", "auth-check")):
            await self._clock.sleep(_ANSWER_SECONDS)
        if request.path == "/api/models":
            return as_json(self._search(request.query))
        known, files = "authorization" in request.headers, files_on(repo)
        if not files:
            return _refused(404 if known else 401, "RepoNotFound")
        if kind == "tree":
            return as_json(
                [{"type": "file", "oid": "", "path": path, "size": each.size} for path, each in files.items()]
            )
        if kind not in ("auth-check", "resolve"):
            return as_json(self._cards[repo])
        if repo in GATED:
            return _refused(403 if known else 401, "GatedRepo")
        return _piece(files.get(path), request.headers.get("range", "")) if kind == "resolve" else as_json({})

    def _search(self, query: Mapping[str, str]) -> list[dict[str, Any]]:
        words, author = query.get("search", "").lower().split(), query.get("author", "").lower()
        found = (
            self._cards[repo]
            for repo, _, _, form, *_ in SHELF
            if all(word in repo.lower() for word in words)
            and query.get("filter", "") in form.lower()
            and repo.lower().startswith(author and f"{author}/")
        )
        return sorted(found, key=lambda card: card.get(query["sort"], 0), reverse=True)[: int(query["limit"])]


def _piece(file: ShelfFile | None, asked: str) -> Answer:
    """The bytes that were asked for, or fewer: a range need not be answered whole."""
    found = _RANGE.fullmatch(asked)
    if file is None or found is None:
        return _refused(404, "EntryNotFound")
    begin = int(found[1])
    data = file.data[begin : int(found[2]) + 1]
    span = f"{begin}-{begin + len(data) - 1}" if data else "*"
    headers = (("Content-Range", f"bytes {span}/{file.size}"), ("X-Repo-Commit", COMMIT))
    return Answer(data, 206 if data else 416, "application/octet-stream", headers)


def _refused(status: int, code: str) -> Answer:
    return as_json({}, status)._replace(headers=(("X-Error-Code", code),))


def _described(card: Card, now: float) -> dict[str, Any]:
    """A card as the Hub has it."""
    repo, gib, _, form, licence, thousands, days = card
    size, changed = int(gib * GIB), datetime.fromtimestamp(now, UTC) - timedelta(days)
    dtype, quantization = _STATED.get(form, ("BF16", None))
    return {
        "id": repo,
        "author": repo.partition("/")[0],
        "sha": COMMIT,
        "gated": "auto" if repo in GATED else False,
        "private": False,
        "downloads": thousands * 1000,
        "likes": thousands,
        "pipeline_tag": "text-generation",
        "lastModified": changed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "usedStorage": size,
        "library_name": "transformers",
        "tags": [f"license:{licence}"],
        "cardData": {"license": licence},
        "config": {"quantization_config": quantization} if quantization else {},
        "safetensors": {"parameters": {dtype: size if quantization else size // 2}, "total": 0},
    }
