"""The router of replicas as a program of its own."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.errors import SparkError
from spark_tui.base.protocol import RouteRequest
from spark_tui.machine.detached import DetachedRouters
from tests.programs import asked, program
from tests.real.lab.support import free_port

REQUEST = RouteRequest("l1", "127.0.0.1", 9000, ("http://192.168.100.1:8000", "http://192.168.100.2:8000"))


def test_it_runs_until_it_is_ended_and_is_told_all_replicas(tmp_path: Path) -> None:
    port = free_port()
    request = replace(REQUEST, port=port)
    serve = f"exec {sys.executable} -m http.server --bind 127.0.0.1 {port}"
    routers = DetachedRouters(tmp_path / "logs", {"PATH": f"{folder(tmp_path, serve)}:/usr/bin:/bin"})
    assert routers.available()
    router = routers.start(request)
    assert routers.runs(router)
    assert asked(tmp_path / "bin")[0].endswith(" ".join(REQUEST.workers))
    assert not routers.runs(replace(router, born=router.born + 1)), "another process may have its number"
    assert routers.end(router)
    assert not routers.runs(router)
    assert routers.end(router), "again"


def test_without_a_program_it_is_not_available(tmp_path: Path) -> None:
    routers = DetachedRouters(tmp_path, {"PATH": str(tmp_path)})
    assert not routers.available()
    with pytest.raises(SparkError):
        routers.start(REQUEST)


@pytest.mark.parametrize("body", ["echo no worker >&2; exit 1", "echo no worker; exec sleep 1000"])
def test_one_that_ends_or_never_listens_is_named_by_its_log_with_its_end(tmp_path: Path, body: str) -> None:
    routers = DetachedRouters(tmp_path / "logs", {"PATH": f"{folder(tmp_path, body)}:/usr/bin:/bin"}, 1.0)
    with pytest.raises(SparkError) as failed:
        routers.start(replace(REQUEST, port=free_port()))
    assert str(tmp_path / "logs") in failed.value.remedy
    assert failed.value.detail.strip() == "no worker"


def test_a_port_that_another_listens_on_is_never_taken_for_the_router(tmp_path: Path) -> None:
    routers = DetachedRouters(tmp_path / "logs", {"PATH": f"{folder(tmp_path, 'exec sleep 1000')}:/usr/bin:/bin"}, 1.0)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SparkError) as failed:
        routers.start(replace(REQUEST, port=taken.getsockname()[1]))
    assert "is taken" in failed.value.summary
    assert not (tmp_path / "logs").exists(), "nothing was started"


def folder(at: Path, body: str) -> Path:
    """With a `vllm-router` that does so."""
    (at / "bin").mkdir()
    program(at / "bin", "vllm-router", body)
    return at / "bin"
