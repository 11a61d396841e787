"""The daemon's sentences and their errors: the wording table. The sentences are real ones, of Engine 20.10 to 29."""

from __future__ import annotations

import http.client
import re
import socket
import ssl

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.base import errors
from spark_tui.base.engine.image import registry_of
from spark_tui.machine.docker.errors import (
    RULES,
    Request,
    broken,
    from_message,
    from_transport,
    port_of,
    translate,
)
from spark_tui.machine.docker.host import DockerHost
from tests.cases import all_cases

HOST = DockerHost("/var/run/docker.sock", origin="the default")
QWEN = Request("start qwen", container="qwen", image="vllm/vllm-openai:v0.33.0")
NGC = Request("pull it", image="nvcr.io/nvidia/vllm:26.05-py3", pulling=True)
HUB = Request("pull it", image="vllm/vllm-openai:v0.33.0", pulling=True)
GHCR = Request("pull it", image="ghcr.io/spark-arena/dgx-vllm:1", pulling=True)
OWN = Request("pull it", image="127.0.0.1:5000/x:1", pulling=True)

SENTENCES = (
    (errors.GpuDriverMissing, QWEN, "the NVIDIA Container Toolkit is not set up", "sudo apt install",
     'could not select device driver "" with capabilities: [[gpu]]'),
    (errors.GpuDriverMissing, QWEN, "the NVIDIA Container Toolkit is not set up", "restart docker",
     'failed to discover GPU vendor from CDI: no known GPU vendor found'),
    (errors.GpuDriverMissing, QWEN, "Docker has no CDI description of the GPU", "nvidia-ctk cdi generate",
     'CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all'),
    (errors.GpuDriverMissing, QWEN, "Docker has no CDI description of the GPU", "nvidia-ctk cdi generate",
     'could not select device driver "cdi" with capabilities: []'),
    (errors.GpuDriverMissing, QWEN, "The NVIDIA driver was updated while in use", "Restart the machine",
     'failed to create task for container: failed to create shim task: OCI runtime create failed: runc'
     ' create failed: unable to start container process: error during container init: error running '
     "prestart hook #0: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy' nvidia-"
     'container-cli: initialization error: nvml error: driver/library version mismatch: unknown'),
    (errors.GpuDriverMissing, QWEN, "The NVIDIA Container Toolkit cannot reach the GPU driver", "nvidia-smi",
     'OCI runtime create failed: container_linux.go:380: starting container process caused: '
     'process_linux.go:545: container init caused: Running hook #0:: error running hook: exit status '
     '1, stderr: nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: '
     'cannot open shared object file: no such file or directory: unknown'),
    (errors.GpuDriverMissing, QWEN, "Docker has no runtime named nvidia", "--gpus all",
     'Unknown runtime specified nvidia'),
    (errors.PortInUse, QWEN, "The port is in use", "another port",
     'driver failed programming external connectivity on endpoint qwen (8e10): Bind for 127.0.0.1:8000'
     ' failed: port is already allocated'),
    (errors.PortInUse, QWEN, "The port is in use", "another port",
     'driver failed programming external connectivity on endpoint qwen (1f21): Error starting userland'
     ' proxy: listen tcp4 127.0.0.1:8000: bind: address already in use'),
    (errors.PortInUse, QWEN, "The port is in use", "another port",
     'failed to set up container networking: driver failed programming external connectivity on '
     'endpoint qwen (9a1b): failed to bind host port for 127.0.0.1:8000:172.17.0.2:8000/tcp: address '
     'already in use'),
    (errors.DockerError, QWEN, "This machine has no address 10.9.8.7", "127.0.0.1",
     'driver failed programming external connectivity on endpoint p4 (11d3): Error starting userland '
     'proxy: listen tcp4 10.9.8.7:18779: bind: cannot assign requested address'),
    (errors.NameInUse, QWEN, "The name qwen is taken by another container", "docker rm qwen",
     'Conflict. The container name "/qwen" is already in use by container '
     '"ddd15201b1c4b8d3b7cd75e1130efc3d7b9004e2b891a9e71961c47e3f2f9712". You have to remove (or '
     'rename) that container to be able to reuse that name.'),
    (errors.NoSpaceLeft, HUB, "The disk is full", "docker system df",
     'failed to register layer: Error processing tar file(exit status 1): write /usr/lib/x.so: no '
     'space left on device'),
    (errors.WrongArchitecture, HUB, "is not built for this machine's processor", 'arm64',
     'no matching manifest for linux/arm64/v8 in the manifest list entries'),
    (errors.WrongArchitecture, HUB, "is not built for this machine's processor", 'arm64',
     'no match for platform in manifest: not found'),
    (errors.WrongArchitecture, QWEN, "is not built for this machine's processor", 'arm64',
     'image with reference x:1 was found but does not match the specified platform: wanted '
     'linux/arm64, actual: linux/amd64'),
    (errors.WrongArchitecture, QWEN, "is not built for this machine's processor", 'arm64',
     'failed to create shim task: OCI runtime create failed: runc create failed: unable to start '
     'container process: exec /usr/bin/vllm: exec format error: unknown'),
    (errors.DockerError, QWEN, "Program vllm is missing from the image", "docker image inspect",
     'failed to create shim task: OCI runtime create failed: runc create failed: unable to start '
     'container process: exec: "vllm": executable file not found in $PATH: unknown'),
    (errors.DockerError, QWEN, 'Program /x is missing from the image', "preset's",
     'OCI runtime create failed: runc create failed: unable to start container process: exec: "/x": '
     'stat /x: no such file or directory: unknown'),
    (errors.DockerError, QWEN, 'Program /x of the image cannot be run', "preset's",
     'failed to create shim task: OCI runtime create failed: runc create failed: exec: "/x": '
     'permission denied'),
    (errors.DockerError, QWEN, "/data/models does not exist, but is to be mounted", "Create it",
     'invalid mount config for type "bind": bind source path does not exist: /data/models'),
    (errors.DockerError, QWEN, "Docker cannot create /proc/nope, which is to be mounted", "Create it yourself",
     "error while creating mount source path '/proc/nope': mkdir /proc/nope: no such file or directory"),
    (errors.DockerError, QWEN, "This machine has no device /dev/infiniband", "driver",
     'error gathering device information while adding custom device "/dev/infiniband": no such file or'
     ' directory'),
    (errors.DockerError, QWEN, "The image has no user nobodyhere", "1000:1000",
     'unable to find user nobodyhere: no matching entries in passwd file'),
    (errors.DockerError, QWEN, "Docker has no network llm", "docker network create llm",
     'network llm not found'),
    (errors.ContainerNotFound, QWEN, "No container named qwen", "spark-tui ps",
     'No such container: qwen'),
    (errors.DockerError, QWEN, "qwen is running", "Stop it first",
     'You cannot remove a running container e56d. Stop the container before attempting removal or '
     'force remove'),
    (errors.DockerError, QWEN, "qwen is running", "Stop it first",
     'cannot remove container "qwen": container is running: stop the container before removing or '
     'force remove'),
    (errors.DockerError, QWEN, "qwen is paused", "unpause qwen",
     'cannot start a paused container, try unpause instead'),
    (errors.DockerError, QWEN, "qwen is being removed", "Wait",
     'removal of container qwen is already in progress'),
    (errors.DockerError, QWEN, "qwen does not stop: its process hangs in the kernel, usually i", "dmesg",
     'cannot stop container: qwen: tried to kill container, but did not receive an exit event'),
    (errors.DockerError, QWEN, "Cannot read the log of qwen: its log driver sends it elsewhere", "log driver",
     'configured logging driver does not support reading'),
    (errors.DockerError, QWEN, "The Docker daemon and spark-tui support different API versions", "Update",
     'client version 1.24 is too old. Minimum supported API version is 1.44, please upgrade your client'),
    (errors.ImageNotFound, QWEN, "is not downloaded", "docker pull",
     'No such image: vllm/vllm-openai:v0.33.0'),
    (errors.ImageInUse, QWEN, "is in use", "docker ps",
     'conflict: unable to remove repository reference "vllm/vllm-openai:v0.33.0" (must force) - container 4f1c2d9a07be '
     'is using its referenced image 0e4603bf4cca'),
    (errors.ImageInUse, QWEN, "is in use", "docker ps",
     'conflict: unable to delete 0e4603bf4cca (cannot be forced) - image is being used by running container 4f1c2d9a'),
    (errors.ImageNotFound, HUB, "docker.io has no image", "name and tag",
     'manifest for vllm/vllm-openai:v0.33.0 not found: manifest unknown: manifest unknown'),
    (errors.ImageNotFound, HUB, "docker.io has no image", "name and tag",
     'failed to resolve reference "docker.io/vllm/vllm-openai:v0.33.0": docker.io/vllm/vllm-'
     'openai:v0.33.0: not found'),
    (errors.ImageNotFound, HUB, "at docker.io, or it is private", "docker login, with your Docker Hub name",
     "pull access denied for vllm/vllm-openai, repository does not exist or may require 'docker "
     "login': denied: requested access to the resource is denied"),
    (errors.RegistryUnauthorized, NGC, "at nvcr.io, or it is private", "$oauthtoken",
     "pull access denied for nvcr.io/nvidia/vllm, repository does not exist or may require 'docker "
     "login': denied: Access Denied"),
    (errors.RegistryUnauthorized, NGC, "nvcr.io requires a login", "$oauthtoken",
     'Head "https://nvcr.io/v2/nvidia/vllm/manifests/26.05-py3": unauthorized: authentication required'),
    (errors.RegistryUnauthorized, GHCR, "ghcr.io requires a login", "a token that may read packages",
     'Head "https://ghcr.io/v2/spark-arena/dgx-vllm/manifests/1": denied'),
    (errors.RegistryUnauthorized, OWN, "127.0.0.1:5000 requires a login", "docker login 127.0.0.1:5000",
     'Get "http://127.0.0.1:5000/v2/x/manifests/1": no basic auth credentials'),
    (errors.RegistryUnauthorized, NGC, "nvcr.io requires a login", "docker login nvcr.io",
     'failed to resolve reference: failed to authorize: failed to fetch anonymous token: unexpected '
     'status from GET request: 401 Unauthorized'),
    (errors.RegistryUnauthorized, HUB, "docker.io limits pulls without a login", "wait a few hours",
     'toomanyrequests: You have reached your pull rate limit. You may increase the limit by '
     'authenticating and upgrading: https://www.docker.com/increase-rate-limit'),
    (errors.RegistryUnreachable, HUB, "cannot resolve the name docker.io", "docker save",
     'Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io on 10.0.0.1:53: no'
     ' such host'),
    (errors.RegistryUnreachable, OWN, "127.0.0.1:5000 does not answer", "network",
     'Get "http://127.0.0.1:1/v2/": dial tcp 127.0.0.1:1: connect: connection refused'),
    (errors.RegistryUnreachable, NGC, "nvcr.io does not answer", "network",
     'Get "https://nvcr.io/v2/": net/http: request canceled while waiting for connection '
     '(Client.Timeout exceeded while awaiting headers)'),
    (errors.RegistryUnreachable, NGC, "the certificate of nvcr.io is not trusted", "clock",
     'Get "https://nvcr.io/v2/": x509: certificate has expired or is not yet valid: current time '
     '2020-01-01T00:00:00Z is before 2025-01-01T00:00:00Z'),
    (errors.RegistryUnreachable, GHCR, "ghcr.io does not answer", "network",
     'received unexpected HTTP status: 503 Service Unavailable'),
    (errors.ImageNotFound, HUB, "is not an image name", "small letters",
     'invalid reference format: repository name (library/Bad Name) must be lowercase'),
)  # fmt: skip
"""Error, request, part of the summary, part of the remedy, and the daemon's sentence."""


