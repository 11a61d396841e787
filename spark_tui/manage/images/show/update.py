"""An update of a preset's image: the tag, what the new image changes, and what is left to decide."""

from __future__ import annotations

from typing import Final

from spark_tui.base.actions import by_front_end
from spark_tui.base.page import Cell, Column, Object, Page, Row, Section, Table, Tone, cells, labelled, maybe, moment
from spark_tui.base.quantities import human_bytes, human_duration
from spark_tui.catalog.presets.model.preset import short_digest
from spark_tui.catalog.presets.use.pins import GoodStart
from spark_tui.manage.images.use.update import UpdateCheck, UpdateRecord, UpdateStage
from spark_tui.observe.explain.model.starts import StartRecord
from spark_tui.observe.metrics.show.history import good_page, start_object, when

_STAGES: Final = {
    UpdateStage.PULL: "interrupted while the new image was pulled",
    UpdateStage.TRY: "interrupted while the new image was tried",
    UpdateStage.DECIDE: "not decided: keep the new image or go back",
    UpdateStage.KEEP: "interrupted while the new image was kept",
    UpdateStage.BACK: "interrupted while going back",
    UpdateStage.KEPT: "kept",
}
_SAME: Final = ("started", "options", "bench", "prove", "image", "digest")
"""Rows of a start that its image does not decide, or that name it."""


def stage_text(record: UpdateRecord) -> str:
    """`Update of qwen, 2026-11-21 18:40: not decided: keep the new image or go back`."""
    return f"Update of {record.preset}, {when(record.at)}: {_STAGES[record.stage]}."


def check_page(found: UpdateCheck) -> Page:
    """Where the tag is here and in its registry, and whether the disk has room for both images."""
    name = found.preset.name
    moved = Row("moved: the registry has another image", "tag", Tone.WARNING)
    free = "free space unknown" if found.free is None else f"{human_bytes(found.free)} free"
    need = "the new image is downloaded" if found.downloaded else f"about {human_bytes(found.image.size)} more"
    tone = Tone.BAD if found.room is False else Tone.PLAIN
    pairs = (
        ("image", found.preset.reference),
        ("downloaded", short_digest(found.digest)),
        ("registry", short_digest(found.remote) if found.moved else ""),
        ("also used by", ", ".join(found.others)),
    )
    last = found.record
    return (
        Section(rows=(
            *labelled(pairs),
            moved if found.moved else Row("unchanged", "tag", Tone.GOOD),
            *((Row(f"{need}, {free}", "disk", tone),) if found.moved else ()),
            *((Row(stage_text(last), "update"),) if last is not None else ()),
            *labelled((("next", by_front_end("", f"Try it: spark-tui update {name}" * found.moved)),)),
        )),
    )  # fmt: skip


def facts_table(before: StartRecord | None, after: StartRecord | None) -> Table:
    """What a start reported, where the old and the new image differ."""
    old, new = _facts(before), _facts(after)
    rows = tuple(
        cells(label, old.get(label) or Cell("unknown", Tone.QUIET), new.get(label) or Cell("unknown", Tone.QUIET))
        for label in dict.fromkeys((*old, *new))
        if old.get(label) != new.get(label)
    )
    columns = (Column("STARTED WITH"), Column("OLD", least=14), Column("NEW", least=14))
    return Table(columns, rows, empty="No difference in what the engine reports at its start.")


def _facts(start: StartRecord | None) -> dict[str, str]:
    if start is None:
        return {}
    [section] = good_page(GoodStart(start))
    rows = {row.label: row.text for row in section.rows if row.label not in _SAME}
    if start.sizes.weights_gib is not None:
        rows["weights"] = f"{start.sizes.weights_gib:.2f} GiB"
    return rows | ({"ready after": human_duration(start.seconds)} if start.seconds is not None else {})


def trial_page(record: UpdateRecord, before: StartRecord | None, after: StartRecord | None) -> Page:
    """The new image beside the old one."""
    missing = [word for word, start in (("old", before), ("new", after)) if start is None]
    why = tuple(Row(f"No good start in the {word} image is known.", "note", Tone.WARNING) for word in missing)
    heads = (("old image", short_digest(record.old_digest)), ("new image", short_digest(record.new_digest)))
    return (
        Section(f"Update of {record.preset}", (*labelled(heads), *why)),
        Section(table=facts_table(before, after)),
    )


def check_object(found: UpdateCheck) -> Object:
    return {
        "id": found.preset.name,
        "image": found.preset.reference,
        "digest": found.digest,
        "registry_digest": found.remote,
        "moved": found.moved,
        "downloaded": found.downloaded,
        "needs_bytes": 0 if found.downloaded else found.image.size,
        **maybe("free_bytes", found.free, "the disk of Docker cannot be read"),
        "also_used_by": list(found.others),
        **maybe("update", record_object(found.record) if found.record else None, "none to undo"),
    }


def record_object(record: UpdateRecord) -> Object:
    return {
        "id": record.preset,
        "engine": record.engine,
        "image": record.tag,
        "stage": record.stage.value,
        "old_digest": record.old_digest,
        "new_digest": record.new_digest,
        "old_image_id": record.old_id,
        "began_at": moment(record.at),
    }


def trial_object(record: UpdateRecord, before: StartRecord | None, after: StartRecord | None) -> Object:
    unknown = "no good start in that image is known"
    return {
        **record_object(record),
        **maybe("old_start", start_object(before) if before is not None else None, unknown),
        **maybe("new_start", start_object(after) if after is not None else None, unknown),
        "differences": [
            {"id": label.text, "old": old.text, "new": new.text} for label, old, new in facts_table(before, after).rows
        ],
    }
