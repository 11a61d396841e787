"""Events, for both front ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from spark_tui.base.finding import Event
from spark_tui.base.page import TONES, Cell, Column, Object, Page, Row, Section, Table, Tone, cells, maybe, moment
from spark_tui.base.quantities import human_duration


def event_id(event: Event) -> str:
    """Stable: an event is named by its moment and its text."""
    return f"{event.at:.3f} {event.text}"


def event_time(at: float, now: float) -> str:
    """`16:45:12`; of another day `21 Nov 16:45`. By this machine's clock."""
    then, today = (datetime.fromtimestamp(each).astimezone() for each in (at, now))
    return then.strftime("%H:%M:%S" if then.date() == today.date() else "%d %b %H:%M")


def events_table(events: Sequence[Event], now: float) -> Table:
    """The newest first."""
    columns = (Column("TIME"), Column("KIND", keep=1), Column("EVENT", least=20))
    rows = tuple(
        cells(event_time(event.at, now), Cell(event.kind.value, Tone.QUIET), Cell(event.text, TONES[event.severity]))
        for event in reversed(events)
    )
    return Table(columns, rows, tuple(event_id(event) for event in reversed(events)))


def event_page(event: Event) -> Page:
    """All that is known of one."""
    about = event.kind.value + (f", {event.subject}" if event.subject else "")
    rows = [
        Row(event.text, "event", TONES[event.severity]),
        Row(event.remedy, "fix"),
        Row(about, "about", Tone.QUIET),
        Row(f"{datetime.fromtimestamp(event.at).astimezone():%d %b %Y %H:%M:%S}", "time", Tone.QUIET),
        *(Row(line, "|") for line in event.detail.splitlines()),
    ]
    return (Section(rows=tuple(row for row in rows if row.text.strip())),)


def subject_page(event: Event, events: Sequence[Event], now: float) -> Page:
    """All events of the same engine or model, with the time since the one before; empty where there are no others."""
    related = [each for each in events if event.subject and each.subject == event.subject]
    if len(related) < 2:
        return ()
    gaps = ["", *(f"+{human_duration(after.at - before.at)}" for before, after in pairwise(related))]
    rows = tuple(
        cells(
            Cell(event_time(each.at, now), Tone.STRONG if each == event else Tone.QUIET),
            Cell(gap, Tone.QUIET),
            Cell(each.text.removeprefix(f"{each.subject}: "), TONES[each.severity]),
        )
        for each, gap in zip(related, gaps, strict=True)
    )
    table = Table((Column(""), Column("", right=True), Column("", least=20)), rows)
    return (Section(f"All events of {event.subject}", table=table),)


def matches(event: Event, words: Sequence[str]) -> bool:
    """All words are in its text, kind, subject or severity."""
    text = " ".join((event.text, event.kind, event.subject, event.severity, event.remedy)).lower()
    return all(word in text for word in words)


def event_object(event: Event) -> Object:
    return {
        "id": event_id(event),
        "at": moment(event.at),
        "kind": event.kind.value,
        "severity": event.severity.value,
        "text": event.text,
        **maybe("subject", event.subject, "about no engine or model"),
        **maybe("remedy", event.remedy, "nothing to do"),
        **maybe("detail", event.detail, "none"),
    }
