"""Small JSON objects in files, each behind a digest that detects damage."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, block_digest
from data_stack.util.interrupts import open_descriptor


def to_checked_json(record: Mapping[str, Any]) -> bytes:
    """Return a JSON object behind its digest, for :func:`read_checked_json`.

    Raises:
        ValueError: the object takes more than 64 KiB, which would not be read back.
    """
    text = json.dumps(record).encode("ascii")
    if DIGEST_BYTES + len(text) > BLOCK_BYTES:
        raise ValueError(
            f"a record of {len(text):,} bytes does not fit into a block of {BLOCK_BYTES:,}"
        )
    return block_digest(text) + text


def read_checked_json(path: str) -> dict[str, Any]:
    """Return the JSON object in a file of :func:`to_checked_json`.

    Returns:
        An empty object if the file is missing or damaged, or if it is a file of something else.
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
