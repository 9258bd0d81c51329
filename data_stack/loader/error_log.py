"""A file to which loaders append damaged samples."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

from data_stack.exception import ConfigError
from data_stack.loader.damaged_sample import DamagedSample

#: Each line is written by one call, at the end of the file, so that lines of several ranks do not
#: mix. On Windows, the ends of lines are left as they are.
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)


class ErrorLog:
    """A file of JSON lines, one for each damaged sample.

    The process of the loader writes it, not its workers. Several ranks may append to one file of a
    local disk. The file is closed between two lines, so that the log pickles.

    Args:
        path: the file, which need not exist; its folder must.

    Raises:
        ConfigError: the folder of the file does not exist, or ``path`` is a folder.
    """

    #: The absolute path of the file.
    _path: Path
    #: Whether the program was warned that the file cannot be written.
    _has_warned: bool

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).absolute()
        self._has_warned = False
        if self._path.is_dir() or not self._path.parent.is_dir():
            raise ConfigError(
                f"error_log must be a file in a folder that exists, got {str(path)!r:.200}"
            )

    def append(self, sample: DamagedSample, rank: int) -> None:
        """Append a sample, as a line that other programs see at once.

        Warns:
            RuntimeWarning: the file cannot be written; once for each log. The training goes on.
        """
        line = json.dumps(
            {
                "position": sample.position,
                "epoch": sample.epoch,
                "location": sample.location,
                "error": sample.error,
                "message": sample.message,
                "rank": rank,
            }
        )
        try:
            descriptor = os.open(self._path, _FLAGS, 0o666)
            try:
                os.write(descriptor, f"{line}\n".encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            if self._has_warned:
                return
            self._has_warned = True
            warnings.warn(
                f"damaged samples cannot be written to error_log={str(self._path)!r}: {error}. "
                "stats() and the state of the loader have them",
                RuntimeWarning,
                stacklevel=2,
            )


def parse_error_log(argument: Any) -> ErrorLog | None:
    """Return the log of the argument of a loader.

    Raises:
        ConfigError: it is no path, is the path of a folder, or the folder of the file does not
            exist.
    """
    if argument is None:
        return None
    if not isinstance(argument, (str, os.PathLike)):
        raise ConfigError(f"error_log must be the path of a file, or None, got {argument!r:.80}")
    return ErrorLog(argument)
