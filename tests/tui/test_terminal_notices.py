"""What the terminal is told at the end of something long, and that nothing from outside steers it."""

from __future__ import annotations

import pytest

from spark_tui.base.finding import Event, EventKind, Ok, Severity
from spark_tui.base.host.vitals import HostIdentity
from spark_tui.base.jobs import JobView, Step, StepState
from spark_tui.base.settings import NOTICES, read_value
from spark_tui.base.store import World
from spark_tui.observe.engines.show.activity import window_title
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.tui.terminal_notices import DEAF_TERMINALS, TerminalNotices

XTERM = {"TERM": "xterm-256color"}


def event(at: float, kind: EventKind = EventKind.READY, subject: str = "qwen", text: str = "qwen ready") -> Event:
    return Event(at, Severity.INFO, text, "", kind, subject)


def notices(words: str, **environ: str) -> tuple[TerminalNotices, list[str]]:
    written: list[str] = []
    made = TerminalNotices(words.split(","), XTERM | environ, written.append)
    made.begin(100.0)
    written.clear()
    return made, written


@pytest.mark.parametrize(
    ("words", "environ", "sent"),
    [
        ("bell", {}, ["\a"]),
        ("osc9", {}, ["\x1b]9;qwen ready\x1b\\"]),
        ("bell,osc777", {}, ["\a", "\x1b]777;notify;spark-tui;qwen ready\x1b\\"]),
        ("osc9", {"TMUX": "/tmp/tmux"}, ["\x1bPtmux;\x1b\x1b]9;qwen ready\x1b\x1b\\\x1b\\"]),
        ("title", {}, []),
        ("off", {}, []),
        *((",".join(NOTICES), {"TERM": term}, []) for term in DEAF_TERMINALS),
    ],
)
def test_a_start_that_ended_is_told_as_the_setting_wants(words: str, environ: dict[str, str], sent: list[str]) -> None:
    made, written = notices(words, **environ)
    made.events((event(50.0), event(110.0)))
    made.events((event(50.0), event(110.0)))
    assert written == sent, "what was there before says nothing, and nothing is told twice"


def test_only_ends_of_something_long_are_told_and_each_engine_once() -> None:
    made, written = notices("bell")
    made.events(tuple(event(110.0 + number, kind) for number, kind in enumerate((EventKind.LAUNCH, EventKind.CHECK))))
    assert written == []
    made.events((event(120.0, EventKind.FAILED), event(120.1, EventKind.FAILED), event(121.0, subject="other")))
    assert written == ["\a", "\a"]


def test_text_from_outside_ends_no_sequence_and_is_no_parameter() -> None:
    made, written = notices("osc9,title")
    made.events((event(110.0, text="4;1;50\x1b\\\x07\x9c\nrm" + "x" * 500),))
    made.title("a\x1b]52;c;eA==\x07b")
    made.title("a\x1b]52;c;eA==\x07b")
    [notice, title] = written
    assert notice.startswith("\x1b]9;4,1,50")
    for sequence in (notice, title):
        body = sequence[2:].removesuffix("\x1b\\")
        assert body.isprintable()
        assert len(body) < 200


def test_the_title_comes_back() -> None:
    written: list[str] = []
    made = TerminalNotices(("title",), XTERM, written.append)
    made.begin(0.0)
    made.title("spark: ready")
    made.end()
    assert (written[0], written[-1].endswith("\x1b[23;2t")) == ("\x1b[22;2t", True)


def test_the_title_says_the_state_and_no_figures() -> None:
    job = JobView("1", "qwen", (Step("pull", "Pull image", StepState.RUNNING, "", 0.41),))
    assert window_title(World(identity=HostIdentity("spark-7f3a"), jobs=(job,))) == "spark-7f3a: qwen pulling"
    assert window_title(World(slices={ENGINES: Ok(())})) == "spark-tui: no engine running"
    assert window_title(World()) == "spark-tui: engines unknown"


@pytest.mark.parametrize("value", ["", "bells", "bell,,title", 3, ["bell", 3], "off,bell", []])
def test_a_setting_that_is_no_such_word_is_a_mistake(value: object) -> None:
    with pytest.raises(ValueError, match="title, bell, osc9, osc777"):
        read_value("notify", value)


def test_the_setting_is_words_or_a_list_of_them() -> None:
    assert read_value("notify", ["osc9", "bell"]) == read_value("notify", " bell , osc9 ") == "bell,osc9"
    assert read_value("notify", "off") == "off"
