"""Asks the remote of a cache, and notices when it is away."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from data_stack.exception import ResourceNotFoundError, StorageUnavailableError
from data_stack.io.storage_connectors.cached.folder import CacheFolder
from data_stack.io.storage_connectors.connector import StorageConnector

__all__ = ["Remote"]

_Answer = TypeVar("_Answer")
#: A remote that let us wait is not asked again, for what is held here, for so many times as long.
_SILENCE_FACTOR, _MOST_SILENT_SECONDS = 10.0, 300.0


class Remote:
    """A store as a cache sees it, and the folder in which it keeps what came from there.

    Attributes:
        store: the connector.
        folder: the local side.
        counts: what happened so far.
    """

    def __init__(self, store: StorageConnector, folder: CacheFolder) -> None:
        self.store, self.folder = store, folder
        self.counts: Counter[str] = Counter(hits=0, misses=0, fetched_bytes=0)
        self._silent_until = 0.0

    def ask(self, identifier: str, request: Callable[[], _Answer]) -> _Answer:
        """The answer of the store to a request.

        Raises:
            StorageUnavailableError: it is away, and what was asked for is not to be had.
        """
        start = time.monotonic()
        try:
            answer = request()
        except (FileNotFoundError, ResourceNotFoundError):
            raise
        except OSError as error:
            # Waiting for the timeout each time that a resource is opened would be no way to work offline.
            waited = time.monotonic() - start
            self._silent_until = time.monotonic() + min(_SILENCE_FACTOR * waited, _MOST_SILENT_SECONDS)
            raise StorageUnavailableError(
                f"{(str(error) or type(error).__name__).rstrip('.')}. {identifier!r}, or the part asked for, is not in the cache "
                f"at {self.folder.path} either; fetch() brings resources there while the remote answers.",
                error.errno,
            ) from error
        self._silent_until = 0.0
        return answer

    def is_silent(self) -> bool:
        """Whether the store let us wait in vain a moment ago."""
        return time.monotonic() < self._silent_until

    def is_gone(self) -> bool:
        """Whether the store is a folder that is not there: a disk or share that is not mounted looks like an empty store."""
        root = getattr(self.store, "root_path", None)
        return isinstance(root, str) and not os.path.isdir(root)
