"""Small JSON files behind a digest of their text."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, block_digest
from data_stack.util.interrupts import open_descriptor


def to_checked_json(record: Mapping[str, Any]) -> bytes:
    """A JSON object behind its digest, for :func:`read_checked_json`."""
    text = json.dumps(record).encode("ascii")
    return block_digest(text) + text


def read_checked_json(path: str) -> dict[str, Any]:
    """The JSON object in a file of :func:`to_checked_json`; an empty one if the file is missing, foreign or damaged."""
    with contextlib.suppress(OSError, ValueError):
        with open_descriptor(path, os.O_NOFOLLOW | os.O_NONBLOCK) as handle:
            data = os.read(handle, BLOCK_BYTES)
        if data[:DIGEST_BYTES] == block_digest(data[DIGEST_BYTES:]):
            record = json.loads(data[DIGEST_BYTES:])
            if isinstance(record, dict):
                return record
    return {}
