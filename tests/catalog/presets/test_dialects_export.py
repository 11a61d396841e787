"""A container as a Compose file, a systemd unit and a Quadlet: parsed back, each says the same field by field."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerSpec, EnvVar, Gpus, Mount, PublishedPort, RestartPolicy, Ulimit
from spark_tui.base.engine.docker_run import canonical, port_value, read_argv
from spark_tui.base.errors import UsageError
from spark_tui.base.quantities import parse_bytes
from spark_tui.catalog.presets.model.dialects.container_files import compose_text, quadlet_text, qualified, systemd_text
from tests.base.test_docker_run import specs

NASTY = ContainerSpec(
    name="otter",
    image="nvcr.io/nvidia/vllm:26.04-py3",
    command=(
        "bash",
        "-c",
        "pip install x && \\\n  vllm serve '$HOME' \"%h\" # `id`\n",
        "",
        ";",
        "#",
        '{"a":{"b":1}}',
        "é\t",
    ),
    entrypoint=(),
    env=(EnvVar("A", '$HOME %i "q" \\ \n'), EnvVar("B", "")),
    env_files=("/home/me/.config/spark-tui/secrets/otter env",),
    mounts=(Mount("/srv/mo dels", "/models"), Mount("/srv/$x%h", "/x", read_only=True)),
    ports=(PublishedPort(8000, 8001), PublishedPort(9000, 0, "::1", "udp")),
    gpus=Gpus(device_ids=("0", "1")),
    ipc="host",
    shm_size=10 * 1024**3,
    network="host",
    user="1000:1000",
    ulimits=(Ulimit("memlock", -1, -1), Ulimit("stack", 1, 2)),
    restart=RestartPolicy("on-failure", 3),
    labels=(("io.spark-tui.preset", "otter"), ("note", "a=b $c")),
    oom_score_adj=800,
    cap_add=("IPC_LOCK",),
    devices=("/dev/infiniband",),
    security_opt=("seccomp=unconfined",),
    privileged=True,
    init=True,
)
PLAIN = ContainerSpec(name="otter", image="vllm/vllm-openai:nightly", command=("--model", "org/m"), gpus=Gpus())


def last_of_each(spec: ContainerSpec) -> ContainerSpec:
    """Of a variable, label or limit that is named twice, Docker takes the last: so does a mapping."""
    return replace(
        canonical(spec),
        env=tuple({variable.name: variable for variable in spec.env}.values()),
        labels=tuple(dict(spec.labels).items()),
        ulimits=tuple({limit.name: limit for limit in spec.ulimits}.values()),
    )


# --- Compose ------------------------------------------------------------------------------------------


def from_compose(text: str) -> ContainerSpec:
    """The container that Compose would make, by its specification."""
    ((name, service),) = _filled(yaml.safe_load(text)["services"]).items()
    (reserved,) = service.get("deploy", {"resources": {"reservations": {"devices": [None]}}})["resources"][
        "reservations"
    ]["devices"]
    policy, _, retries = service.get("restart", "no").partition(":")
    assert name == service["container_name"]
    return ContainerSpec(
        name=name,
        image=service["image"],
        command=tuple(service.get("command", ())),
        entrypoint=tuple(service["entrypoint"]) if "entrypoint" in service else None,
        env=tuple(EnvVar(*pair) for pair in service.get("environment", {}).items()),
        env_files=tuple(service.get("env_file", ())),
        mounts=tuple(Mount(v["source"], v["target"], v.get("read_only", False)) for v in service.get("volumes", ())),
        ports=tuple(
            PublishedPort(p["target"], int(p.get("published", 0)), p.get("host_ip", ""), p["protocol"])
            for p in service.get("ports", ())
        ),
        gpus=_reserved(reserved),
        ipc=service.get("ipc", ""),
        shm_size=parse_bytes(service.get("shm_size", 0)),
        network=service.get("network_mode", ""),
        user=service.get("user", ""),
        ulimits=tuple(Ulimit(n, v["soft"], v["hard"]) for n, v in service.get("ulimits", {}).items()),
        restart=RestartPolicy(policy, int(retries or 0)),
        labels=tuple(service.get("labels", {}).items()),
        oom_score_adj=service.get("oom_score_adj", 0),
        cap_add=tuple(service.get("cap_add", ())),
        devices=tuple(service.get("devices", ())),
        security_opt=tuple(service.get("security_opt", ())),
        privileged=service.get("privileged", False),
        init=service.get("init", False),
    )


def _filled(value: Any) -> Any:
    """What Compose makes of `$$`; a single `$` would be a variable."""
    if isinstance(value, str):
        assert "$" not in value.replace("$$", "")
        return value.replace("$$", "$")
    if isinstance(value, dict):
        return {key: _filled(item) for key, item in value.items()}
    return [_filled(item) for item in value] if isinstance(value, list) else value


def _reserved(device: Any) -> Gpus | None:
    if device is None:
        return None
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    if "device_ids" in device:
        return Gpus(device_ids=tuple(device["device_ids"]))
    return Gpus(-1 if device["count"] == "all" else device["count"])


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)


@pytest.mark.parametrize("spec", [NASTY, PLAIN], ids=["nasty", "plain"])
def test_compose_makes_the_same_container(spec: ContainerSpec) -> None:
    assert from_compose(compose_text(spec, ("about",))) == last_of_each(spec)


@settings(max_examples=60)
@given(specs, names)
def test_compose_makes_the_same_container_whatever_is_in_it(spec: ContainerSpec, name: str) -> None:
    spec = last_of_each(replace(spec, name=name))
    found = from_compose(compose_text(spec))
    assert replace(found, gpus=None) == replace(spec, gpus=None)
    assert found.gpus == spec.gpus


# --- systemd ------------------------------------------------------------------------------------------

_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|([^\s"]+)', re.DOTALL)
_C_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_C = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"'}


def systemd_words(text: str) -> tuple[str, ...]:
    """The words of a setting, by systemd.syntax(7): quotes, C escapes, then specifiers and variables."""
    found = []
    for quoted, bare in _WORD.findall(text):
        word = (
            _C_ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 3 else _C[m[1]], quoted) if quoted else bare
        )
        assert not re.search(r"%", word.replace("%%", "")), "a specifier"
        assert not re.search(r"\$", word.replace("$$", "")), "a variable"
        found.append(word.replace("%%", "%").replace("$$", "$"))
    return tuple(found)


def sections(text: str) -> dict[str, list[tuple[str, str]]]:
    """A unit's settings in their order: continued lines are joined, comments left out."""
    found: dict[str, list[tuple[str, str]]] = {}
    section = ""
    for line in re.sub(r"\\\n", " ", text).split("\n"):
        if line.startswith(("#", ";")) or not line.strip():
            continue
        if line.startswith("["):
            section = line.strip("[]")
        else:
            key, _, value = line.partition("=")
            found.setdefault(section, []).append((key, value))
    return found


