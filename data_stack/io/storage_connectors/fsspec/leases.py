"""Leases of an object store: an object that its holder keeps changing.

The lease of a process of this machine that died is free at once. Of others only their heartbeat is known, and clocks of several
machines are never compared: a lease has lapsed when somebody who wants it has seen it unchanged for longer than any holder lets
it be, by his own monotonic clock.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from typing import TYPE_CHECKING, Final

from data_stack.exception import DataStackError
from data_stack.io.storage_connectors.connector import Lease
from data_stack.io.storage_connectors.owners import is_dead, this_process

if TYPE_CHECKING:
    from data_stack.io.storage_connectors.fsspec.remote import RemoteFiles

#: A holder changes its object so often …
BEAT_SECONDS: Final = 2.0
#: … and is taken for dead once it has not for so long.
LAPSE_SECONDS: Final = 9.0
#: A heartbeat that is under way when its lease is given back may take so long; if it takes longer, the lease lapses.
_LAST_BEAT_SECONDS: Final = 1.0
_MOST_BYTES: Final = 256


class ObjectLease(Lease):
    """A lease on an object of its own.

    Args:
        files: the store.
        path: of the lease's object.
        seen: what waiting leases of this connector saw last, and when: ``{path: (content, seconds)}``.
    """

    def __init__(self, files: RemoteFiles, path: str, seen: dict[str, tuple[bytes, float]]) -> None:
        self._files, self._path, self._seen = files, path, seen
        self._begin()

    def _begin(self) -> None:
        self._nonce, self._owner = secrets.token_hex(16), this_process()
        self._pid = os.getpid()
        self._end = threading.Event()
        self._heart: threading.Thread | None = None

    def acquire(self) -> bool:
        if self._pid != os.getpid():  # a fork inherits no lease, and no thread that could keep it
            self._begin()
        if self._heart is not None:
            return self._heart.is_alive()
        try:
            # Who waits only looks: of sixteen that wait, each write would keep the holder waiting too.
            is_ours = (self._path not in self._seen and self._is_created()) or self._is_left_to_us()
        except DataStackError:
            # No correctness rests on a lease: who cannot write leases, or cannot be told, works without.
            return True
        if is_ours:
            self._heart = threading.Thread(target=self._beat, name="data_stack-lease", daemon=True)
            self._heart.start()
        return is_ours

    def close(self) -> None:
        """Give the lease back."""
        if self._heart is None or self._pid != os.getpid():
            return
        heart, self._heart = self._heart, None
        self._end.set()
        heart.join(_LAST_BEAT_SECONDS)
        if heart.is_alive():
            return  # the store does not answer; what it may still do now, a heartbeat could undo
        with contextlib.suppress(DataStackError):
            if self._holds(self._read()):
                self._files.delete(self._path)

    def _is_left_to_us(self) -> bool:
        """Whether the lease that is there is ours after all (the answer was lost), or lapsed; then it is ours now."""
        content, now = self._read(), time.monotonic()
        if self._holds(content):
            return True
        if not content and self._is_created():
            self._seen.pop(self._path, None)
            return True
        last, since = self._seen.get(self._path, (None, now))
        if content != last:
            self._seen[self._path] = (content, now)
        if not is_dead(_owner_of(content)) and (content != last or now - since < LAPSE_SECONDS):
            return False
        if self._read() == content:  # nobody else has taken it over meanwhile
            self._files.delete(self._path)
        self._seen.pop(self._path, None)
        return self._is_created() and self._holds(self._read())

    def _is_created(self) -> bool:
        return self._files.create(self._path, self._content(0))

    def _beat(self) -> None:
        n_beats = 0
        while not self._end.wait(BEAT_SECONDS):
            n_beats += 1
            # A beat that fails is made up for by the next one; a lease that was taken over is not taken back.
            with contextlib.suppress(DataStackError):
                if not self._holds(self._read()):
                    return
                if not self._end.is_set():
                    self._files.put(self._path, self._content(n_beats))

    def _content(self, n_beats: int) -> bytes:
        return f"{self._nonce} {n_beats} {self._owner}".encode()

    def _holds(self, content: bytes) -> bool:
        return content.partition(b" ")[0] == self._nonce.encode()

    def _read(self) -> bytes:
        return self._files.read(self._path, _MOST_BYTES) or b""


def _owner_of(content: bytes) -> str:
    """The process that holds a lease of this content; whoever can write to the store can write anything."""
    return content.rpartition(b" ")[2].decode("ascii", "replace")
