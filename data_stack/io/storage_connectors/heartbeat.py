"""Leases that live as long as their holder is heard of, in any store of small values.

The lease of a process of this machine that died is free at once. Of others only their heartbeat is known, and clocks of several
machines are never compared: a lease has lapsed when somebody who wants it has seen it unchanged for longer than any holder lets
it be, by his own monotonic clock.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from typing import Final, Protocol

from data_stack.exception import DataStackError
from data_stack.io.storage_connectors.connector import Lease
from data_stack.io.storage_connectors.owners import is_dead, this_process
from data_stack.util.forks import call_in_forks

__all__ = ["HeartbeatLease", "LeaseStore", "is_left_by_the_dead"]

BEAT_SECONDS: Final = 2.0
#: A holder that is not heard of for so long has lost its lease.
LIFE_SECONDS: Final = 9.0
#: How long closing waits for a heartbeat that is under way; after that the lease is left to lapse.
_LAST_BEAT_SECONDS: Final = 1.0
_MOST_BYTES: Final = 256


class LeaseStore(Protocol):
    """Where leases are kept: small values by name."""

    def read(self, path: str, most: int, /) -> bytes | None:
        """A value, or its first bytes; None if there is none."""

    def create(self, path: str, data: bytes, /) -> bool:
        """Write a value unless there is one; of several that try at once one succeeds."""

    def put(self, path: str, data: bytes, /) -> None:
        """Write a value, in place of one that is there."""

    def delete(self, path: str, /) -> None:
        """Remove a value; it need not be there."""


class HeartbeatLease(Lease):
    """A value that a thread renews while the lease is held. It ends with :meth:`close`, or when its process is not heard of.

    A fork inherits no lease, and no thread that could keep it.

    Args:
        store: where it is kept.
        path: of the value.
    """

    def __init__(self, store: LeaseStore, path: str) -> None:
        self._store, self._path = store, path
        #: What was there when it was last looked, and since when.
        self._seen: tuple[bytes, float] | None = None
        self._begin()
        call_in_forks(self._begin)

    def _begin(self) -> None:
        self._nonce, self._owner = secrets.token_hex(16), this_process()
        self._ended = threading.Event()
        self._heart: threading.Thread | None = None

    def acquire(self) -> bool:
        if self._heart is not None:
            return self._heart.is_alive()
        try:
            # Who waits only looks: of sixteen that wait, each write would keep the holder waiting too.
            if not ((self._seen is None and self._is_created()) or self._is_left_to_us()):
                return False
        except DataStackError:
            # No correctness rests on a lease: who cannot write leases, or cannot be told, works without.
            return True
        self._heart = threading.Thread(target=self._beat, name="data_stack-lease", daemon=True)
        self._heart.start()
        return True

    def close(self) -> None:
        """Give the lease back."""
        if self._heart is None:
            return
        heart, self._heart = self._heart, None
        self._ended.set()
        heart.join(_LAST_BEAT_SECONDS)
        if not heart.is_alive():  # else the store does not answer, and what it may still do now a heartbeat could undo
            with contextlib.suppress(DataStackError):
                if self._holds(self._read()):
                    self._store.delete(self._path)

    def _beat(self) -> None:
        n_beats = 0
        while not self._ended.wait(BEAT_SECONDS):
            n_beats += 1
            # A beat that fails is made up for by the next one; a lease that was taken over is not taken back.
            with contextlib.suppress(DataStackError):
                if not self._holds(self._read()):
                    return
                if not self._ended.is_set():
                    self._store.put(self._path, self._value(n_beats))

    def _is_left_to_us(self) -> bool:
        """Whether the lease that is there is ours after all (the answer was lost), or lapsed; then it is ours now."""
        value, now = self._read(), time.monotonic()
        if self._holds(value):
            return True
        if not value and self._is_created():
            return True
        if self._seen is None or value != self._seen[0]:
            self._seen = value, now
        if not is_left_by_the_dead(value) and now - self._seen[1] < LIFE_SECONDS:
            return False
        if self._read() == value:  # nobody else has taken it over meanwhile
            self._store.delete(self._path)
        return self._is_created() and self._holds(self._read())

    def _is_created(self) -> bool:
        return self._store.create(self._path, self._value(0))

    def _value(self, n_beats: int) -> bytes:
        return f"{self._nonce} {n_beats} {self._owner}".encode()

    def _holds(self, value: bytes) -> bool:
        return value.partition(b" ")[0] == self._nonce.encode()

    def _read(self) -> bytes:
        return self._store.read(self._path, _MOST_BYTES) or b""


def is_left_by_the_dead(value: object) -> bool:
    """Whether a lease of this value belongs to a process that is known to have ended; anybody may have written anything there."""
    return isinstance(value, bytes) and is_dead(value.rpartition(b" ")[2].decode("ascii", "replace"))
