"""Earlier starts of engines, for both front ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from spark_tui.base.engine.image import short_digest
from spark_tui.base.page import Cell, Column, Object, Page, Section, Table, Tone, cells, labelled, maybe, moment
from spark_tui.base.quantities import human_duration
from spark_tui.observe.explain.model.starts import StartRecord
from spark_tui.observe.explain.model.timeline import LABELS, StartOutcome
from spark_tui.observe.results.use import GoodStart

_TONES: Final = {"ready": Tone.GOOD, "failed": Tone.BAD, "crashed": Tone.BAD, "stopped": Tone.QUIET}


def when(at: float) -> str:
    """`2026-11-21 18:40`, by this machine's clock."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def outcome_word(start: StartRecord) -> str:
    """ready, stopped, failed (before it served), crashed (after)."""
    if start.outcome is StartOutcome.FAILED:
        return "crashed" if start.ready else "failed"
    if start.outcome is StartOutcome.STOPPED and not start.ready:
        return "stopped"
    return "ready" if start.ready else start.outcome.value


def starts_table(starts: Sequence[StartRecord]) -> Table:
    """A row for each start. The preset has a column only where it is not the engine's name."""
    others = any(start.preset not in ("", start.engine) for start in starts)
    columns = (
        Column("STARTED"),
        Column("ENGINE", least=28),
        *((Column("PRESET", keep=7, least=12),) if others else ()),
        Column("OUTCOME"),
        Column("TOOK", right=True),
        Column("CACHES", keep=8),
        Column("WEIGHTS + KV + GRAPHS GiB", keep=6),
    )
    rows = []
    for start in starts:
        word, sizes = outcome_word(start), (start.sizes.weights_gib, start.sizes.kv_gib, start.sizes.graphs_gib)
        measured = any(size is not None for size in sizes)
        rows.append(
            cells(
                when(start.at),
                start.engine,
                *((start.preset,) if others else ()),
                Cell(word, _TONES.get(word, Tone.PLAIN)),
                "" if start.seconds is None else human_duration(start.seconds),
                "" if start.warm is None else "warm" if start.warm else "cold",
                " + ".join("?" if size is None else f"{size:.1f}" for size in sizes) if measured else "",
            )
        )
    return Table(columns, tuple(rows))


_GOOD_COLUMNS: Final = (
    Column("STARTED"), Column("PRESET", least=20), Column("TOOK", right=True, keep=6), Column("VERSION", keep=7),
    Column("DIGEST"), Column("ATTENTION", keep=4), Column("DRIVER", keep=3), Column("MEASURED", keep=5),
)  # fmt: skip


def good_table(found: Sequence[GoodStart]) -> Table:
    """A row for each start that served well; the digest is the image's id where the image has none."""
    rows = tuple(
        cells(
            when(each.start.at),
            Cell(each.start.preset, Tone.STRONG),
            "" if each.start.seconds is None else human_duration(each.start.seconds),
            each.start.version,
            short_digest(each.start.image_digest) or f"id {short_digest(each.start.image_id)}",
            ", ".join(each.start.backends.attention),
            each.start.driver,
            _measured(each),
        )
        for each in found
    )
    return Table(_GOOD_COLUMNS, rows)


