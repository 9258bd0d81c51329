"""Names of resources and versions, made of texts of a document."""

from __future__ import annotations

import re
from typing import Final

#: Characters of a text that are kept.
_MAX_SLUG_CHARACTERS: Final = 60


def slug(text: object) -> str:
    """Return a text as a part of an identifier."""
    allowed = re.sub(r"[^A-Za-z0-9_.]+", "-", str(text or 0))
    return allowed.strip("-.")[:_MAX_SLUG_CHARACTERS].rstrip(".") or "0"
