"""Container images: the table, one image's page, and what deleting would do."""

from __future__ import annotations

from typing import Final

from spark_tui.base.actions import by_front_end, key_of
from spark_tui.base.engine.image import PRESENT, patches, short_digest
from spark_tui.base.errors import SparkError
from spark_tui.base.page import Cell, Column, Object, Page, Row, Section, Table, Tone, cells, labelled, maybe, moment
from spark_tui.base.quantities import human_bytes, human_duration
from spark_tui.base.text import quoted
from spark_tui.catalog.models.show.inspection import UNKNOWN, age
from spark_tui.manage.images.model import (
    ImageDeletion,
    ImageEntry,
    ImagesView,
    ImageUse,
    ImageUser,
    TagState,
)
from spark_tui.manage.images.use.update import UpdateCheck, UpdateRecord, UpdateStage
from spark_tui.observe.explain.model.starts import StartRecord
from spark_tui.observe.metrics.show.history import good_page, start_object, when
from spark_tui.observe.results.use import GoodStart

_TONES: Final = {
    TagState.CURRENT: Tone.GOOD,
    TagState.MOVED: Tone.WARNING,
    TagState.FAILED: Tone.BAD,
    TagState.GONE: Tone.BAD,
}
"""Others are quiet."""
_TAGS: Final = {
    TagState.CURRENT: "The registry has the same digest.",
    TagState.MOVED: "The tag has moved: the registry has another image.",
    TagState.PINNED: "Named by its digest, or kept by an update: it cannot move.",
    TagState.LOCAL: "Built or loaded on this machine: no digest to compare.",
    TagState.ABSENT: "Not downloaded. A launch downloads it.",
}
_SOURCES: Final = {"image": "by its labels", "start": "by an engine's start", "inspected": "read inside"}
_GROUPS: Final = ("In use", "Not used", "Not downloaded")
_MOST_USERS: Final = 3
_NOT_MEASURED: Final = "Docker did not measure"
_NOT_CHECKED: Final = "not checked"
_ABSENT: Final = "not downloaded"


def short_name(name: str) -> str:
    """A name by digest or id, with the digest's first 12 characters."""
    repository, colon, digest = name.partition("sha256:")
    return f"{repository}{colon}{digest[:12]}" if colon else name


def images_table(view: ImagesView, now: float, *, grouped: bool = False, empty: str = "") -> Table:
    """A row for each name of an image; `grouped` by what a person asks first: used, not used, not downloaded."""
    columns = (
        Column("image" if grouped else "IMAGE", least=28),
        Column("size" if grouped else "SIZE", right=True),
        Column("age" if grouped else "AGE", right=True, keep=6),
        Column("tag" if grouped else "TAG", keep=8),
        Column("vLLM" if grouped else "VERSIONS", keep=4, least=8),
        Column("used by" if grouped else "USED BY", keep=7, least=12),
        *(() if grouped else (Column("DIGEST", keep=5),)),
    )
    rows, groups = [], []
    for entry in view.entries:
        image = entry.stored
        made = image.created_at if image is not None else None
        state = {TagState.UNKNOWN: "?", TagState.ABSENT: ""}.get(entry.state, entry.state.value)
        engine = (entry.versions[0].version if entry.versions[0].title == "vLLM" else "") if entry.versions else ""
        row = (
            Cell(short_name(entry.name), Tone.STRONG if image is not None else Tone.QUIET),
            Cell("-", Tone.QUIET) if image is None else human_bytes(image.size),
            Cell("" if made is None else age(now - made), Tone.QUIET),
            Cell(state, _TONES.get(entry.state, Tone.QUIET)),
            engine if grouped else ", ".join(f"{each.title} {each.version}" for each in entry.versions[:2]),
            users_text(entry.uses, 1 if grouped else _MOST_USERS) or Cell("none", Tone.QUIET),
        )
        rows.append(cells(*row) if grouped else cells(*row, entry.digest[7:19]))
        groups.append(_GROUPS[2 if image is None else int(not entry.uses)])
    ids = tuple(entry.name for entry in view.entries)
    return Table(columns, tuple(rows), ids, empty, tuple(groups) if grouped else ())


def users_text(uses: tuple[ImageUse, ...], most: int = _MOST_USERS) -> str:
    """The names, each once, those that keep the image first: `qwen36, gemma and 2 more`; of one alone `qwen36 +3`."""
    found = list(dict.fromkeys(use.name for use in uses))
    more = len(found) - most
    rest = "" if more <= 0 else f" +{more}" if most == 1 else f" and {more} more"
    return ", ".join(found[:most]) + rest


