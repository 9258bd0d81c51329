"""The records of ``refs.bag``: which records of each column a sample has.

A record is a msgpack list with one entry for each column in the order of their names: the number of a record, or, for a column of
sequences, ``[first, count]``, ``[]`` for none. (Granular up to 0.21)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

__all__ = ["packed_references", "parsed_references"]


def packed_references(entries: Sequence[int | tuple[int, int]]) -> bytes:
    """A record: of each column a record's number, or ``(first, count)``."""
    packed: bytes = msgpack.packb([entry if isinstance(entry, int) else entry if entry[1] else () for entry in entries])
    return packed


def parsed_references(record: bytes, are_sequences: Sequence[bool]) -> list[tuple[int, int]]:
    """``(first, count)`` of each column.

    Raises:
        ValueError: this is no such record.
    """
    # Nothing but lists and numbers is in one, so that nothing else is made of a stranger's.
    parsed: Any = msgpack.unpackb(record, max_map_len=0, max_str_len=0, max_bin_len=0, max_ext_len=0)
    if type(parsed) is not list or len(parsed) != len(are_sequences):
        raise ValueError("it does not have an entry for each column")
    entries = []
    for entry, is_sequence in zip(parsed, are_sequences, strict=True):
        numbers = (entry or [0, 0]) if is_sequence and type(entry) is list else [entry, 1]
        if is_sequence is not (type(entry) is list) or len(numbers) != 2 or not all(map(_is_number, numbers)):
            raise ValueError("an entry is no number of a record, nor two of a sequence")
        entries.append((numbers[0], numbers[1]))
    return entries


def _is_number(value: object) -> bool:
    return type(value) is int and value >= 0
