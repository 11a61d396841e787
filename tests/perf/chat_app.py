"""The control centre at a scripted server: `chat_app.py PORT`."""

from __future__ import annotations

import gc
import sys

from spark_tui.app.control_centre import run_app
from spark_tui.base.context import Context
from spark_tui.base.engine.container import PublishedPort
from spark_tui.base.executors import SystemClock
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.settings import Settings
from spark_tui.machine.engine_api import VllmApi
from tests.fakes_docker import FakeDocker
from tests.fakes_files import OwnConversations
from tests.fakes_host import FakeArchive, FakeGpu, FakeHost, FakeSecrets
from tests.fakes_ports import Ports
from tests.tui.chat_kit import NoPresets


def main() -> None:
    gc.set_threshold(500_000)  # as the program's own start does
    port = int(sys.argv[1])
    docker = FakeDocker()
    docker.add_container("qwen", argv=("vllm", "serve"), ports=(PublishedPort(8000, port, "127.0.0.1"),))
    ports = Ports(
        clock=SystemClock(), docker=docker, api=VllmApi(), host=FakeHost(), gpu=FakeGpu(), presets=NoPresets(),
        secrets=FakeSecrets(), archive=FakeArchive(), conversations=OwnConversations(),
    )  # fmt: skip
    run_app(Context(Settings(), ports, HostPaths("/store", "/caches", "/home/test")))


if __name__ == "__main__":
    main()
