"""Our reader of Compose files sees in them what Docker's own does: Debian trixie's docker-compose, run privately."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_tui.base.engine.docker_run import read_argv
from spark_tui.base.errors import PresetError
from spark_tui.base.secret import is_secret_name
from spark_tui.catalog.presets.adapter.imports import FolderFiles
from spark_tui.catalog.presets.adapter.store import parse
from spark_tui.catalog.presets.model.dialects.compose_files import compose_launches
from spark_tui.catalog.presets.model.dialects.docker_run import HOME
from spark_tui.catalog.presets.model.dialects.launchers import Launch
from spark_tui.catalog.presets.model.preset import MappingValue
from tests import TESTS
from tests.real.conftest import available
from tests.real.lab import debian

PROGRAM = "usr/libexec/docker/cli-plugins/docker-compose"
CASES = tomllib.loads((TESTS / "fixtures" / "launchers.toml").read_text())
CORPUS = {each["kind"]: each for each in CASES["imported"] if each["kind"].startswith("compose")}
NOT_STARTED = {each["kind"]: each for each in CASES["refused"] if each["kind"].startswith("compose")}
ONLY_WE_REFUSE = (
    "compose: a build without a name",
    "compose: a mount of the system that the command names",
    "compose: no engine",
)


@contextlib.contextmanager
def fetched(folder: Path) -> Iterator[None]:
    archive = debian.download_of("trixie", "docker-compose", folder)
    debian.unpack([archive], folder / "root", c_library=False)
    yield


@pytest.fixture(scope="module")
def docker_compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The program, which needs no engine to read a file."""
    folder = tmp_path_factory.mktemp("compose")
    with available(fetched(folder)):
        program = folder / "root" / PROGRAM
        version = subprocess.run([str(program), "version"], capture_output=True, text=True, check=True).stdout
        assert "2.26" in version
        yield program


def written(files: dict[str, str], folder: Path) -> tuple[Path, Path]:
    """The first file, and the person's home."""
    home = folder / "home"
    for name, text in files.items():
        path = home / name[2:] if name.startswith("~/") else folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    home.mkdir(exist_ok=True)
    return folder / "files" / next(iter(files)), home


def asked(program: Path, file: Path, home: Path, given: dict[str, str]) -> subprocess.CompletedProcess[str]:
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PWD": str(file.parent), **given}
    command = [str(program), "-f", str(file), "--profile", "*", "config", "--format", "json"]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=file.parent, check=False, timeout=60)


def read(file: Path, home: Path, given: dict[str, str]) -> tuple[Launch, ...]:
    document = parse(file.read_text(), str(file))
    assert isinstance(document, MappingValue)
    return compose_launches(document, str(file), FolderFiles(file.parent, home), {"HOME": str(home), **given})


def as_docker_has_it(service: dict[str, Any], volumes: dict[str, Any]) -> dict[str, Any]:
    """A service of `config`, which doubles each dollar of a value; folders and named volumes alone."""
    mounts = {}
    for each in service.get("volumes", ()):
        source = each.get("source", "")
        options = volumes.get(source, {}).get("driver_opts") or {}
        if source and each["type"] in ("bind", "volume"):
            mounts[each["target"]] = (options.get("device", source), each.get("read_only", False))
    words = [*(service.get("entrypoint") or ()), *(service.get("command") or ())]
    ports = [
        (each.get("host_ip", ""), int(each.get("published", 0)), each["target"]) for each in service.get("ports", ())
    ]
    environment = {name: value for name, value in (service.get("environment") or {}).items() if value is not None}
    return {
        "image": service["image"],
        "words": [each.strip() for each in words],  # an escaped line end stays within its word, and breaks the server
        "environment": {name: value for name, value in environment.items() if not is_secret_name(name)},
        "mounts": mounts,
        "ports": sorted(ports),
    }


def as_we_have_it(launch: Launch, home: Path) -> dict[str, Any]:
    words = [each.replace(f"{HOME}/", f"{home}/") for each in launch.words]
    mounts = {}
    while "-v" in words:
        at = words.index("-v")
        source, target, *mode = words[at + 1].split(":")
        mounts[target] = (source, mode == ["ro"])
        del words[at : at + 2]
    spec, _ = read_argv(words)
    return {
        "image": spec.image,
        "words": [*(spec.entrypoint or ()), *spec.command],
        "environment": {each.name: each.value for each in spec.env if not is_secret_name(each.name)},
        "mounts": mounts,
        "ports": sorted((each.host_ip, each.host_port or 0, each.container_port) for each in spec.ports),
    }


@pytest.mark.parametrize("kind", CORPUS)
def test_each_service_is_the_one_that_docker_makes_of_it(kind: str, docker_compose: Path, tmp_path: Path) -> None:
    given = CORPUS[kind].get("given", {})
    file, home = written(CORPUS[kind]["files"], tmp_path)
    done = asked(docker_compose, file, home, given)
    assert done.returncode == 0, done.stderr
    project = json.loads(done.stdout.replace("$$", "$"))
    services = {each.get("container_name") or key: each for key, each in project["services"].items()}
    launches = read(file, home, given)
    assert launches
    for launch in launches:
        theirs = as_docker_has_it(services[launch.name], project.get("volumes") or {})
        assert as_we_have_it(launch, home) == theirs


@pytest.mark.parametrize("kind", [each for each in NOT_STARTED if each not in ONLY_WE_REFUSE])
def test_what_docker_does_not_read_is_refused_here_too(kind: str, docker_compose: Path, tmp_path: Path) -> None:
    file, home = written(NOT_STARTED[kind]["files"], tmp_path)
    assert asked(docker_compose, file, home, {}).returncode != 0
    with contextlib.suppress(PresetError):
        assert all(each.problem or each.missing for each in read(file, home, {}))
