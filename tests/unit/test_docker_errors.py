"""What the daemon says, and what a person is told. The sentences are real ones, of Engine 20.10 to 29."""

from __future__ import annotations

import http.client
import socket
import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.domain import errors
from spark_tui.services.docker.connection import DockerHost, Refused, message_of
from spark_tui.services.docker.errors import (
    RULES,
    Asked,
    broken,
    from_message,
    from_transport,
    login_for,
    port_of,
    registry_of,
    translate,
)

HOST = DockerHost("/var/run/docker.sock", origin="the default")
QWEN = Asked("start qwen", container="qwen", image="vllm/vllm-openai:v0.33.0")
NGC = Asked("pull it", image="nvcr.io/nvidia/vllm:26.05-py3", pulling=True)
HUB = Asked("pull it", image="vllm/vllm-openai:v0.33.0", pulling=True)
GHCR = Asked("pull it", image="ghcr.io/spark-arena/dgx-vllm:1", pulling=True)
OWN = Asked("pull it", image="127.0.0.1:5000/x:1", pulling=True)


@pytest.mark.parametrize(
    ("message", "asked", "error", "summary", "remedy"),
    [
        # --- the GPU
        (
            'could not select device driver "" with capabilities: [[gpu]]',
            QWEN,
            errors.GpuDriverMissing,
            "does not know the NVIDIA Container Toolkit",
            "sudo apt install nvidia-container-toolkit && sudo systemctl restart docker",
        ),
        (
            "failed to discover GPU vendor from CDI: no known GPU vendor found",
            QWEN,
            errors.GpuDriverMissing,
            "does not know the NVIDIA Container Toolkit",
            "restart docker",
        ),
        (
            "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all",
            QWEN,
            errors.GpuDriverMissing,
            "no CDI description",
            "nvidia-ctk cdi generate",
        ),
        (
            'could not select device driver "cdi" with capabilities: []',
            QWEN,
            errors.GpuDriverMissing,
            "no CDI description",
            "nvidia-ctk cdi generate",
        ),
        (
            "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create"
            " failed: unable to start container process: error during container init: error running prestart hook #0:"
            " exit status 1, stdout: , stderr: Auto-detected mode as 'legacy' nvidia-container-cli: initialization"
            " error: nvml error: driver/library version mismatch: unknown",
            QWEN,
            errors.GpuDriverMissing,
            "updated while it was in use",
            "Restart the machine",
        ),
        (
            "OCI runtime create failed: container_linux.go:380: starting container process caused: "
            "process_linux.go:545: container init caused: Running hook #0:: error running hook: exit status 1, stderr:"
            " nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared"
            " object file: no such file or directory: unknown",
            QWEN,
            errors.GpuDriverMissing,
            "cannot reach the GPU driver",
            "nvidia-smi",
        ),
        ("Unknown runtime specified nvidia", QWEN, errors.GpuDriverMissing, "no runtime named nvidia", "--gpus all"),
        # --- ports, names, disk
        (
            "driver failed programming external connectivity on endpoint qwen (8e10): Bind for 127.0.0.1:8000 failed:"
            " port is already allocated",
            QWEN,
            errors.PortInUse,
            "port is taken",
            "another port",
        ),
        (
            "driver failed programming external connectivity on endpoint qwen (1f21): Error starting userland proxy:"
            " listen tcp4 127.0.0.1:8000: bind: address already in use",
            QWEN,
            errors.PortInUse,
            "port is taken",
            "another port",
        ),
        (
            "failed to set up container networking: driver failed programming external connectivity on endpoint qwen"
            " (9a1b): failed to bind host port for 127.0.0.1:8000:172.17.0.2:8000/tcp: address already in use",
            QWEN,
            errors.PortInUse,
            "port is taken",
            "another port",
        ),
        (
            "driver failed programming external connectivity on endpoint p4 (11d3): Error starting userland proxy:"
            " listen tcp4 10.9.8.7:18779: bind: cannot assign requested address",
            QWEN,
            errors.DockerError,
            "no address 10.9.8.7",
            "127.0.0.1",
        ),
        (
            'Conflict. The container name "/qwen" is already in use by container "ddd15201b1c4b8d3b7cd75e1130efc3d7b90'
            '04e2b891a9e71961c47e3f2f9712". You have to remove (or rename) that container to be able to reuse that'
            " name.",
            QWEN,
            errors.NameInUse,
            "The name qwen is taken",
            "docker rm qwen",
        ),
        (
            "failed to register layer: Error processing tar file(exit status 1): write /usr/lib/x.so: no space left on"
            " device",
            HUB,
            errors.NoSpaceLeft,
            "The disk is full",
            "docker system df",
        ),
        # --- the wrong image
        (
            "no matching manifest for linux/arm64/v8 in the manifest list entries",
            HUB,
            errors.WrongArchitecture,
            "vllm/vllm-openai:v0.33.0 is not built for this machine's processor",
            "arm64",
        ),
        (
            "no match for platform in manifest: not found",
            HUB,
            errors.WrongArchitecture,
            "not built for this machine",
            "arm64",
        ),
        (
            "image with reference x:1 was found but does not match the specified platform: wanted linux/arm64, actual:"
            " linux/amd64",
            QWEN,
            errors.WrongArchitecture,
            "not built for this machine",
            "arm64",
        ),
        (
            "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container"
            " process: exec /usr/bin/vllm: exec format error: unknown",
            QWEN,
            errors.WrongArchitecture,
            "not built for this machine",
            "arm64",
        ),
        (
            "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container"
            ' process: exec: "vllm": executable file not found in $PATH: unknown',
            QWEN,
            errors.DockerError,
            "no program vllm",
            "docker image inspect vllm/vllm-openai:v0.33.0",
        ),
        (
            'OCI runtime create failed: runc create failed: unable to start container process: exec: "/x": stat /x: no'
            " such file or directory: unknown",
            QWEN,
            errors.DockerError,
            "no program /x",
            "preset's command",
        ),
        (
            'failed to create shim task: OCI runtime create failed: runc create failed: exec: "/x": permission denied',
            QWEN,
            errors.DockerError,
            "/x in the image cannot be run",
            "preset's command",
        ),
        # --- what the container wants of the machine
        (
            'invalid mount config for type "bind": bind source path does not exist: /data/models',
            QWEN,
            errors.DockerError,
            "/data/models does not exist",
            "Create it",
        ),
        (
            "error while creating mount source path '/proc/nope': mkdir /proc/nope: no such file or directory",
            QWEN,
            errors.DockerError,
            "cannot create /proc/nope",
            "Create it yourself",
        ),
        (
            'error gathering device information while adding custom device "/dev/infiniband": no such file or'
            " directory",
            QWEN,
            errors.DockerError,
            "no device /dev/infiniband",
            "driver",
        ),
        (
            "unable to find user nobodyhere: no matching entries in passwd file",
            QWEN,
            errors.DockerError,
            "no user nobodyhere",
            "1000:1000",
        ),
        ("network llm not found", QWEN, errors.DockerError, "no network llm", "docker network create llm"),
        # --- containers
        ("No such container: qwen", QWEN, errors.ContainerNotFound, "There is no container qwen", "spark-tui ps"),
        (
            "You cannot remove a running container e56d. Stop the container before attempting removal or force remove",
            QWEN,
            errors.DockerError,
            "qwen is running",
            "Stop it first",
        ),
        (
            'cannot remove container "qwen": container is running: stop the container before removing or force remove',
            QWEN,
            errors.DockerError,
            "qwen is running",
            "Stop it first",
        ),
        ("cannot start a paused container, try unpause instead", QWEN, errors.DockerError, "is paused", "unpause qwen"),
        (
            "removal of container qwen is already in progress",
            QWEN,
            errors.DockerError,
            "qwen is being removed",
            "Wait",
        ),
        (
            "cannot stop container: qwen: tried to kill container, but did not receive an exit event",
            QWEN,
            errors.DockerError,
            "hangs in the kernel, most often in the GPU driver",
            "dmesg",
        ),
        (
            "configured logging driver does not support reading",
            QWEN,
            errors.DockerError,
            "log of qwen cannot be read",
            "log driver",
        ),
        (
            "client version 1.24 is too old. Minimum supported API version is 1.44, please upgrade your client",
            QWEN,
            errors.DockerError,
            "different versions",
            "Update",
        ),
        # --- images and registries
        (
            "No such image: vllm/vllm-openai:v0.33.0",
            QWEN,
            errors.ImageNotFound,
            "vllm/vllm-openai:v0.33.0 is not on this machine",
            "docker pull",
        ),
        (
            "manifest for vllm/vllm-openai:v0.33.0 not found: manifest unknown: manifest unknown",
            HUB,
            errors.ImageNotFound,
            "docker.io has no image vllm/vllm-openai:v0.33.0",
            "name and tag",
        ),
        (
            'failed to resolve reference "docker.io/vllm/vllm-openai:v0.33.0": docker.io/vllm/vllm-openai:v0.33.0: not'
            " found",
            HUB,
            errors.ImageNotFound,
            "docker.io has no image",
            "name and tag",
        ),
        (
            "pull access denied for vllm/vllm-openai, repository does not exist or may require 'docker login': denied:"
            " requested access to the resource is denied",
            HUB,
            errors.ImageNotFound,
            "or it is private",
            "docker login, with your Docker Hub name",
        ),
        (
            "pull access denied for nvcr.io/nvidia/vllm, repository does not exist or may require 'docker login':"
            " denied: Access Denied",
            NGC,
            errors.RegistryUnauthorized,
            "nvcr.io",
            "$oauthtoken",
        ),
        (
            'Head "https://nvcr.io/v2/nvidia/vllm/manifests/26.05-py3": unauthorized: authentication required',
            NGC,
            errors.RegistryUnauthorized,
            "nvcr.io wants a login",
            "the user name $oauthtoken, as it stands, and an NGC API key",
        ),
        (
            'Head "https://ghcr.io/v2/spark-arena/dgx-vllm/manifests/1": denied',
            GHCR,
            errors.RegistryUnauthorized,
            "ghcr.io wants a login",
            "a token that may read packages",
        ),
        (
            'Get "http://127.0.0.1:5000/v2/x/manifests/1": no basic auth credentials',
            OWN,
            errors.RegistryUnauthorized,
            "127.0.0.1:5000 wants a login",
            "docker login 127.0.0.1:5000",
        ),
        (
            "failed to resolve reference: failed to authorize: failed to fetch anonymous token: unexpected status from"
            " GET request: 401 Unauthorized",
            NGC,
            errors.RegistryUnauthorized,
            "wants a login",
            "docker login nvcr.io",
        ),
        (
            "toomanyrequests: You have reached your pull rate limit. You may increase the limit by authenticating and"
            " upgrading: https://www.docker.com/increase-rate-limit",
            HUB,
            errors.RegistryUnauthorized,
            "lets nobody without a login pull more",
            "wait a few hours",
        ),
        (
            'Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io on 10.0.0.1:53: no such'
            " host",
            HUB,
            errors.RegistryUnreachable,
            "the name docker.io cannot be resolved",
            "docker save",
        ),
        (
            'Get "http://127.0.0.1:1/v2/": dial tcp 127.0.0.1:1: connect: connection refused',
            OWN,
            errors.RegistryUnreachable,
            "does not answer",
            "network",
        ),
        (
            'Get "https://nvcr.io/v2/": net/http: request canceled while waiting for connection (Client.Timeout'
            " exceeded while awaiting headers)",
            NGC,
            errors.RegistryUnreachable,
            "nvcr.io does not answer",
            "network",
        ),
        (
            'Get "https://nvcr.io/v2/": x509: certificate has expired or is not yet valid: current time'
            " 2020-01-01T00:00:00Z is before 2025-01-01T00:00:00Z",
            NGC,
            errors.RegistryUnreachable,
            "no certificate that this machine trusts",
            "clock",
        ),
        (
            "received unexpected HTTP status: 503 Service Unavailable",
            GHCR,
            errors.RegistryUnreachable,
            "ghcr.io does not answer",
            "network",
        ),
        (
            "invalid reference format: repository name (library/Bad Name) must be lowercase",
            HUB,
            errors.ImageNotFound,
            "is no name of an image",
            "small letters",
        ),
    ],
)
def test_the_daemons_sentence_becomes_an_error_with_a_remedy(
    message: str, asked: Asked, error: type[errors.DockerError], summary: str, remedy: str
) -> None:
    found = from_message(message, asked)
    assert type(found) is error
    assert summary in found.summary
    assert remedy in found.remedy
    assert found.detail == message


