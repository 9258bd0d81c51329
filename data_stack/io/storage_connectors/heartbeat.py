"""Leases that live as long as their holder is heard of."""

from __future__ import annotations

import contextlib
import secrets
import threading
from abc import abstractmethod
from typing import ClassVar, Final

from data_stack.exception import DataStackError
from data_stack.io.storage_connectors.connector import Lease
from data_stack.io.storage_connectors.owners import this_process
from data_stack.util.forks import call_in_forks

__all__ = ["LIFE_SECONDS", "HeartbeatLease"]

BEAT_SECONDS: Final = 2.0
#: A holder that is not heard of for so long has lost its lease.
LIFE_SECONDS: Final = 9.0


class HeartbeatLease(Lease):
    """A lease that a thread renews while it is held. It ends with :meth:`close`, or when its process is not heard of any more.

    A fork inherits no lease, and no thread that could keep it.
    """

    #: How long :meth:`close` waits for a heartbeat that is under way; after that the lease is left to lapse. None: to its end.
    last_beat_seconds: ClassVar[float | None] = None

    def __init__(self) -> None:
        self._begin()
        call_in_forks(self._begin)

    def _begin(self) -> None:
        self._nonce, self._owner = secrets.token_hex(16), this_process()
        self._ended = threading.Event()
        self._heart: threading.Thread | None = None

    def acquire(self) -> bool:
        if self._heart is not None:
            return self._heart.is_alive()
        if not self._take():
            return False
        self._heart = threading.Thread(target=self._beat, name="data_stack-lease", daemon=True)
        self._heart.start()
        return True

    def close(self) -> None:
        """Give the lease back."""
        if self._heart is None:
            return
        heart, self._heart = self._heart, None
        self._ended.set()
        heart.join(self.last_beat_seconds)
        if not heart.is_alive():  # else the store does not answer, and what it may still do now a heartbeat could undo
            with contextlib.suppress(DataStackError):
                self._give_back()

    def _beat(self) -> None:
        n_beats = 0
        while not self._ended.wait(BEAT_SECONDS):
            n_beats += 1
            # A beat that fails is made up for by the next one; a lease that was taken over is not taken back.
            with contextlib.suppress(DataStackError):
                if not self._keep(n_beats):
                    return

    @abstractmethod
    def _take(self) -> bool:
        """Take the lease if it is free; whether it is held now."""

    @abstractmethod
    def _keep(self, n_beats: int) -> bool:
        """Tell the others that the holder lives; False if the lease was lost."""

    @abstractmethod
    def _give_back(self) -> None:
        """Free the lease if it is still held."""
