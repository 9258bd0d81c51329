"""The base of readers of records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from data_stack.codecs.codec import Codecs
from data_stack.dataset.iterator import AccessedDatasetIterator, IndexArray, Sample
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean

if TYPE_CHECKING:
    from typing_extensions import Self

Mask = Mapping[str, Any]
"""What to read of a sample: for each column True, False, or a range or slice of its sequence."""


class RecordsIterator(AccessedDatasetIterator):
    """Samples of records, with partial reads."""

    if TYPE_CHECKING:  # samples are dicts

        def read_batch(self, indices: IndexArray) -> dict[str, npt.NDArray[Any]]: ...

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


def check_options(codecs: Codecs | None, columns: Any, mapped: bool) -> dict[str, Any]:
    """The options of a reader as it stores them.

    Raises:
        ConfigError: one is invalid.
    """
    return {"codecs": codecs, "columns": None if columns is None else names_of(columns), "mapped": mapped}


def names_of(names: Any) -> list[str]:
    """Names of columns as a list, without duplicates.

    Raises:
        ConfigError: they are something else.
    """
    listed = [] if isinstance(names, (str, bytes)) or not hasattr(names, "__iter__") else list(names)
    if not listed or not all(isinstance(name, str) for name in listed) or len(set(listed)) != len(listed):
        raise ConfigError(f"columns must be a list of different names, at least one, got {names!r:.80}")
    return listed


def check_column(name: object, known: Collection[str]) -> None:
    """Check that a column exists.

    Raises:
        ConfigError: it does not.
    """
    if name not in known:
        raise ConfigError(f"unknown column {name!r:.80}{did_you_mean(name, known)}; the columns are {', '.join(known)}")
