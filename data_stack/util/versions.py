"""Puts versions of packages and datasets in order."""

from __future__ import annotations

import re
from typing import Any

from packaging.version import InvalidVersion, Version

_NUMBER = re.compile(r"(\d+)", re.ASCII)


def version_key(version: str) -> tuple[Any, ...]:
    """A key that sorts versions as people do: 9.0.0 before 10.0.0.

    Versions of PEP 440 are compared as pip does it. Other names, which a dataset may have as its version, come before them, by
    their texts and numbers: ``rev-9`` before ``rev-10``.
    """
    try:
        return 1, Version(version), version
    except InvalidVersion:
        parts = []
        for part in _NUMBER.split(version):
            is_number = part.isascii() and part.isdigit() and len(part) < 100
            parts.append((1, int(part), "") if is_number else (0, 0, part))
        return 0, parts, version
