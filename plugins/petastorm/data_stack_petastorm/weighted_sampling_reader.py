"""Rows of several readers, sampled by weights."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.randomness import derive_seed
from data_stack.exception import ConfigError
from data_stack_petastorm.any_reader import fills_nulls, is_at_end, is_endless, restart
from data_stack_petastorm.base_reader import BaseReader
from data_stack_petastorm.ngram import NGram
from data_stack_petastorm.reader.reader import Reader
from data_stack_petastorm.unischema import Unischema


class WeightedSamplingReader(BaseReader):
    """A reader that draws, for each row, one of several readers by weights.

    ::

        with WeightedSamplingReader([day, night], [0.7, 0.3], seed=1) as reader:
            for row in reader:
                ...

    Args:
        readers: two or more readers with the same fields and n-gram, all of rows or all of row
            groups; they stop with this one.
        probabilities: the weight of each reader, at least 0; the sum need not be 1.
        seed: seed of the draws; with the seeds of the readers, it determines all rows. None: other
            draws at each start.

    Raises:
        ConfigError: the readers differ, or the probabilities are invalid.

    Attributes:
        seed: the seed of the draws since the last :meth:`reset`.
        schema: the fields of the rows, in the order of the first reader.
        ngram: that of all readers.
        batched_output: whether a row is a row group.
        fills_nulls: whether loaders read floats without a value as NaN: if any reader's do.
        num_epochs: None if a reader is endless, otherwise 1.
    """

    seed: int
    schema: Unischema
    ngram: NGram | None
    batched_output: bool
    fills_nulls: bool
    num_epochs: int | None
    _readers: list[Reader]
    #: The weight of each reader, and their shares of 1.
    _weights: npt.NDArray[np.float64]
    _shares: npt.NDArray[np.float64]
    _generator: np.random.Generator
    #: Whether a drawn reader had no more rows.
    _is_over: bool

    def __init__(
        self,
        readers: Sequence[Reader],
        probabilities: Sequence[float],
        seed: int | None = None,
    ) -> None:
        if len(readers) < 2:
            raise ConfigError(f"Two or more readers must be specified. Got {len(readers)}.")
        self._readers = list(readers)
        self._weights = _check_weights(probabilities, len(readers))
        self._shares = self._weights / self._weights.sum()
        first = readers[0]
        for other in readers[1:]:
            _check_same_rows(first, other)

        self.schema = first.schema
        self.ngram = first.ngram
        self.batched_output = first.batched_output
        self.fills_nulls = any(fills_nulls(reader) for reader in readers)
        has_endless = any(is_endless(reader) for reader in readers)
        self.num_epochs = None if has_endless else 1
        self._begin(secrets.randbits(63) if seed is None else seed)

    def _begin(self, seed: int) -> None:
        self.seed = seed
        self._generator = np.random.default_rng(derive_seed("weighted", seed))
        self._is_over = False

    # ------------------------------------------------------------------ iteration

    def __next__(self) -> Any:
        """Return the next row of a drawn reader.

        As in Petastorm, the end of that reader is the end of the rows.
        """
        if self._is_over:
            raise StopIteration
        number = self._generator.choice(len(self._readers), p=self._shares)
        try:
            return next(self._readers[number])
        except StopIteration:
            self._is_over = True
            raise

    def __len__(self) -> int:
        """Return the number of rows of all readers that are drawn; an iteration may end earlier.

        Raises:
            TypeError: a reader is endless.
        """
        n_rows = 0
        for reader, weight in zip(self._readers, self._weights, strict=True):
            if weight > 0:
                n_rows += len(reader)
        return n_rows

    @property
    def last_row_consumed(self) -> bool:
        """Whether a reader has no more rows."""
        return self._is_over or any(is_at_end(reader) for reader in self._readers)

    def reset(self) -> None:
        """Restart, with the next epoch of each reader and other draws."""
        for reader in self._readers:
            restart(reader)
        self._begin(derive_seed("another pass", self.seed))

    def stop(self) -> None:
        """Stop all readers."""
        for reader in self._readers:
            reader.stop()
            reader.join()


def _check_weights(probabilities: Sequence[float], n_readers: int) -> npt.NDArray[np.float64]:
    """Return the weights as an array, shape ``(n_readers,)``.

    Raises:
        ConfigError: they are not a finite number of at least 0 for each reader, or all are 0.
    """
    weights = np.array(probabilities, dtype=np.float64)
    has_one_each = weights.shape == (n_readers,)
    if not has_one_each or not np.isfinite(weights).all() or (weights < 0).any():
        raise ConfigError(
            f"expected {n_readers} probabilities, each at least 0, got {probabilities!r:.80}"
        )
    if not weights.any():
        raise ConfigError("at least one probability must be above 0")
    return weights


def _check_same_rows(first: Reader, other: Reader) -> None:
    """Refuse a reader whose rows have another form than those of the first reader.

    Raises:
        ConfigError: it has other fields, another n-gram, or row groups instead of rows.
    """
    if other.batched_output != first.batched_output or other.ngram != first.ngram:
        raise ConfigError("all readers must read rows, or all row groups, or all the same ngram")
    if set(other.schema.fields) != set(first.schema.fields):
        raise ConfigError("All readers should have the same schema: pass the same schema_fields=")
