"""Leases of an object store: an object that its holder keeps changing.

The lease of a process of this machine that died is free at once. Of others only their heartbeat is known, and clocks of several
machines are never compared: a lease has lapsed when somebody who wants it has seen it unchanged for longer than any holder lets
it be, by his own monotonic clock.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from data_stack.exception import DataStackError
from data_stack.io.storage_connectors.heartbeat import LIFE_SECONDS, HeartbeatLease
from data_stack.io.storage_connectors.owners import is_dead

if TYPE_CHECKING:
    from data_stack.io.storage_connectors.fsspec.remote import RemoteFiles

_MOST_BYTES: Final = 256


class ObjectLease(HeartbeatLease):
    """A lease on an object of its own.

    Args:
        files: the store.
        path: of the lease's object.
        seen: what waiting leases of this connector saw last, and when: ``{path: (content, seconds)}``.
    """

    last_beat_seconds = 1.0

    def __init__(self, files: RemoteFiles, path: str, seen: dict[str, tuple[bytes, float]]) -> None:
        super().__init__()
        self._files, self._path, self._seen = files, path, seen

    def acquire(self) -> bool:
        try:
            return super().acquire()
        except DataStackError:
            # No correctness rests on a lease: who cannot write leases, or cannot be told, works without.
            return True

    def _take(self) -> bool:
        # Who waits only looks: of sixteen that wait, each write would keep the holder waiting too.
        return (self._path not in self._seen and self._is_created()) or self._is_left_to_us()

    def _keep(self, n_beats: int) -> bool:
        if not self._holds(self._read()):
            return False
        if not self._ended.is_set():
            self._files.put(self._path, self._content(n_beats))
        return True

    def _give_back(self) -> None:
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
        if not is_dead(_owner_of(content)) and (content != last or now - since < LIFE_SECONDS):
            return False
        if self._read() == content:  # nobody else has taken it over meanwhile
            self._files.delete(self._path)
        self._seen.pop(self._path, None)
        return self._is_created() and self._holds(self._read())

    def _is_created(self) -> bool:
        return self._files.create(self._path, self._content(0))

    def _content(self, n_beats: int) -> bytes:
        return f"{self._nonce} {n_beats} {self._owner}".encode()

    def _holds(self, content: bytes) -> bool:
        return content.partition(b" ")[0] == self._nonce.encode()

    def _read(self) -> bytes:
        return self._files.read(self._path, _MOST_BYTES) or b""


def _owner_of(content: bytes) -> str:
    """The process that holds a lease of this content; whoever can write to the store can write anything."""
    return content.rpartition(b" ")[2].decode("ascii", "replace")
