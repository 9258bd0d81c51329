"""What readers of records have in common: a sample or part of it by ``reader[index, columns]``, and an end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from data_stack.dataset.iterator import AccessedDatasetIterator, Sample

if TYPE_CHECKING:
    from typing_extensions import Self

Mask = Mapping[str, Any]
"""What to read of a sample: for each column True, False, or a range or slice of its sequence."""


class RecordsIterator(AccessedDatasetIterator):
    """Samples of records, with partial reads."""

    if TYPE_CHECKING:  # samples are dicts

        def read_batch(self, indices: Any) -> dict[str, npt.NDArray[Any]]: ...

    @abstractmethod
    def read(self, index: int, columns: Iterable[str] | Mask | None = None) -> Sample:
        """Read part of a sample."""

    @abstractmethod
    def close(self) -> None:
        """Close all files; reads fail afterwards."""

    def __getitem__(self, index: Any) -> Any:
        """A sample for an integer; a view for a slice, list or mask; part of a sample for ``index, columns_or_mask``."""
        if type(index) is tuple and len(index) == 2:
            return self.read(*index)
        return super().__getitem__(index)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()
