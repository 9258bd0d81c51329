"""Makes names of resources and versions from texts of a document."""

from __future__ import annotations

import re
from typing import Final

#: Number of characters of a text that are kept.
_MAX_SLUG_CHARACTERS: Final = 60

#: The name for a text without any character that is allowed, and for a missing version.
_EMPTY_SLUG: Final = "0"


def slug(text: object) -> str:
    """Return a text as a part of an identifier: ``"Fashion MNIST!"`` becomes ``Fashion-MNIST``."""
    allowed = re.sub(r"[^A-Za-z0-9_.]+", "-", str(text or ""))
    name = allowed.strip("-.")[:_MAX_SLUG_CHARACTERS].rstrip(".")
    return name or _EMPTY_SLUG
