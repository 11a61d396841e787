"""Connecting clients: what their files would be, writing them with a backup, going back, and one request as proof."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from contextlib import aclosing, suppress
from enum import StrEnum
from functools import partial
from types import NoneType
from typing import Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.actions import by_front_end, key_of
from spark_tui.base.context import Context
from spark_tui.base.engine.runtimes import KEY_VARIABLES
from spark_tui.base.engine.state import Endpoint, endpoint_of
from spark_tui.base.errors import ApiKeyRejected, RefusedError, SparkError, UsageError
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.ports import Clock, EngineApi, HostProbe, SecretStore, StateFiles, port_named
from spark_tui.base.secret import Secret
from spark_tui.base.text import same_name
from spark_tui.base.untrusted import decode, encode
from spark_tui.machine.gateway import GatewayKeys
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.results.model.proof import PATHS, request_body
from spark_tui.use.connect.model import (
    CLIENTS,
    NO_KEY,
    SCRIPT_KEY,
    Client,
    ClientFile,
    FileFormat,
    Keys,
    Served,
    SettingsText,
    change_of,
    checked,
    context_of,
    findings_of,
    keys_of,
    question_of,
    script_of,
    tailscale_address,
)
from spark_tui.use.connect.model import Path as KeyPath
from spark_tui.use.prove.model.answer import read_answer

_PREFIX: Final = "connect-"
_PRIVATE: Final = 0o600
_NEW_KEY_SECONDS: Final = 2.0
"""So long a running gateway may take to know a new key."""


class Place(StrEnum):
    """Where the client runs."""

    HERE = "here"
    LAPTOP = "laptop"
    TAILSCALE = "tailscale"


class FileChange(Struct, frozen=True):
    """A settings file as it is, and its text as it will be."""

    file: ClientFile
    old: SettingsText
    new: str

    @property
    def changed(self) -> bool:
        return self.old.text != self.new


class Connection(Struct, frozen=True):
    """One client for one engine. `written`: its files were written by us before. `gateway`: its address is that of a
    gateway. `new_key`: the gateway has no key of this client yet; writing makes one. `problem`: why they cannot be
    read."""

    client: Client
    engine: str
    served: Served
    findings: tuple[Finding, ...]
    files: tuple[FileChange, ...] = ()
    written: bool = False
    gateway: bool = False
    new_key: bool = False
    problem: SparkError | None = None

    @property
    def changed(self) -> bool:
        return any(each.changed for each in self.files)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.severity is Severity.ERROR)

    @property
    def edit_command(self) -> str:
        """The command that applies what the findings ask for; empty where no setting helps."""
        pairs = change_of(self.findings)
        words = (word for key, value in pairs for word in ("--set", f"{key}={value}"))
        return shlex.join(("spark-tui", "edit", self.engine, *words)) if pairs else ""


class Backup(Struct, frozen=True):
    """A file before our keys, with the mode it had then; `after` is the hash of what was written, `served` the name,
    base URL, context and the key's hash in it, and whether the URL is a gateway's (absent in older ones)."""

    path: str
    before: str | None
    mode: int
    after: str
    served: Sequence[Any]


@port_named("client_files")
class SettingsFiles(Protocol):
    """Settings files of other programs, below the person's home. Raises SparkError."""

    def read(self, file: ClientFile) -> SettingsText:
        """Raises RefusedError, which names the line, for one that does not parse."""

    def edit(self, old: SettingsText, kind: FileFormat, keys: Keys) -> str:
        """Its text with these values; all else stays as it is written. Raises RefusedError."""

    def value(self, text: str, kind: FileFormat, path: KeyPath) -> Any:
        """What a text has at that place; None for nothing."""

    def write(self, path: str, text: str | None, mode: int) -> None:
        """In one step, and through a link; None removes it. Raises RefusedError for a file that is read-only, or that
        has another name by a hard link."""


