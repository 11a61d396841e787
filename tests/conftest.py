"""For all tests: signals mean what they mean at a terminal; a property does not race a clock."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# A property is about what holds, not how fast: on a busy machine one example may take many times as long.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")

# A shell that starts the tests in the background has them ignore Ctrl-C, nohup a lost terminal; children would too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
