"""When a start will be ready: from earlier starts, from progress bars, or not known."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.observe.explain.model.starts import (
    Eta,
    EtaBasis,
    StartRecord,
    eta,
    eta_text,
    is_warm,
    repeated_phases,
    rough_duration,
)
from spark_tui.observe.explain.model.timeline import EMPTY_TIMELINE, BootTimeline, Phase, PhaseId, PhaseState
from spark_tui.observe.explain.model.tracker import LogTracker
from tests.cases import all_cases
from tests.engine_logs import track
from tests.log_fixtures import run_log

P, S = PhaseId, PhaseState
BEGUN = 1_000.0
GB10 = "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"


def past(warm: bool | None = None, **seconds: float) -> StartRecord:
    phases = tuple((PhaseId(name), value) for name, value in seconds.items())
    return StartRecord("c", 0.0, "e", phases=phases, warm=warm)


COLD = past(False, container=4, config=10, engine_init=10, weights=200, compile=100, kv_cache=10, capture=20, server=6)
WARM = past(True, container=4, config=10, engine_init=10, weights=200, compile=20, kv_cache=10, capture=20, server=6)


def running(phase_id: PhaseId, *, skipped: tuple[PhaseId, ...] = (), detail: str = "", **now: float) -> BootTimeline:
    """A timeline in which that phase began at BEGUN; those before it are over, `skipped` ones left out."""
    order = list(PhaseId)
    phases = []
    for each in order:
        state = S.DONE if order.index(each) < order.index(phase_id) else S.PENDING
        state = S.SKIPPED if each in skipped else state
        said = detail if each is P.COMPILE else ""
        phases.append(
            Phase(each, S.RUNNING, BEGUN, **now) if each is phase_id else Phase(each, state, detail=said)  # type: ignore[arg-type]
        )
    return BootTimeline(tuple(phases))


@dataclass
class Case:
    """`after` seconds into the running phase."""

    what: str
    timeline: BootTimeline
    after: float
    expected: Eta
    history: list[StartRecord] = field(default_factory=list)
    warm: bool | None = None


def from_history(seconds: float, starts: int = 1, *, overdue: bool = False) -> Eta:
    return Eta(seconds, EtaBasis.HISTORY, P.READY, starts, overdue)


CASES = [
    Case("nothing is known", running(P.WEIGHTS), 5, Eta()),
    Case("nothing runs", EMPTY_TIMELINE, 5, Eta(), [COLD]),
    Case("the rest of this phase and those to come", running(P.WEIGHTS), 50, from_history(150 + 136), [COLD]),
    Case("at its very beginning", running(P.CONTAINER), 0, from_history(360), [COLD]),
    Case("skipped phases take no time", running(P.WEIGHTS, skipped=(P.COMPILE, P.CAPTURE)), 50,
         from_history(150 + 16), [COLD]),
    Case("longer than ever: what follows, and a word", running(P.WEIGHTS), 260,
         from_history(136, overdue=True), [COLD]),
    Case("the bar knows that it takes longer than usual",
         running(P.WEIGHTS, progress=0.5, left=300, estimated_at=BEGUN + 40), 50, from_history(290 + 136), [COLD]),
    Case("a drafter's shards may follow the bar", running(P.WEIGHTS, progress=0.9, left=5, estimated_at=BEGUN + 50), 50,
         from_history(150 + 136), [COLD]),
    Case("warm caches count as warm ones did", running(P.WEIGHTS), 50, from_history(150 + 56), [COLD, WARM], warm=True),
    Case("cold caches as cold ones did", running(P.WEIGHTS), 50, from_history(150 + 136), [WARM, COLD], warm=False),
    Case("what the log says of its cache counts more than what was thought",
         running(P.KV_CACHE, detail="from cache"), 5, from_history(5 + 26), [COLD, WARM], warm=False),
    Case("not known whether warm: all starts, their median", running(P.COMPILE), 0, from_history(20 + 36, 3),
         [COLD, WARM, WARM]),
    Case("no start with such caches: all of them", running(P.COMPILE), 0, from_history(100 + 36), [COLD], warm=True),
    Case("only the latest starts count", running(P.WEIGHTS), 0, from_history(50, 5),
         [past(weights=900)] * 9 + [past(weights=50)] * 5),
    Case("one odd start does not matter", running(P.WEIGHTS), 0, from_history(50, 3),
         [past(weights=50), past(weights=900), past(weights=49)]),
    Case("a download is not repeated: its own rate, then what follows",
         running(P.DOWNLOAD, progress=0.5, left=60, estimated_at=BEGUN + 10), 20, from_history(50 + 336), [COLD]),
    Case("a download of unknown length", running(P.DOWNLOAD), 20, Eta(), [COLD]),
    Case("without history the bar says when this phase ends",
         running(P.CAPTURE, progress=0.25, left=9, estimated_at=BEGUN + 3), 5, Eta(7, EtaBasis.PROGRESS, P.CAPTURE)),
    Case("a bar that is silent for long has ended", running(P.CAPTURE, progress=0.9, left=9, estimated_at=BEGUN), 50,
         Eta(0, EtaBasis.PROGRESS, P.CAPTURE)),
    Case("a share without a bar's word: as fast as so far", running(P.WEIGHTS, progress=0.25), 30,
         Eta(90, EtaBasis.PROGRESS, P.WEIGHTS)),
    Case("nothing done yet says nothing", running(P.WEIGHTS, progress=0.0), 30, Eta()),
]  # fmt: skip


@all_cases("case", CASES, ids=[case.what for case in CASES])
def test_eta(case: Case) -> None:
    assert eta(case.timeline, BEGUN + case.after, case.history, warm=case.warm) == case.expected


def test_a_log_without_stamps_has_no_eta_from_history() -> None:
    phases = tuple(Phase(p, S.RUNNING) if p is P.WEIGHTS else Phase(p) for p in PhaseId)
    assert eta(BootTimeline(phases), 5.0, [COLD]) == Eta()


@given(
    st.sampled_from([p for p in PhaseId if p not in (P.READY, P.WARM)]),
    st.floats(-10, 1e6),
    st.floats(0, 1),
    st.lists(st.sampled_from([COLD, WARM, past(weights=1)]), max_size=8),
    st.sampled_from([None, True, False]),
)
def test_it_is_never_negative(
    phase_id: PhaseId, after: float, progress: float, history: list[StartRecord], warm: bool | None
) -> None:
    found = eta(running(phase_id, progress=progress), BEGUN + after, history, warm=warm)
    assert found.seconds is None or found.seconds >= 0
    assert (found.seconds is None) == (found.basis is EtaBasis.UNKNOWN)


def test_time_that_passes_brings_readiness_nearer() -> None:
    spoken = [eta(running(P.WEIGHTS), BEGUN + after, [COLD]).seconds for after in range(0, 300, 10)]
    assert all(later <= sooner for sooner, later in pairwise(spoken) if later and sooner)


def test_the_phases_of_a_start_that_became_ready_are_kept_and_of_no_other() -> None:
    timeline = track(run_log("vllm-0.32-cpu-r1"))
    phases = dict(repeated_phases(timeline))
    assert phases[P.COMPILE] == 36
    assert P.READY not in phases
    assert is_warm(timeline) is None, "the CPU backend does not say where its graphs come from"
    for name in ("vllm-0.32-cpu-fatal-kv-space-zero", GB10):
        assert repeated_phases(track(run_log(name))) == ()


def test_whether_the_jit_cache_was_warm_is_in_the_log_and_an_eager_start_is_neither() -> None:
    assert is_warm(track(run_log(GB10))) is False
    assert is_warm(running(P.KV_CACHE, detail="from cache")) is True
    assert is_warm(track(run_log("vllm-0.32-cpu-01-first-start"))) is None


def test_the_same_start_again_is_foretold_to_the_second() -> None:
    """A start replayed against its own history: at every line the estimate is what really was left."""
    lines = run_log("vllm-0.32-cpu-r1")
    start = StartRecord("c", 0.0, "e", phases=repeated_phases(track(lines)))
    whole, tracker, clock = 60.0, LogTracker(), 0.0
    for line in lines:
        _, _, rest = line.partition("11-21 0")
        hour, minute, second = (rest[:1], rest[2:4], rest[5:7]) if rest[1:2] == ":" else ("", "", "")
        if second.isdigit():
            clock = max(clock, int(hour) * 3600 + int(minute) * 60 + int(second))
        if not clock:
            continue
        tracker.feed(clock, line)
        timeline = tracker.timeline()
        if timeline.ready:
            break
        began = timeline.phases[0].started_at
        found = eta(timeline, clock, [start])
        if began is None or timeline.current is None or found.seconds is None:
            continue
        assert found.seconds == pytest.approx(began + whole - clock, abs=1.01), line
    else:
        pytest.fail("it never became ready")


# --- in words ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Eta(), ""),
        (Eta(131.0, EtaBasis.HISTORY, starts=3), "about 2 min 10 s left (from 3 earlier starts)"),
        (Eta(131.0, EtaBasis.HISTORY, starts=1), "about 2 min 10 s left (from 1 earlier start)"),
        (Eta(3.0, EtaBasis.HISTORY, starts=2), "a few seconds left (from 2 earlier starts)"),
        (
            Eta(40.0, EtaBasis.HISTORY, starts=2, overdue=True),
            "takes longer than usual; then about 40 s (from 2 earlier starts)",
        ),
        (Eta(0.0, EtaBasis.HISTORY, starts=2, overdue=True), "takes longer than usual (from 2 earlier starts)"),
        (Eta(95.0, EtaBasis.PROGRESS, PhaseId.WEIGHTS), "Weights: about 1 min 40 s left, by its own progress"),
    ],
)
def test_the_words(found: Eta, words: str) -> None:
    assert eta_text(found) == words


ROUNDED = {
    0.0: "a few seconds", 7.4: "a few seconds", 8.0: "about 10 s", 44.0: "about 45 s", 59.0: "about 1 min",
    64.0: "about 1 min", 130.0: "about 2 min 10 s", 599.0: "about 10 min", 840.0: "about 14 min",
    7200.0: "about 120 min",
}  # fmt: skip


@all_cases(("seconds", "words"), ROUNDED.items())
def test_rounding(seconds: float, words: str) -> None:
    assert rough_duration(seconds) == words


@given(st.floats(0, 86_400), st.floats(0, 4.9))
def test_it_changes_at_most_every_few_seconds(seconds: float, later: float) -> None:
    """Within any five seconds there are at most two texts."""
    between = {rough_duration(max(0.0, seconds - later * part / 20)) for part in range(21)}
    assert len(between) <= 2
