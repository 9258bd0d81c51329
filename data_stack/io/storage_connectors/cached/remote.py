"""The store behind a cache, and whether it answers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from data_stack.exception import ResourceNotFoundError, StorageUnavailableError
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector
from data_stack.util.forks import fork_lock

_Result = TypeVar("_Result")

#: A remote that answers within this time is asked directly. Sharing an answer with other processes
#: takes 0.1 ms, so it would save nothing.
_QUICK_SECONDS: Final = 0.001

#: After a request without an answer, the remote counts as silent for this multiple of the time that
#: the request took, up to a limit. So work without a network does not wait for a timeout each time.
_SILENCE_FACTOR: Final = 10.0
_MAX_SILENCE_SECONDS: Final = 300.0


class Remote:
    """Sends requests to the store behind a cache.

    Args:
        connector: the store.

    Attributes:
        connector: the store.
        is_quick: whether the store answered the last question within a millisecond.
    """

    connector: StorageConnector
    is_quick: bool
    #: Until when, by the monotonic clock, the store is not asked as it did not answer before.
    _silent_until: float
    #: Resources that were opened to describe them, for the next reader of each.
    _opened: dict[str, StreamedResource]
    #: Held while one of these resources is replaced.
    _lock: threading.Lock

    def __init__(self, connector: StorageConnector) -> None:
        self.connector = connector
        self.is_quick = False
        self._silent_until = 0.0
        self._opened = {}
        self._lock = fork_lock()

    def describe(self, identifier: str, *, to_open: bool) -> ResourceInfo:
        """Ask for the ``stat`` of a resource.

        Args:
            identifier: the resource.
            to_open: whether the caller is going to read the resource. If so, and if the store
                verifies what it reads, the same request opens the resource for
                :meth:`take_opened`. In other stores, such as a folder, an open resource would hold
                a descriptor until it is read, and would not tell when it was modified.

        Raises:
            StorageUnavailableError: the store did not answer.
            ResourceNotFoundError: the store has no such resource.
            FileNotFoundError: likewise, from the connector of a third party.
        """
        if to_open and self.connector.checks_reads:
            request = partial(self._open_and_describe, identifier)
        else:
            request = partial(self.connector.stat, identifier)
        asked_at = time.monotonic()
        info = self.ask(identifier, request)
        self.is_quick = time.monotonic() - asked_at < _QUICK_SECONDS
        return info

    def take_opened(self, identifier: str) -> StreamedResource | None:
        """Return the resource that :meth:`describe` has opened, if any. The caller closes it."""
        return self._opened.pop(identifier, None)

    def ask(self, identifier: str, request: Callable[[], _Result]) -> _Result:
        """Send a request.

        Args:
            identifier: the resource that the request is about.
            request: sends the request, and returns the answer.

        Raises:
            StorageUnavailableError: the store did not answer.
            ResourceNotFoundError: the store has no such resource.
            FileNotFoundError: likewise, from the connector of a third party.
        """
        started_at = time.monotonic()
        try:
            answer = request()
        except (FileNotFoundError, ResourceNotFoundError):
            raise
        except OSError as error:
            failed_at = time.monotonic()
            silence_seconds = _SILENCE_FACTOR * (failed_at - started_at)
            self._silent_until = failed_at + min(silence_seconds, _MAX_SILENCE_SECONDS)

            reason = str(error) or type(error).__name__
            raise StorageUnavailableError(
                f"{reason.rstrip('.')}. {identifier!r}, or a part of it, is not in the cache; "
                "call fetch() while the remote answers.",
                error.errno,
            ) from error
        self._silent_until = 0.0
        return answer

    def is_silent(self) -> bool:
        """Return whether the store left a request unanswered a moment ago."""
        return time.monotonic() < self._silent_until

    def is_unmounted(self) -> bool:
        """Return whether the store is a folder that does not exist.

        Its disk is not mounted, perhaps. Without this check, the store would look empty.
        """
        root_path = getattr(self.connector, "root_path", None)
        if not isinstance(root_path, str):
            return False
        return not os.path.isdir(root_path)

    def _open_and_describe(self, identifier: str) -> ResourceInfo:
        resource = self.connector.get_resource(identifier)
        with self._lock:
            unused = self._opened.pop(identifier, None)
            self._opened[identifier] = resource
        # Nobody has taken the resource that was opened before.
        if unused is not None:
            unused.close()
        return ResourceInfo(identifier, resource.size, resource.sha256)
