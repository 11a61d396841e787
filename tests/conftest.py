"""For all tests: signals mean what they mean at a terminal; a property does not race a clock; psutil reads /proc."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# A property is about what holds, not how fast: on a busy machine one example may take many times as long.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")

# A shell that starts the tests in the background has them ignore Ctrl-C, nohup a lost terminal; children would too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _psutil_reads_proc_afterwards() -> Iterator[None]:
    """A test with a machine made of files points psutil at it for the whole process."""
    yield
    psutil = sys.modules.get("psutil")
    if psutil is not None and psutil.PROCFS_PATH != "/proc":
        psutil.PROCFS_PATH = "/proc"
        psutil.process_iter.cache_clear()
