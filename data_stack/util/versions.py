"""Puts versions of packages and datasets in order."""

from __future__ import annotations

import re
from typing import Any

from packaging.version import InvalidVersion, Version

_NUMBER = re.compile(r"(\d+)", re.ASCII)

#: A number of more digits counts as text: int() takes quadratic time, and refuses 4,300 digits.
_MAX_DIGITS = 99


def version_key(version: str) -> tuple[Any, ...]:
    """Return a key that sorts versions as people do: 9.0.0 before 10.0.0.

    Versions of PEP 440 are compared as pip compares them. Other names, which a dataset may have as
    its version, come before all of those. They are compared by their texts and numbers: ``rev-9``
    comes before ``rev-10``.
    """
    try:
        return 1, Version(version), version
    except InvalidVersion:
        parts = [_part_key(part) for part in _NUMBER.split(version)]
        return 0, parts, version


def _part_key(part: str) -> tuple[int, int, str]:
    """Return a key that sorts the parts of a name: texts first, then numbers by their size."""
    is_number = part.isascii() and part.isdigit() and len(part) <= _MAX_DIGITS
    if is_number:
        return 1, int(part), ""
    return 0, 0, part