def test_a_sentence_of_a_pull_means_nothing_elsewhere() -> None:
    found = from_message("dial tcp 127.0.0.1:1: connect: connection refused", QWEN)
    assert type(found) is errors.DockerError


def test_an_unknown_sentence_is_passed_on() -> None:
    found = from_message("the flux capacitor is empty", QWEN)
    assert type(found) is errors.DockerError
    assert found.summary == "Docker cannot start qwen."
    assert found.detail == "the flux capacitor is empty"
    assert "journalctl -u docker" in found.remedy


@settings(deadline=None)
@given(st.text(max_size=200), st.text(max_size=20), st.text(max_size=20), st.booleans())
def test_no_sentence_breaks_the_mapping(message: str, container: str, image: str, pulling: bool) -> None:
    found = from_message(message, Asked("start it", container, image, pulling))
    assert found.summary and found.remedy


def test_hostile_names_cannot_inject_anything() -> None:
    found = from_message("No such container: x", Asked("start it", container="\x1b[31m{evil}{0}\nx"))
    assert found.summary == "There is no container {evil}{0} x."


def test_every_rule_fills_its_sentences() -> None:
    known = {"container": "x", "image": "x", "registry": "x", "login": "x"}
    for rule in RULES:
        own = dict.fromkeys(rule.pattern.groupindex, "x")
        assert "{" not in rule.summary.format(**known, **own)
        assert "{" not in rule.remedy.format(**known, **own)


