"""The model store, the Hub and downloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_tui.base.feature import Feature, Slice
from spark_tui.base.finding import NOT_READ_YET, Reading

if TYPE_CHECKING:
    from spark_tui.catalog.models.model.download import Download

DOWNLOADS: Slice[Reading[tuple[Download, ...]]] = Slice(NOT_READ_YET)

FEATURE = Feature(
    real={
        "ollama": ("spark_tui.catalog.models.adapter.ollama:HttpOllama", lambda make, p: make(p.environ)),
        "checkpoints": (
            "spark_tui.catalog.models.adapter.checkpoints:model_checkpoints",
            lambda make, p: make(p),
        ),
        "models": ("spark_tui.catalog.models.adapter.store:model_store", lambda make, p: make(p)),
        "hub": ("spark_tui.catalog.models.adapter.hub_client:HuggingFaceHub", lambda make, p: make(p.environ)),
        "downloader": (
            "spark_tui.catalog.models.adapter.downloads:DetachedDownloads",
            lambda make, p: make(p.folders.downloads, p.settings.store, p.environ),
        ),
    },
)
