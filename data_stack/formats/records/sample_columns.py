"""Reads the values that samples have in the columns of a record dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec
from data_stack.dataset.iterator import Sample
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.formats.records.open_columns import OpenColumns
from data_stack.formats.records.record_offsets import RecordNumbers, as_record_numbers
from data_stack.formats.records.sample_references import SampleReferences
from data_stack.formats.records.samples import iterate_samples, make_sample_reader
from data_stack.formats.records.sequences import list_sequences, stack_sequences
from data_stack.formats.records.value_column import ValueColumn
from data_stack.util.request_limit import current_request, decoding_for

_Integers = npt.NDArray[np.int64]


class SampleColumns:
    """Reads the values of samples, by column. Positions are known to be those of samples.

    Args:
        open_columns: opens the columns.
        codecs: the codec of each column to read, in the order of a sample's columns.
        sequence_names: the columns that have a sequence of values for each sample.
        references: maps samples to records; None if sample i has record i of each column.
        n_samples: the number of samples.

    Attributes:
        n_samples: the number of samples.
        keys: the names of the columns to read.
        open_columns: opens the columns.
        codecs: the codec of each column to read.
        sequence_names: the columns that have a sequence of values for each sample.
        has_references: whether samples are mapped to records.
        decodes_in_threads: whether threads decode some columns side by side.
    """

    def __init__(
        self,
        open_columns: OpenColumns,
        codecs: Mapping[str, Codec],
        sequence_names: frozenset[str],
        references: SampleReferences | None,
        n_samples: int,
    ) -> None:
        self.n_samples = n_samples
        self.open_columns = open_columns
        self.sequence_names = sequence_names
        self._references = references
        self.codecs = codecs
        self.keys = list(codecs)
        self.has_references = references is not None
        self.decodes_in_threads = any(codec.releases_gil for codec in codecs.values())
        #: The number of columns whose values count towards one limit of a request.
        self._n_compressed = sum(codec.is_compressed for codec in codecs.values())

    def read_sample(self, position: int) -> Sample:
        """Read a sample."""
        read = self.open_columns.sample_reader
        if read is not None:
            return read(position)
        if self.has_references or self._n_compressed > 1:
            columns = self.list_values(self.keys, range(position, position + 1))
            return next(iterate_samples(self.keys, columns))
        # As nearly always: one record of each column, and at most one counts towards the limit.
        by_name = self.open_columns.by_name
        sample = {}
        for name in self.keys:
            column = by_name[name] if name in by_name else self.open_columns.get(name)
            sample[name] = column.value(position)
        self._keep_sample_reader(by_name)
        return sample

    def _keep_sample_reader(self, by_name: Mapping[str, ValueColumn]) -> None:
        """Keep a function that reads a sample of these columns, if all of them are open."""
        value_readers = []
        for name in self.keys:
            value_reader = by_name[name].make_value_reader() if name in by_name else None
            if value_reader is None:
                return
            value_readers.append(value_reader)
        self.open_columns.keep_sample_reader(by_name, make_sample_reader(self.keys, value_readers))

    def read_part(self, position: int, parts: Mapping[str, slice | None]) -> Sample:
        """Read part of a sample, in one request.

        Args:
            position: the position of the sample.
            parts: the columns to read; with the slice of a sequence, None for a single value.
        """
        entries = self.find_records(np.array([position]), list(parts))
        sample = {}
        with decoding_for(current_request()):
            for name, part in parts.items():
                column = self.open_columns.get(name)
                if part is not None:
                    firsts, counts = entries[name]
                    first = firsts.item()
                    numbers = np.arange(first, first + counts.item())[part]
                    sample[name] = column.values(numbers) if len(numbers) else []
                elif self.has_references:
                    firsts, _ = entries[name]
                    sample[name] = column.value(firsts.item())
                else:
                    sample[name] = column.value(position)
        return sample

    def list_values(
        self, names: Sequence[str], positions: range | IndexArrayOfInts
    ) -> list[list[Any]]:
        """Read columns of samples in one request, each as a list of values."""
        numbers = as_record_numbers(positions)
        if self._n_compressed == 0:
            return self._list_values(names, numbers)
        with decoding_for(current_request()):
            return self._list_values(names, numbers)

    def stack_values(
        self, names: Sequence[str], positions: range | IndexArrayOfInts
    ) -> list[npt.NDArray[Any]]:
        """Read columns of samples in one request, each stacked, shape ``(n_samples, ...)``."""
        numbers = as_record_numbers(positions)
        if self._n_compressed == 0:
            return self._stack_values(names, numbers)
        with decoding_for(current_request()):
            return self._stack_values(names, numbers)

    def _list_values(self, names: Sequence[str], numbers: RecordNumbers) -> list[list[Any]]:
        """Read columns of the samples with these numbers, each as a list of values."""
        if not self.has_references:
            columns = self.open_columns.get_all(names)
            return [column.values(numbers) for column in columns]
        lists = []
        for name, (firsts, counts) in self.find_records(np.asarray(numbers), names).items():
            column = self.open_columns.get(name)
            if name in self.sequence_names:
                lists.append(list_sequences(column, firsts, counts))
            else:
                lists.append(column.values(firsts))
        return lists

    def _stack_values(self, names: Sequence[str], numbers: RecordNumbers) -> list[npt.NDArray[Any]]:
        """Read columns of the samples with these numbers, each stacked."""
        if not self.has_references:
            columns = self.open_columns.get_all(names)
            return [column.read(numbers) for column in columns]
        stacks = []
        for name, (firsts, counts) in self.find_records(np.asarray(numbers), names).items():
            column = self.open_columns.get(name)
            if name in self.sequence_names:
                stacks.append(stack_sequences(column, firsts, counts))
            else:
                stacks.append(column.read(firsts))
        return stacks

    def find_records(
        self, positions: _Integers, names: Sequence[str]
    ) -> dict[str, tuple[_Integers, _Integers]]:
        """Return which records samples have in columns.

        Returns:
            By column, the first record and the number of records of each sample, each of shape
            ``(n_samples,)``. Empty without columns, or if sample i has record i.

        Raises:
            DatasetFileCorruptError: a sample names records that its column does not have.
        """
        if self._references is None or not names:
            return {}
        entries = self._references.many(positions)
        entries_of_names = {}
        for name in names:
            firsts, counts = entries[name]
            n_records = len(self.open_columns.get(name))
            self._references.check(name, n_records, positions, firsts, counts)
            entries_of_names[name] = (firsts, counts)
        return entries_of_names
