"""history: the starts as a table and as data, and what is said when there are none."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from spark_tui.base.finding import Event, EventKind, Severity
from spark_tui.base.host.series import Record
from spark_tui.observe.explain.model.starts import StartRecord, StartSizes
from spark_tui.observe.explain.model.timeline import PhaseId, StartOutcome
from spark_tui.observe.metrics.adapter.db import HistoryDb
from spark_tui.observe.metrics.use.history import EVENT
from tests.cli.world import World, example
from tests.fakes_history import FakeHistory

READY = StartRecord(
    "c1",
    1_799_990_000.5,
    "tiny-1b",
    preset="tiny-1b",
    image="vllm/vllm-openai:nightly",
    image_id="sha256:1",
    model="acme/tiny-1b",
    runtime="vllm",
    version="0.32.0",
    ready=True,
    outcome=StartOutcome.READY,
    warm=False,
    seconds=130.04,
    phases=((PhaseId.WEIGHTS, 60.0), (PhaseId.COMPILE, 50.5)),
    sizes=StartSizes(weights_gib=21.42, kv_gib=28.2, kv_tokens=1_000_000),
)
FAILED = StartRecord(
    "c2",
    1_799_993_600.0,
    "broken-8b",
    outcome=StartOutcome.FAILED,
    failed_in=PhaseId.KV_CACHE,
    cause="no_kv_room",
    failure="No room is left for the KV cache.",
    line="ValueError: No available memory \x1b[31mfor the cache blocks.",
    exit_code=1,
    ended_at=1_799_993_660.0,
)


def world(*starts: StartRecord) -> World:
    return World(history=FakeHistory(*starts))


def test_the_starts_newest_first_with_what_they_took_and_measured() -> None:
    result = world(READY, FAILED).run("history")
    heading, failed, ready = result.out.splitlines()
    assert heading.split()[:3] == ["STARTED", "ENGINE", "OUTCOME"]
    assert failed.split()[2:] == ["broken-8b", "failed"]
    assert ready.split()[2:] == ["tiny-1b", "ready", "2m10s", "cold", "21.4", "+", "28.2", "+", "?"]
    assert "broken-8b" in result.err
    assert "No room is left for the KV cache." in result.err
    assert result.code == 0


def test_one_name_is_an_engine_or_a_preset_and_its_newest_start_is_told_in_full() -> None:
    out = world(READY, FAILED).run("history", "broken-8b").out
    assert "tiny-1b" not in out
    assert "in phase KV cache" in out
    assert "ValueError: No available memory for the cache blocks." in out
    assert "\x1b" not in out
    assert "phases    weights 1m00s, compile 50s" in world(READY).run("history", "tiny-1b").out


def test_only_those_that_failed() -> None:
    assert "tiny-1b" not in world(READY, FAILED).run("history", "--failed").out
    none = world(READY).run("history", "--failed")
    assert (none.code, none.out, none.err) == (0, "", "No failed starts.\n")


def test_as_data_units_stand_in_the_names_and_what_is_not_known_has_a_reason() -> None:
    failed, ready = world(READY, FAILED).run("history", "--json").json
    assert ready["boot_seconds"] == 130.04
    assert ready["phases"] == [{"id": "weights", "seconds": 60.0}, {"id": "compile", "seconds": 50.5}]
    assert (ready["weights_gib"], ready["cuda_graphs_gib"]) == (21.42, None)
    assert ready["cuda_graphs_gib_reason"] == "not in its log"
    assert (ready["cause"], ready["cause_reason"]) == (None, "it has not failed")
    assert (failed["outcome"], failed["cause"], failed["failed_in"], failed["exit_code"]) == (
        "failed", "no_kv_room", "kv_cache", 1,
    )  # fmt: skip
    assert failed["started_at"] == "2027-01-15T06:13:20Z"


def test_a_name_without_a_start_says_which_have_one() -> None:
    result = world(READY).run("history", "nobody")
    assert result.code == 2
    assert "Known: tiny-1b." in result.err


def test_an_empty_history_says_when_it_fills() -> None:
    result = world().run("history")
    assert (result.code, result.out) == (0, "")
    assert "spark-tui up" in result.err
    assert world().run("history", "--json").json == []


def test_a_history_that_is_off_is_an_error_with_its_reason_and_not_an_empty_list() -> None:
    found = world(READY)
    assert isinstance(found.history, FakeHistory)
    found.history.switch_off("the disk of /data is full")
    result = found.run("history", "--json")
    assert (result.code, result.out) == (1, "")
    assert result.error["summary"] == "The history is off: the disk of /data is full."
    assert result.error["remedy"] == "Make room."


def test_a_file_that_was_set_aside_is_told_of() -> None:
    found = world(READY)
    assert isinstance(found.history, FakeHistory)
    found.history.note("It is kept as history-newer.db.")
    assert "note: It is kept as history-newer.db." in found.run("history").err


# --- up ---------------------------------------------------------------------------------------------------------


def launched(*arguments: str, history: FakeHistory) -> tuple[World, str, str]:
    found = example()
    found.drive = True
    found.history = history
    result = found.run("up", "tiny-1b", "--replace", "--name", "fresh", "--port", "8100", *arguments)
    assert result.code == 0, result.err
    return found, result.out, result.err


def test_up_leaves_its_start_in_the_history() -> None:
    history = FakeHistory()
    launched(history=history)
    assert "fresh" in {start.engine for start in history.known.values()}


def test_up_as_data_tells_the_estimate_with_each_step_of_the_boot() -> None:
    _, out, _ = launched("--json", history=FakeHistory())
    boot = [line for line in out.splitlines() if '"id": "follow"' in line or '"id":"follow"' in line]
    assert any("eta_seconds" in line and "eta_basis" in line for line in boot)


# --- events ---------------------------------------------------------------------------------------------


def eventful(*events: Event) -> World:
    history = FakeHistory()
    history.noted = [Record(EVENT, event.text, event.at, event.body) for event in events]
    return World(history=history)


BELL = Event(1_799_990_000.5, Severity.INFO, "tiny ready after 24s", "", EventKind.READY, "tiny")
BROKEN = Event(
    1_799_993_600.0,
    Severity.ERROR,
    "b failed (exit 1): \x1b[31mno room",
    "Lower the share.",
    EventKind.FAILED,
    "b",
    "one\ntwo",
)


def test_events_are_listed_newest_first_and_as_data() -> None:
    heading, newest, oldest = eventful(BELL, BROKEN).run("events").out.splitlines()
    assert heading.split() == ["TIME", "KIND", "EVENT"]
    assert (newest.endswith("b failed (exit 1): no room"), oldest.endswith("tiny ready after 24s")) == (True, True)
    newest, oldest = eventful(BELL, BROKEN).run("events", "--json").json
    assert (newest["kind"], newest["severity"], newest["subject"]) == ("failed", "error", "b")
    assert (newest["remedy"], newest["detail"]) == ("Lower the share.", "one\ntwo")
    assert (oldest["at"], oldest["remedy"]) == ("2027-01-15T05:13:20Z", None)
    assert oldest["remedy_reason"]
    assert newest["id"] != oldest["id"]


def test_no_events_is_a_word_and_an_empty_list_and_a_history_that_is_off_an_error() -> None:
    assert "No events yet" in eventful().run("events").err
    assert eventful().run("events", "--json").json == []
    broken = eventful()
    assert broken.history is not None
    broken.history.switch_off("the disk is full")
    assert (result := broken.run("events", "-n", "5")).code == 1
    assert "the disk is full" in result.err


COMMANDS = (
    ("history",), ("history", "--good"), ("events",), ("up", "tiny-1b", "--dry-run"), ("presets", "list"),
    ("recommend",),
)  # fmt: skip


@pytest.mark.parametrize("first", range(len(COMMANDS)))
def test_a_damaged_history_is_moved_aside_once_and_no_command_fails(tmp_path: Path, first: int) -> None:
    folder = tmp_path / "history"

    async def fill() -> None:
        kept = HistoryDb(folder)
        for number in range(100):
            kept.add_start(StartRecord(f"c{number}", 1.8e9 + number, "tiny-1b", preset="tiny-1b", line="x" * 300))
        await kept.close()

    asyncio.run(fill())
    file, chance = folder / "history.db", random.Random(first)
    data = bytearray(file.read_bytes())
    for _ in range(400):
        data[chance.randrange(100, len(data))] = chance.randrange(256)
    file.write_bytes(data)
    said = 0
    for arguments in (*COMMANDS[first:], *COMMANDS[:first]):
        result = World(history=HistoryDb(folder)).run(*arguments)
        assert result.code == 0, (arguments, result.err)
        said += result.err.count("The history was unusable")
    assert said == len(list(folder.glob("history-unreadable-*.db"))) == 1
