"""Which records of each column a sample has, where ``refs.bag`` tells it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.bag import Bag
from data_stack.formats.records.layout import MAX_RECORDS, REFS
from data_stack.formats.records.record_files import RecordFiles
from data_stack.formats.records.references import parsed_references

__all__ = ["SampleReferences"]

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
        self._length = len(self._bag)
        if files.is_unfinished:
            self._length = self._n_whole()

    def __len__(self) -> int:
        return self._length

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

    def _n_whole(self) -> int:
        """How many samples have all their records: the last ones may name some that were never written."""
        n_records = {}
        for name in self._names:
            bag = self._files.bag(name)
            n_records[name] = len(bag)
            bag.close()
        length = len(self._bag)
        while length:
            try:
                entries = self.at(length - 1)
            except DatasetFileCorruptError:
                length -= 1
                continue
            if all(first + count <= n_records[name] for name, (first, count) in entries.items()):
                break
            length -= 1
        return length
