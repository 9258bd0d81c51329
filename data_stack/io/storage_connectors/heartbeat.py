"""Leases with a heartbeat, in any store of small values.

The lease of a dead process of this machine is free at once. For other machines only the heartbeat counts, without comparing
clocks: a lease expires when a waiting process has seen it unchanged for ``LIFE_SECONDS`` of its own monotonic clock.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from typing import Final, Protocol

from data_stack.exception import DataStackError
from data_stack.io.storage_connectors.lease import Lease
from data_stack.io.storage_connectors.owners import is_dead, this_process
from data_stack.util.forks import call_in_forks

BEAT_SECONDS: Final = 2.0
#: A lease without a heartbeat for this time has expired.
LIFE_SECONDS: Final = 9.0
#: Garbage collection removes a lease that had no heartbeat for this time, by the store's clock, whoever held it.
MAX_SILENCE_SECONDS: Final = 60.0


class LeaseStore(Protocol):
    """Stores leases: small values by name."""

    def read(self, path: str, most: int, /) -> bytes | None:
        """The first bytes of a value; None if it does not exist."""

    def create(self, path: str, data: bytes, /) -> bool:
        """Write a value unless it exists; of concurrent attempts one succeeds."""

    def put(self, path: str, data: bytes, /) -> None:
        """Replace a value."""

    def delete(self, path: str, /) -> None:
        """Remove a value if it exists."""


class HeartbeatLease(Lease):
    """A value that a thread renews while the lease is held. It ends with :meth:`close`, or expires with its process.

    A fork does not inherit the lease.

    Args:
        store: stores the value.
        path: name of the value.
    """

    def __init__(self, store: LeaseStore, path: str) -> None:
        self._store, self._path = store, path
        #: The value at the last look, and since when it is unchanged.
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
            # Waiters only read; their writes would delay the holder.
            if not ((self._seen is None and self._is_created()) or self._is_left_to_us()):
                return False
        except DataStackError:
            # A lease only spares duplicate work: on errors, work without one.
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
        heart.join(1.0)
        if (
            not heart.is_alive()
        ):  # else the store does not answer, and a late heartbeat could undo the deletion
            with contextlib.suppress(DataStackError):
                if self._holds(self._read()):
                    self._store.delete(self._path)

    def _beat(self) -> None:
        n_beats = 0
        while not self._ended.wait(BEAT_SECONDS):
            n_beats += 1
            # The next beat makes up for a failed one; a lease that another process took over is lost.
            with contextlib.suppress(DataStackError):
                if not self._holds(self._read()):
                    return
                if not self._ended.is_set():
                    self._store.put(self._path, self._value(n_beats))

    def _is_left_to_us(self) -> bool:
        """Whether the stored lease is ours (its answer was lost), or expired, so that we took it over."""
        value, now = self._read(), time.monotonic()
        if self._holds(value):
            return True
        if not value and self._is_created():
            return True
        if self._seen is None or value != self._seen[0]:
            self._seen = value, now
        if not is_left_by_the_dead(value) and now - self._seen[1] < LIFE_SECONDS:
            return False
        if self._read() == value:  # no other process has taken it over meanwhile
            self._store.delete(self._path)
        return self._is_created() and self._holds(self._read())

    def _is_created(self) -> bool:
        return self._store.create(self._path, self._value(0))

    def _value(self, n_beats: int) -> bytes:
        return f"{self._nonce} {n_beats} {self._owner}".encode()

    def _holds(self, value: bytes) -> bool:
        return value.partition(b" ")[0] == self._nonce.encode()

    def _read(self) -> bytes:
        return self._store.read(self._path, 256) or b""


def is_left_by_the_dead(value: object) -> bool:
    """Whether a lease value, which may be malformed, belongs to a dead process."""
    return isinstance(value, bytes) and is_dead(
        value.rpartition(b" ")[2].decode("ascii", "replace")
    )
