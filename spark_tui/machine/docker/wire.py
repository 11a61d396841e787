"""What the daemon answers, as plain values: the JSON of containers, images and events, and the bytes of a log.

`GET /containers/ID/logs?timestamps=1`: without a terminal, stdout and stderr come as frames: one byte for the stream,
three of zero, four of length, then `2026-11-21T06:30:35.434044596Z text\\n`. With one there is a single bare stream of
such lines, ended by `\\r\\n`. The daemon stores a line in parts of 16 KiB, each with the stamp of the first (seen on
Engine 20.10 and 24.0, docker/cli#4941): parts are joined here, and their repeated stamps removed.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping
from datetime import UTC, datetime
from struct import Struct
from typing import Any, Final

from spark_tui.base.engine.container import (
    ContainerEvent,
    ContainerFacts,
    ContainerStatus,
    ImageDisk,
    ImageFacts,
    Mount,
    PublishedPort,
    StoredImage,
)
from spark_tui.base.errors import UsageError
from spark_tui.base.ports import MAX_LINE_CHARS, LogLine
from spark_tui.base.text import clean_line

# --- JSON -------------------------------------------------------------------------------------------------

NEVER: Final = "0001-01-01T00:00:00Z"
"""Go's zero time."""

_ENDED: Final = (ContainerStatus.EXITED, ContainerStatus.DEAD, ContainerStatus.RESTARTING)

CONTAINER_EVENTS: Final = (
    "create", "start", "restart", "pause", "unpause", "kill", "stop", "die", "oom", "rename", "update", "destroy",
)  # fmt: skip
"""Events that can change a container's facts. Not health checks and execs, which come all the time."""


def container_facts(found: Mapping[str, Any]) -> ContainerFacts:
    """`GET /containers/ID/json`."""
    config, state, host = found.get("Config") or {}, found.get("State") or {}, found.get("HostConfig") or {}
    word = state.get("Status")
    otherwise = ContainerStatus.RUNNING if state.get("Running") else ContainerStatus.EXITED
    status = ContainerStatus(word) if word in tuple(ContainerStatus) else otherwise
    argv = (*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ()))
    policy = (host.get("RestartPolicy") or {}).get("Name") or ""
    mounts = ((each.get("Source"), each.get("Destination"), each.get("RW", True)) for each in found.get("Mounts") or ())
    # What is bound while it runs; else what was asked for, with host port 0 where Docker chooses.
    ports = _published((found.get("NetworkSettings") or {}).get("Ports")) or _published(host.get("PortBindings"))
    return ContainerFacts(
        id=found["Id"],
        name=str(found.get("Name", "")).lstrip("/"),
        image=config.get("Image") or found.get("Image", ""),
        image_id=found.get("Image", ""),
        status=status,
        argv=argv or tuple(filter(None, (found.get("Path"), *(found.get("Args") or ())))),
        labels=tuple(sorted((config.get("Labels") or {}).items())),
        ports=ports,
        network_mode=host.get("NetworkMode", ""),
        environment=tuple(entry.partition("=")[0] for entry in config.get("Env") or ()),
        tty=bool(config.get("Tty")),
        pid=state.get("Pid") or 0,
        exit_code=state.get("ExitCode") if status in _ENDED else None,
        oom_killed=bool(state.get("OOMKilled")),
        error=state.get("Error") or "",
        restart_count=found.get("RestartCount") or 0,
        created_at=seconds_of(found.get("Created")),
        started_at=seconds_of(state.get("StartedAt")),
        finished_at=seconds_of(state.get("FinishedAt")),
        restart_policy="" if policy == "no" else str(policy),
        # Folders of the host only: a tmpfs has no source.
        mounts=tuple(sorted((Mount(a, b, not rw) for a, b, rw in mounts if a and b), key=lambda mount: mount.target)),
    )


def _published(bindings: Mapping[str, Any] | None) -> tuple[PublishedPort, ...]:
    ports = []
    for key, hosts in (bindings or {}).items():
        number, _, protocol = key.partition("/")
        for host in hosts or ():
            port = host.get("HostPort") or "0"
            host_port = int(port) if port.isdigit() else 0
            ports.append(PublishedPort(int(number), host_port, host.get("HostIp") or "", protocol or "tcp"))
    return tuple(sorted(ports, key=lambda port: (port.container_port, port.protocol, port.host_port, port.host_ip)))


