"""Which daemon is meant: the one that the docker program would use."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from spark_tui.base.errors import DaemonNotRunning
from spark_tui.base.remote import read_host
from spark_tui.machine.docker.host import DockerHost, find_host


def store_context(config: Path, name: str, endpoint: dict[str, object], *, tls: bool = False) -> None:
    """What `docker context create` writes."""
    key = hashlib.sha256(name.encode()).hexdigest()
    folder = config / "contexts" / "meta" / key
    folder.mkdir(parents=True)
    meta = {"Name": name, "Metadata": {}, "Endpoints": {"docker": endpoint}}
    (folder / "meta.json").write_text(json.dumps(meta))
    if tls:
        stored = config / "contexts" / "tls" / key / "docker"
        stored.mkdir(parents=True)
        for part in ("ca", "cert", "key"):
            (stored / f"{part}.pem").touch()


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("unix:///run/user/1000/docker.sock", DockerHost("/run/user/1000/docker.sock")),
        ("/tmp/docker.sock", DockerHost("/tmp/docker.sock")),
        ("tcp://127.0.0.1:2375", DockerHost("127.0.0.1", 2375)),
        ("tcp://spark", DockerHost("spark", 2375)),
        ("tcp://[::1]:9000", DockerHost("::1", 9000)),
        ("http://spark:8080", DockerHost("spark", 8080)),
        ("https://spark", DockerHost("spark", 2376, tls={"verify": True})),
    ],
)
def test_docker_host_wins(url: str, host: DockerHost, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"currentContext": "other"}')
    found = find_host({"DOCKER_HOST": url, "DOCKER_CONFIG": str(tmp_path), "DOCKER_CONTEXT": "third"})
    assert (found.address, found.port, found.tls) == (host.address, host.port, host.tls)
    assert found.origin == "DOCKER_HOST"


def test_tls_is_asked_for_as_with_the_docker_program(tmp_path: Path) -> None:
    environ = {"DOCKER_HOST": "tcp://spark", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)}
    found = find_host(environ)
    key = (str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))
    assert (found.url, found.tls) == (
        "https://spark:2376", {"client_cert": key, "ca_cert": str(tmp_path / "ca.pem"), "verify": True},
    )  # fmt: skip
    found = find_host({**environ, "DOCKER_TLS_VERIFY": ""})
    assert found.tls == {"client_cert": key, "ca_cert": None, "verify": False}


def test_without_any_setting_it_is_the_local_socket(tmp_path: Path) -> None:
    assert find_host({"HOME": str(tmp_path)}).address == "/var/run/docker.sock"
    assert find_host({"DOCKER_HOST": "", "DOCKER_CONTEXT": "default", "HOME": str(tmp_path)}).local


def test_the_current_context_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"DOCKER_CONFIG": str(tmp_path)}
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))  # the SDK reads contexts by the process's environment
    store_context(tmp_path, "rootless", {"Host": "unix:///run/user/1000/docker.sock", "SkipTLSVerify": False})
    store_context(tmp_path, "spark", {"Host": "tcp://spark:2376", "SkipTLSVerify": True}, tls=True)
    (tmp_path / "config.json").write_text('{"currentContext": "rootless"}')
    found = find_host(environ)
    assert found.address == "/run/user/1000/docker.sock"
    assert "rootless" in found.origin
    found = find_host({**environ, "DOCKER_CONTEXT": "spark"})
    assert (found.url, found.tls.verify) == ("https://spark:2376", None)
    assert Path(found.tls.cert[0]).name == "cert.pem"


@pytest.mark.parametrize("url", ["ftp://x", "unix://relative", "tcp://", "tcp://x:notaport", "npipe:////./pipe/docker"])
def test_an_address_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(DaemonNotRunning, match="no address of a Docker daemon") as caught:
        find_host({"DOCKER_HOST": url})
    assert "unset it" in caught.value.remedy


def test_another_machine_is_refused_with_the_way_to_its_own_control_centre() -> None:
    with pytest.raises(DaemonNotRunning, match="another machine") as caught:
        find_host({"DOCKER_HOST": "ssh://nv@spark:2222/run/docker.sock"})
    words = re.search(r"config set hosts\.(NAME) (\S+)\), and open it: spark-tui --host (\S+)$", caught.value.remedy)
    assert words is not None, caught.value.remedy
    assert words[1] == words[3]
    assert read_host(words[1], words[2]).destination == "ssh://nv@spark:2222", "the settings take it as it is told"


@pytest.mark.parametrize("content", ["{", "[]", '{"currentContext": 5}', '{"currentContext": "gone"}'])
def test_broken_settings_never_crash(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    environ = {"DOCKER_CONFIG": str(tmp_path)}
    if content in ("[]", '{"currentContext": 5}'):
        assert find_host(environ).local
        return
    with pytest.raises(DaemonNotRunning) as caught:
        find_host(environ)
    assert "DOCKER_HOST" in caught.value.remedy