@pytest.mark.parametrize(
    ("message", "port"),
    [
        ("Bind for 127.0.0.1:8000 failed: port is already allocated", 8000),
        ("listen tcp4 127.0.0.1:18778: bind: address already in use", 18778),
        ("failed to bind host port for 127.0.0.1:8000:172.17.0.2:80/tcp: address already in use", 8000),
        ("listen tcp6 [::1]:8001: bind: address already in use", 8001),
        ("failed to bind host port 0.0.0.0:8080/tcp: address already in use", 8080),
        ("something else", None),
    ],
)
def test_the_port_is_found_in_the_message(message: str, port: int | None) -> None:
    assert port_of(message) == port


@pytest.mark.parametrize(
    ("error", "kind", "summary", "remedy"),
    [
        (
            PermissionError(13, "Permission denied"),
            errors.SocketPermissionDenied,
            "permission denied on /var/run/docker.sock",
            "sudo usermod -aG docker $USER, then log in again",
        ),
        (
            FileNotFoundError(2, "No such file"),
            errors.DaemonNotRunning,
            "there is no /var/run/docker.sock",
            "sudo systemctl start docker",
        ),
        (
            ConnectionRefusedError(111, "refused"),
            errors.DaemonNotRunning,
            "nobody listens",
            "sudo systemctl start docker",
        ),
        (TimeoutError("timed out"), errors.DaemonNotRunning, "does not answer", "systemctl restart docker"),
        (socket.gaierror(-2, "unknown"), errors.DaemonNotRunning, "cannot be resolved", "DOCKER_HOST"),
        (ssl.SSLError("bad certificate"), errors.DaemonNotRunning, "does not accept", "DOCKER_CERT_PATH"),
        (ConnectionResetError(104, "reset"), errors.DaemonNotRunning, "went away", "systemctl status docker"),
        (http.client.RemoteDisconnected("closed"), errors.DaemonNotRunning, "went away", "systemctl status docker"),
        (http.client.IncompleteRead(b""), errors.DaemonNotRunning, "went away", "systemctl status docker"),
    ],
)
def test_a_connection_that_fails_says_what_to_do(
    error: Exception, kind: type[errors.SparkError], summary: str, remedy: str
) -> None:
    found = translate(error, HOST, QWEN)
    assert type(found) is kind
    assert summary in found.summary
    assert remedy in found.remedy
    assert found.exit_code is errors.ExitCode.UNREACHABLE


