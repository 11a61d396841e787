"""Other boxes, each with a spark-tui of its own: how they stand in the settings, and what ssh is asked for them.

What is true of a box is measured on that box: another one is controlled by the spark-tui that is installed there.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from spark_tui.domain.errors import UsageError

DEFAULT_COMMAND: Final = "spark-tui"
MOST_HOSTS: Final = 32
"""All are asked at once."""
MOST_CHARACTERS: Final = 500
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_SCHEME: Final = "ssh://"
_SHELLS_OWN: Final = frozenset("'\"`$\\;&<>|(){}*?!#,/")
"""ssh itself refuses most of them in a name: they could reach a shell through its ProxyCommand. The comma is ours."""
_PARTS: Final = ("ssh", "command")
_NEEDS_QUOTES: Final = re.compile(r"[\s'\"\\]")


@dataclass(frozen=True, slots=True)
class RemoteHost:
    """A box that ssh reaches as `destination` (`nv@spark-2`), where `command` starts spark-tui."""

    name: str
    destination: str
    command: str = DEFAULT_COMMAND

    def line(self, arguments: Sequence[str]) -> str:
        """What the shell there runs: the command's words and these arguments, each quoted; a leading `~/` stays its."""
        return " ".join([*map(_quoted, shlex.split(self.command)), *map(shlex.quote, arguments)])

    def ssh(self, arguments: Sequence[str], *options: str) -> tuple[str, ...]:
        """The whole ssh command, with options of ssh's own before the destination."""
        return ("ssh", *options, self.destination, "--", self.line(arguments))


Hosts: TypeAlias = tuple[RemoteHost, ...]
"""By name, in the order of their names."""


def read_hosts(value: object) -> Hosts:
    """Hosts from a TOML table (`lab = "nv@spark-2"`, `lab = { ssh = "nv@spark-2", command = "~/bin/spark-tui" }`),
    from text (`lab=nv@spark-2 attic=nv@10.0.0.7,~/bin/spark-tui`), or from some that were read. Raises ValueError."""
    if isinstance(value, str):
        found = [_of_text(word) for word in _words(value)]
    elif isinstance(value, Mapping):
        found = [_of_entry(name, told) for name, told in value.items()]
    elif isinstance(value, tuple) and all(isinstance(each, RemoteHost) for each in value):
        found = list(value)
    else:
        raise ValueError(f'must be a table of hosts, such as lab = "nv@spark-2"; it is {value!r}')
    if len({each.name for each in found}) < len(found):
        raise ValueError("must name each host once")
    if len(found) > MOST_HOSTS:
        raise ValueError(f"must be at most {MOST_HOSTS} hosts; it is {len(found)}")
    return tuple(sorted(found, key=lambda each: each.name))


def read_host(name: str, text: str) -> RemoteHost:
    """One host from `nv@spark-2`, or `nv@spark-2,COMMAND`. Raises ValueError."""
    where, comma, command = text.partition(",")
    return _host(name, where, command if comma else DEFAULT_COMMAND)


def host_text(host: RemoteHost) -> str:
    """As text that `read_host` reads back."""
    return host.destination if host.command == DEFAULT_COMMAND else f"{host.destination},{host.command}"


def hosts_text(hosts: Hosts) -> str:
    """As text that `read_hosts` reads back."""
    words = (f"{each.name}={host_text(each)}" for each in hosts)
    return " ".join(shlex.quote(word) if _NEEDS_QUOTES.search(word) else word for word in words)


def host_plain(host: RemoteHost) -> str | dict[str, str]:
    """As it stands in the settings file: a text, or a table where the command is another."""
    own = host.command != DEFAULT_COMMAND
    return {"ssh": host.destination, "command": host.command} if own else host.destination


