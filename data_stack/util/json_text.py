"""JSON documents that people read: non-ASCII letters as they are, and nothing that a terminal would interpret."""

from __future__ import annotations

import json
from typing import Any


def json_text(document: Any) -> str:
    """A document as indented JSON, which any file in UTF-8 can hold and any terminal can show.

    Control and bidirectional characters and lone surrogates, which texts of strangers may hold, are escaped as JSON does it:
    the parsed document is the same.
    """
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]
        for character in text
    )