def image_facts(found: Mapping[str, Any], reference: str) -> ImageFacts:
    """`GET /images/NAME/json`."""
    config = found.get("Config") or {}
    return ImageFacts(
        id=found.get("Id", ""),
        reference=reference,
        entrypoint=tuple(config.get("Entrypoint") or ()),
        command=tuple(config.get("Cmd") or ()),
        architecture=found.get("Architecture") or "",
        os=found.get("Os") or "",
        size=found.get("Size") or 0,
        digest=next(iter(found.get("RepoDigests") or ()), ""),
        digests=tuple(found.get("RepoDigests") or ()),
        layers=tuple((found.get("RootFS") or {}).get("Layers") or ()),
        nccl=next((each[13:] for each in config.get("Env") or () if each.startswith("NCCL_VERSION=")), ""),
        versions=_versions(config),
    )


_VERSION_NAME: Final = re.compile(
    r"(?:.*\.)?(vllm|sglang|pytorch|torch|cuda|nccl|flashinfer)[._]version", re.IGNORECASE
)
_TITLES: Final = {"vllm": "vLLM", "sglang": "SGLang", "pytorch": "torch", "flashinfer": "FlashInfer", "cuda": "CUDA",
                  "nccl": "NCCL"}  # fmt: skip


def _versions(config: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """By variables such as CUDA_VERSION and labels such as `com.nvidia.cuda.version`. A variable counts more: labels
    come down from base images."""
    pairs = [*(config.get("Labels") or {}).items(), *(each.partition("=")[::2] for each in config.get("Env") or ())]
    found = {}
    for name, value in pairs:
        match = _VERSION_NAME.fullmatch(name)
        if match is not None and value:
            word = match[1].lower()
            found[_TITLES.get(word, word)] = clean_line(str(value))[:60]
    return tuple(sorted(found.items()))


def image_disk(found: Mapping[str, Any]) -> ImageDisk:
    """`GET /system/df?type=image`, as up to API 1.51 and from 1.52 on."""
    usage = found.get("ImageUsage") or {}
    rows = found.get("Images") or usage.get("Items") or ()
    layers = found.get("LayersSize", usage.get("TotalSize"))
    images = []
    for row in rows:
        shared = row.get("SharedSize", -1)
        images.append(
            StoredImage(
                id=row["Id"],
                tags=tuple(tag for tag in row.get("RepoTags") or () if tag != "<none>:<none>"),
                digests=tuple(each for each in row.get("RepoDigests") or () if not each.startswith("<none>")),
                created_at=float(row["Created"]) if (row.get("Created") or 0) > 0 else None,
                size=row.get("Size") or 0,
                shared=shared if shared >= 0 else None,
            )
        )
    return ImageDisk(tuple(images), None if layers is None or layers < 0 else layers)


def container_event(found: Mapping[str, Any]) -> ContainerEvent | None:
    """A line of `GET /events`; None for what is not about a container."""
    actor = found.get("Actor") or {}
    attributes = actor.get("Attributes") or {}
    identity, action = actor.get("ID"), found.get("Action")
    if found.get("Type") != "container" or not identity or not action:
        return None
    code, signal = str(attributes.get("exitCode", "")), str(attributes.get("signal", ""))
    return ContainerEvent(
        action=str(action).partition(":")[0],
        container_id=identity,
        name=attributes.get("name", ""),
        at=found["timeNano"] / 1e9 if "timeNano" in found else float(found.get("time", 0)),
        exit_code=int(code) if code.isdigit() else None,
        signal=int(signal) if signal.isdigit() else None,
    )


def seconds_of(stamp: str | None) -> float | None:
    """RFC 3339 as seconds since the epoch; None where Docker has no time."""
    if not stamp or stamp == NEVER:
        return None
    return datetime.fromisoformat(stamp).astimezone(UTC).timestamp()


# --- logs -------------------------------------------------------------------------------------------------

_SECOND_NS: Final = 1_000_000_000
_OVERLAP_NS: Final = 100_000_000
"""Lines of stdout and stderr can stand in the log a little out of order: so much is read again, and compared."""
STAMP_CHARS: Final = 30
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d) ")
_HEADER: Final = Struct(">BxxxL")
_PART: Final = 16 * 1024
_SYSTEM_ERROR: Final = 3
_NEWLINE, _Z = b"\nZ"
_STAMP_ROOM: Final = 40
"""Longer than any stamp."""
_KEPT_BYTES: Final = 4 * MAX_LINE_CHARS
"""A character takes at most four bytes in UTF-8: more of a line is counted, not kept."""


class Damaged(Exception):
    """The stream is not what the daemon sends: it must be read again."""


class DaemonReported(Exception):
    """The daemon reports an error in the middle of the stream."""