def test_a_daemon_named_by_a_setting_is_not_started_by_systemctl() -> None:
    host = DockerHost("/run/user/1000/docker.sock", origin="DOCKER_HOST")
    found = from_transport(FileNotFoundError(2, "No such file"), host)
    assert "(DOCKER_HOST says so)" in found.summary
    assert found.remedy == "Check DOCKER_HOST: does that daemon run?"


def test_a_broken_stream_says_that_containers_go_on() -> None:
    found = broken("The log of qwen", 60, from_transport(ConnectionRefusedError(111, "refused"), HOST))
    assert found.summary == "The log of qwen broke off: Docker does not answer for 60 s."
    assert "containers may well go on" in found.remedy and "systemctl start docker" in found.remedy


def test_an_answer_that_is_none_of_dockers_is_said_to_be_so() -> None:
    found = translate(ValueError("Expecting value"), HOST, QWEN)
    assert "not understood" in found.summary
    assert translate(Refused(500, "No such container: qwen"), HOST, QWEN).id == "container_not_found"


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("vllm/vllm-openai:latest", "docker.io"),
        ("ubuntu", "docker.io"),
        ("nvcr.io/nvidia/vllm:26.05-py3", "nvcr.io"),
        ("localhost/x", "localhost"),
        ("127.0.0.1:5000/x", "127.0.0.1:5000"),
        ("a.b", "docker.io"),
    ],
)
def test_the_registry_of_an_image(image: str, registry: str) -> None:
    assert registry_of(image) == registry
    assert "docker login" in login_for(registry)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b'{"message":"no"}', "no"), (b"plain text\n", "plain text"), (b"[1]", "[1]"), (b"\xff", "\ufffd")],
)
def test_the_sentence_is_found_in_any_body(content: bytes, message: str) -> None:
    assert message_of(content) == message
