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
    kind = type(samples).__name__
    if isinstance(samples, str):
        raise ConfigError(
            f"expected an iterator, got the text {samples!r:.80}; load the dataset first: "
            f"data_stack.load({samples!r:.80}, split=…)"
        )
    if isinstance(samples, Mapping) and samples and all(isinstance(each, DatasetIteratorIF) for each in samples.values()):
        names = ", ".join(f"[{name!r}]" for name in samples)
        raise ConfigError(f"expected an iterator, got a dict of iterators; choose one of them: {names:.200}")
    # pandas, Arrow, polars
    is_of_columns = hasattr(samples, "columns") and any(hasattr(samples, name) for name in ("iloc", "column_names", "lazy"))
    if isinstance(samples, Mapping) or is_of_columns:
        remedy = "SequenceDatasetIterator([columns[name] for name in names]).as_dict(*names)"
        remedy = remedy if isinstance(samples, Mapping) else "data_stack.from_pandas(…), from_polars(…) or from_arrow(…)"
        raise ConfigError(
            f"expected an iterator, got {kind}, whose [0] is not a sample; make an iterator of its columns: {remedy}"
        )
    if isinstance(samples, (list, tuple)) and samples and isinstance(samples[0], DatasetIteratorIF):
        raise ConfigError("expected an iterator, got a list of iterators; pass them one by one, as in combine(*iterators)")
    is_indexable = hasattr(samples, "__len__") and hasattr(samples, "__getitem__") and getattr(samples, "ndim", 1) != 0
    if not is_indexable or isinstance(samples, (bytes, bytearray, memoryview)):
        hint = "; collect its samples in a list" if isinstance(samples, Iterator) else ""
        raise ConfigError(
            f"expected an iterator, or an object with len() and [i] such as a list, got {kind} {samples!r:.80}{hint}"
        )
    return AdaptedIterator(samples)
