"""Lists, arrays and datasets of other libraries as iterators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from data_stack.dataset.iterator.contract import DatasetIterator, DatasetIteratorIF, Sample
from data_stack.exception import ConfigError

_NO_SAMPLES = (str, bytes, bytearray, memoryview, Mapping)


class Indexable(Protocol):
    """An object with ``len`` and ``[i]``: a list, an array, a map-style dataset of another library."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class AdaptedIterator(DatasetIterator):
    """Gives an object with ``len`` and ``[i]``, such as a list or a torch dataset, the methods of the contract."""

    def __init__(self, samples: Any) -> None:
        self.adapted_samples = samples

    def __len__(self) -> int:
        return len(self.adapted_samples)

    def __getitem__(self, index: int) -> Sample:
        return self.adapted_samples[index]


def as_iterator(samples: Any) -> DatasetIteratorIF:
    """``samples`` itself if it is a ``DatasetIteratorIF``, otherwise an iterator over it; nothing is read.

    Raises:
        ConfigError: it has no samples, or is a text, bytes, a dict, a table, or a list of iterators.
    """
    if isinstance(samples, DatasetIteratorIF):
        return samples
    # pandas, Arrow, polars
    is_of_columns = hasattr(samples, "columns") and any(hasattr(samples, name) for name in ("iloc", "column_names", "lazy"))
    is_indexable = hasattr(samples, "__len__") and hasattr(samples, "__getitem__") and getattr(samples, "ndim", 1) != 0
    is_list_of_iterators = isinstance(samples, (list, tuple)) and samples and isinstance(samples[0], DatasetIteratorIF)
    if is_indexable and not is_of_columns and not is_list_of_iterators and not isinstance(samples, _NO_SAMPLES):
        return AdaptedIterator(samples)
    shown = type(samples).__name__ if is_of_columns else f"{type(samples).__name__} {samples!r:.80}"
    raise ConfigError(
        f"expected an iterator, or an object with len() and [i] such as a list, got {shown}. Load a dataset by load(), "
        f"choose one of several iterators, and make one of columns by from_numpy(), from_pandas() or from_arrow()"
    )
