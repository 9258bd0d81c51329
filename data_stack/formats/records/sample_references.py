"""Which records of each column a sample has, where ``refs.bag`` tells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.bag import Bag
from data_stack.formats.records.layout import MAX_RECORDS
from data_stack.formats.records.references import parsed_references

__all__ = ["SampleReferences"]

_Integers = npt.NDArray[np.int64]


class SampleReferences:
    """What ``refs.bag`` tells: for each sample which records of each column are its own.

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
        """Let go of the file until it is needed again."""
        self._opened = None

    def many(self, positions: _Integers) -> dict[str, tuple[_Integers, _Integers]]:
        """Of each column the first record and the count, for each sample; whether it has these is for :meth:`check` to say.

        Raises:
            DatasetFileCorruptError: they are damaged.
        """
        parsed = []
        for position, record in zip(positions.tolist(), self.bag.records(positions), strict=True):
            try:
                entries = parsed_references(record, self._are_sequences)
                if any(first > MAX_RECORDS or count > MAX_RECORDS for first, count in entries):
                    raise ValueError("it names more records than a column can have")
            except ValueError as error:
                raise self.bag.undecodable(position, error) from error
            parsed.append(entries)
        table = np.array(parsed, np.int64).reshape(len(parsed), len(self._names), 2)
        return {name: (table[:, number, 0], table[:, number, 1]) for number, name in enumerate(self._names)}

    def check(self, name: str, n_records: int, positions: _Integers, firsts: _Integers, counts: _Integers) -> None:
        """Refuse samples that name records which a column of ``n_records`` does not have.

        Raises:
            DatasetFileCorruptError: one does.
        """
        wrong = firsts + counts > n_records
        if wrong.any():
            place = int(wrong.argmax())
            problem = f"it names {counts[place]} records from {firsts[place]} on of column {name!r}, which has {n_records}"
            raise self.bag.undecodable(int(positions[place]), ValueError(problem))

    def n_whole(self, n_records: Mapping[str, int]) -> int:
        """How many samples have all their records, of columns that have so many: the last may name some that are not there."""
        length = len(self)
        while length:
            try:
                position = np.array([length - 1])
                for name, (firsts, counts) in self.many(position).items():
                    self.check(name, n_records[name], position, firsts, counts)
                return length
            except DatasetFileCorruptError:
                length -= 1
        return 0
