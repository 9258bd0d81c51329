"""Leases with a heartbeat, in any store of small values.

The lease of a dead process of this machine is free at once. For other machines only the heartbeat
counts, without comparing clocks: a lease expires when a waiting process has seen it unchanged for
``LIFE_SECONDS`` of its own monotonic clock.

A lease changes hands by one replacement of its value, which fails if the value has changed. So of
processes that take over an expired lease at once, one gets it, and a late heartbeat of the former
holder undoes nothing.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from dataclasses import dataclass
from typing import Final, Protocol

from data_stack.exception import DataStackError
from data_stack.io.storage_connectors.lease import Lease
from data_stack.io.storage_connectors.owners import is_dead, this_process
from data_stack.util.forks import call_in_forks

BEAT_SECONDS: Final = 2.0
#: A lease without a heartbeat for this time has expired.
LIFE_SECONDS: Final = 9.0
#: Garbage collection removes any lease that had no heartbeat for this time, by the clock of the
#: store.
MAX_SILENCE_SECONDS: Final = 60.0

#: Values are shorter. What other programs put in their place is cut short.
MAX_VALUE_BYTES: Final = 256
#: How long :meth:`HeartbeatLease.close` waits for a heartbeat that is under way.
_CLOSE_SECONDS: Final = 1.0
#: A lease is removed this soon after its last heartbeat, or not at all: no other process can have
#: taken it over yet.
_REMOVAL_SECONDS: Final = LIFE_SECONDS / 2


class LeaseStore(Protocol):
    """Stores leases: small values by name."""

    def read(self, path: str, max_bytes: int, /) -> bytes | None:
        """Return a value, cut short to ``max_bytes``; None if it does not exist."""

    def create(self, path: str, data: bytes, /) -> bool:
        """Write a value unless it exists. Of concurrent attempts, one succeeds.

        Returns:
            Whether it was written.
        """

    def replace(self, path: str, old: bytes, new: bytes, /) -> bool:
        """Replace a value unless it has changed. Of concurrent attempts, one succeeds.

        Args:
            path: the name of the value.
            old: the value as :meth:`read` has returned it.
            new: the value to write.

        Returns:
            Whether it was replaced.
        """

    def delete(self, path: str, /) -> None:
        """Remove a value if it exists."""


@dataclass(frozen=True, slots=True)
class _Sighting:
    """The value of a lease that another process holds, as this process has last read it.

    Attributes:
        value: the value.
        unchanged_since: when this value was read first, in seconds of the monotonic clock.
    """

    value: bytes
    unchanged_since: float


class HeartbeatLease(Lease):
    """A value that a thread renews while the lease is held.

    The lease ends with :meth:`close`, or expires with its process. A fork does not inherit it.

    Args:
        store: stores the value.
        path: the name of the value.
    """

    _store: LeaseStore
    _path: str
    #: The value of another holder; None before it was read.
    _sighting: _Sighting | None
    #: Identifies this lease in its value.
    _nonce: str
    #: How many values were made.
    _n_values: int
    _owner: str
    #: Set when the lease ends.
    _ended: threading.Event
    #: The thread that renews the value; None while the lease is not held.
    _heart: threading.Thread | None

    def __init__(self, store: LeaseStore, path: str) -> None:
        self._store = store
        self._path = path
        self._sighting = None
        self._begin_without_lease()
        call_in_forks(self._begin_without_lease)

    def acquire(self) -> bool:
        if self._heart is not None:
            return self._heart.is_alive()
        try:
            is_held = self._try_to_take()
        except DataStackError:
            # A lease only spares duplicate work: on errors, work without one.
            return True
        if is_held:
            self._heart = threading.Thread(target=self._beat, name="data_stack-lease", daemon=True)
            self._heart.start()
        return is_held

    def close(self) -> None:
        """Release the lease."""
        heart = self._heart
        self._heart = None
        if heart is None:
            return
        self._ended.set()
        heart.join(_CLOSE_SECONDS)
        if heart.is_alive():
            # The store does not answer. A late heartbeat could undo the deletion.
            return
        with contextlib.suppress(DataStackError):
            self._release()

    # ------------------------------------------------------------------ taking the lease

    def _begin_without_lease(self) -> None:
        """Set the state of a new object. A fork sets it too, as its parent keeps the lease."""
        self._nonce = secrets.token_hex(16)
        self._n_values = 0
        self._owner = this_process()
        self._ended = threading.Event()
        self._heart = None

    def _try_to_take(self) -> bool:
        # A process that has seen another holder only reads: its writes would delay the holder.
        if self._sighting is None and self._create():
            return True
        return self._take_over()

    def _take_over(self) -> bool:
        """Take the lease if its holder has left it or has expired. Return whether it is ours."""
        value = self._read()
        now = time.monotonic()
        if self._is_ours(value):
            # This process created the value before, but the answer of the store was lost.
            return True
        if not value and self._create():
            return True

        # Has the holder died, or been silent for too long?
        if self._sighting is None or value != self._sighting.value:
            self._sighting = _Sighting(value, now)
        is_silent = now - self._sighting.unchanged_since >= LIFE_SECONDS
        if not is_silent and not is_left_by_the_dead(value):
            return False
        return self._store.replace(self._path, value, self._make_value())

    def _create(self) -> bool:
        return self._store.create(self._path, self._make_value())

    # ------------------------------------------------------------------ holding the lease

    def _beat(self) -> None:
        """Renew the lease until it ends, or until another process has taken it over."""
        while not self._ended.wait(BEAT_SECONDS):
            # The next heartbeat makes up for a failed one.
            with contextlib.suppress(DataStackError):
                if not self._renew():
                    return

    def _renew(self) -> bool:
        """Change the value. Return whether this process still holds the lease."""
        value = self._read()
        return self._is_ours(value) and self._store.replace(self._path, value, self._make_value())

    def _release(self) -> None:
        """Remove the lease, unless another process has taken it over.

        It is renewed before. So no other process takes it over while it is being removed.
        """
        started_at = time.monotonic()
        if self._renew() and time.monotonic() - started_at < _REMOVAL_SECONDS:
            self._store.delete(self._path)

    def _make_value(self) -> bytes:
        """Return a new value. No two are equal."""
        self._n_values += 1
        return f"{self._nonce} {self._n_values} {self._owner}".encode()

    def _is_ours(self, value: bytes) -> bool:
        return value.partition(b" ")[0] == self._nonce.encode()

    def _read(self) -> bytes:
        return self._store.read(self._path, MAX_VALUE_BYTES) or b""


def is_left_by_the_dead(value: object) -> bool:
    """Return whether the value of a lease names a dead process. A malformed value names none."""
    if not isinstance(value, bytes):
        return False
    owner = value.rpartition(b" ")[2].decode("ascii", "replace")
    return is_dead(owner)
