"""The interface of readers of records, which read also parts of samples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from data_stack.dataset.iterator import AccessedDatasetIterator, Sample

if TYPE_CHECKING:
    from typing_extensions import Self

#: What to read of a sample: for each column True, False, or a range or slice of its sequence.
Mask = Mapping[str, Any]


class RecordsIterator(AccessedDatasetIterator):
    """Samples of records, of which parts can be read. A context manager that closes its files."""

    if TYPE_CHECKING:
        # Samples are dicts, so batches are, too.
        def read_batch(self, indices: Any) -> dict[str, npt.NDArray[Any]]: ...

    @abstractmethod
    def read(self, index: int, columns: Iterable[str] | Mask | None = None) -> Sample:
        """Read part of a sample.

        Args:
            index: the position of the sample.
            columns: names of columns; or a mapping from names to True, False (leave it out), or,
                for a column of sequences, a range or slice, which may extend beyond the sequence.
                None for all columns.

        Raises:
            DatasetOutOfBoundsError: ``index`` is out of bounds.
            ConfigError: a column does not exist, or has no such part.
        """

    @abstractmethod
    def close(self) -> None:
        """Close all files; reads fail afterwards."""

    def __getitem__(self, index: Any) -> Any:
        """Return a sample, a view of several, or part of a sample.

        Args:
            index: an integer for a sample; a slice, list or mask for a view; ``index, columns``
                for part of a sample, with ``columns`` as :meth:`read` takes them.
        """
        if type(index) is tuple and len(index) == 2:
            position, columns = index
            return self.read(position, columns)
        return super().__getitem__(index)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
