"""Lists the files below the folder of a document that a FileSet includes."""

from __future__ import annotations

import itertools
import os
import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from data_stack.exception import ConfigError, MaliciousFilePathError
from data_stack.io.redaction import hide_credentials
from data_stack.io.web import is_web
from data_stack_croissant.globs import (
    Globs,
    folder_of_glob,
    has_wildcards,
    includes_of,
    unescape,
)

#: Limit of the files of a FileSet.
MAX_FILES: Final = 100_000
#: Limit of the files and folders that are searched for them.
_MAX_ENTRIES: Final = 1_000_000


def list_folder_files(node: Any, place: str) -> list[str]:
    """Return the paths below the folder of a document that a FileSet includes, sorted.

    Args:
        node: the FileSet, which is contained in no other node.
        place: path or URL of the document.

    Returns:
        The paths. If there are more than :data:`MAX_FILES`, one more than that is returned, so that
        the caller can refuse them.

    Raises:
        ConfigError: the document is on a web server, and the FileSet does not name its files one by
            one; or the folder has too many files.
        MaliciousFilePathError: a glob begins outside of the folder.
    """
    includes = includes_of(node)
    if not is_web(place):
        paths = _list_folder(Path(place).parent, includes)
        return sorted(itertools.islice(paths, MAX_FILES + 1))

    if not includes or any(has_wildcards(glob) for glob in includes):
        raise ConfigError(
            f"{node.uuid!r} of {hide_credentials(place)} is a FileSet without containedIn, "
            f"but the files of a web server cannot be listed; copy the document and its files to "
            f"a folder, or write full names"
        )
    return sorted(unescape(glob) for glob in includes)


def _list_folder(folder: Path, includes: Sequence[str]) -> Iterator[str]:
    """Yield the paths below a folder that match a glob, with ``/`` between their parts.

    Raises:
        ConfigError: the folder has too many files.
        MaliciousFilePathError: a glob begins outside of the folder.
    """
    starts = {folder_of_glob(glob) for glob in includes}
    for start in starts:
        if not _is_below(folder, start):
            raise MaliciousFilePathError(
                f"a FileSet includes {start!r:.200}, which is not below the folder of its document"
            )
    globs = Globs(includes)
    n_entries = 0
    # Folders in which no path can match are not searched.
    common_start = posixpath.commonpath(starts or [""])
    for parent, _, names in os.walk(folder / common_start):
        n_entries += len(names) + 1
        if n_entries > _MAX_ENTRIES:
            raise ConfigError(
                f"{folder} has more than {_MAX_ENTRIES:,} files, the limit for a FileSet"
            )
        for name in names:
            path = (Path(parent) / name).relative_to(folder).as_posix()
            if globs.match(path):
                yield path


def _is_below(folder: Path, path: str) -> bool:
    """Return whether a relative path of a document leads into a folder, or to it."""
    if "\0" in path or Path(path).is_absolute():
        return False
    return (folder / path).resolve().is_relative_to(folder)
