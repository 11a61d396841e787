"""Stall, stuck low power, leaked shared memory: found when they are there, silent on healthy telemetry."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.host.detectors import (
    FROZEN_SECONDS,
    LowPowerState,
    SharedFile,
    Stall,
    StallState,
    TokenSample,
    leaked,
    probed,
    watch_power,
    watch_tokens,
)
from spark_tui.base.host.vitals import GpuReading
from tests.cases import all_cases
from tests.gb10_fixtures import TELEMETRY, telemetry

# --- stall ----------------------------------------------------------------------------------------------


def tokens(*samples: TokenSample) -> StallState:
    state = StallState()
    for sample in samples:
        state = watch_tokens(state, sample)
    return state


def frozen(seconds: float, *, running: float = 2, prompt: float | None = 10) -> StallState:
    return tokens(*(TokenSample(at, running, 500, prompt) for at in (0.0, seconds / 2, seconds)))


def test_no_token_for_two_minutes_while_requests_run_is_a_suspicion_and_no_more() -> None:
    assert frozen(FROZEN_SECONDS - 1).stall is Stall.NONE
    state = frozen(FROZEN_SECONDS)
    assert state.stall is Stall.SUSPECTED
    assert state.sentence(FROZEN_SECONDS) == "no tokens for 2m00s while requests run"


def test_a_one_token_request_clears_or_confirms() -> None:
    suspected = frozen(FROZEN_SECONDS)
    assert probed(suspected, answered=True).stall is Stall.NONE
    confirmed = probed(suspected, answered=False)
    assert confirmed.stall is Stall.CONFIRMED
    assert "no answer" in confirmed.sentence(200.0)
    assert probed(StallState(), answered=False).stall is Stall.NONE, "a probe without a suspicion proves nothing"


@pytest.mark.parametrize(
    "sample",
    [
        TokenSample(200.0, 2, 501, 10),  # a token
        TokenSample(200.0, 2, 500, 11),  # a prompt was read: a long prefill
        TokenSample(200.0, 0, 500, 10),  # nothing runs any more
        TokenSample(200.0, 2, 0, 0),  # the server started anew
    ],
)
def test_any_progress_ends_even_a_confirmed_stall(sample: TokenSample) -> None:
    state = probed(frozen(FROZEN_SECONDS), answered=False)
    assert watch_tokens(state, sample).stall is Stall.NONE


def test_an_idle_engine_is_not_stalled_and_without_a_prompt_counter_tokens_decide() -> None:
    assert frozen(3600.0, running=0).stall is Stall.NONE
    assert frozen(FROZEN_SECONDS, prompt=None).stall is Stall.SUSPECTED


@given(st.lists(st.tuples(st.floats(0, 300), st.integers(0, 3), st.integers(0, 5))))
def test_without_a_probe_nothing_is_ever_confirmed(steps: list[tuple[float, int, int]]) -> None:
    state, at, generated = StallState(), 0.0, 0
    for seconds, running, more in steps:
        at, generated = at + seconds, generated + more
        state = watch_tokens(state, TokenSample(at, running, generated))
        assert state.stall is not Stall.CONFIRMED


# --- low power ------------------------------------------------------------------------------------------


def low_power(samples: Sequence[tuple[float, GpuReading]]) -> LowPowerState:
    """The state after `(seconds, reading)`, oldest first."""
    return reduce(lambda state, sample: watch_power(state, sample[1], sample[0]), samples, LowPowerState())


def reading(load: int | None, clock: int | None, watts: float | None) -> GpuReading:
    return GpuReading("NVIDIA GB10", load, watts, 50, clock, unified=True)


@pytest.mark.parametrize(
    ("load", "clock", "watts"),
    [(96, 799, 19.5), (96, 513, 15.0), (97, 650, 5.0), (96, 721, 14.0), (90, 850, 20.0)],
)
def test_every_reported_stuck_machine_is_found_after_fifteen_seconds(load: int, clock: int, watts: float) -> None:
    history = [(float(at), reading(load, clock, watts)) for at in range(0, 16, 5)]
    assert not low_power(history[:-1]).stuck
    state = low_power(history)
    assert state.stuck
    assert state.sentence == f"GPU {load} % busy at {clock} MHz and {watts:.0f} W for 15s"


@pytest.mark.parametrize("path", TELEMETRY, ids=lambda path: path.stem)
def test_healthy_load_is_never_called_stuck(path: Path) -> None:
    state, seen = LowPowerState(), 0
    for at, _, gpu in telemetry(path, 1000**2):
        state = watch_power(state, gpu, at)
        seen += 1
        assert state == LowPowerState()
    assert seen > 35


@pytest.mark.parametrize(
    ("load", "clock", "watts"),
    [
        (96, 2281, 92.5),  # after the adapter was unplugged
        (0, 208, 4.0),  # idle
        (0, 2411, 14.0),  # idle, with a context
        (96, 1400, 20.0),
        (96, 799, 30.0),
        (89, 799, 19.5),
        (None, 799, 19.5),
        (96, None, 19.5),
        (96, 799, None),
    ],
)
def test_what_is_no_proof_is_no_finding(load: int | None, clock: int | None, watts: float | None) -> None:
    history = [(float(at), reading(load, clock, watts)) for at in range(60)]
    assert low_power(history) == LowPowerState()


def test_one_good_sample_begins_the_count_again() -> None:
    bad, good = reading(96, 799, 19.5), reading(96, 2400, 60.0)
    assert not low_power([(0, bad), (10, bad), (14, good), (15, bad), (29, bad)]).stuck
    assert low_power([(0, bad), (10, bad), (14, good), (15, bad), (30, bad)]).stuck


# --- shared memory --------------------------------------------------------------------------------------


def shm(name: str, *, size: int = 1 << 20, age: float = 600.0, held: bool | None = False) -> SharedFile:
    return SharedFile(name, size, age, held)


@all_cases(
    ("file", "engines_run", "expected"),
    [
        (shm("psm_1a2b3c4d"), True, True),
        (shm("nccl-AbC123"), True, True),
        (shm("torch_1234_567_0"), True, True),
        (shm("sem.mp-k2j3h4"), True, True),
        (shm("vllm_ipc_0"), True, True),
        (shm("psm_1a2b3c4d", held=True), False, False),  # somebody uses it
        (shm("psm_1a2b3c4d", held=None), True, False),  # nobody can tell, and an engine runs
        (shm("psm_1a2b3c4d", held=None), False, True),  # nobody can tell, and no engine runs
        (shm("psm_1a2b3c4d", age=30.0), False, False),  # it may just have been made
        (shm("psm_1a2b3c4d", size=0), False, False),
        (shm("pulse-shm-123"), False, False),  # the desktop's
        (shm("my_psm_1a2b"), False, False),
        (shm("PostgreSQL.123"), False, False),
        (shm("psm_x;rm -rf"), False, False),  # no name that an engine gives
    ],
)
def test_only_an_engine_s_unused_old_files_count_as_leaked(file: SharedFile, engines_run: bool, expected: bool) -> None:
    assert bool(leaked([file], engines_run=engines_run).files) is expected


def test_a_leak_says_how_much_it_is_and_how_to_end_it() -> None:
    leak = leaked([shm("psm_aa", size=1 << 30), shm("psm_bb", size=2 << 30)], engines_run=False)
    assert leak.size == 3 << 30
    assert leak.sentence == "3.0 GiB leaked in 2 files of /dev/shm by a killed engine"
    assert leak.remedy == "Unused. Remove: sudo rm /dev/shm/psm_bb /dev/shm/psm_aa"
    assert leaked([], engines_run=False).sentence == ""
