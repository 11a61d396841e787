"""Results and proofs that are kept."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    real={
        "results": ("spark_tui.observe.results.adapter:FileResults", lambda make, p: make(p.folders.benchmarks)),
        "proofs": ("spark_tui.observe.results.adapter:FileProofs", lambda make, p: make(p.folders.benchmarks)),
    },
    demo={
        "results": ("spark_tui.observe.results.adapter:FileResults", lambda make, p: make(p.demo_folder.path)),
        "proofs": ("spark_tui.observe.results.adapter:FileProofs", lambda make, p: make(p.demo_folder.path)),
    },
)
