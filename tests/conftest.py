"""For all tests: signals mean what they mean at a terminal; a property does not race a clock; psutil reads /proc;
garbage is looked for seldom."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import TESTS

# A property is about what holds, not how fast: on a busy machine one example may take many times as long.
# Before a change goes in there are more examples: SPARK_TUI_EXAMPLES in .ci/run.
EXAMPLES = int(os.environ.get("SPARK_TUI_EXAMPLES", "50"))
settings.register_profile(
    "no clock", deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("no clock")

# A shell that starts the tests in the background has them ignore Ctrl-C, nohup a lost terminal; children would too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


# An app that ended refers to itself, and what it made at its start Python does not count: left to Python, hundreds of
# apps would wait. With the usual thresholds on the other hand all objects of the process are looked at in every test.
gc.set_threshold(10_000, 1_000, 1_000)
MOST_BLOCKS = 4_000_000
"""Of Python's memory, since the last look, before garbage is looked for, which takes half a second: about 400 MB."""
_blocks_kept = sys.getallocatedblocks()


def pytest_runtest_logfinish() -> None:
    global _blocks_kept
    if sys.getallocatedblocks() - _blocks_kept > MOST_BLOCKS:
        gc.collect()
        _blocks_kept = sys.getallocatedblocks()


@pytest.fixture(autouse=True)
def _psutil_reads_proc_afterwards() -> Iterator[None]:
    """A test with a machine made of files points psutil at it for the whole process."""
    yield
    psutil = sys.modules.get("psutil")
    if psutil is not None and psutil.PROCFS_PATH != "/proc":
        psutil.PROCFS_PATH = "/proc"
        psutil.process_iter.cache_clear()


@pytest.fixture(autouse=True)
def _pilots_wait_for_states(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """And leave nothing behind. They stay themselves where time is measured."""
    if "textual" not in sys.modules or {"real", "perf"} & {*request.path.relative_to(TESTS).parts}:
        yield
        return
    from tests.tui.quiet import taken_apart, wait_for_states

    wait_for_states(monkeypatch)
    take_apart = taken_apart(monkeypatch)
    yield
    take_apart()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder at the head of the search path; `tests.programs` fills it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder
