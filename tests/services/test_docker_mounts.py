"""What a container can see of the host, from the daemon's own words."""

from __future__ import annotations

from typing import Any

import pytest

from spark_tui.domain.engine.container import Mount
from spark_tui.services.docker.facts import container_facts

BIND = {"Type": "bind", "Source": "/home/me/vllm", "Destination": "/models", "Mode": "", "RW": True}
VOLUME = {
    "Type": "volume",
    "Name": "v",
    "Source": "/var/lib/docker/volumes/v/_data",
    "Destination": "/cache",
    "RW": False,
}
TMPFS = {"Type": "tmpfs", "Source": "", "Destination": "/tmp", "RW": True}


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        (None, ()),
        ([], ()),
        ([BIND], (Mount("/home/me/vllm", "/models"),)),
        (
            [BIND, VOLUME, TMPFS],
            (Mount("/var/lib/docker/volumes/v/_data", "/cache", True), Mount("/home/me/vllm", "/models")),
        ),
    ],
)
def test_mounts_are_the_folders_of_the_host_that_a_container_sees(
    mounts: list[dict[str, Any]] | None, expected: tuple[Mount, ...]
) -> None:
    assert container_facts({"Id": "x", "Mounts": mounts}).mounts == expected