def from_unit(text: str) -> ContainerSpec:
    (start,) = [value for key, value in sections(text)["Service"] if key == "ExecStart"]
    words = systemd_words(start)
    assert words[0] == "/usr/bin/docker"
    return read_argv(("docker", *words[1:]))[0]


@pytest.mark.parametrize("spec", [NASTY, PLAIN], ids=["nasty", "plain"])
def test_systemd_starts_the_same_container(spec: ContainerSpec) -> None:
    text = systemd_text(spec, ("about",))
    assert from_unit(text) == replace(canonical(spec), restart=RestartPolicy())
    parser = configparser.RawConfigParser(strict=True, allow_no_value=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text.replace("\\\n", " "))
    service = parser["Service"]
    assert service["ExecStop"] == "/usr/bin/docker stop -t 30 otter"
    assert service["ExecStartPre"] == "-/usr/bin/docker rm otter", "only an ended container goes: rm has no force"
    assert service["Restart"] == "on-failure"
    assert (parser["Unit"]["StartLimitBurst"], parser["Unit"]["StartLimitIntervalSec"]) == ("3", "7200")


@settings(max_examples=60)
@given(specs, names)
def test_systemd_starts_the_same_container_whatever_is_in_it(spec: ContainerSpec, name: str) -> None:
    spec = replace(canonical(spec), name=name, restart=RestartPolicy())
    assert from_unit(systemd_text(spec)) == spec


def test_systemd_runs_it_in_the_foreground_and_restarts_it_itself() -> None:
    text = systemd_text(replace(PLAIN, restart=RestartPolicy("unless-stopped")))
    assert " -d" not in text and "--restart" not in text, "in the foreground, and restarted by systemd itself"
    assert "Restart=always" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize("spec", [NASTY, PLAIN], ids=["nasty", "plain"])
