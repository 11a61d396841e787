"""What the options of `docker run` mean: each value is read, checked, and put into a draft of a ContainerSpec."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets.container_spec import (
    ContainerSpec,
    EnvVar,
    Gpus,
    Mount,
    PublishedPort,
    RestartPolicy,
    Ulimit,
)
from spark_tui.domain.presets.secret_names import is_secret_name
from spark_tui.domain.quantities import parse_bytes

_PORT = re.compile(r"(?:(?:\[(?P<ip6>[^\]]*)\]|(?P<ip>[^:\[\]]*)):)?(?:(?P<host>\d{0,5}):)?(?P<container>\d{1,5})")
_CSV_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^,]*))(,|\Z)')
MAX_PORT = 65_535
RESTART_POLICIES: Final = ("no", "always", "unless-stopped", "on-failure")
PROTOCOLS: Final = ("tcp", "udp", "sctp")


@dataclass
class Draft:
    """What has been read so far. A later value of a single option wins, as it does for Docker."""

    one: dict[str, str] = field(default_factory=dict)
    switches: dict[str, bool] = field(default_factory=dict)
    env: list[EnvVar] = field(default_factory=list)
    labels: list[tuple[str, str]] = field(default_factory=list)
    mounts: list[Mount] = field(default_factory=list)
    ports: list[PublishedPort] = field(default_factory=list)
    ulimits: list[Ulimit] = field(default_factory=list)
    words: dict[str, list[str]] = field(default_factory=dict)
    gpus: Gpus | None = None
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    shm_size: int = 0
    oom_score_adj: int = 0
    left_out: list[str] = field(default_factory=list)

    def leave_out(self, why: str) -> None:
        """Notes what has no place in a spec and needs none."""
        if why not in self.left_out:
            self.left_out.append(why)

    def switch(self, name: str, value: str | None) -> None:
        """`--NAME` or `--NAME=true`. Raises UsageError for another value."""
        if value is not None and value.lower() not in ("true", "false", "1", "0"):
            raise UsageError(f"--{name} is a switch, not {value!r}.", f"Write --{name} alone.")
        self.switches[name] = value is None or value.lower() in ("true", "1")

    def every(self, name: str) -> tuple[str, ...]:
        """All values of an option that may be given several times."""
        return tuple(self.words.get(name, ()))

    def spec(self, image: str, command: tuple[str, ...]) -> ContainerSpec:
        """The container that these options describe."""
        entrypoint = self.one.get("entrypoint")
        return ContainerSpec(
            name=self.one.get("name", ""),
            image=image,
            command=command,
            entrypoint=None if entrypoint is None else (entrypoint,) if entrypoint else (),
            env=tuple(self.env),
            env_files=self.every("env_files"),
            mounts=tuple(self.mounts),
            ports=tuple(self.ports),
            gpus=self.gpus,
            ipc=self.one.get("ipc", ""),
            shm_size=self.shm_size,
            network=self.one.get("network", ""),
            user=self.one.get("user", ""),
            ulimits=tuple(self.ulimits),
            restart=self.restart,
            labels=tuple(self.labels),
            oom_score_adj=self.oom_score_adj,
            cap_add=self.every("cap_add"),
            devices=self.every("devices"),
            security_opt=self.every("security_opt"),
            privileged=self.switches.get("privileged", False),
            init=self.switches.get("init", False),
        )


def _set(name: str, draft: Draft, value: str) -> None:
    draft.one[name] = value


def _append(name: str, draft: Draft, value: str) -> None:
    draft.words.setdefault(name, []).append(value)


def _env_file(draft: Draft, value: str) -> None:
    _append("env_files", draft, _absolute(value, "--env-file"))


def _env(draft: Draft, value: str) -> None:
    name, equals, text = value.partition("=")
    if not name:
        raise UsageError(f"-e {value!r} has no name.", "Write: -e NAME=VALUE")
    if not equals and is_secret_name(name):
        equals, text = "=", f"${name}"  # only its name is told, as it is good practice
    if not equals:
        raise UsageError(
            f"-e {name} takes its value from your shell, which is not read here.",
            f"Write -e {name}=VALUE, or --env-file PATH for a key.",
        )
    draft.env.append(EnvVar(name, text))


def _label(draft: Draft, value: str) -> None:
    key, _, text = value.partition("=")
    draft.labels.append((key, text))


def _volume(draft: Draft, value: str) -> None:
    source, *others = value.split(":")
    if not 1 <= len(others) <= 2 or (others[1:] and others[1] not in ("ro", "rw")):
        raise UsageError(
            f"-v {value} is not a bind mount.",
            "Write -v /host/path:/container/path or -v /host/path:/container/path:ro (--mount for paths with a colon).",
        )
    read_only = others[1:] == ["ro"]
    draft.mounts.append(_bind(source, others[0], f"-v {value}", read_only=read_only))


def _mount(draft: Draft, value: str) -> None:
    fields: dict[str, str] = {}
    for word in _csv_fields(value):
        key, equals, text = word.partition("=")
        fields[{"src": "source", "dst": "target", "destination": "target", "ro": "readonly"}.get(key, key)] = (
            text if equals else "true"
        )
    read_only = fields.pop("readonly", "false") in ("true", "1")
    kind, source, target = fields.pop("type", ""), fields.pop("source", ""), fields.pop("target", "")
    if kind != "bind" or fields:
        raise UsageError(
            f"--mount {value} is not a plain bind mount.",
            "Write --mount type=bind,source=/host,target=/there[,readonly]",
        )
    draft.mounts.append(_bind(source, target, f"--mount {value}", read_only=read_only))


def _csv_fields(row: str) -> list[str]:
    """The fields of one CSV row; a quote that opens nothing stands for itself."""
    fields = []
    for quoted, plain, separator in _CSV_FIELD.findall(row):
        fields.append(quoted.replace('""', '"') or plain)
        if not separator:
            break
    return fields


def _bind(source: str, target: str, written: str, *, read_only: bool) -> Mount:
    if not target.startswith("/"):
        raise UsageError(f"{written}: the path in the container is not absolute.", "It has to begin with a slash.")
    return Mount(_absolute(source, written), target, read_only)


def _absolute(path: str, written: str) -> str:
    if path.startswith("/"):
        return path
    if path and "/" not in path:
        raise UsageError(f"{written}: {path} is a named volume.", "Mount a folder instead: -v /host/path:/there")
    raise UsageError(f"{written}: {path or 'nothing'} is not an absolute path.", "Write the whole path.")


def _publish(draft: Draft, value: str) -> None:
    numbers, _, protocol = value.partition("/")
    match = _PORT.fullmatch(numbers)
    protocol = protocol.lower() or "tcp"
    if match is None or protocol not in PROTOCOLS:
        raise UsageError(
            f"-p {value} is not a published port.", "Write -p 127.0.0.1:8000:8000, one port each (ranges are not read)."
        )
    ip, host, container = match["ip6"] or match["ip"] or "", match["host"], int(match["container"])
    if match["host"] is None and ip.isdigit():  # `8000:8000`: what stands first is the port, not an address
        ip, host = "", ip
    port = int(host or 0)
    if not 1 <= container <= MAX_PORT or port > MAX_PORT:
        raise UsageError(f"-p {value}: no such port.", f"Ports go from 1 to {MAX_PORT}.")
    draft.ports.append(PublishedPort(container, port, ip, protocol))


def _gpus(draft: Draft, value: str) -> None:
    text = value.strip('"')
    kind, equals, ids = text.partition("=")
    if text == "all":
        draft.gpus = Gpus()
    elif re.fullmatch(r"\d{1,4}|-1", text):
        draft.gpus = Gpus(int(text))
    elif equals and kind == "device" and ids and "=" not in ids:
        draft.gpus = Gpus(device_ids=tuple(part for part in ids.split(",") if part))
    else:
        raise UsageError(f"--gpus {value} is not understood.", "Write --gpus all, --gpus 1, or --gpus device=0.")


def _shm_size(draft: Draft, value: str) -> None:
    try:
        draft.shm_size = parse_bytes(value)
    except ValueError as error:
        raise UsageError(f"--shm-size {value} is not a size.", "Write for example --shm-size 10g.") from error


def _ulimit(draft: Draft, value: str) -> None:
    match = re.fullmatch(r"([a-z]+)=(-?\d{1,19})(?::(-?\d{1,19}))?", value)
    if match is None:
        raise UsageError(f"--ulimit {value} is not understood.", "Write for example --ulimit memlock=-1.")
    soft = int(match[2])
    draft.ulimits.append(Ulimit(match[1], soft, soft if match[3] is None else int(match[3])))


def _restart(draft: Draft, value: str) -> None:
    name, colon, retries = value.partition(":")
    counted = name == "on-failure" and re.fullmatch(r"\d{1,6}", retries)
    if name not in RESTART_POLICIES or (colon and not counted):
        raise UsageError(
            f"--restart {value} is not a restart policy.", f"Docker knows {', '.join(RESTART_POLICIES)}[:N]."
        )
    draft.restart = RestartPolicy(name, int(retries or 0))


def _oom_score_adj(draft: Draft, value: str) -> None:
    if not re.fullmatch(r"-?\d{1,4}", value) or abs(int(value)) > 1000:
        raise UsageError(f"--oom-score-adj {value} is not possible.", "It goes from -1000 to 1000.")
    draft.oom_score_adj = int(value)


_MEMORY: Final = "Leave it out: it does not bound what the GPU takes from a Spark's memory."
REFUSED: Final = {"m": _MEMORY, "memory": _MEMORY}

_KEEPS_LOG: Final = "--rm is left out: an ended container is kept here, because its log says why it ended."
_NO_TERMINAL: Final = (
    "A terminal (-it) is left out: a server needs none, and without one its log keeps stdout and stderr."
)
LEFT_OUT: Final = {
    "rm": _KEEPS_LOG,
    "i": _NO_TERMINAL,
    "t": _NO_TERMINAL,
    "interactive": _NO_TERMINAL,
    "tty": _NO_TERMINAL,
}
"""Switches that a server does without, and why."""


def _runtime(draft: Draft, value: str) -> None:
    # facts: a stock DGX OS lists no runtime of that name, and the daemon refuses it.
    if value != "nvidia":
        raise UsageError(f"--runtime {value} is not supported here.", "Leave it out.")
    draft.gpus = draft.gpus or Gpus()
    draft.leave_out("--runtime nvidia is --gpus all here: that asks Docker for the GPU on every Spark.")


def _pull(draft: Draft, value: str) -> None:
    draft.leave_out(f"--pull {value} is left out: a missing image is pulled, a present one is used.")


def _platform(draft: Draft, value: str) -> None:
    if not value.startswith("linux/arm64"):
        raise UsageError(
            f"--platform {value} is another machine's.", "Leave it out, and name an image that is built for arm64."
        )
    draft.leave_out(f"--platform {value} is left out: that is what a Spark is.")


SWITCHES: Final = {"d": "detach", "detach": "detach", "privileged": "privileged", "init": "init"}
VALUES: Final[dict[str, Callable[[Draft, str], None]]] = {
    **dict.fromkeys(("e", "env"), _env),
    **dict.fromkeys(("v", "volume"), _volume),
    **dict.fromkeys(("p", "publish"), _publish),
    **dict.fromkeys(("l", "label"), _label),
    **dict.fromkeys(("u", "user"), partial(_set, "user")),
    **dict.fromkeys(("network", "net"), partial(_set, "network")),
    **{name: partial(_set, name) for name in ("name", "ipc", "entrypoint")},
    "env-file": _env_file,
    "cap-add": partial(_append, "cap_add"),
    "device": partial(_append, "devices"),
    "security-opt": partial(_append, "security_opt"),
    "mount": _mount,
    "gpus": _gpus,
    "shm-size": _shm_size,
    "ulimit": _ulimit,
    "restart": _restart,
    "oom-score-adj": _oom_score_adj,
    "runtime": _runtime,
    "pull": _pull,
    "platform": _platform,
}
