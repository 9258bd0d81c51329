"""Lists, arrays and datasets of other libraries as iterators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from data_stack.dataset.iterator.contract import DatasetIterator, DatasetIteratorIF, Sample
from data_stack.exception import ConfigError


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
    if isinstance(samples, str):
        hint = f"; load the dataset first: data_stack.load({samples!r:.80}, split=…)"
    elif isinstance(samples, Mapping) and samples and all(isinstance(each, DatasetIteratorIF) for each in samples.values()):
        hint = f"; choose one of its iterators: {', '.join(f'[{name!r}]' for name in samples):.200}"
    elif isinstance(samples, Mapping) or is_of_columns:
        hint = "; make an iterator of its columns: data_stack.from_numpy(…), from_pandas(…), from_polars(…) or from_arrow(…)"
    elif isinstance(samples, (list, tuple)) and samples and isinstance(samples[0], DatasetIteratorIF):
        hint = "; pass the iterators one by one, as in combine(*iterators)"
    elif isinstance(samples, Iterator):
        hint = "; collect its samples in a list"
    elif not is_indexable or isinstance(samples, (bytes, bytearray, memoryview)):
        hint = ""
    else:
        return AdaptedIterator(samples)
    shown = type(samples).__name__ if is_of_columns else f"{type(samples).__name__} {samples!r:.80}"
    raise ConfigError(f"expected an iterator, or an object with len() and [i] such as a list, got {shown}{hint}")
