"""What a gateway keeps in files: the keys of its clients, and what it says of itself while it runs."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from spark_tui.base.errors import RefusedError, SparkError, UsageError
from spark_tui.base.gateway import GatewayKey, GatewayStatus, KeysUnreadable
from spark_tui.base.ports import Clock, StateFiles
from spark_tui.base.secret import Secret
from spark_tui.base.text import clean_line
from spark_tui.base.untrusted import decode, encode

FILE: Final = "gateway"
"""The running gateway's status; its claim is held as long as it runs."""
_KEYS_FILE: Final = "gateway-keys"
_KEYS_SECONDS: Final = 1.0
_MOST_KEYS: Final = 1000


class GatewayKeys:
    """The keys of the gateway's clients. Only their digests are kept. Raises SparkError."""

    def __init__(self, state: StateFiles, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._read_at = float("-inf")
        self._known: tuple[GatewayKey, ...] = ()

    def all(self) -> tuple[GatewayKey, ...]:
        data = self._state.read(_KEYS_FILE)
        try:
            return decode((data or b"[]").decode("utf-8", "replace"), tuple[GatewayKey, ...])
        except ValueError:
            raise RefusedError(
                f"The gateway's keys cannot be read: {clean_line(self._state.path(_KEYS_FILE))} is damaged.",
                "Delete that file and add the keys again.",
            ) from None

    def has(self, client: str, key: Secret) -> bool:
        """Whether that is the client's key."""
        return any(each.client == client and each.digest == _digest(key.reveal()) for each in self.all())

    def add(self, client: str, key: Secret) -> None:
        """Keeps a client's key. Raises RefusedError for a name that has one."""
        known = self.all()
        if any(each.client == client for each in known) or len(known) >= _MOST_KEYS:
            raise RefusedError(f"{client} has a key already.", f"Revoke it: spark-tui gateway keys revoke {client}")
        self._write((*known, GatewayKey(client, _digest(key.reveal()), self._clock.now())))

    def revoke(self, client: str) -> None:
        known = self.all()
        kept = tuple(each for each in known if each.client != client)
        if kept == known:
            raise UsageError(f"{client} has no key.", "See: spark-tui gateway keys list")
        self._write(kept)

    def client_of(self, key: str) -> str | None:
        """The client that has that key, None for an unknown key; a change counts after a second. Raises
        KeysUnreadable."""
        if self._clock.monotonic() - self._read_at >= _KEYS_SECONDS:
            try:
                self._known, self._read_at = self.all(), self._clock.monotonic()
            except SparkError as error:
                raise KeysUnreadable(
                    "The gateway cannot check keys now.", "Ask its owner: its log has the reason.", detail=str(error)
                ) from error
        digest = _digest(key)
        return next((each.client for each in self._known if hmac.compare_digest(digest, each.digest)), None)

    def _write(self, keys: Iterable[GatewayKey]) -> None:
        self._state.write(_KEYS_FILE, encode(tuple(keys)).encode())


def _digest(key: str) -> str:
    """A key has 192 random bits: it needs no salt and no slow hash."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def read_status(state: StateFiles) -> GatewayStatus | None:
    """The gateway that runs now, None without one. Raises SparkError for a file that cannot be read."""
    data = state.read(FILE)
    if data is None:
        return None
    if state.claim(FILE):  # it was killed
        state.release(FILE)
        return None
    try:
        return decode(data.decode("utf-8", "replace"), GatewayStatus)
    except ValueError:
        return None  # of another version
