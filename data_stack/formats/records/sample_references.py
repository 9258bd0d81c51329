"""Maps samples to records, where a column has any number of records for a sample.

``refs.bag`` of Granular up to 0.21 has a record for each sample: a msgpack list with one entry for
each column in the order of their names. An entry is the number of a record, or, for a column of
sequences, ``[first, count]``, ``[]`` for an empty sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from data_stack.formats.records.bag import Bag
from data_stack.formats.records.layout import MAX_RECORDS
from data_stack.util.forks import fork_lock

_Integers = npt.NDArray[np.int64]


class SampleReferences:
    """Maps each sample to its records of each column.

    Args:
        open_bag: opens the bag of the references.
        types: the types of the columns by name, in the order of the entries.
    """

    #: The open bag; None until it is needed.
    _opened_bag: Bag | None

    def __init__(self, open_bag: Callable[[], Bag], types: Mapping[str, str]) -> None:
        self._open_bag = open_bag
        self._names = list(types)
        self._are_sequences = [column_type.endswith("[]") for column_type in types.values()]
        self._opened_bag = None
        self._opening = fork_lock()

    def __len__(self) -> int:
        return len(self.bag)

    @property
    def bag(self) -> Bag:
        """The bag of the references, which is opened if it is not open."""
        bag = self._opened_bag
        if bag is not None:
            return bag
        with self._opening:
            if self._opened_bag is None:
                self._opened_bag = self._open_bag()
            return self._opened_bag

    @property
    def is_remote(self) -> bool:
        """Whether the references are fetched from a store, so that opening them takes requests."""
        ranges = self.bag.file.ranges
        return ranges is not None and ranges.resource.prefetches

    def release(self) -> None:
        """Release the file until it is needed again."""
        self._opened_bag = None

    def many(self, positions: _Integers) -> dict[str, tuple[_Integers, _Integers]]:
        """Read the references of samples; :meth:`check` checks that the records exist.

        Returns:
            By column, the first record and the number of records of each sample.

        Raises:
            DatasetFileCorruptError: the references are damaged.
        """
        entries_of_samples = []
        records = self.bag.records(positions)
        for position, record in zip(positions.tolist(), records, strict=True):
            try:
                entries_of_samples.append(parse_references(record, self._are_sequences))
            except ValueError as error:
                raise self.bag.undecodable(position, error) from error
        shape = (len(entries_of_samples), len(self._names), 2)
        table = np.array(entries_of_samples, np.int64).reshape(shape)
        references = {}
        for number, name in enumerate(self._names):
            references[name] = (table[:, number, 0], table[:, number, 1])
        return references

    def check(
        self, name: str, n_records: int, positions: _Integers, firsts: _Integers, counts: _Integers
    ) -> None:
        """Check that samples only name records that a column of ``n_records`` has.

        Raises:
            DatasetFileCorruptError: a sample names others.
        """
        is_beyond = firsts + counts > n_records
        if is_beyond.any():
            place = int(is_beyond.argmax())
            problem = (
                f"it names {counts[place]} records from {firsts[place]} on of column {name!r}, "
                f"which has {n_records}"
            )
            raise self.bag.undecodable(int(positions[place]), ValueError(problem))


def pack_references(entries: Sequence[int | tuple[int, int]]) -> bytes:
    """Return the references of a sample as they are stored.

    Args:
        entries: for each column the number of a record, or ``(first, count)`` of a sequence.
    """
    stored: list[int | tuple[int, ...]] = []
    for entry in entries:
        is_empty_sequence = not isinstance(entry, int) and entry[1] == 0
        stored.append(() if is_empty_sequence else entry)
    packed: bytes = msgpack.packb(stored)
    return packed


def parse_references(record: bytes, are_sequences: Sequence[bool]) -> list[tuple[int, int]]:
    """Return ``(first, count)`` of each column.

    Args:
        record: the references of a sample as they are stored.
        are_sequences: for each column, whether it is one of sequences.

    Raises:
        ValueError: the record is invalid.
    """
    # A record has lists and numbers only. No other object is made of an untrusted one.
    parsed: Any = msgpack.unpackb(
        record, max_map_len=0, max_str_len=0, max_bin_len=0, max_ext_len=0
    )
    if type(parsed) is not list or len(parsed) != len(are_sequences):
        raise ValueError("it does not have an entry for each column")
    return [
        _parse_entry(entry, is_sequence)
        for entry, is_sequence in zip(parsed, are_sequences, strict=True)
    ]


def _parse_entry(entry: Any, is_sequence: bool) -> tuple[int, int]:
    """Return ``(first, count)`` of one column.

    Raises:
        ValueError: the entry is invalid.
    """
    if not is_sequence and _is_record_number(entry):
        return entry, 1
    if is_sequence and type(entry) is list:
        if not entry:
            return 0, 0
        if len(entry) == 2 and all(_is_record_number(number) for number in entry):
            return entry[0], entry[1]
    raise ValueError("an entry is neither the number of a record nor first and count of a sequence")


def _is_record_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_RECORDS
