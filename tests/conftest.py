"""For all tests: signals mean what they mean at a terminal."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background has them ignore Ctrl-C, nohup a lost terminal; children would too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
