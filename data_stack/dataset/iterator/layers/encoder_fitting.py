"""Fits encoders on the columns of an iterator."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator, Mapping
from typing import Any

from data_stack.dataset.encoders.encoder import Encoder, Fitting
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.transformer import as_encoder
from data_stack.dataset.iterator.access import ColumnKey
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.recipes.fingerprint import fingerprint
from data_stack.exception import ConfigError, DataStackError
from data_stack.values.stacking import ColumnArray


def check_encoders(encoders: Any) -> dict[ColumnKey, Encoder]:
    """Return encoders by column. Objects with ``fit`` and ``transform`` are made encoders.

    Raises:
        ConfigError: ``encoders`` is empty, an object is not an encoder, or a column is neither an
            int nor a string.
    """
    if not isinstance(encoders, Mapping) or not encoders:
        raise ConfigError(
            f"encoders are a dict with an encoder for each column to encode, got {encoders!r:.80}"
        )
    return {_check_key(key): as_encoder(encoder) for key, encoder in encoders.items()}


def _check_key(key: Any) -> ColumnKey:
    if isinstance(key, str):
        return key
    is_position = hasattr(key, "__index__") and not isinstance(key, bool)
    if not is_position:
        raise ConfigError(f"a column is named by a position or a key, not by {key!r:.80}")
    return operator.index(key)


def fit_encoders(encoders: Mapping[ColumnKey, Encoder], fit_on: DatasetIteratorIF) -> None:
    """Fit encoders on columns of an iterator in one pass, block by block.

    Raises:
        ConfigError: there are no samples, one encoder is for two columns, or a value cannot be
            learned from.
    """
    iterator = as_iterator(fit_on)
    column_names = ", ".join(repr(key) for key in encoders)
    if len(iterator) == 0:
        raise ConfigError(
            f"encoders cannot be fitted on an iterator without samples (columns {column_names})"
        )
    # Two encoders may wrap one transformer, which cannot learn two columns.
    learners = [getattr(encoder, "transformer", encoder) for encoder in encoders.values()]
    if len({id(learner) for learner in learners}) < len(learners):
        raise ConfigError(f"two of the columns {column_names} share one encoder that is not fitted")
    fittings = {key: Fitting(encoder) for key, encoder in encoders.items()}
    for _, columns in iterate_blocks(iterator, list(encoders)):
        for (key, fitting), column in zip(fittings.items(), columns, strict=True):
            with naming_errors(f"fitting column {key!r}"):
                fitting.add(column)
    source_fingerprint: str | None = None
    # There is none where a part of the stack cannot be written as a recipe.
    with contextlib.suppress(DataStackError):
        # Not iterator.fingerprint(): a client's class may have another method of that name.
        source_fingerprint = fingerprint(iterator)
    for key, fitting in fittings.items():
        with naming_errors(f"fitting column {key!r}"):
            fitting.finish(source_fingerprint)


def iterate_blocks(
    iterator: DatasetIteratorIF, keys: list[ColumnKey]
) -> Iterator[tuple[int, list[ColumnArray]]]:
    """Iterate over columns in blocks of some megabytes.

    Yields:
        The position of the first sample of a block, and its columns.
    """
    source = access_to(iterator)
    return in_blocks(source.n_samples, lambda positions: source.columns(keys, positions))


def name_error(
    error: ConfigError, place: str, positions: IndexArrayOfInts | None = None
) -> ConfigError:
    """Return the error of an encoder with the place where it was.

    Args:
        error: the error that the encoder raised.
        place: a text such as ``"column 1"``.
        positions: the positions of the rows that were encoded; None for all samples in order.
    """
    if not isinstance(error, EncodingError):
        return ConfigError(f"{place}: {error}")
    if positions is None:
        return error.within(place)
    return error.within(place, int(positions[error.position]))


@contextlib.contextmanager
def naming_errors(place: str) -> Iterator[None]:
    """Raise errors of encoders with the place where they were."""
    try:
        yield
    except ConfigError as error:
        raise name_error(error, place) from error