def find_host(hosts: Hosts, name: str) -> RemoteHost:
    """The host of that name, else the one that `name` is the address of (`nv@spark-2`, `10.0.0.7`). Raises UsageError,
    with what was probably meant."""
    known = {each.name: each for each in hosts}
    if name in known:
        return known[name]
    if any(sign in name for sign in "@.:"):
        try:
            return RemoteHost(name, _destination(name))
        except ValueError as error:
            raise UsageError(f"--host {error}.", "Write it as for ssh: spark-tui --host nv@spark-2") from None
    near = next(iter(difflib.get_close_matches(name, known, 1)), "")
    there = f" They are: {', '.join(known)}." if known else ""
    raise UsageError(
        f"There is no host {name[:60]!r} in the settings.{there}",
        f"Did you mean `{near}`?"
        if near
        else "Name it as for ssh (--host USER@ADDRESS), or add it: spark-tui config set hosts.NAME USER@ADDRESS",
    )


def check_name(name: str) -> str:
    """A name that needs no quotes anywhere. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"must have names of letters, digits, - and _; it has {name[:60]!r}")
    return name


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        raise ValueError(f"must have its quotes closed; it is {text[:80]!r}") from None


def _of_text(word: str) -> RemoteHost:
    name, equals, told = word.partition("=")
    if not equals:
        raise ValueError(f"must be hosts by name, such as lab=nv@spark-2; it has {word[:80]!r}")
    return read_host(name, told)


def _of_entry(name: object, told: object) -> RemoteHost:
    if isinstance(told, str):
        return _host(name, told, DEFAULT_COMMAND)
    if not isinstance(told, Mapping) or "ssh" not in told:
        raise ValueError(f'must be an address such as "nv@spark-2", or {{ ssh = ..., command = ... }} (for {name})')
    for part in told:
        if part not in _PARTS:
            near = next(iter(difflib.get_close_matches(str(part), _PARTS, 1)), "")
            hint = f"did you mean {near}?" if near else f"there are {' and '.join(_PARTS)}"
            raise ValueError(f"must have known parts; {str(part)[:40]!r} is none: {hint} (for {name})")
    return _host(name, told["ssh"], told.get("command", DEFAULT_COMMAND))


def _host(name: object, where: object, command: object) -> RemoteHost:
    named = check_name(name if isinstance(name, str) else repr(name))
    try:
        return RemoteHost(named, _destination(where), _command(command))
    except ValueError as error:
        raise ValueError(f"{error} (for {named})") from None


def _destination(value: object) -> str:
    """What ssh takes as a destination and for nothing else."""
    example = "must be an address as for ssh, such as nv@spark-2"
    if not isinstance(value, str) or not value or len(value) > MOST_CHARACTERS:
        raise ValueError(f"{example}; it is {str(value)[:60]!r}")
    user, at, box = value.removeprefix(_SCHEME).rpartition("@")
    if not box or (at and not user) or user.startswith("-") or box.startswith("-"):
        raise ValueError(f"{example}; it is {value[:60]!r}")
    strange = next((each for each in user + box if not each.isprintable() or each.isspace() or each in _SHELLS_OWN), "")
    if strange:
        raise ValueError(f"{example}; {value[:60]!r} has {strange!r}")
    bare, colon, port = box.partition(":")
    if colon and port.isdigit() and bare and not value.startswith(_SCHEME):
        raise ValueError(f"{example}; a port is written so: {_SCHEME}{value[:60]}")
    return value


def _command(value: object) -> str:
    example = "must have a command such as ~/spark-tui/.venv/bin/spark-tui"
    if not isinstance(value, str) or not value.isprintable() or len(value) > MOST_CHARACTERS:
        raise ValueError(f"{example}; it is {str(value)[:60]!r}")
    words = _words(value)
    if not words or not words[0] or words[0].startswith("-"):
        raise ValueError(f"{example}; it is {value[:60]!r}")
    return value.strip()


def _quoted(word: str) -> str:
    """Quoted for a shell, but for `~/`, which the shell there is to make its home."""
    return f"~/{shlex.quote(word[2:])}" if word.startswith("~/") and len(word) > 2 else shlex.quote(word)
