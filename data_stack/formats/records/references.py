"""The records of ``refs.bag``: which records of each column a sample has.

A record is a msgpack list with one entry for each column in the order of their names: the number of a record, or, for a column of
sequences, ``[first, count]``, ``[]`` for none. (Granular up to 0.21; https://github.com/msgpack/msgpack/blob/master/spec.md)
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["packed_references", "parsed_references"]


def packed_references(entries: Sequence[int | tuple[int, int]]) -> bytes:
    """A record: of each column a record's number, or ``(first, count)``; byte for byte as msgpack packs it."""
    n = len(entries)
    parts = [bytes((0x90 | n,)) if n < 16 else b"\xdc" + n.to_bytes(2, "big") if n < 1 << 16 else b"\xdd" + n.to_bytes(4, "big")]
    for entry in entries:
        if isinstance(entry, int):
            parts.append(_packed(entry))
        elif entry[1]:
            parts += (b"\x92", _packed(entry[0]), _packed(entry[1]))
        else:
            parts.append(b"\x90")
    return b"".join(parts)


def parsed_references(record: bytes, are_sequences: Sequence[bool]) -> list[tuple[int, int]]:
    """``(first, count)`` of each column.

    Raises:
        ValueError: this is no such record.
    """
    numbers = _Numbers(record)
    if numbers.list_length() != len(are_sequences):
        raise ValueError("it does not have an entry for each column")
    entries = []
    for is_sequence in are_sequences:
        if not is_sequence:
            entries.append((numbers.number(), 1))
            continue
        n_numbers = numbers.list_length()
        if n_numbers not in (0, 2):
            raise ValueError(f"a sequence is named by {n_numbers} numbers")
        entries.append((numbers.number(), numbers.number()) if n_numbers else (0, 0))
    numbers.done()
    return entries


def _packed(number: int) -> bytes:
    if number < 1 << 7:
        return bytes((number,))
    if number < 1 << 8:
        return b"\xcc" + number.to_bytes(1, "big")
    if number < 1 << 16:
        return b"\xcd" + number.to_bytes(2, "big")
    if number < 1 << 32:
        return b"\xce" + number.to_bytes(4, "big")
    return b"\xcf" + number.to_bytes(8, "big")


class _Numbers:
    """Reads lists and unsigned integers of msgpack, nothing else."""

    def __init__(self, record: bytes) -> None:
        self._record, self._position = record, 0

    def list_length(self) -> int:
        kind = self._next(1)
        if kind & 0xF0 == 0x90:
            return kind & 0x0F
        if kind in (0xDC, 0xDD):
            return self._next(2 if kind == 0xDC else 4)
        raise ValueError("it is no list")

    def number(self) -> int:
        kind = self._next(1)
        if kind < 0x80:
            return kind
        if 0xCC <= kind <= 0xCF:
            return self._next(1 << (kind - 0xCC))
        raise ValueError("an entry is no number of a record")

    def done(self) -> None:
        if self._position != len(self._record):
            raise ValueError("something follows its last entry")

    def _next(self, n_bytes: int) -> int:
        start, self._position = self._position, self._position + n_bytes
        if self._position > len(self._record):
            raise ValueError("it is cut short")
        return int.from_bytes(self._record[start : self._position], "big")
