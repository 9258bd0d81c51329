"""Whether the folder of a cache takes anything."""

from __future__ import annotations

import logging
import time
from typing import Final

logger = logging.getLogger(__package__)

#: After something could not be written, other processes are not waited for during this time, as
#: their results would not be found in the folder.
_PAUSE_SECONDS: Final = 10.0


class FolderHealth:
    """What is wrong with the folder of a cache. It costs speed, but reads do not fail.

    Args:
        path: the path of the folder, for messages.
    """

    _path: str
    #: The warnings that were logged.
    _logged_texts: set[str]
    #: Until when, by the monotonic clock, the folder is taken to keep nothing.
    _paused_until: float

    def __init__(self, path: str) -> None:
        self._path = path
        self._logged_texts = set()
        self._paused_until = 0.0

    def warn(self, text: str, *, once: bool = True) -> None:
        """Log a warning; with ``once`` only the first time."""
        if once and text in self._logged_texts:
            return
        self._logged_texts.add(text)
        logger.warning("cache at %s: %s", self._path, text)

    def report(self, action: str, error: OSError) -> None:
        """Log an error of the local disk. Readers go on with the remote.

        Args:
            action: what could not be done: ``"read"``, ``"write to"``.
            error: the error.
        """
        self.pause()
        reason = error.strerror or type(error).__name__
        self.warn(f"cannot {action} it ({reason}); the remote is read instead")

    def pause(self) -> None:
        """Note that the folder could not keep something."""
        self._paused_until = time.monotonic() + _PAUSE_SECONDS

    def is_paused(self) -> bool:
        """Return whether the folder could not keep something a moment ago."""
        return time.monotonic() < self._paused_until