@all_cases(("error", "request_", "summary", "remedy", "message"), SENTENCES)
def test_the_daemons_sentence_becomes_an_error_with_a_remedy(
    error: type[errors.DockerError], request_: Request, summary: str, remedy: str, message: str
) -> None:
    found = from_message(message, request_)
    assert type(found) is error
    assert summary in found.summary
    assert remedy in found.remedy
    assert found.detail == message


def test_an_unknown_sentence_is_passed_on_and_one_of_a_pull_is_unknown_elsewhere() -> None:
    for sentence in ("the flux capacitor is empty", "dial tcp 127.0.0.1:1: connect: connection refused"):
        found = from_message(sentence, QWEN)
        assert type(found) is errors.DockerError
        assert (found.summary, found.detail) == ("Docker cannot start qwen.", sentence)
        assert "journalctl -u docker" in found.remedy


@settings(deadline=None)
@given(st.text(max_size=200), st.text(max_size=20), st.text(max_size=20), st.booleans())
def test_no_sentence_breaks_the_mapping(message: str, container: str, image: str, pulling: bool) -> None:
    found = from_message(message, Request("start it", container, image, pulling))
    assert found.summary and found.remedy


def test_hostile_names_cannot_inject_anything() -> None:
    found = from_message("No such container: x", Request("start it", container="\x1b[31m{evil}{0}\nx"))
    assert found.summary == "No container named {evil}{0} x."


