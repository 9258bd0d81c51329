"""The globs by which the FileSets of a document select files."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from typing import Any, Final

from data_stack.exception import ConfigError
from data_stack_croissant.json_path import MAX_PATTERN_LENGTH

#: Limit of the globs with wildcards of one FileSet, each of which is compared with each file.
_MAX_WILDCARD_GLOBS: Final = 1000

#: What a glob may contain besides characters that stand for themselves.
_WILDCARD: Final = re.compile(r"[*?[]")
#: A character as :func:`glob.escape` writes it.
_ESCAPED: Final = re.compile(r"\[([*?[])\]")


class Globs:
    """Some globs, of which a path may match any. ``*`` also stands for ``/``.

    A glob without wildcards is the name of a file. Documents of this package name each file in this
    way, so names are looked up: to compare each name with each file takes minutes for 10,000 files.

    Args:
        globs: the globs; a character may be escaped as by :func:`glob.escape`.
    """

    #: The globs without wildcards, unescaped.
    _names: set[str]
    #: The other globs, as regular expressions.
    _patterns: list[re.Pattern[str]]

    def __init__(self, globs: Iterable[str]) -> None:
        self._names = set()
        self._patterns = []
        for glob in globs:
            if has_wildcards(glob):
                self._patterns.append(re.compile(fnmatch.translate(glob)))
            else:
                self._names.add(unescape(glob))

    def match(self, path: str) -> bool:
        """Return whether a path matches one of the globs."""
        return path in self._names or any(pattern.match(path) for pattern in self._patterns)


class FileSelection:
    """The files that a FileObject or FileSet selects.

    Args:
        includes: globs of the files to select.
        excludes: globs of the files to leave out of them.
    """

    _includes: Globs
    _excludes: Globs

    def __init__(self, includes: Iterable[str], excludes: Iterable[str]) -> None:
        self._includes = Globs(includes)
        self._excludes = Globs(excludes)

    def selects(self, path: str) -> bool:
        """Return whether a path matches a glob that includes, and none that excludes."""
        return self._includes.match(path) and not self._excludes.match(path)


def has_wildcards(glob: str) -> bool:
    """Return whether a glob may match several paths."""
    return _WILDCARD.search(_ESCAPED.sub("", glob)) is not None


def unescape(glob: str) -> str:
    """Return a glob without wildcards as the path that it matches."""
    return _ESCAPED.sub(r"\1", glob)


def folder_of_glob(glob: str) -> str:
    """Return the folder in which all files that match a glob lie; empty if that is any folder."""
    start = _WILDCARD.split(glob)[0]
    return start.rpartition("/")[0]


def includes_of(node: Any) -> list[str]:
    """Return the globs of the files that a FileSet includes; none of a FileObject."""
    return _globs_of(node, "includes")


def excludes_of(node: Any) -> list[str]:
    """Return the globs of the files that a FileSet excludes; none of a FileObject."""
    return _globs_of(node, "excludes")


def check_globs(node: Any) -> None:
    """Check that the globs of a FileSet can be compared with many files in a short time.

    Raises:
        ConfigError: a glob is too long, or too many have wildcards.
    """
    globs = includes_of(node) + excludes_of(node)
    for glob in globs:
        if len(glob) > MAX_PATTERN_LENGTH:
            raise ConfigError(
                f"a glob of {node.uuid!r:.200} has more than {MAX_PATTERN_LENGTH} characters, "
                f"which is not read"
            )
    n_with_wildcards = sum(has_wildcards(glob) for glob in globs)
    if n_with_wildcards > _MAX_WILDCARD_GLOBS:
        raise ConfigError(
            f"{node.uuid!r:.200} has {n_with_wildcards:,} globs with wildcards, but at most "
            f"{_MAX_WILDCARD_GLOBS:,} are read: name the files, or divide it into several FileSets"
        )


def _globs_of(node: Any, attribute: str) -> list[str]:
    globs = getattr(node, attribute, None)
    if globs is None:
        return []
    # mlcroissant leaves a single glob as it is written.
    if isinstance(globs, str):
        return [globs]
    return [str(glob) for glob in globs]