def images_summary(view: ImagesView) -> str:
    """`4 images of engines: 61.2 GiB of disk, at least 18.0 GiB reclaimable. 2 other images: 1.1 GiB.`"""
    count = len({each.stored.id for each in view.entries if each.stored is not None})
    disk = f"size unknown ({_NOT_MEASURED})" if view.layers is None else f"{human_bytes(view.layers)} of disk"
    free = view.reclaimable
    least = f"reclaimable: {UNKNOWN}" if free is None else f"at least {human_bytes(free)} reclaimable"
    if view.unused == ():
        least = "nothing to reclaim"
    others = f" {_count(view.others, 'other image')}: {human_bytes(view.other_bytes)}." if view.others else ""
    total = " in all" if view.others and view.layers is not None else ""
    return f"{_count(count, 'image')} of engines: {disk}{total}, {least}.{others}"


def _count(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"


def image_page(entry: ImageEntry, view: ImagesView, now: float) -> Page:
    """One image: its size, its tag beside the registry's, who uses it, the versions inside, and its names."""
    image = entry.stored
    made = image.created_at if image is not None else None
    size = None if image is None else f"{human_bytes(image.size)} ({_alone(image.unique)})"
    about = labelled((("size", size), ("age", None if made is None else f"{age(now - made)}, made {when(made)}")))
    uses = [Row(use.words, "-") for use in entry.uses if use.kind is not ImageUser.PRESET]
    named = [use.name for use in entry.uses if use.kind is ImageUser.PRESET]
    if named:
        uses.append(Row(f"{_count(len(named), 'preset')}: {', '.join(named)}", "-", Tone.QUIET))
    if image is not None and view.starts_unknown:
        uses.append(Row(f"Last good starts unknown: {view.starts_unknown}.", "!", Tone.WARNING))
    names = [("image", entry.name)]
    if image is not None:
        others = ", ".join(name for name in view.names_of(image) if name != entry.name)
        names += [("also named", others), ("digest", entry.digest or "none"), ("id", image.id)]
    return (
        Section(rows=(*about, *tag_rows(entry))),
        Section("Used by", tuple(uses) or (Row("Nothing uses it.", tone=Tone.QUIET),)),
        Section("Versions inside", version_rows(entry)),
        *((Section("Patches inside", patch_rows(entry)),) if entry.patches else ()),
        Section("Names", labelled(names)),
    )


def _alone(alone: int | None) -> str:
    return f"an unknown part shared ({_NOT_MEASURED})" if alone is None else f"{human_bytes(alone)} not shared"


def tag_rows(entry: ImageEntry) -> tuple[Row, ...]:
    """What the registry has for the tag, or what to do to know it."""
    if entry.state in _TAGS:
        moved = entry.state is TagState.MOVED
        get = (("registry", str(entry.remote)), ("update", update_command(entry))) if moved else ()
        return Row(_TAGS[entry.state], "tag", _TONES.get(entry.state, Tone.QUIET)), *labelled(get)
    if isinstance(entry.remote, SparkError):
        return Row(entry.remote.summary, "tag", Tone.BAD), *labelled((("fix", entry.remote.remedy),))
    ask = by_front_end(f"{key_of('check_images')} checks the registry.", "Check the registry: spark-tui images --check")
    return (Row(f"Not checked. {ask}", "tag", Tone.QUIET),)


def update_command(entry: ImageEntry) -> str:
    """Tries the new image beside the old one where a preset names the tag."""
    named = next((use.name for use in entry.uses if use.kind is ImageUser.PRESET), "")
    if not named:
        return f"docker pull {quoted(entry.name)}"
    return by_front_end(f"{key_of('update_preset')} on {named} (Presets)", f"spark-tui update {named}")


def version_rows(entry: ImageEntry) -> tuple[Row, ...]:
    """Each program with its source, or what to do to know it."""
    rows = tuple(Row(f"{each.version}  ({_SOURCES[each.source]})", each.title) for each in entry.versions)
    if entry.stored is None or any(each.source == "inspected" for each in entry.versions):
        return rows or (Row("Unknown: not downloaded.", tone=Tone.QUIET),)
    command = f"Read them: spark-tui images --inspect {entry.name}"
    more = by_front_end(f"{key_of('inspect_image')} reads them inside.", command)
    return *rows, Row(more if rows else f"Unknown. {more}", tone=Tone.QUIET)


def patch_rows(entry: ImageEntry) -> tuple[Row, ...]:
    """Each patch and whether it is there; of one that is not, how it is made."""
    rows = list[Row]()
    for id_, state in entry.patches.items():
        patch, there = patches()[id_], state == PRESENT
        words = f"vLLM has it; {patch.instead}".rstrip("; ") if there and patch.since else state or UNKNOWN
        rows.append(Row(f"{patch.about}: {words}", "-", Tone.GOOD if there else Tone.WARNING))
        if patch.step and not there:
            rows.append(Row(f"{patch.step} [{patch.source}]", "step", Tone.QUIET))
    return tuple(rows)


def deletion_text(plan: ImageDeletion) -> str:
    """What goes, what that frees, and who has to download it again."""
    if plan.others:
        return f"Removes the name {plan.entry.name} only: the image stays as {', '.join(plan.others)}."
    frees = "frees an unknown size" if plan.frees is None else f"frees at least {human_bytes(plan.frees)}"
    if plan.frees == 0:
        frees = "frees nothing, because other images have the same layers"
    again = [use.name for use in plan.entry.uses if use.kind is ImageUser.PRESET]
    kept = "".join(f" This is {use.words}." for use in plan.entry.uses if use.kind is ImageUser.KEPT)
    users = kept + f" The next launch of {users_text(plan.entry.uses)} downloads it again." if again else ""
    return f"Deletes {plan.entry.name}: {frees}.{users}"


# --- JSON -------------------------------------------------------------------------------------------------


def images_object(view: ImagesView) -> Object:
    return {
        "images": [image_object(entry) for entry in view.entries],
        **maybe("disk_bytes", view.layers, _NOT_MEASURED),
        **maybe("reclaimable_bytes", view.reclaimable, _NOT_MEASURED),
        "other_images": view.others,
        "other_images_bytes": view.other_bytes,
        **({"last_starts_unknown": view.starts_unknown} if view.starts_unknown else {}),
    }


def image_object(entry: ImageEntry) -> Object:
    image, error = entry.stored, entry.remote if isinstance(entry.remote, SparkError) else None
    absent = _ABSENT if image is None else ""
    made = moment(image.created_at) if image is not None else None
    return {
        "id": entry.name,
        "downloaded": image is not None,
        **maybe("image_id", image.id if image is not None else None, absent),
        **maybe("digest", entry.digest, absent or "built or loaded on this machine"),
        **maybe("size_bytes", image.size if image is not None else None, absent),
        **maybe("unique_bytes", image.unique if image is not None else None, absent or _NOT_MEASURED),
        **maybe("created", made, absent or "the image does not say"),
        "versions": [
            {"program": each.title, "version": each.version, "source": each.source} for each in entry.versions
        ],
        "patches": [
            {
                "id": id_,
                "about": patches()[id_].about,
                **maybe("state", state, "the image was not inspected, or its file cannot be read"),
            }
            for id_, state in entry.patches.items()
        ],
        "used_by": [{"kind": use.kind.value, "name": use.name, "keeps": use.keeps} for use in entry.uses],
        "tag_state": entry.state.value,
        **maybe("registry_digest", None if error else entry.remote, error.summary if error else _NOT_CHECKED),
        **({"error": {"id": error.id, "summary": error.summary, "remedy": error.remedy}} if error else {}),
    }


def deletion_object(plan: ImageDeletion) -> Object:
    return {
        "id": plan.entry.name,
        **maybe("frees_at_least_bytes", plan.frees, _NOT_MEASURED),
        "also_named": list(plan.others),
        "obstacles": [{"id": each.id, "summary": each.summary, "remedy": each.remedy} for each in plan.obstacles],
    }


# --- an update of a preset's image ---------------------------------------------------------------------


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
        Section(
            rows=(
                *labelled(pairs),
                moved if found.moved else Row("unchanged", "tag", Tone.GOOD),
                *((Row(f"{need}, {free}", "disk", tone),) if found.moved else ()),
                *((Row(stage_text(last), "update"),) if last is not None else ()),
                *labelled((("next", by_front_end("", f"Try it: spark-tui update {name}" * found.moved)),)),
            )
        ),
    )


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