def test_every_rule_fills_its_sentences() -> None:
    known = {"container": "x", "image": "x", "registry": "x", "login": "x", "verb": "x"}
    for rule in RULES:
        own = dict.fromkeys(re.compile(rule.pattern).groupindex, "x")
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
    ("error", "summary", "remedy"),
    [
        (PermissionError(13, "denied"), "permission denied on /var/run/docker.sock", "sudo usermod -aG docker $USER"),
        (FileNotFoundError(2, "No such file"), "/var/run/docker.sock does not exist", "sudo systemctl start docker"),
        (ConnectionRefusedError(111, "refused"), "nothing listens", "sudo systemctl start docker"),
        (TimeoutError("timed out"), "does not answer", "systemctl restart docker"),
        (socket.gaierror(-2, "unknown"), "Cannot resolve", "DOCKER_HOST"),
        (ssl.SSLError("bad certificate"), "rejects the connection", "DOCKER_CERT_PATH"),
        (ConnectionResetError(104, "reset"), "closed the connection", "systemctl status docker"),
        (http.client.RemoteDisconnected("closed"), "closed the connection", "systemctl status docker"),
        (http.client.IncompleteRead(b""), "closed the connection", "systemctl status docker"),
    ],
)
def test_a_connection_that_fails_says_what_to_do(error: Exception, summary: str, remedy: str) -> None:
    kind = errors.SocketPermissionDenied if isinstance(error, PermissionError) else errors.DaemonNotRunning
    for wrapped in (
        error,
        requests.ConnectionError("Connection aborted.", error),
    ):  # requests hands it on in its arguments
        found = translate(wrapped, HOST, QWEN)
        assert type(found) is kind and summary in found.summary and remedy in found.remedy
        assert found.exit_code is errors.ExitCode.UNREACHABLE


def test_a_daemon_named_by_a_setting_is_not_started_by_systemctl() -> None:
    host = DockerHost("/run/user/1000/docker.sock", origin="DOCKER_HOST")
    found = from_transport(FileNotFoundError(2, "No such file"), host)
    assert "(set by DOCKER_HOST)" in found.summary
    assert found.remedy == "Check DOCKER_HOST: does that daemon run?"


def test_a_broken_stream_says_that_containers_keep_running() -> None:
    found = broken("The log of qwen", 60, from_transport(ConnectionRefusedError(111, "refused"), HOST))
    assert found.summary == "The log of qwen broke off: Docker does not answer for 60 s."
    assert "Containers keep running" in found.remedy and "systemctl start docker" in found.remedy
    assert "not understood" in translate(ValueError("Expecting value"), HOST, QWEN).summary


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