class Connector:
    """Plans connections, and carries them out. Reads and writes small files."""

    @classmethod
    def from_context(cls, context: Context) -> Connector:
        return cls(
            context[SettingsFiles], context.ports.state, context.secrets, context.api, context.host, context.clock
        )

    def __init__(
        self,
        files: SettingsFiles,
        state: StateFiles,
        secrets: SecretStore,
        api: EngineApi,
        host: HostProbe,
        clock: Clock,
    ) -> None:
        self._files, self._state, self._secrets, self._api, self._host = files, state, secrets, api, host
        self._clock, self._keys = clock, GatewayKeys(state, clock)

    # --- plan -----------------------------------------------------------------------------------------

    def _served(self, view: EngineView, place: Place) -> Served:
        """What a client there is given. Raises UsageError where that place has no address."""
        address, key_file = "127.0.0.1", view.container.api_key_file
        if place is Place.LAPTOP:
            address = self._host.identity().lan_address
        elif place is Place.TAILSCALE:
            address = tailscale_address(self._host.addresses())
        if not address:
            raise UsageError(f"This machine has no {place} address.", "Connect it to that network first.")
        key = self._secrets.api_key(key_file) if key_file else None
        base = view.container.address or (f"http://{address}:{view.port}" if view.port else "")
        return Served(view.served_name, base, context_of(view), key, key_file, elsewhere=place is not Place.HERE)

    def _served_by_gateway(self, view: EngineView, client: Client, address: str, *, keyed: bool) -> tuple[Served, bool]:
        """What a client here is given for a gateway, and whether its key is still to be made: each client that has
        files has a key of its own, which is not the engine's."""
        served = Served(view.served_name, address, context_of(view))
        if not keyed:
            return served, False
        if not client.files:
            return replace(served, key_command=f"spark-tui gateway keys add {client.id}"), False
        path = str(self._secrets.path(_key_file(client)))
        key = self._secrets.api_key(path)
        new = key is None or not self._keys.has(_key_name(client), key)
        return replace(served, key=self._secrets.new_key() if key is None or new else key, key_file=path), new

    def plan(
        self,
        view: EngineView,
        client: Client,
        place: Place = Place.HERE,
        gateway: str | None = None,
        *,
        keyed: bool = False,
    ) -> Connection:
        """What connecting that client means; nothing is changed. `gateway` is the address of one in front of the
        engine, empty for none, None for the one that a client here is connected to now; `keyed` says whether it asks
        for keys."""
        if gateway is None:
            gateway, keyed = self._gateway_of(client, view.served_name) if place is Place.HERE else ("", False)
        if gateway:
            served, new = self._served_by_gateway(view, client, gateway, keyed=keyed)
        else:
            served, new = self._served(view, place), False
        known = bool(gateway) or served.key is not None
        findings = findings_of(view, client, key=known, elsewhere=place is not Place.HERE)
        if view.container.bare:  # its settings are not ours to change
            findings = tuple(replace(each, change=()) for each in findings)
        found = Connection(client, view.name, served, findings, gateway=bool(gateway), new_key=new)
        try:
            backups = self._backups(client)
            changes = [self._change(file, served, backups) for file in client.files] if served.name else []
        except SparkError as error:
            return replace(found, problem=error)
        return replace(found, files=tuple(each for each in changes if each is not None), written=bool(backups))

    def plans(self, views: Sequence[EngineView]) -> list[Connection]:
        """One for each client: for the engine that it is connected to, else for the first one."""
        each = ([self.plan(view, client) for view in views] for client in CLIENTS.values())
        return [next((plan for plan in plans if plan.written and not plan.changed), plans[0]) for plans in each]

    def _gateway_of(self, client: Client, model: str) -> tuple[str, bool]:
        """The gateway's address that the client has for that model, and whether with a key; empty without one."""
        with suppress(SparkError):
            for name, url, _, key, *gateway in (each.served for each in self._backups(client)):
                if name == model and gateway == [True]:
                    return str(url), key != _hash(NO_KEY)
        return "", False

    def _change(self, file: ClientFile, served: Served, backups: Sequence[Backup]) -> FileChange | None:
        """None for a file that this engine needs nothing in."""
        old = self._files.read(file)
        base = replace(old, text=self._reverted(file, old, backups))
        keys = [*(keys_of(file.fresh) if base.text is None else ()), *keys_of(file.keys_for(served))]
        if not keys and old.text == base.text:
            return None
        new = self._files.edit(base, file.format, tuple(keys)) if keys else base.text or ""
        return FileChange(file, old, new)

    def script(self, plan: Connection, *, show_key: bool) -> str:
        """One line for the other machine's shell. Without `show_key` it asks for the key."""
        has_key = plan.served.key is not None
        asked = replace(plan.served, key=Secret(SCRIPT_KEY)) if has_key else plan.served
        texts = []
        for file in plan.client.files:
            if keys := (*keys_of(file.fresh), *keys_of(file.keys_for(asked))):
                nothing = SettingsText("", None, _PRIVATE)
                place = f"{file.folder}/{file.names[0]}".lstrip("/")
                texts.append((place, self._files.edit(nothing, file.format, keys)))
        return script_of(texts, plan.client.start, key=plan.served.key if show_key else None, asks=has_key)

    # --- write ----------------------------------------------------------------------------------------

    def write(self, plan: Connection, *, force: bool = False) -> Connection:
        """Writes all files, or none; the connection with a key that works. Raises RefusedError for what the findings
        forbid."""
        if plan.problem is not None:
            raise plan.problem
        for finding in plan.errors if not force else ():
            raise RefusedError(finding.summary, plan.edit_command or finding.remedy)
        if not plan.files:
            raise UsageError(f"{plan.client.title} has no settings file.", "Follow the steps shown.")
        kept, served = {each.path: each for each in self._backups(plan.client)}, plan.served
        for each in plan.files:
            before = self._reverted(each.file, each.old, tuple(kept.values()))
            mode = kept[each.old.path].mode if each.old.path in kept else each.old.mode
            given = (served.name, served.base_url, served.context, _hash(served.sent_key.reveal()), plan.gateway)
            kept[each.old.path] = Backup(each.old.path, before, mode, _hash(each.new), given)
        self._state.write(_PREFIX + plan.client.id, encode(list(kept.values())).encode())
        done: list[FileChange] = []
        try:
            if plan.new_key and served.key is not None:
                self._revoke(plan.client)
                self._secrets.env_file(_key_file(plan.client), {KEY_VARIABLES[0]: served.key})
                self._keys.add(_key_name(plan.client), served.key)
            for each in plan.files:
                if each.changed:
                    secret = served.key is not None and served.key.reveal() in each.new
                    self._files.write(each.old.path, each.new, each.old.mode & _PRIVATE if secret else each.old.mode)
                    done.append(each)
        except SparkError:
            for each in done:
                with suppress(SparkError):
                    self._files.write(each.old.path, each.old.text, each.old.mode)
            if plan.new_key:
                self._revoke(plan.client)
            if not plan.written:
                self._state.remove(_PREFIX + plan.client.id)
            raise
        if not plan.gateway:
            self._revoke(plan.client)
        return replace(plan, new_key=False)

    def _revoke(self, client: Client) -> None:
        """The gateway refuses the client's key from now on, where it had one."""
        with suppress(SparkError):
            self._keys.revoke(_key_name(client))

    def undo(self, client: Client) -> tuple[str, ...]:
        """Puts the files back as they were; from those that changed since, our keys are removed. The paths."""
        backups = self._backups(client)
        if not backups:
            raise UsageError(f"{client.title} was not connected by spark-tui.", "See: spark-tui connect")
        texts = [(old := self._files.read(file), self._reverted(file, old, backups)) for file in client.files]
        modes = {each.path: each.mode for each in backups}
        for old, text in texts:
            if old.path in modes and text != old.text:
                self._files.write(old.path, text, modes[old.path])
        self._state.remove(_PREFIX + client.id)
        self._revoke(client)
        return tuple(modes)

    def _reverted(self, file: ClientFile, old: SettingsText, backups: Sequence[Backup]) -> str | None:
        """The file without our keys: as it was before, or, where it changed since, with the former values of those of
        our keys that still have ours."""
        backup = next((each for each in backups if each.path == old.path), None)
        if backup is None or old.text is None or _hash(old.text) == backup.after:
            return old.text if backup is None or old.text is None else backup.before
        name, base_url, context, key, *_ = backup.served
        ours = Served(name, base_url, context, Secret(SCRIPT_KEY))
        keys = []
        for path, value in (*keys_of(file.fresh), *keys_of(file.keys_for(ours))):
            now = self._files.value(old.text, file.format, path)
            if now == value or (isinstance(value, Secret) and _hash(str(now)) == key):
                was = partial(self._files.value, backup.before or "", file.format)
                other = (
                    part
                    for end in range(1, len(path))
                    if not isinstance(was(part := path[:end]), dict | list | NoneType)
                )
                place = next(other, path)  # something else stood where our mapping is
                keys.append((place, was(place)))
        text = self._files.edit(old, file.format, tuple(keys))
        return text if text.strip() or backup.before is not None else None

    def _backups(self, client: Client) -> tuple[Backup, ...]:
        data = self._state.read(_PREFIX + client.id)
        try:
            found = decode(data or b"[]", tuple[Backup, ...])
            for each in found:
                name, url, context, key, *_ = each.served
                if not isinstance(context, int | None) or not all(isinstance(text, str) for text in (name, url, key)):
                    raise ValueError(each.path)  # noqa: TRY301
        except ValueError:
            path = self._state.path(_PREFIX + client.id)
            raise RefusedError(
                f"The backup {path} is damaged.",
                f"Check the files of {client.title}, then delete the backup: rm {shlex.quote(path)}",
            ) from None
        return found

    # --- proof ----------------------------------------------------------------------------------------

    async def check(self, view: EngineView, plan: Connection) -> Finding:
        """One request with a tool, on the API that the client uses, to the server that the plan gives it. Raises the
        API part of the error tree, and RefusedError for a gateway that has no key of the client yet."""
        client, served = plan.client, plan.served
        if plan.new_key or served.key_command:
            save = by_front_end(f"Press {key_of('write_client')} first.", "Make one: add --write.")
            raise RefusedError(
                f"The gateway has no key of {client.title} yet.",
                save if plan.new_key else f"Make one, and enter it in the client: {served.key_command}",
            )
        endpoint = Endpoint(served.base_url, served.key) if plan.gateway else endpoint_of(view.container, served.key)
        if endpoint is None or not served.name:
            raise RefusedError(f"{view.name} does not serve.", "Wait until it is ready.")
        try:
            return await self._ask(endpoint, client, served.name)
        except ApiKeyRejected:
            if not plan.gateway or served.key is None:
                raise
        await self._clock.sleep(_NEW_KEY_SECONDS)
        return await self._ask(endpoint, client, served.name)

    async def _ask(self, endpoint: Endpoint, client: Client, model: str) -> Finding:
        question = question_of(client)
        async with aclosing(self._api.ask(endpoint, PATHS[client.api], request_body(question, model))) as payloads:
            return checked(client, read_answer(question, [data async for data in payloads]))


def _key_name(client: Client) -> str:
    """Its name among the gateway's keys; a person's own keys have other names."""
    return f"{client.id}-local"


def _key_file(client: Client) -> str:
    return f"gateway-client-{client.id}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def engine_meant(views: Sequence[EngineView], name: str) -> EngineView:
    """The engine of that container, served name or address; without a name the only one that serves. Raises
    UsageError."""
    serving = [view for view in views if view.word.serves]
    meant = same_name(name, [view.name for view in views])
    found = [view for view in views if meant and view.name == meant] or [
        view for view in serving if name in (view.served_name, view.base_url, view.api_url)
    ]
    if not name:
        found = serving
    if len(found) == 1:
        return found[0]
    named = ", ".join(view.name for view in found or views)
    if found:
        raise UsageError(f"Several engines serve {name}".rstrip() + ".", f"Name one: {named}.")
    launch = "Launch a preset: spark-tui up PRESET (spark-tui presets list)"
    what = f"No engine named {name}." if name else "No engine serves."
    raise UsageError(what, f"Engines: {named}. See: spark-tui ps" if named else launch)
