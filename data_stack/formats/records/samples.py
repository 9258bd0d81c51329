"""Makes samples of the values of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any


def iterate_samples(
    keys: Sequence[str], columns: Sequence[Iterable[Any]]
) -> Iterator[dict[str, Any]]:
    """Iterate over samples, whose values come from columns of one length.

    Two and three columns are written out, which takes a third of the time.

    Args:
        keys: the name of each column.
        columns: the values of each column.
    """
    if len(keys) == 2:
        first_key, second_key = keys
        for first, second in zip(*columns, strict=True):
            yield {first_key: first, second_key: second}
    elif len(keys) == 3:
        first_key, second_key, third_key = keys
        for first, second, third in zip(*columns, strict=True):
            yield {first_key: first, second_key: second, third_key: third}
    else:
        for values in zip(*columns, strict=True):
            yield dict(zip(keys, values, strict=True))


def make_sample_reader(
    keys: Sequence[str], value_readers: Sequence[Callable[[int], Any]]
) -> Callable[[int], dict[str, Any]]:
    """Return a function that reads the sample at a position.

    Two and three columns are written out, which takes two thirds of the time.

    Args:
        keys: the name of each column.
        value_readers: for each column, a function that reads the value at a position.
    """
    if len(keys) == 2:
        first_key, second_key = keys
        read_first, read_second = value_readers
        return lambda position: {
            first_key: read_first(position),
            second_key: read_second(position),
        }
    if len(keys) == 3:
        first_key, second_key, third_key = keys
        read_first, read_second, read_third = value_readers
        return lambda position: {
            first_key: read_first(position),
            second_key: read_second(position),
            third_key: read_third(position),
        }
    reader_of_key = dict(zip(keys, value_readers, strict=True))
    return lambda position: {key: read(position) for key, read in reader_of_key.items()}
