"""Lists the files below the folder of a document that a FileSet includes."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from data_stack.exception import ConfigError, MaliciousFilePathError
from data_stack.io.redaction import hide_credentials
from data_stack.io.web import is_web
from data_stack_croissant.globs import includes_of, matches

#: Files of a FileSet.
MAX_FILES: Final = 100_000
#: Entries of a folder that are searched for them.
_MAX_ENTRIES: Final = 1_000_000

_WILDCARD: Final = re.compile(r"[*?[]")
#: A character that :func:`glob.escape` escaped.
_ESCAPED: Final = re.compile(r"\[([*?[])\]")


def list_folder_files(node: Any, place: str) -> list[str]:
    """Return the paths below the folder of a document that a FileSet includes, sorted.

    There are at most :data:`MAX_FILES` and one more, by which the caller notices that there are too
    many.

    Args:
        node: the FileSet, which is in no container.
        place: path or URL of the document.

    Raises:
        ConfigError: the document is on a web server, and the FileSet does not name its files one by
            one; or the folder has too many files.
        MaliciousFilePathError: a pattern begins outside of the folder.
    """
    includes = includes_of(node)
    if not is_web(place):
        paths = _list_folder(Path(place).parent, includes)
        return sorted(itertools.islice(paths, MAX_FILES + 1))

    names = [_ESCAPED.sub(r"\1", pattern) for pattern in includes]
    has_wildcards = any(_WILDCARD.search(name) for name in names)
    if not names or has_wildcards:
        raise ConfigError(
            f"{node.uuid!r} of {hide_credentials(place)} is a FileSet without containedIn, "
            f"but the files of a web server cannot be listed; copy the document and its files to "
            f"a folder, or write full names"
        )
    return sorted(names)


def _list_folder(folder: Path, patterns: Sequence[str]) -> Iterator[str]:
    """Yield the paths below a folder that match, with ``/``."""
    starts = {_folder_of_pattern(pattern) for pattern in patterns}
    for start in starts:
        if not (folder / start).resolve().is_relative_to(folder):
            raise MaliciousFilePathError(
                f"a FileSet includes {start!r:.200}, which is not below the folder of its document"
            )
    n_entries = 0
    # The folders that no pattern can match are not searched.
    for parent, _, names in os.walk(folder / os.path.commonpath(starts or [""])):
        n_entries += len(names) + 1
        if n_entries > _MAX_ENTRIES:
            raise ConfigError(
                f"{folder} has more than {_MAX_ENTRIES:,} files, the limit for a FileSet"
            )
        for name in names:
            path = (Path(parent) / name).relative_to(folder).as_posix()
            if matches(path, patterns):
                yield path


def _folder_of_pattern(pattern: str) -> str:
    """Return the folder in which all files that match a glob lie."""
    without_wildcards = _WILDCARD.split(pattern)[0]
    return without_wildcards.rpartition("/")[0]