def _measured(good: GoodStart) -> str:
    counts = ((len(good.results), "bench"), (len(good.proofs), "prove"))
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def good_page(good: GoodStart) -> Page:
    """One start that served well, with everything that is remembered of it."""
    start, backends = good.start, good.start.backends
    versions = (f"{start.runtime} {start.version}".strip(), *(" ".join(each) for each in backends.versions))
    sizes = start.sizes
    graphs = (backends.graph_mode, "" if sizes.graphs_gib is None else f"{sizes.graphs_gib:.2f} GiB")
    pairs = (
        ("started", f"{when(start.at)}  {outcome_word(start)}"),
        ("image", start.image),
        ("digest", start.image_digest or f"none; image id {start.image_id}"),
        ("versions", ", ".join(filter(None, versions))),
        ("attention", ", ".join(backends.attention)),
        ("kernels", ", ".join(" ".join(filter(None, each)) for each in backends.kernels)),
        ("KV cache", "" if sizes.kv_tokens is None else f"{sizes.kv_tokens:,} tokens"),
        ("CUDA graphs", ", ".join(filter(None, graphs))),
        ("kernel", start.kernel),
        ("driver", start.driver),
        ("options", "  ".join(start.flags)),
        ("bench", ", ".join(good.results)),
        ("prove", ", ".join(good.proofs)),
    )
    return (Section(rows=labelled(pairs)),)


def good_object(good: GoodStart) -> Object:
    return {**start_object(good.start), "results": list(good.results), "proofs": list(good.proofs)}


def start_page(start: StartRecord) -> Page:
    phases = ", ".join(f"{LABELS[phase][1]} {human_duration(seconds)}" for phase, seconds in start.phases)
    where = f"in phase {LABELS[start.failed_in][0]}" if start.failed_in else ""
    pairs = (
        ("latest", f"{when(start.at)}  {outcome_word(start)} {where}".rstrip()),
        ("model", start.model),
        ("image", start.image),
        ("phases", phases),
        ("KV cache", "" if start.sizes.kv_tokens is None else f"{start.sizes.kv_tokens:,} tokens"),
        ("cause", start.failure),
        ("log", start.line),
    )
    return (Section(rows=labelled(pairs)),)


def start_object(start: StartRecord) -> Object:
    sizes, silent, fine = start.sizes, "not in its log", "it has not failed"
    return {
        "id": start.container,
        "engine": start.engine,
        **maybe("preset", start.preset, "spark-tui did not launch it"),
        "model": start.model,
        "image": start.image,
        "image_id": start.image_id,
        **maybe("image_digest", start.image_digest, "the image has none, or it was not looked at"),
        "settings": start.settings,
        "flags": list(start.flags),
        "attention": list(start.backends.attention),
        "kernels": [{"format": form, "part": part, "name": name} for form, part, name in start.backends.kernels],
        **maybe("cuda_graph_mode", start.backends.graph_mode, silent),
        "versions": dict(start.backends.versions),
        **maybe("host_kernel", start.kernel, "it was not recorded while it ran"),
        **maybe("driver", start.driver, "it was not recorded while it ran"),
        "good": start.good,
        "runtime": start.runtime,
        **maybe("version", start.version, silent),
        "started_at": moment(start.at),
        "started_at_seconds": round(start.at, 3),
        **maybe("ended_at", moment(start.ended_at), "it was serving when it was last seen"),
        "outcome": outcome_word(start),
        "ready": start.ready,
        **maybe("boot_seconds", start.seconds, "it did not come to serve" if not start.ready else silent),
        **maybe("caches_warm", start.warm, silent),
        "phases": [{"id": phase.value, "seconds": round(seconds, 3)} for phase, seconds in start.phases],
        **maybe("weights_gib", sizes.weights_gib, silent),
        **maybe("kv_cache_gib", sizes.kv_gib, silent),
        **maybe("kv_cache_tokens", sizes.kv_tokens, silent),
        **maybe("cuda_graphs_gib", sizes.graphs_gib, silent),
        **maybe("cuda_graphs_estimated_gib", sizes.graphs_estimated_gib, silent),
        **maybe("gpu_memory_utilization", sizes.utilization, silent),
        **maybe("context_tokens", sizes.context, silent),
        **maybe("cause", start.cause, fine),
        **maybe("failure", start.failure, fine),
        **maybe("failed_in", start.failed_in.value if start.failed_in else None, fine),
        **maybe("line", start.line, fine),
        **maybe("exit_code", start.exit_code, "it was serving when it was last seen"),
    }
