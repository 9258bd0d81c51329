"""JSON documents that people read.

Non-ASCII letters stay as they are, and nothing is in them that a terminal would interpret.
"""

from __future__ import annotations

import json
from typing import Any


def json_text(document: Any) -> str:
    """Return a document as indented JSON, which any file in UTF-8 can hold and any terminal show.

    Texts of strangers may hold control characters, bidirectional characters and lone surrogates.
    These are escaped as JSON escapes them, so the parsed document is the same.
    """
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    """Return a character, escaped unless it is printable or a line break."""
    if character.isprintable() or character == "\n":
        return character
    return json.dumps(character).strip('"')
