"""The globs by which the FileSets of a document select files."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import Any

import numpy as np


def includes_of(node: Any) -> list[str]:
    """Return the globs of the files that a FileSet includes."""
    return _globs_of(node, "includes")


def excludes_of(node: Any) -> list[str]:
    """Return the globs of the files that a FileSet excludes."""
    return _globs_of(node, "excludes")


def _globs_of(node: Any, attribute: str) -> list[str]:
    # A FileObject has neither attribute; mlcroissant leaves a single glob as it is written.
    globs = np.atleast_1d(getattr(node, attribute, None) or [])
    return [str(glob) for glob in globs]


def matches(path: str, globs: Iterable[str]) -> bool:
    """Return whether a path matches one of the globs, whose ``*`` also stands for ``/``."""
    return any(fnmatch.fnmatchcase(path, glob) for glob in globs)


def is_selected(path: str, includes: Iterable[str], excludes: Iterable[str]) -> bool:
    """Return whether a path matches a glob that includes, and none that excludes."""
    return matches(path, includes) and not matches(path, excludes)
