"""Finds files by glob patterns, as the package ``datasets`` does."""

from __future__ import annotations

import bisect
import fnmatch
import glob
import posixpath
import re
from collections.abc import Mapping, Sequence


def find_files(
    paths: Sequence[str],
    folder: str,
    patterns: Mapping[str, Sequence[str]],
    max_comparisons: int | None = None,
) -> dict[str, list[str]]:
    """Return the files that match patterns below a folder, pattern by pattern; each file once.

    A card may name 40,000 files one by one. So a pattern without wildcards is looked up, and one
    with a fixed beginning is compared only with the paths that begin so.

    Args:
        paths: paths of all files, sorted.
        folder: the folder that the patterns start from.
        patterns: the patterns of each split.
        max_comparisons: how many comparisons of a pattern with a path are allowed; None for
            patterns that are not a stranger's.

    Raises:
        ValueError: the patterns would take more comparisons.
    """
    whole_patterns = {}
    for split, patterns_of_split in patterns.items():
        whole_patterns[split] = [join_path(folder, pattern) for pattern in patterns_of_split]

    n_comparisons = 0
    for patterns_of_split in whole_patterns.values():
        for pattern in patterns_of_split:
            n_comparisons += len(_range_to_compare(pattern, paths))
    if max_comparisons is not None and n_comparisons > max_comparisons:
        raise ValueError(
            f"its patterns take more than {max_comparisons:,} comparisons with names of files"
        )

    known_paths = frozenset(paths)
    files_of_split = {}
    for split, patterns_of_split in whole_patterns.items():
        files: dict[str, None] = {}  # in the order in which they are found
        for pattern in patterns_of_split:
            if glob.has_magic(pattern):
                files.update(dict.fromkeys(_matching_paths(pattern, paths)))
            elif pattern in known_paths:
                files[pattern] = None
        files_of_split[split] = list(files)
    return files_of_split


def join_path(folder: str, path: str) -> str:
    """Return the path of a file below a folder, without ``.`` and ``..``."""
    return posixpath.normpath(posixpath.join(folder, path))


def _matching_paths(pattern: str, paths: Sequence[str]) -> list[str]:
    """Return those of sorted paths that match a pattern with wildcards."""
    path_pattern = PathPattern(pattern)
    matching = []
    for position in _range_to_compare(pattern, paths):
        if path_pattern.matches(paths[position]):
            matching.append(paths[position])
    return matching


def _range_to_compare(pattern: str, paths: Sequence[str]) -> range:
    """Return which of sorted paths begin as a pattern does, up to its first wildcard.

    The range of a pattern without wildcards is empty.
    """
    if not glob.has_magic(pattern):
        return range(0)
    beginning = re.split(r"[*?[]", pattern, maxsplit=1)[0]
    wildcards = pattern[len(beginning) :]
    if wildcards.startswith("**"):
        # "data/**" matches "data" too.
        beginning = beginning.rstrip("/")
    if not beginning:
        return range(len(paths))
    first = bisect.bisect_left(paths, beginning)
    end = bisect.bisect_left(paths, beginning + "\U0010ffff", lo=first)
    return range(first, end)


class PathPattern:
    """A glob pattern with ``**``, compared part by part.

    A regular expression would hang on a hostile pattern such as ``*a*a*a*b``. Hidden files, and
    folders such as ``__x__``, match only where the pattern names them.

    Args:
        pattern: the pattern, relative to the root of the repository.
    """

    #: The parts between slashes; at the end, ``**`` means all files below.
    _parts: list[str]

    #: The longest text that each matching path contains, for a quick check.
    _contained_text: str

    #: The numbers of the parts that name a hidden file, and of those that name a folder such as
    #: ``__x__``. A path must have as many.
    _n_special_parts: tuple[int, int]

    def __init__(self, pattern: str) -> None:
        self._parts = pattern.split("/")
        if self._parts[-1] == "**":
            self._parts.append("*")
        without_sets = re.sub(r"\[!?]?[^]]*]", "*", pattern)
        literal_texts = [text.strip("/") for text in re.split("[*?]", without_sets)]
        self._contained_text = max(literal_texts, key=len)
        self._n_special_parts = _count_special_parts(pattern)

    def matches(self, path: str) -> bool:
        """Return whether a path matches."""
        if self._contained_text not in path:
            return False
        return self._matches_parts(path) and _count_special_parts(path) == self._n_special_parts

    def _matches_parts(self, path: str) -> bool:
        """Return whether the parts of a path match those of the pattern.

        All ways to match are followed at once: a way is the number of parts of the pattern that
        the beginning of the path has taken.
        """
        n_parts = len(self._parts)
        ways = self._with_empty_folders({0})
        for name in path.split("/"):
            next_ways = set()
            for n_taken in ways:
                if n_taken == n_parts:
                    continue
                part = self._parts[n_taken]
                if part == "**":
                    next_ways.add(n_taken)  # it may match the next folder too
                elif fnmatch.fnmatchcase(name, part):
                    next_ways.add(n_taken + 1)
            ways = self._with_empty_folders(next_ways)
        return n_parts in ways

    def _with_empty_folders(self, ways: set[int]) -> set[int]:
        """Add the ways in which ``**`` matches no folder at all."""
        all_ways = set(ways)
        for n_taken in range(len(self._parts)):
            if n_taken in all_ways and self._parts[n_taken] == "**":
                all_ways.add(n_taken + 1)
        return all_ways


def _count_special_parts(path: str) -> tuple[int, int]:
    """Return how many parts are hidden, and how many folders are named as ``__x__`` is."""
    parts = path.split("/")
    n_hidden = sum(part.startswith(".") and part != "." for part in parts)
    n_private = sum(folder.startswith("__") for folder in parts[:-1])
    return n_hidden, n_private
