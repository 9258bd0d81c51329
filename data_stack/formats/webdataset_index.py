"""Where the files of each sample lie in the shards of a WebDataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from data_stack.exception import UnsafeArchiveError
from data_stack.formats.webdataset_fields import KEY, key_and_field
from data_stack.io.account import LeftOut
from data_stack.io.location import Location

#: The size of a tar's blocks.
BLOCK_BYTES: Final = 512

#: The header of a file in a tar, and the padding behind it on average.
_HEADER_AND_PADDING_BYTES: Final = BLOCK_BYTES + BLOCK_BYTES // 2


@dataclass(frozen=True)
class ShardIndex:
    """Where the files of all samples lie.

    Attributes:
        keys: the keys of all samples, in the order of their first files.
        starts: the first sample of each shard, followed by the number of samples.
        fields: all fields, in the order of their first files.
        files: the files by sample and field, shape ``(n_files, 4)``: the number of the sample and
            of the field, offset, size.
        first_files: the first row of ``files`` of each sample, followed by the number of files.
    """

    keys: list[str]
    starts: list[int]
    fields: list[str]
    files: npt.NDArray[np.int64]
    first_files: npt.NDArray[np.int64]

    def ranges_of(self, position: int) -> dict[str, tuple[int, int]]:
        """Return offset and size in bytes of each file of a sample, by field."""
        start = self.first_files[position]
        end = self.first_files[position + 1]
        ranges = {}
        for _, field_number, offset, size in self.files[start:end].tolist():
            ranges[self.fields[field_number]] = (offset, size)
        return ranges

    def n_bytes_of(self, fields: Sequence[str]) -> int:
        """Return the size of all files of some fields in bytes, with their headers."""
        files = self.files[self._is_of(self.files, fields)]
        return int(files[:, 3].sum()) + len(files) * _HEADER_AND_PADDING_BYTES

    def ranges_in_shards(
        self, positions: range, fields: Sequence[str]
    ) -> dict[int, list[tuple[int, int]]]:
        """Return offset and size of the files of consecutive samples, by the number of the shard.

        Args:
            positions: the positions of the samples.
            fields: the fields of the files.
        """
        files = self.files[self.first_files[positions.start] : self.first_files[positions.stop]]
        files = files[self._is_of(files, fields)]
        shard_numbers = np.searchsorted(self.starts, files[:, 0], side="right") - 1
        ranges: dict[int, list[tuple[int, int]]] = {}
        for number, (_, _, offset, size) in zip(
            shard_numbers.tolist(), files.tolist(), strict=True
        ):
            ranges.setdefault(number, []).append((offset, size))
        return ranges

    def _is_of(self, files: npt.NDArray[np.int64], fields: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return which files are of some fields, shape ``(len(files),)``."""
        numbers = [number for number, name in enumerate(self.fields) if name in fields]
        return np.isin(files[:, 1], numbers)


@dataclass(frozen=True)
class ShardFiles:
    """The files of a shard.

    Attributes:
        of_samples: path, offset and size in bytes of each file that belongs to a sample, in order.
        left_out: the files that belong to no sample.
    """

    of_samples: list[tuple[str, int, int]]
    left_out: list[LeftOut]


@dataclass
class ShardIndexer:
    """Collects the index of shards, which are added one by one.

    Attributes:
        left_out: the files that belong to no sample.
    """

    left_out: list[LeftOut] = field(default_factory=list)
    #: As of :class:`ShardIndex`.
    _keys: list[str] = field(default_factory=list)
    _starts: list[int] = field(default_factory=lambda: [0])
    #: The number of each field.
    _field_numbers: dict[str, int] = field(default_factory=dict)
    #: The rows of ``ShardIndex.files`` of each shard.
    _tables: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def add(self, shard: Location, files: ShardFiles) -> None:
        """Add the files of a shard.

        Raises:
            UnsafeArchiveError: the shard has two files of one field of a sample, or a file whose
                field would replace the key of its sample.
        """
        self.left_out.extend(files.left_out)
        first_sample = len(self._keys)
        numbers_in_shard: dict[str, int] = {}
        rows = []
        for path, offset, size in files.of_samples:
            key, field_name = key_and_field(path)
            if field_name == KEY:
                raise UnsafeArchiveError(
                    f"{shard.full_name!r}: {path!r:.200} would replace the key of its sample; "
                    "rename the file"
                )
            number_in_shard = numbers_in_shard.setdefault(key, len(numbers_in_shard))
            field_number = self._field_numbers.setdefault(field_name, len(self._field_numbers))
            rows.append((first_sample + number_in_shard, field_number, offset, size))
        self._keys.extend(numbers_in_shard)
        self._starts.append(len(self._keys))

        table = np.array(rows, np.int64).reshape(-1, 4)
        samples = table[:, 0]
        field_numbers = table[:, 1]
        table = table[np.lexsort((field_numbers, samples))]
        self._check_no_field_twice(shard, table)
        self._tables.append(table)

    def _check_no_field_twice(self, shard: Location, table: npt.NDArray[np.int64]) -> None:
        """Check that no sample of a shard has two files of one field.

        Args:
            shard: the location of the shard.
            table: its rows of ``ShardIndex.files``, sorted by sample and field.

        Raises:
            UnsafeArchiveError: a sample has two.
        """
        sample_and_field = table[:, :2]
        is_repeated = (sample_and_field[1:] == sample_and_field[:-1]).all(axis=1)
        if not is_repeated.any():
            return
        sample, field_number = sample_and_field[is_repeated.argmax()].tolist()
        field_name = list(self._field_numbers)[field_number]
        raise UnsafeArchiveError(
            f"{shard.full_name!r} has two files {field_name!r} of sample {self._keys[sample]!r}"
        )

    def finish(self) -> ShardIndex:
        """Return the index of all shards."""
        no_files = np.empty((0, 4), np.int64)
        files = np.concatenate([no_files, *self._tables])
        first_files = np.searchsorted(files[:, 0], np.arange(len(self._keys) + 1))
        return ShardIndex(self._keys, self._starts, list(self._field_numbers), files, first_files)
