"""Small JSON objects in files, behind a digest that tells whether they are whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, block_digest
from data_stack.util.interrupts import open_descriptor


def to_checked_json(record: Mapping[str, Any]) -> bytes:
    """Return a JSON object behind its digest, for :func:`read_checked_json`."""
    text = json.dumps(record).encode("ascii")
    return block_digest(text) + text


def read_checked_json(path: str) -> dict[str, Any]:
    """Return the JSON object in a file of :func:`to_checked_json`.

    Returns:
        An empty object if the file is missing, foreign or damaged.
    """
    try:
        with open_descriptor(path, os.O_NOFOLLOW | os.O_NONBLOCK) as handle:
            data = os.read(handle, BLOCK_BYTES)
        digest = data[:DIGEST_BYTES]
        text = data[DIGEST_BYTES:]
        if digest != block_digest(text):
            return {}
        record = json.loads(text)
    except (OSError, ValueError):
        return {}
    if not isinstance(record, dict):
        return {}
    return record
