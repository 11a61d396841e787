"""A real Docker engine and a real vLLM without a GPU, for tests and for trying things by hand.

`python -m tests.real.lab up` brings it up, `down` takes it down. Everything lives in one cache folder and one
folder under /run: nothing is installed on the machine, its own Docker and its firewall are not touched.
Only the standard library is needed.
"""

from __future__ import annotations

from tests.real.lab.cluster import Rig
from tests.real.lab.engine import PrivateEngine
from tests.real.lab.lab import Lab
from tests.real.lab.registry import PrivateRegistry, SlowLink
from tests.real.lab.support import LabFailed, LabUnavailable

__all__ = ["Lab", "LabFailed", "LabUnavailable", "PrivateEngine", "PrivateRegistry", "Rig", "SlowLink"]