class _Pending:
    """A line that has begun: its stamp, as much of it as will be shown, and how long it is by now."""

    __slots__ = ("kept", "length", "parts", "raw_stamp")

    def __init__(self, raw_stamp: bytes) -> None:
        self.raw_stamp = raw_stamp
        self.parts: list[bytes] = []
        self.kept = self.length = 0

    def add(self, part: bytes) -> None:
        self.length += len(part)
        if self.kept < _KEPT_BYTES:
            part = part[: _KEPT_BYTES - self.kept]
            self.parts.append(part)
            self.kept += len(part)

    def line(self) -> LogLine:
        """At most MAX_LINE_CHARS characters; a longer line ends with its length."""
        text = b"".join(self.parts).decode("utf-8", "replace")
        if self.kept < self.length or len(text) > MAX_LINE_CHARS:
            mark = f" … [cut: {self.length:,} bytes]"
            text = text[: MAX_LINE_CHARS - len(mark)] + mark
        return LogLine(utc_stamp(self.raw_stamp), text)


def utc_stamp(raw: bytes) -> str:
    """RFC 3339 in UTC with nine decimals: texts compare as times do. Some log drivers give the daemon's local time."""
    text = raw.decode("ascii", "replace")
    if len(text) == STAMP_CHARS and text[-1] == "Z":
        return text
    match = _STAMP.match(raw + b" ")
    if match is None:
        return text
    seconds, fraction, zone = (group.decode() if group else "" for group in match.groups())
    moment = datetime.fromisoformat(seconds + zone).astimezone(UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{fraction[1:]:0<9}Z"


class FrameDecoder:
    """For containers without a terminal."""

    def __init__(self) -> None:
        self._rest = b""
        self._pending: dict[int, _Pending] = {}

    def feed(self, data: bytes) -> list[LogLine]:
        """The lines that end within these bytes. Raises Damaged, and DaemonReported for an error of the daemon's."""
        if self._rest:
            data = self._rest + data
        lines: list[LogLine] = []
        append, unpack, pending = lines.append, _HEADER.unpack_from, self._pending
        at, size = 0, len(data)
        while at + 8 <= size:
            stream, length = unpack(data, at)
            end = at + 8 + length
            if end > size:
                if length > 2 * _PART:
                    raise Damaged(f"a frame of {length} bytes")
                break
            # What nearly every frame is: one whole line, with a stamp in UTC.
            if data[end - 1] == _NEWLINE and length > STAMP_CHARS and data[at + 37] == _Z and stream not in pending:
                text = data[at + 39 : end - 1].decode("utf-8", "replace")
                if "\n" not in text and stream < _SYSTEM_ERROR:
                    append(LogLine(data[at + 8 : at + 38].decode("ascii", "replace"), text))
                    at = end
                    continue
            self._frame(stream, data[at + 8 : end], lines)
            at = end
        self._rest = data[at:]
        return lines

    def finish(self) -> list[LogLine]:
        """The lines that have no end when the stream has one."""
        lines = [pending.line() for pending in self._pending.values()]
        self._pending.clear()
        return lines

    def _frame(self, stream: int, payload: bytes, lines: list[LogLine]) -> None:
        """A frame that is not exactly one line."""
        if stream == _SYSTEM_ERROR:
            raise DaemonReported(payload.decode("utf-8", "replace").strip())
        if stream > _SYSTEM_ERROR:
            raise Damaged(f"a frame of stream {stream}")
        begun = self._pending.pop(stream, None)
        stamp = _STAMP.match(payload)
        if stamp is None and begun is None:
            raise Damaged("a line without a stamp")
        raw = stamp.group()[:-1] if stamp else b""
        if begun is not None and raw not in (b"", begun.raw_stamp):
            lines.append(begun.line())  # the process that wrote it ended without a newline
            begun = None
        raw = begun.raw_stamp if begun else raw
        *whole, last = payload[stamp.end() if stamp else 0 :].split(b"\n")
        for part in whole:
            begun = begun or _Pending(raw)
            begun.add(part)
            lines.append(begun.line())
            begun = None
        if last or not whole:
            begun = self._pending[stream] = begun or _Pending(raw)
            begun.add(last)


class TerminalDecoder:
    """For containers with a terminal: one bare stream, in which a newline separates lines.

    Parts are no frames here, and not quite of one size either (Docker's JSON log replaces bad bytes by longer ones):
    they are found by the line's own stamp, to the nanosecond, in the middle of it.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._line: _Pending | None = None

    def feed(self, data: bytes) -> list[LogLine]:
        """The lines that end within these bytes. Raises Damaged."""
        data = self._rest + data
        lines: list[LogLine] = []
        at = 0
        while True:
            if self._line is None:
                stamp = _STAMP.match(data, at)
                if stamp is None:
                    if len(data) - at > _STAMP_ROOM or b"\n" in data[at:]:
                        raise Damaged("a line without a stamp")
                    break
                self._line = _Pending(stamp.group()[:-1])
                at = stamp.end()
            end = data.find(b"\n", at)
            if end < 0:
                data, at = data[at:].replace(self._line.raw_stamp + b" ", b""), 0
                self._line.add(data[:-_STAMP_ROOM])  # the rest may hold the beginning of a stamp
                data = data[-_STAMP_ROOM:]
                break
            lines.append(self._finished(self._line, data[at:end]))
            at = end + 1
        self._rest = data[at:]
        return lines

    def finish(self) -> list[LogLine]:
        """The line that has no end when the stream has one."""
        return [] if self._line is None else [self._finished(self._line, self._rest)]

    def _finished(self, line: _Pending, last: bytes) -> LogLine:
        line.add(last.replace(line.raw_stamp + b" ", b""))
        self._line = None
        stamp, text = line.line()
        return LogLine(stamp, text.removesuffix("\r"))


# --- times and resuming -----------------------------------------------------------------------------------


def canonical_stamp(text: str) -> str:
    """RFC 3339 as the daemon writes it, in UTC with nine decimals. Raises UsageError for what is no such time."""
    stamp = utc_stamp(text.encode("ascii", "replace"))
    if len(stamp) != STAMP_CHARS or stamp[-1] != "Z":
        raise UsageError(f"{text!r} is not a log time.", "Write it as 2026-11-21T06:30:35Z.")
    return stamp


def nanoseconds(stamp: str) -> int:
    """A canonical stamp as nanoseconds since the epoch."""
    seconds = datetime.fromisoformat(stamp[:19]).replace(tzinfo=UTC).timestamp()
    return int(seconds) * _SECOND_NS + int(stamp[20:29])


def stamp_of(ns: int) -> str:
    """The reverse of `nanoseconds`."""
    seconds, rest = divmod(ns, _SECOND_NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def since_query(stamp: str) -> str:
    """A canonical stamp as the API's `since`: seconds and nanoseconds, without the rounding of a float."""
    seconds, rest = divmod(nanoseconds(stamp), _SECOND_NS)
    return f"{seconds}.{rest:09d}"


class ReplayFilter:
    """Remembers the lines of the last moments, and drops them when they come again.

    `floor` is the caller's own `since`: only later lines are wanted, while the daemon sends that moment's as well.
    `tail`: the first line handed over is the oldest that is wanted.
    """

    def __init__(self, floor: str = "", *, tail: bool = False) -> None:
        self._floor = floor
        self._oldest = ""
        self._tail = tail
        self._recent: deque[list[LogLine]] = deque()
        self._again: Counter[LogLine] = Counter()
        self._check_until = _shifted(floor, 1) if floor else ""

    @property
    def begun(self) -> bool:
        return bool(self._recent)

    @property
    def since(self) -> str:
        """The stamp to ask the daemon for; empty for everything. The daemon's answer includes that moment."""
        if not self._recent:
            return self._floor
        return max(_shifted(self._recent[-1][-1].stamp, -1), self._oldest)

    def reconnect(self) -> None:
        """A new connection begins at `since`: what was handed over from there on will come again."""
        if self._recent:
            since = self.since
            self._again = Counter(line for batch in self._recent for line in batch if line.stamp >= since)
            self._check_until = _shifted(max((line.stamp for line in self._again), default=since), 1)

    def fresh(self, lines: list[LogLine]) -> list[LogLine]:
        """Those of these lines that have not been handed over, which they then count as."""
        if self._check_until and lines:
            passed = lines[-1].stamp > self._check_until
            lines = [line for line in lines if self._is_new(line)]
            if passed:
                self._check_until = ""
                self._again.clear()
        if lines:
            if self._tail and not self._recent:
                self._oldest = lines[0].stamp
            self._recent.append(lines)
            horizon = _shifted(lines[-1].stamp, -2)  # twice: the next line may be a little older than this one
            while len(self._recent) > 1 and self._recent[0][-1].stamp < horizon:
                self._recent.popleft()
        return lines

    def _is_new(self, line: LogLine) -> bool:
        again = line.stamp > self._floor and self._again[line] > 0
        self._again[line] -= again
        return not again and line.stamp > self._floor and line.stamp >= self._oldest


def _shifted(stamp: str, overlaps: int) -> str:
    return stamp_of(max(nanoseconds(stamp) + overlaps * _OVERLAP_NS, 0))
