"""Which records of each column a sample has, where ``refs.bag`` tells it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.bag import Bag
from data_stack.formats.records.layout import MAX_RECORDS, REFS
from data_stack.formats.records.record_files import RecordFiles
from data_stack.formats.records.references import parsed_references

__all__ = ["SampleReferences"]

#: So many samples are asked, from the end, how many records columns of sequences have; all of them may be empty.
_LAST_SAMPLES = 1 << 10

_Integers = npt.NDArray[np.int64]


class SampleReferences:
    """What ``refs.bag`` tells: for each sample which records of each column are its own.

    Args:
        files: the dataset.

    Raises:
        DatasetFileCorruptError: it is damaged, as far as can be told without reading it.
    """

    def __init__(self, files: RecordFiles) -> None:
        self._files = files
        self._names = list(files.types)
        self._are_sequences = [kind.endswith("[]") for kind in files.types.values()]
        self._opened: Bag | None = None

    def __len__(self) -> int:
        return len(self._bag)

    @property
    def _bag(self) -> Bag:
        bag = self._opened
        if bag is None:
            bag = self._opened = self._files.bag(REFS)
        return bag

    def at(self, position: int) -> dict[str, tuple[int, int]]:
        """``(first, count)`` of each column; whether it has these records is for :meth:`check` to say.

        Raises:
            DatasetFileCorruptError: they are damaged.
        """
        return dict(zip(self._names, self._parsed(position, self._bag.record(position)), strict=True))

    def many(self, positions: _Integers) -> dict[str, tuple[_Integers, _Integers]]:
        """The same of several samples, as arrays."""
        bag = self._bag
        begins, ends = bag.many_bounds(positions)
        records = bag.records_between(begins, ends, lambda place: int(positions[place]))
        parsed = [self._parsed(position, record) for position, record in zip(positions.tolist(), records, strict=True)]
        table = np.array(parsed, np.int64).reshape(len(parsed), len(self._names), 2)
        return {name: (table[:, number, 0], table[:, number, 1]) for number, name in enumerate(self._names)}

    def release(self) -> None:
        """Let go of the file until it is needed again."""
        self._opened = None

    def check(self, name: str, n_records: int, positions: _Integers, firsts: _Integers, counts: _Integers) -> None:
        """Refuse samples that name records which a column of ``n_records`` does not have.

        Raises:
            DatasetFileCorruptError: one does.
        """
        wrong = firsts + counts > n_records
        if wrong.any():
            place = int(wrong.argmax())
            raise self.wrong(name, n_records, int(positions[place]), int(firsts[place]), int(counts[place]))

    def wrong(self, name: str, n_records: int, position: int, first: int, count: int) -> DatasetFileCorruptError:
        """What to raise for a sample that names records which are not there."""
        problem = f"it names {count} records from {first} on of column {name!r}, which has {n_records}"
        return self._bag.undecodable(position, ValueError(problem))

    def _parsed(self, position: int, record: bytes) -> list[tuple[int, int]]:
        try:
            entries = parsed_references(record, self._are_sequences)
            if any(first > MAX_RECORDS or count > MAX_RECORDS for first, count in entries):
                raise ValueError("it names more records than a column can have")
        except ValueError as error:
            raise self._bag.undecodable(position, error) from error
        return entries

    def n_whole(self, n_records: Mapping[str, int]) -> int:
        """How many samples have all their records, of columns that have so many: the last may name some that are not there."""
        length = len(self)
        while length:
            entries = self._at_or_none(length - 1)
            if entries is not None and all(first + count <= n_records[name] for name, (first, count) in entries.items()):
                break
            length -= 1
        return length

    def last_ends(self) -> dict[str, int]:
        """How many records of each column the samples name, where the last ones of them tell it."""
        if not len(self):
            return dict.fromkeys(self._names, 0)
        ends: dict[str, int] = {}
        for position in range(len(self) - 1, max(-1, len(self) - 1 - _LAST_SAMPLES), -1):
            entries = self._at_or_none(position)
            if entries is None:  # an error of its own when it is read
                break
            ends = {**{name: first + count for name, (first, count) in entries.items() if count}, **ends}
            if len(ends) == len(self._names):
                break
        return ends

    def _at_or_none(self, position: int) -> dict[str, tuple[int, int]] | None:
        try:
            return self.at(position)
        except DatasetFileCorruptError:
            return None
