"""Maps samples to the records of each column, by ``refs.bag``.

A record is a msgpack list with one entry for each column in the order of their names: the number of a record, or, for a column of
sequences, ``[first, count]``, ``[]`` for none. (Granular up to 0.21)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from data_stack.formats.records.bag import Bag
from data_stack.formats.records.layout import MAX_RECORDS

_Integers = npt.NDArray[np.int64]


class SampleReferences:
    """Maps each sample to its records of each column.

    Args:
        open_bag: opens its records.
        types: of the columns by name.
    """

    def __init__(self, open_bag: Callable[[], Bag], types: Mapping[str, str]) -> None:
        self._open_bag, self._names = open_bag, list(types)
        self._opened: Bag | None = None
        self._are_sequences = [kind.endswith("[]") for kind in types.values()]

    def __len__(self) -> int:
        return len(self.bag)

    @property
    def bag(self) -> Bag:
        """Its records."""
        bag = self._opened
        if bag is None:
            bag = self._opened = self._open_bag()
        return bag

    def release(self) -> None:
        """Release the file until it is needed again."""
        self._opened = None

    def many(self, positions: _Integers) -> dict[str, tuple[_Integers, _Integers]]:
        """By column, the first record and the number of records of each sample; :meth:`check` checks their range.

        Raises:
            DatasetFileCorruptError: they are damaged.
        """
        parsed = []
        for position, record in zip(positions.tolist(), self.bag.records(positions), strict=True):
            try:
                entries = _parse(record, self._are_sequences)
                if any(first > MAX_RECORDS or count > MAX_RECORDS for first, count in entries):
                    raise ValueError("it names more records than a column can have")
            except ValueError as error:
                raise self.bag.undecodable(position, error) from error
            parsed.append(entries)
        table = np.array(parsed, np.int64).reshape(len(parsed), len(self._names), 2)
        return {name: (table[:, number, 0], table[:, number, 1]) for number, name in enumerate(self._names)}

    def check(self, name: str, n_records: int, positions: _Integers, firsts: _Integers, counts: _Integers) -> None:
        """Check that samples only name records that a column of ``n_records`` has.

        Raises:
            DatasetFileCorruptError: a sample names others.
        """
        wrong = firsts + counts > n_records
        if wrong.any():
            place = int(wrong.argmax())
            problem = f"it names {counts[place]} records from {firsts[place]} on of column {name!r}, which has {n_records}"
            raise self.bag.undecodable(int(positions[place]), ValueError(problem))


def pack_references(entries: Sequence[int | tuple[int, int]]) -> bytes:
    """A record: of each column a record's number, or ``(first, count)``."""
    packed: bytes = msgpack.packb([entry if isinstance(entry, int) else entry if entry[1] else () for entry in entries])
    return packed


def _parse(record: bytes, are_sequences: Sequence[bool]) -> list[tuple[int, int]]:
    """``(first, count)`` of each column.

    Raises:
        ValueError: the record is invalid.
    """
    # Nothing but lists and numbers is in one, so that nothing else is made of a stranger's.
    parsed: Any = msgpack.unpackb(record, max_map_len=0, max_str_len=0, max_bin_len=0, max_ext_len=0)
    if type(parsed) is not list or len(parsed) != len(are_sequences):
        raise ValueError("it does not have an entry for each column")
    entries = []
    for entry, is_sequence in zip(parsed, are_sequences, strict=True):
        numbers = (entry or [0, 0]) if is_sequence and type(entry) is list else [entry, 1]
        if is_sequence is not (type(entry) is list) or len(numbers) != 2 or not all(map(_is_number, numbers)):
            raise ValueError("an entry is neither the number of a record nor first and count of a sequence")
        entries.append((numbers[0], numbers[1]))
    return entries


def _is_number(value: object) -> bool:
    return type(value) is int and value >= 0