def test_systemd_itself_accepts_the_unit(spec: ContainerSpec, tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "docker.service").write_text("[Service]\nExecStart=/bin/true\n")
    unit = tmp_path / "otter.service"
    unit.write_text(systemd_text(spec).replace("/usr/bin/docker", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"},
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if "otter" in line]
    assert (done.returncode, said) == (0, [])


# --- Quadlet ------------------------------------------------------------------------------------------


def quadlet(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in sections(text)["Container"]:
        found.setdefault(key, []).append(value)
    return found


def words_of(found: dict[str, list[str]], key: str) -> tuple[str, ...]:
    return tuple(word for value in found.get(key, ()) for word in systemd_words(value))


def test_quadlet_says_every_field() -> None:
    found = quadlet(quadlet_text(NASTY, ("about",)))
    assert found["ContainerName"] == ["otter"]
    assert found["Image"] == ["nvcr.io/nvidia/vllm:26.04-py3"]
    assert found["AddDevice"] == ["nvidia.com/gpu=0", "nvidia.com/gpu=1", "/dev/infiniband"]
    assert found["Network"] == ["host"]
    assert words_of(found, "PublishPort") == tuple(port_value(port) for port in NASTY.ports)
    assert found["ShmSize"] == ["10g"]
    assert found["Ulimit"] == ["memlock=-1:-1", "stack=1:2"]
    assert words_of(found, "Volume") == ("/srv/mo dels:/models", "/srv/$x%h:/x:ro")
    assert words_of(found, "EnvironmentFile") == NASTY.env_files
    assert words_of(found, "Environment") == tuple(f"{variable.name}={variable.value}" for variable in NASTY.env)
    assert words_of(found, "Label") == tuple(f"{key}={value}" for key, value in NASTY.labels)
    assert (found["User"], found["Group"]) == (["1000"], ["1000"])
    assert found["AddCapability"] == ["IPC_LOCK"]
    assert found["RunInit"] == ["true"]
    assert words_of(found, "PodmanArgs") == (
        "--ipc=host", "--oom-score-adj=800", "--security-opt=seccomp=unconfined", "--entrypoint=", "--privileged",
    )  # fmt: skip
    assert words_of(found, "Exec") == NASTY.command
    assert quadlet(quadlet_text(PLAIN)) == {
        "ContainerName": ["otter"],
        "Image": ["docker.io/vllm/vllm-openai:nightly"],
        "AddDevice": ["nvidia.com/gpu=all"],
        "Exec": ["--model org/m"],
    }, "and nothing that was not asked for"
    with pytest.raises(UsageError, match="colon"):
        quadlet_text(replace(PLAIN, mounts=(Mount("/a:b", "/c"),)))


@settings(max_examples=60)
@given(specs, names)
def test_quadlet_runs_the_same_words_whatever_is_in_them(spec: ContainerSpec, name: str) -> None:
    spec = replace(canonical(spec), name=name, mounts=())
    found = quadlet(quadlet_text(spec))
    assert words_of(found, "Exec") == spec.command
    assert words_of(found, "Environment") == tuple(f"{variable.name}={variable.value}" for variable in spec.env)
    gpus = spec.gpus
    reserved = 0 if gpus is None else len(gpus.device_ids) or (1 if gpus.count == -1 else gpus.count)
    assert len(found.get("AddDevice", ())) == len(spec.devices) + reserved


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("vllm-node", "docker.io/library/vllm-node"),
        ("vllm/vllm-openai:nightly", "docker.io/vllm/vllm-openai:nightly"),
        ("ghcr.io/a/b:1", "ghcr.io/a/b:1"),
        ("localhost/a:1", "localhost/a:1"),
        ("host:5000/a", "host:5000/a"),
    ],
)
def test_podman_gets_the_full_name_of_an_image(image: str, full: str) -> None:
    assert qualified(image) == full


@pytest.mark.parametrize("make", [compose_text, systemd_text, quadlet_text])
def test_a_container_without_a_name_or_with_a_nul_is_refused(make: Any) -> None:
    with pytest.raises(UsageError, match="name"):
        make(replace(PLAIN, name=""))
    if make is not compose_text:
        with pytest.raises(UsageError, match="NUL"):
            make(replace(PLAIN, command=("a\0b",)))
