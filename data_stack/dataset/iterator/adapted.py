"""Gives objects with a length and random access, such as lists, the methods of iterators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from data_stack.dataset.iterator.contract import DatasetIterator, DatasetIteratorIF, Sample
from data_stack.exception import ConfigError
from data_stack.util.functions import stopped_by

#: What has ``columns`` and one of these attributes is a table of pandas, Arrow or polars.
_ATTRIBUTES_OF_TABLES = ("iloc", "column_names", "lazy")


class Indexable(Protocol):
    """An object with ``len`` and ``[i]``: a list, an array, a dataset of another library."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class AdaptedIterator(DatasetIterator):
    """An iterator over an object with ``len`` and ``[i]``, such as a list or a torch dataset."""

    def __init__(self, samples: Any) -> None:
        self.adapted_samples = samples

    def __len__(self) -> int:
        return len(self.adapted_samples)

    def __getitem__(self, index: int) -> Sample:
        try:
            return self.adapted_samples[index]
        except StopIteration as error:
            raise stopped_by(type(self.adapted_samples).__getitem__) from error


def as_iterator(samples: Any) -> DatasetIteratorIF:
    """Return ``samples`` if it is a ``DatasetIteratorIF``, otherwise an iterator over it.

    Nothing is read.

    Raises:
        ConfigError: ``samples`` lacks ``len`` or ``[i]``, or is a text, bytes, a dict, a table, or
            a list of iterators.
    """
    if isinstance(samples, DatasetIteratorIF):
        return samples
    if _is_indexable(samples) and not _has_other_items(samples):
        return AdaptedIterator(samples)
    if _is_dict_of_splits(samples):
        names = list(samples)
        raise ConfigError(
            f"expected one iterator, got a dict of the splits {', '.join(map(repr, names)):.200}; "
            f"take one of them, as in splits[{names[0]!r}]"
        )
    description = type(samples).__name__
    if not _is_table(samples):
        description += f" {samples!r:.80}"
    raise ConfigError(
        f"expected an iterator, or an object with len() and [i] such as a list, got {description}. "
        f"Load a dataset by load(), choose one of several iterators, and make one of columns by "
        f"from_numpy(), from_pandas() or from_arrow()"
    )


def _is_dict_of_splits(samples: Any) -> bool:
    """Return whether an object is what ``load`` returns for all splits of a dataset."""
    if not isinstance(samples, Mapping) or not samples:
        return False
    return all(isinstance(split, DatasetIteratorIF) for split in samples.values())


def _is_indexable(samples: Any) -> bool:
    has_methods = hasattr(samples, "__len__") and hasattr(samples, "__getitem__")
    is_scalar = getattr(samples, "ndim", 1) == 0
    return has_methods and not is_scalar


def _has_other_items(samples: Any) -> bool:
    """Return whether ``[i]`` of an object is no sample: a letter, a column, an iterator."""
    if isinstance(samples, (str, bytes, bytearray, memoryview, Mapping)):
        return True
    is_list_of_iterators = (
        isinstance(samples, (list, tuple))
        and len(samples) > 0
        and isinstance(samples[0], DatasetIteratorIF)
    )
    return is_list_of_iterators or _is_table(samples)


def _is_table(samples: Any) -> bool:
    if not hasattr(samples, "columns"):
        return False
    return any(hasattr(samples, name) for name in _ATTRIBUTES_OF_TABLES)
