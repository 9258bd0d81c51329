"""Whether the folder of a cache can store anything."""

from __future__ import annotations

import logging
import os
import time
from typing import Final

logger = logging.getLogger(__package__)

#: After something could not be written, other processes are not waited for during this time, as
#: their results would not be found in the folder.
_PAUSE_SECONDS: Final = 10.0


class FolderHealth:
    """Logs what is wrong with the folder of a cache. Reads continue, more slowly.

    Args:
        path: the path of the folder, for messages.
    """

    _path: str
    #: The warnings that were logged.
    _logged_texts: set[str]
    #: Until when, by the monotonic clock, nothing is expected in the folder.
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
        """Log an error of the local disk.

        Args:
            action: what could not be done with the folder: ``"read"``, ``"write to"``, ``"use"``.
            error: the error.
        """
        self.pause()
        reason = error.strerror or type(error).__name__
        self.warn(f"cannot {action} it ({reason}); the remote is read instead")

    def pause(self) -> None:
        """Note that something could not be stored in the folder."""
        self._paused_until = time.monotonic() + _PAUSE_SECONDS

    def is_paused(self) -> bool:
        """Return whether something could not be stored in the folder a moment ago."""
        return time.monotonic() < self._paused_until


def make_cache_folder(path: str) -> None:
    """Create the folder of a cache, unless it exists. Only this user may access it.

    Raises:
        OSError: that is not possible.
    """
    # This is asked for each block that is stored. Creating a folder that exists takes four times as
    # long as looking.
    if not os.path.isdir(path):
        os.makedirs(path, mode=0o700, exist_ok=True)
