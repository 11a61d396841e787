"""Results and proofs that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_tui.base.feature import Feature, Slice

if TYPE_CHECKING:
    from spark_tui.observe.results.model.proof import Proof

PROOFS: Slice[tuple[Proof, ...]] = Slice(())
"""What engines were proved to do, the newest first."""

FEATURE = Feature(
    commands={
        "references": (
            "spark_tui.observe.results.command",
            "Read the published figures: speeds, scaling, KV cache, accuracy.",
        ),
    },
    asides={"references": "spark_tui.observe.results.screen:ReferencesScreen"},
    real={
        "results": ("spark_tui.observe.results.adapter:FileResults", lambda make, p: make(p.folders.benchmarks)),
        "proofs": ("spark_tui.observe.results.adapter:FileProofs", lambda make, p: make(p.folders.benchmarks)),
    },
    demo={
        "results": ("spark_tui.observe.results.adapter:FileResults", lambda make, p: make(p.demo_folder.path)),
        "proofs": ("spark_tui.observe.results.adapter:FileProofs", lambda make, p: make(p.demo_folder.path)),
    },
)
